//! Any damage to a dump's files is found before they are read.

use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

/// Damages a dump.
type Damage<T> = fn(&T);

/// A folder with one sealed dump: three files, one of them of several pieces.
struct SealedDump {
    folder: TempDir,
    id: DumpId,
}

impl SealedDump {
    fn new() -> Self {
        let (folder, id) = (tempfile::tempdir().unwrap(), DumpId::generate());
        let staged = stage(folder.path(), &id).unwrap();
        let mut pages: Vec<u8> = (0..PIECE_BYTES + 5000).map(|at| (at % 251) as u8).collect();
        pages.extend(vec![0; 4096]);
        fs::write(staged.join("pages-1.img"), pages).unwrap();
        fs::write(staged.join("core-1.img"), "first core").unwrap();
        fs::write(staged.join("core-2.img"), "other core").unwrap();
        fs::write(staged.join("empty.img"), "").unwrap();
        seal(folder.path(), &id, "about it", &NoDisk, &RecentlyVerified::never()).unwrap();
        Self { folder, id }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(self.id.as_str()).join(name)
    }

    fn open(&self) -> Result<Dump, DiskError> {
        open(self.folder.path(), &self.id, &RecentlyVerified::never())
    }

    /// The file that opening the dump reports as damaged.
    #[track_caller]
    fn blamed(&self) -> String {
        match self.open() {
            Err(DiskError::Damaged { what, file, .. }) => {
                assert_eq!(what, format!("dump `{}`", self.id));
                file
            }
            other => panic!("not found to be damaged: {other:?}"),
        }
    }
}

#[test]
fn a_bit_flipped_in_any_file_is_found_and_the_file_named() {
    let sealed = SealedDump::new();
    for name in ["pages-1.img", "core-1.img", "core-2.img"] {
        let whole = fs::read(sealed.file(name)).unwrap();
        for at in [0, whole.len() / 2, whole.len() - 4097.min(whole.len()), whole.len() - 1] {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << (at % 8);
            fs::write(sealed.file(name), flipped).unwrap();
            assert_eq!(sealed.blamed(), name, "flipped at {at}");
        }
        fs::write(sealed.file(name), whole).unwrap();
    }
    assert_eq!(sealed.open().unwrap().about, "about it");
}

#[test]
fn a_bit_flipped_anywhere_in_the_manifest_is_found() {
    let sealed = SealedDump::new();
    let whole = fs::read(sealed.file(MANIFEST)).unwrap();
    for at in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << (at % 8);
        fs::write(sealed.file(MANIFEST), flipped).unwrap();
        assert_eq!(sealed.blamed(), MANIFEST, "flipped at {at}");
    }
    for length in 0..whole.len() {
        fs::write(sealed.file(MANIFEST), &whole[..length]).unwrap();
        assert_eq!(sealed.blamed(), MANIFEST, "cut at {length}");
    }
}

#[test]
fn files_cut_short_grown_missing_or_exchanged_are_found() {
    let cases: [(&str, Damage<SealedDump>); 6] = [
        ("pages-1.img", |sealed| {
            File::options()
                .write(true)
                .open(sealed.file("pages-1.img"))
                .unwrap()
                .set_len(PIECE_BYTES)
                .unwrap();
        }),
        ("empty.img", |sealed| fs::write(sealed.file("empty.img"), "x").unwrap()),
        ("core-2.img", |sealed| fs::remove_file(sealed.file("core-2.img")).unwrap()),
        ("core-1.img", |sealed| {
            fs::rename(sealed.file("core-1.img"), sealed.file("x")).unwrap();
            fs::rename(sealed.file("core-2.img"), sealed.file("core-1.img")).unwrap();
            fs::rename(sealed.file("x"), sealed.file("core-2.img")).unwrap();
        }),
        (MANIFEST, |sealed| fs::remove_file(sealed.file(MANIFEST)).unwrap()),
        (MANIFEST, |sealed| {
            fs::remove_file(sealed.file(MANIFEST)).unwrap();
            symlink("/dev/zero", sealed.file(MANIFEST)).unwrap();
        }),
    ];
    for (blamed, damage) in cases {
        let sealed = SealedDump::new();
        damage(&sealed);
        assert_eq!(sealed.blamed(), blamed);
    }
}

#[test]
fn files_added_after_sealing_are_found() {
    let cases: [(&str, Damage<Path>); 4] = [
        ("aa.img", |path| fs::write(path, "x").unwrap()),
        ("zz.img", |path| fs::write(path, "x").unwrap()),
        ("dir", |path| fs::create_dir(path).unwrap()),
        ("link", |path| symlink("core-1.img", path).unwrap()),
    ];
    for (name, add) in cases {
        let sealed = SealedDump::new();
        add(&sealed.file(name));
        assert_eq!(sealed.blamed(), name);
    }
    let sealed = SealedDump::new();
    fs::rename(sealed.file("core-1.img"), sealed.folder.path().join("elsewhere")).unwrap();
    symlink("../elsewhere", sealed.file("core-1.img")).unwrap();
    assert_eq!(sealed.blamed(), "core-1.img", "a link is no file, wherever it leads");
}

/// A dump with this text as its manifest, sealed with the correct hash.
fn with_manifest(text: &str) -> SealedDump {
    let sealed = SealedDump::new();
    let text = format!("{text}{:032x}\n", XxHash3_128::oneshot(text.as_bytes()));
    fs::write(sealed.file(MANIFEST), text).unwrap();
    sealed
}

