//! Archives that try to write, link or remove outside of their root, to exhaust resources, or to be ambiguous.

use super::*;

/// A root with a file next to it that must not change.
struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("root")).unwrap();
        fs::create_dir(folder.path().join("outside")).unwrap();
        fs::write(folder.path().join("outside/victim"), "untouched").unwrap();
        fs::write(folder.path().join("victim"), "untouched").unwrap();
        Self { folder }
    }

    fn root(&self) -> std::path::PathBuf {
        self.folder.path().join("root")
    }

    fn outside(&self) -> String {
        self.folder.path().join("outside").to_str().unwrap().to_owned()
    }

    /// Applies layers, and checks that nothing outside has changed, whatever the result.
    #[track_caller]
    fn apply(&self, layers: &[Vec<u8>]) -> Result<(), ImageError> {
        let outside = || {
            let mut tree = describe(self.folder.path());
            tree.retain(|path, _| !path.starts_with("root"));
            tree
        };
        let before = outside();
        let result = layers.iter().try_for_each(|layer| apply(&self.root(), layer).map(|_| ()));
        assert_eq!(before, outside(), "something outside of the root changed");
        result
    }
}

#[track_caller]
fn check_refused(layers: &[Vec<u8>], word: &str) {
    let scene = Scene::new();
    let error = scene.apply(layers).unwrap_err();
    assert!(error.to_string().contains(word), "{error}");
    assert!(error.hint().is_some() || matches!(error, ImageError::Place { .. }), "{error}");
}

#[test]
fn names_that_leave_the_root_are_refused() {
    check_refused(&[Tar::default().file("../victim", "x").end()], "`..`");
    check_refused(&[Tar::default().file("a/../../victim", "x").end()], "`..`");
    check_refused(&[Tar::default().file("/etc/victim", "x").end()], "absolute");
    check_refused(&[Tar::default().directory("..").end()], "`..`");
    check_refused(&[Tar::default().symlink("../link", "x").end()], "`..`");
    let pax = Raw { pax: &[("path", b"../victim")], ..Raw::new(EntryType::Regular, "innocent") };
    check_refused(&[Tar::default().raw(&pax).end()], "`..`");
    let zero = Raw { pax: &[("path", b"a\0b")], ..Raw::new(EntryType::Regular, "innocent") };
    check_refused(&[Tar::default().raw(&zero).end()], "NUL byte");
}

#[test]
fn links_are_followed_within_the_root_only() {
    for target in ["/outside", "../outside", "../../../../../../../outside", "./../outside"] {
        let scene = Scene::new();
        let absolute = scene.outside();
        for target in [target, &absolute] {
            let layer = Tar::default().symlink("link", target).file("link/victim", "inside").end();
            scene.apply(&[layer]).unwrap();
        }
        assert_eq!(fs::read(scene.root().join("outside/victim")).unwrap(), b"inside");
    }
    // In separate layers, too.
    let scene = Scene::new();
    let layers = [
        Tar::default().symlink("link", &scene.outside()).end(),
        Tar::default()
            .file("link/victim", "inside")
            .directory("link/made/")
            .file("link/.wh.victim", "")
            .end(),
        Tar::default().file("link/.wh..wh..opq", "").end(),
    ];
    scene.apply(&layers).unwrap();
}

#[test]
fn the_last_part_of_a_name_is_never_followed() {
    let scene = Scene::new();
    let victim = format!("{}/victim", scene.outside());
    let layer = Tar::default()
        .symlink("a", &victim)
        .file("a", "file upon link")
        .symlink("b", &scene.outside())
        .directory("b/")
        .symlink("c", &victim)
        .symlink("c", "elsewhere")
        .symlink("d", &victim)
        .raw(&Raw::new(EntryType::Fifo, "d"))
        .symlink("e", &victim)
        .raw(&Raw::new(EntryType::Char, "e"))
        .symlink("f", &victim)
        .file(".wh.f", "")
        .end();
    scene.apply(&[layer]).unwrap();
    let kind = |name: &str| fs::symlink_metadata(scene.root().join(name)).unwrap().file_type();
    assert!(kind("a").is_file() && kind("b").is_dir() && kind("c").is_symlink());
    assert_eq!(fs::read(scene.root().join("a")).unwrap(), b"file upon link");
    // The same, if the links are in a lower layer.
    let scene = Scene::new();
    let lower =
        Tar::default().symlink("a", &victim).symlink("b", &scene.outside()).symlink("f", &victim).end();
    let upper = Tar::default().file("a", "x").directory("b/").file("b/victim", "y").file(".wh.f", "").end();
    scene.apply(&[lower, upper]).unwrap();
    assert!(!scene.root().join("f").exists());
}