#[test]
fn a_newer_format_is_refused_by_its_number() {
    let sealed = with_manifest("burrow dump 2\nwhatever a later version\nwrites here\n");
    let refused = sealed.open().unwrap_err();
    assert!(matches!(&refused, DiskError::TooNew { dump, format: 2, known: 1 } if *dump == sealed.id));
    assert_eq!(
        refused.to_string(),
        format!("dump `{}` has format 2, and this version supports formats up to 1", sealed.id)
    );
    assert!(refused.hint().is_some());
}

/// Written by the first version. Every later version has to read it.
#[test]
fn a_dump_of_the_first_format_is_read() {
    let (folder, id) = (tempfile::tempdir().unwrap(), DumpId::generate());
    let path = folder.path().join(id.as_str());
    fs::create_dir(&path).unwrap();
    fs::write(path.join("core-1.img"), "first core").unwrap();
    fs::write(path.join("empty.img"), "").unwrap();
    fs::write(path.join("burrow-manifest"), include_str!("format-1.manifest")).unwrap();
    let dump = open(folder.path(), &id, &RecentlyVerified::never()).unwrap();
    assert_eq!((dump.about.as_str(), dump.bytes), ("about it", 10));
}

/// Both dumps are intact: only the id shows that this is not the requested one.
#[test]
fn an_older_dump_in_the_place_of_a_newer_one_is_found() {
    let (folder, older, newer) = (tempfile::tempdir().unwrap(), DumpId::generate(), DumpId::generate());
    for id in [&older, &newer] {
        let path = stage(folder.path(), id).unwrap();
        fs::write(path.join("core-1.img"), "core").unwrap();
        seal(folder.path(), id, "about it", &NoDisk, &RecentlyVerified::never()).unwrap();
        open(folder.path(), id, &RecentlyVerified::never()).unwrap();
    }
    fs::remove_dir_all(folder.path().join(newer.as_str())).unwrap();
    fs::rename(folder.path().join(older.as_str()), folder.path().join(newer.as_str())).unwrap();
    let error = open(folder.path(), &newer, &RecentlyVerified::never()).unwrap_err();
    assert!(error.to_string().contains(newer.as_str()), "{error}");
    assert!(error.to_string().contains("another dump"), "{error}");
}

#[test]
fn a_manifest_that_names_files_outside_the_dump_is_refused() {
    for name in ["../secret", "/etc/passwd", "..", ".", "", "a/b"] {
        let files = format!("[{{\"name\":\"{name}\",\"bytes\":0,\"hash\":\"\"}}]");
        let sealed = with_manifest(&format!("burrow dump 1\n{{\"about\":\"\",\"files\":{files}}}\n"));
        assert_eq!(sealed.blamed(), MANIFEST, "{name}");
    }
}

/// A disk on which one step fails.
#[derive(Debug, Default)]
struct FailingDisk {
    flush: bool,
    commit: bool,
    check: bool,
}

impl Disk for FailingDisk {
    fn flush(&self, _: &File) -> io::Result<()> {
        if self.flush { Err(io::Error::from_raw_os_error(libc::EIO)) } else { Ok(()) }
    }

    fn commit(&self) -> io::Result<()> {
        if self.commit { Err(io::Error::from_raw_os_error(libc::EIO)) } else { Ok(()) }
    }

    fn check(&self, _: &File) -> io::Result<()> {
        if self.check { Err(io::Error::from_raw_os_error(libc::EIO)) } else { Ok(()) }
    }
}

#[test]
fn a_write_that_failed_fails_the_dump_and_trying_again_does_not_bring_it_back() {
    let disks = [
        FailingDisk { flush: true, ..FailingDisk::default() },
        FailingDisk { commit: true, ..FailingDisk::default() },
        FailingDisk { check: true, ..FailingDisk::default() },
    ];
    for disk in disks {
        let (folder, id) = (tempfile::tempdir().unwrap(), DumpId::generate());
        let staged = stage(folder.path(), &id).unwrap();
        fs::write(staged.join("core-1.img"), "first core").unwrap();
        let failed = seal(folder.path(), &id, "", &disk, &RecentlyVerified::never()).unwrap_err();
        assert!(
            matches!(&failed, DiskError::Step { source, .. } if source.raw_os_error() == Some(libc::EIO)),
            "{failed:?}"
        );
        let again = seal(folder.path(), &id, "", &NoDisk, &RecentlyVerified::never());
        assert!(matches!(again, Err(DiskError::DumpNotFound { .. })), "{again:?}");
        assert_eq!(inventory(folder.path()).unwrap(), []);
    }
}

#[test]
fn pieces_hashed_side_by_side_give_the_same_as_one_after_the_other() {
    let items: Vec<usize> = (0..1000).collect();
    for threads in [0, 1, 4] {
        let done = side_by_side(threads, &items, || (), |(), item| Ok::<_, ()>(item * 2)).unwrap();
        assert!(done.iter().enumerate().all(|(at, answer)| *answer == at * 2));
        let failed =
            side_by_side(threads, &items, || (), |(), item| if *item == 7 { Err(*item) } else { Ok(()) });
        assert_eq!(failed, Err(7));
    }
}