#[test]
fn hard_links_to_the_outside_are_refused() {
    check_refused(&[Tar::default().hard_link("h", "../victim").end()], "outside of the image");
    check_refused(&[Tar::default().hard_link("h", "/etc/passwd").end()], "outside of the image");
    let scene = Scene::new();
    let through = Tar::default().symlink("l", &scene.outside()).hard_link("h", "l/victim").end();
    assert!(scene.apply(&[through]).is_err());
    check_refused(&[Tar::default().hard_link("h", "missing").end()], "does not exist");
    check_refused(&[Tar::default().directory("d/").hard_link("h", "d").end()], "directory");
    check_refused(&[Tar::default().hard_link("h", ".").end()], "directories");
    // To a link: another name for the link itself. Writing to that name later replaces the name.
    let scene = Scene::new();
    let layer = Tar::default()
        .symlink("s", &format!("{}/victim", scene.outside()))
        .hard_link("h", "s")
        .file("h", "mine")
        .hard_link("s", "s")
        .end();
    scene.apply(&[layer]).unwrap();
    assert!(fs::symlink_metadata(scene.root().join("s")).unwrap().file_type().is_symlink());
}

#[test]
fn whiteouts_of_no_name_and_of_the_root_are_refused() {
    for name in [".wh..", ".wh...", ".wh.", "a/.wh..", "a/.wh..."] {
        check_refused(&[Tar::default().file(name, "").end()], "whiteout");
    }
    check_refused(&[Tar::default().file(".wh.a/b", "").end()], "whiteout");
    let scene = Scene::new();
    scene
        .apply(&[Tar::default().file("a", "x").end(), Tar::default().file(".wh..wh.plnk/7", "").end()])
        .unwrap();
    assert!(scene.root().join("a").exists() && !scene.root().join(".wh..wh.plnk").exists());
}

#[test]
fn ambiguous_archives_are_refused() {
    let two_sizes = Raw { content: b"ab", pax: &[("size", b"1")], ..Raw::new(EntryType::Regular, "a") };
    check_refused(&[Tar::default().raw(&two_sizes).end()], "two different sizes");
    let twice = Raw { pax: &[("path", b"a"), ("path", b"b")], ..Raw::new(EntryType::Regular, "a") };
    check_refused(&[Tar::default().raw(&twice).end()], "twice");
    let sized_link =
        Raw { link: "x", size: Some(512), content: &[0; 512], ..Raw::new(EntryType::Symlink, "a") };
    check_refused(&[Tar::default().raw(&sized_link).end()], "has a size");
    let global = Raw { content: b"12 path=abc\n", ..Raw::new(EntryType::XGlobalHeader, "g") };
    check_refused(&[Tar::default().raw(&global).file("b", "x").end()], "global");
    check_refused(&[Tar::default().raw(&Raw::new(EntryType::new(b'Z'), "a")).end()], "unknown type");
    let mut damaged = Tar::default().file("a", "x").end();
    damaged[0] = b'b';
    check_refused(&[damaged], "checksum");
    let mut cut = Tar::default().file("a", &"x".repeat(5000)).end();
    cut.truncate(3000);
    check_refused(&[cut], "truncated");
    let far = Raw { size: Some(u64::MAX / 2), ..Raw::new(EntryType::Regular, "a") };
    check_refused(&[Tar::default().raw(&far).end()], "bytes of file content");
}

#[test]
fn owners_that_do_not_exist_inside_are_refused() {
    for id in [65_536, 1_000_000, u64::from(u32::MAX)] {
        let raw = Raw { uid: id, ..Raw::new(EntryType::Regular, "a") };
        check_refused(&[Tar::default().raw(&raw).end()], "owner");
        let raw = Raw { gid: id, link: "x", ..Raw::new(EntryType::Symlink, "a") };
        check_refused(&[Tar::default().raw(&raw).end()], "owner");
    }
}

#[test]
fn device_nodes_are_dropped_and_their_links_are_content() {
    let scene = Scene::new();
    let layer = Tar::default()
        .directory("dev/")
        .raw(&Raw::new(EntryType::Char, "dev/mem"))
        .raw(&Raw::new(EntryType::Block, "dev/sda"))
        .symlink("dev/null", "/etc/passwd")
        .symlink("proc", "/")
        .symlink("sys", "../..")
        .end();
    scene.apply(&[layer]).unwrap();
    assert!(!scene.root().join("dev/mem").exists() && !scene.root().join("dev/sda").exists());
    assert_eq!(fs::read_link(scene.root().join("dev/null")).unwrap(), Path::new("/etc/passwd"));
}

#[test]
fn entries_and_bytes_are_limited() {
    let root = tempfile::tempdir().unwrap();
    let mut tar = Tar::default();
    for number in 0..101 {
        tar = tar.file(&format!("{number}"), "");
    }
    let limits = ApplyLimits { entries: 100, bytes: 1 << 20 };
    let error = apply_with(root.path(), &tar.end(), 0, limits).unwrap_err();
    assert!(matches!(error, ImageError::TooLarge { limit: 100, .. }), "{error}");
    let large = Tar::default().file("a", &"x".repeat(2 << 20)).end();
    assert!(matches!(apply_with(root.path(), &large, 0, limits), Err(ImageError::TooLarge { .. })));
    // A file of holes takes no space in the archive or on the disk, but a program that reads it needs time and RAM.
    let holes = [
        ("GNU.sparse.major", &b"0"[..]),
        ("GNU.sparse.minor", b"1"),
        ("GNU.sparse.size", b"1099511627776"),
        ("GNU.sparse.map", b""),
    ];
    let sparse = Tar::default().raw(&Raw { pax: &holes, ..Raw::new(EntryType::Regular, "s") }).end();
    assert!(matches!(apply_with(root.path(), &sparse, 0, limits), Err(ImageError::TooLarge { .. })));
}

#[test]
fn a_compression_bomb_is_limited() {
    let root = tempfile::tempdir().unwrap();
    let bomb = Tar::default().file("zeros", &"\0".repeat(64 << 20)).end();
    let packed = crate::testing::compress(&bomb, Compression::Gzip);
    assert!(packed.len() * 100 < bomb.len());
    use std::os::fd::AsFd;
    let folder = fs::File::open(root.path()).unwrap();
    let options = ApplyOptions {
        compression: Compression::Gzip,
        expected: DiffId(Digest::of(&bomb)),
        uid_shift: 0,
        uid_count: 65_536,
        limits: ApplyLimits { entries: 10, bytes: 16 << 20 },
        cancelled: &AtomicBool::new(false),
        progress: &|_| {},
    };
    let error = apply_to(&packed, folder.as_fd(), &options).unwrap_err();
    assert!(matches!(error, ImageError::TooLarge { .. }), "{error}");
}

#[test]
fn a_repeated_name_replaces_the_first() {
    let scene = Scene::new();
    let layer = Tar::default()
        .file("x", "file")
        .directory("x/")
        .file("x/inside", "1")
        .file("x", "file again")
        .file("y", "1")
        .file("y", "2")
        .file("./y", "3")
        .symlink("x", "y")
        .end();
    scene.apply(&[layer]).unwrap();
    assert_eq!(fs::read(scene.root().join("x")).unwrap(), b"3");
}

#[test]
fn files_as_parents_and_circular_links_are_refused() {
    check_refused(&[Tar::default().file("a", "x").file("a/b", "y").end()], "not a directory");
    check_refused(
        &[Tar::default().symlink("a", "b").symlink("b", "a").file("a/c", "y").end()],
        "too many levels",
    );
    let deep = "d/".repeat(300);
    let raw = Raw { pax: &[("path", deep.as_bytes())], ..Raw::new(EntryType::Directory, "d") };
    check_refused(&[Tar::default().raw(&raw).end()], "too deeply");
    let file = Raw::new(EntryType::Regular, ".");
    check_refused(&[Tar::default().raw(&file).end()], "only a directory");
}

#[test]
fn a_link_to_a_missing_directory_creates_it_inside() {
    let scene = Scene::new();
    let layer = Tar::default()
        .symlink("run", "/var/run/./deep/../real")
        .file("run/pid", "1")
        .symlink("up", "../../..")
        .file("up/top", "2")
        .end();
    scene.apply(&[layer]).unwrap();
    assert_eq!(fs::read(scene.root().join("var/run/real/pid")).unwrap(), b"1");
    assert_eq!(fs::read(scene.root().join("top")).unwrap(), b"2");
}

#[test]
fn malformed_and_repeated_attributes_are_refused() {
    let broken: [&[(&str, &[u8])]; 3] = [
        &[("SCHILY.xattr.security.capability", b"short")],
        &[("SCHILY.xattr.system.posix_acl_access", b"short")],
        &[("SCHILY.xattr.user.a", b"1"), ("SCHILY.xattr.user.a", b"2")],
    ];
    for pax in broken {
        let raw = Raw { pax, ..Raw::new(EntryType::Regular, "a") };
        let scene = Scene::new();
        assert!(scene.apply(&[Tar::default().raw(&raw).end()]).is_err());
    }
}
