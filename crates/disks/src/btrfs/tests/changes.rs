//! Reported changes, compared with those that a walk of both trees finds.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::time::UNIX_EPOCH;

use burrow_model::{Change, ChangeKind, Changes, SnapshotId};
use rustix::fs::RenameFlags;

use super::*;

struct EditedSandbox {
    pool: TestPool,
    image: ImageId,
    id: SandboxId,
    rootfs: PathBuf,
    before: SnapshotId,
}

impl EditedSandbox {
    /// A sandbox with a few files, and a snapshot of it.
    async fn new() -> Self {
        let pool = TestPool::new();
        let (image, id, rootfs) = pool.sandbox(256 * MIB).await;
        for folder in ["a", "a/b", "c"] {
            fs::create_dir(rootfs.join(folder)).unwrap();
        }
        for file in ["top", "a/one", "a/b/two", "c/three"] {
            fs::write(rootfs.join(file), file.repeat(3000)).unwrap();
        }
        let before = SnapshotId::generate();
        pool.disks.snapshot((&before).into(), (&id).into()).await.unwrap();
        Self { pool, image, id, rootfs, before }
    }

    async fn changes(&self) -> Changes {
        let after = SnapshotId::generate();
        self.pool.disks.snapshot((&after).into(), (&self.id).into()).await.unwrap();
        self.pool.disks.changes(Some(&self.before), &after, &self.image, 1000, Effort::Whole).await.unwrap()
    }

    /// The changes, one a line: `+` added, `-` deleted, `*` changed.
    async fn shown(&self) -> String {
        let changes = self.changes().await;
        assert_eq!(changes.total, changes.paths.len() as u64);
        assert_eq!(changes.since.as_ref(), Some(&self.before));
        show(&changes.paths)
    }
}

fn show(changes: &[Change]) -> String {
    let line = |change: &Change| {
        let sign = match change.kind {
            ChangeKind::Added => '+',
            ChangeKind::Changed => '*',
            ChangeKind::Deleted => '-',
        };
        format!("{sign}{}", change.path)
    };
    changes.iter().map(line).collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn added_changed_and_deleted_files_are_distinguished() {
    let edited = EditedSandbox::new().await;
    let path = |name: &str| edited.rootfs.join(name);
    fs::write(path("new"), "").unwrap();
    fs::create_dir_all(path("d/e")).unwrap();
    fs::write(path("d/e/f"), "x").unwrap();
    fs::write(path("top"), "changed").unwrap();
    fs::remove_file(path("c/three")).unwrap();
    assert_eq!(edited.shown().await, "-/c/three +/d +/d/e +/d/e/f +/new */top");
}

#[tokio::test]
async fn owners_modes_attributes_and_links_count_and_times_do_not() {
    let edited = EditedSandbox::new().await;
    let path = |name: &str| edited.rootfs.join(name);
    fs::set_permissions(path("top"), Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::chown(path("a/one"), Some(100_001), None).unwrap();
    xattr::set(path("a/b"), "user.note", b"x").unwrap();
    let touched = File::options().write(true).open(path("a/b/two")).unwrap();
    touched.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    File::create(path("c/gone")).unwrap();
    fs::remove_file(path("c/gone")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", path("link")).unwrap();
    rustix::fs::mknodat(
        File::open(path("c")).unwrap(),
        "pipe",
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    assert_eq!(edited.shown().await, "*/a/b */a/one +/c/pipe +/link */top");
}

#[tokio::test]
async fn a_renamed_directory_is_deleted_and_added_with_its_content() {
    let edited = EditedSandbox::new().await;
    let path = |name: &str| edited.rootfs.join(name);
    fs::rename(path("a"), path("moved")).unwrap();
    fs::write(path("moved/b/more"), "x").unwrap();
    assert_eq!(
        edited.shown().await,
        "-/a -/a/b -/a/b/two -/a/one +/moved +/moved/b +/moved/b/more +/moved/b/two +/moved/one"
    );
}

/// The kernel sends these with temporary names like `o257-8-0`.
#[tokio::test]
async fn exchanged_names_are_changes_of_both_and_names_of_the_kernel_are_not_seen() {
    let edited = EditedSandbox::new().await;
    let root = File::open(&edited.rootfs).unwrap();
    rustix::fs::renameat_with(&root, "top", &root, "c/three", RenameFlags::EXCHANGE).unwrap();
    rustix::fs::renameat_with(&root, "a", &root, "c", RenameFlags::EXCHANGE).unwrap();
    // `three` (once `top`) is in `a` now.
    assert_eq!(
        edited.shown().await,
        "*/a -/a/b -/a/b/two -/a/one +/a/three */c +/c/b +/c/b/two +/c/one -/c/three */top"
    );
}

#[tokio::test]
async fn a_directory_moved_into_its_own_child_is_followed() {
    let edited = EditedSandbox::new().await;
    let path = |name: &str| edited.rootfs.join(name);
    fs::rename(path("a/b"), path("b")).unwrap();
    fs::rename(path("a"), path("b/a")).unwrap();
    fs::write(path("b/a/one"), "changed").unwrap();
    assert_eq!(edited.shown().await, "-/a -/a/b -/a/b/two -/a/one +/b +/b/a +/b/a/one +/b/two");
}

#[tokio::test]
async fn a_file_with_two_names_changes_under_both() {
    let edited = EditedSandbox::new().await;
    let path = |name: &str| edited.rootfs.join(name);
    fs::hard_link(path("top"), path("c/also")).unwrap();
    let between = SnapshotId::generate();
    edited.pool.disks.snapshot((&between).into(), (&edited.id).into()).await.unwrap();
    assert_eq!(edited.shown().await, "+/c/also", "another name is no change of the file");
    fs::write(path("top"), "changed").unwrap();
    let after = SnapshotId::generate();
    edited.pool.disks.snapshot((&after).into(), (&edited.id).into()).await.unwrap();
    let changes =
        edited.pool.disks.changes(Some(&between), &after, &edited.image, 9, Effort::Whole).await.unwrap();
    assert_eq!(show(&changes.paths), "*/c/also */top");
}

#[tokio::test]
async fn a_replaced_file_is_changed_and_files_beside_the_root_are_not_reported() {
    let edited = EditedSandbox::new().await;
    let path = |name: &str| edited.rootfs.join(name);
    fs::write(path("top.tmp"), "saved").unwrap();
    fs::rename(path("top.tmp"), path("top")).unwrap();
    fs::remove_dir_all(path("c")).unwrap();
    std::os::unix::fs::symlink("/etc", path("c")).unwrap();
    fs::write(edited.rootfs.parent().unwrap().join("ours"), "x").unwrap();
    assert_eq!(edited.shown().await, "*/c -/c/three */top");
}

#[tokio::test]
async fn no_more_paths_are_listed_than_asked_for_and_all_are_counted() {
    let edited = EditedSandbox::new().await;
    for file in 0..50 {
        fs::write(edited.rootfs.join(format!("file-{file:02}")), "x").unwrap();
    }
    let after = SnapshotId::generate();
    edited.pool.disks.snapshot((&after).into(), (&edited.id).into()).await.unwrap();
    let changes = edited
        .pool
        .disks
        .changes(Some(&edited.before), &after, &edited.image, 2, Effort::Whole)
        .await
        .unwrap();
    assert_eq!((changes.total, show(&changes.paths).as_str()), (50, "+/file-00 +/file-01"));
    let none = edited
        .pool
        .disks
        .changes(Some(&edited.before), &after, &edited.image, 0, Effort::Whole)
        .await
        .unwrap();
    assert_eq!((none.total, none.paths.len()), (50, 0));
}

#[tokio::test]
async fn a_disk_is_not_removed_during_a_comparison() {
    let edited = EditedSandbox::new().await;
    let after = SnapshotId::generate();
    for file in 0..2000 {
        fs::write(edited.rootfs.join(format!("file-{file}")), "x").unwrap();
    }
    edited.pool.disks.snapshot((&after).into(), (&edited.id).into()).await.unwrap();
    let disks = &edited.pool.disks;
    let (compared, removed) = tokio::join!(
        disks.changes(Some(&edited.before), &after, &edited.image, 1, Effort::Whole),
        disks.remove((&after).into())
    );
    removed.unwrap();
    // Whichever finished first.
    match compared {
        Ok(changes) => assert_eq!(changes.total, 2000),
        Err(DiskError::NotFound { disk: DiskId::Snapshot(snapshot) }) => assert_eq!(snapshot, after),
        Err(other) => panic!("{other:?}"),
    }
}

/// A process inside can create paths longer than the kernel accepts in one call, by descending step by step.
#[tokio::test]
async fn paths_too_long_to_compare_cost_the_list_and_not_the_snapshot() {
    let edited = EditedSandbox::new().await;
    let name = "x".repeat(250);
    let mut at = std::os::fd::OwnedFd::from(File::open(&edited.rootfs).unwrap());
    for _ in 0..20 {
        rustix::fs::mkdirat(&at, &name, rustix::fs::Mode::RWXU).unwrap();
        let flags = rustix::fs::OFlags::DIRECTORY;
        at = rustix::fs::openat(&at, &name, flags, rustix::fs::Mode::empty()).unwrap();
    }
    let after = SnapshotId::generate();
    let disks = &edited.pool.disks;
    disks.snapshot((&after).into(), (&edited.id).into()).await.unwrap();
    match disks.changes(Some(&edited.before), &after, &edited.image, 1, Effort::Whole).await {
        Ok(changes) => assert!(changes.total >= 15, "those short enough are there: {changes:?}"),
        Err(DiskError::Step { .. }) => {}
        Err(other) => panic!("{other:?}"),
    }
    disks.replace((&edited.id).into(), (&after).into(), MIB).await.unwrap();
    disks.remove((&after).into()).await.unwrap();
}

#[tokio::test]
async fn a_frozen_sandbox_is_compared_with_what_it_was_made_from_with_times_if_asked() {
    let edited = EditedSandbox::new().await;
    let (disks, frozen) = (&edited.pool.disks, SnapshotId::generate());
    fs::write(edited.rootfs.join("top"), "changed").unwrap();
    fs::write(edited.rootfs.join(std::ffi::OsStr::from_bytes(b"new-\xff")), "x").unwrap();
    let touched = File::options().write(true).open(edited.rootfs.join("a/b/two")).unwrap();
    touched.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    // The new name may have been created in the same tick of the clock as the older ones.
    File::open(&edited.rootfs).unwrap().set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    disks.snapshot(DiskId::Frozen(frozen.clone()), (&edited.id).into()).await.unwrap();
    fs::write(edited.rootfs.join("later"), "not in it").unwrap();
    let (old, new) = (Tree::Snapshot(edited.before.clone()), Tree::Frozen(frozen.clone()));
    let compared = |times| {
        let (old, new) = (old.clone(), new.clone());
        async move { disks.compare(&old, &new, times).await.unwrap() }
    };
    let path = |path: &[u8], kind| ChangedPath { path: path.to_vec(), kind, written: false };
    let top = ChangedPath { written: true, ..path(b"/top", ChangeKind::Changed) };
    let written = [path(b"/new-\xff", ChangeKind::Added), top];
    assert_eq!(compared(TimeComparison::Ignored).await, Comparison { paths: written.to_vec(), more: false });
    let timed = [path(b"/", ChangeKind::Changed), path(b"/a/b/two", ChangeKind::Changed)];
    let all = timed.into_iter().chain(written).collect();
    assert_eq!(compared(TimeComparison::Count).await, Comparison { paths: all, more: false });
    let read = disks.locate((&new).into()).await.unwrap();
    assert_eq!(fs::read(read.join("top")).unwrap(), b"changed");
    disks.remove(DiskId::Frozen(frozen.clone())).await.unwrap();
    assert!(!read.exists());
}

#[tokio::test]
async fn all_names_of_a_file_are_returned_and_none_of_a_directory() {
    let edited = EditedSandbox::new().await;
    let disks = &edited.pool.disks;
    fs::hard_link(edited.rootfs.join("top"), edited.rootfs.join("a/b/also")).unwrap();
    let frozen = SnapshotId::generate();
    disks.sync(&edited.id).await.unwrap();
    disks.snapshot(DiskId::Frozen(frozen.clone()), (&edited.id).into()).await.unwrap();
    let tree = Tree::Frozen(frozen);
    let mut names = disks.names_of(&tree, b"/top").await.unwrap();
    names.sort();
    assert_eq!(names, [b"/a/b/also".to_vec(), b"/top".to_vec()]);
    assert_eq!(disks.names_of(&tree, b"/a/one").await.unwrap(), [b"/a/one".to_vec()]);
    for none in [&b"/a"[..], b"/", b"/missing"] {
        assert_eq!(disks.names_of(&tree, none).await.unwrap(), Vec::<Vec<u8>>::new());
    }
}

// === random edits ===

/// The state of one path in a walk.
#[derive(Debug, PartialEq, Eq)]
struct PathState {
    identity: (u64, Option<std::time::SystemTime>),
    mode: u32,
    owner: u32,
    content: Option<Vec<u8>>,
    note: Option<Vec<u8>>,
}

fn walk(root: &Path) -> BTreeMap<String, PathState> {
    let (mut found, mut left) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let seen = fs::symlink_metadata(&path).unwrap();
            let content = if seen.is_dir() {
                left.push(path.clone());
                None
            } else if seen.is_symlink() {
                Some(fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes())
            } else {
                Some(fs::read(&path).unwrap())
            };
            let walked = PathState {
                identity: (seen.ino(), seen.created().ok()),
                mode: seen.mode(),
                owner: seen.uid(),
                content,
                note: xattr::get(&path, "user.note").ok().flatten(),
            };
            found.insert(format!("/{}", path.strip_prefix(root).unwrap().display()), walked);
        }
    }
    found
}

fn expected(before: &Path, after: &Path) -> Vec<Change> {
    let (before, after) = (walk(before), walk(after));
    let mut changes = BTreeMap::new();
    for (path, old) in &before {
        match after.get(path) {
            None => drop(changes.insert(path.clone(), ChangeKind::Deleted)),
            Some(new) if new != old => drop(changes.insert(path.clone(), ChangeKind::Changed)),
            Some(_) => {}
        }
    }
    let added = after.keys().filter(|path| !before.contains_key(*path));
    changes.extend(added.map(|path| (path.clone(), ChangeKind::Added)));
    changes.into_iter().map(|(path, kind)| Change { path, kind }).collect()
}

/// A reproducible sequence.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    /// A path of at most four components out of few names, so that edits affect each other.
    fn path(&mut self, root: &Path) -> PathBuf {
        let mut path = root.to_owned();
        for _ in 0..=self.below(4) {
            path.push(["p", "q", "r", "s"][self.below(4)]);
        }
        path
    }
}

/// One edit; an impossible edit does nothing. No content is ever written twice.
fn edit(random: &mut Random, root: &Path, number: usize) {
    let (path, other) = (random.path(root), random.path(root));
    let content = format!("{number} ").repeat(1 + random.below(2000));
    let _ = match random.below(12) {
        0 | 1 => fs::create_dir_all(&path),
        2 | 3 => fs::write(&path, content),
        4 => File::options().append(true).open(&path).and_then(|mut file| file.write_all(content.as_bytes())),
        5 => fs::rename(&path, &other),
        6 => {
            let root = File::open(root).unwrap();
            rustix::fs::renameat_with(&root, &path, &root, &other, RenameFlags::EXCHANGE).map_err(Into::into)
        }
        7 => fs::remove_file(&path),
        8 => fs::remove_dir_all(&path),
        9 => fs::hard_link(&path, &other),
        10 => std::os::unix::fs::symlink(format!("/{number}"), &path),
        _ => xattr::set(&path, "user.note", &content.as_bytes()[..3]),
    };
}

#[tokio::test]
async fn after_random_edits_the_changes_are_those_a_walk_finds() {
    let pool = TestPool::new();
    let (image, id, rootfs) = pool.sandbox(256 * MIB).await;
    let mut number = 0;
    let mut taken: Vec<SnapshotId> = Vec::new();
    for seed in 0..60 {
        let mut random = Random(seed);
        for _ in 0..random.below(60) {
            number += 1;
            edit(&mut random, &rootfs, number);
        }
        let snapshot = SnapshotId::generate();
        pool.disks.snapshot((&snapshot).into(), (&id).into()).await.unwrap();
        let after = pool.disks.locate((&snapshot).into()).await.unwrap();
        // Compared with the image, the previous snapshot, and any other: also one of another branch of the sandbox's history.
        let image_root = pool.disks.locate((&image).into()).await.unwrap();
        let others = [None, taken.last().cloned(), taken.get(random.below(taken.len().max(1))).cloned()];
        for from in others {
            let before = match &from {
                Some(from) => pool.disks.locate(from.into()).await.unwrap(),
                None => image_root.clone(),
            };
            let changes = pool
                .disks
                .changes(from.as_ref(), &snapshot, &image, usize::MAX, Effort::Whole)
                .await
                .unwrap();
            let (found, wanted) = (show(&changes.paths), show(&expected(&before, &after)));
            assert_eq!(found, wanted, "with the seed {seed}, from {from:?}");
        }
        taken.push(snapshot);
        if random.below(5) == 0 {
            let back = &taken[random.below(taken.len())];
            pool.disks.replace((&id).into(), back.into(), 256 * MIB).await.unwrap();
        }
    }
}

/// One edit of a usual kind: of existing files, or of new files beside them.
fn usual_edit(random: &mut Random, root: &Path, number: usize) {
    let path = root.join(format!("d{}/f{}", random.below(3), random.below(12)));
    let content = format!("{number} ").repeat(1 + random.below(2000));
    let _ = match random.below(12) {
        0..4 => fs::write(&path, content),
        4 => File::options().append(true).open(&path).and_then(|mut file| file.write_all(content.as_bytes())),
        5 => fs::remove_file(&path),
        6 => fs::set_permissions(&path, fs::Permissions::from_mode(0o600 + random.below(64) as u32)),
        7 => xattr::set(&path, "user.note", &content.as_bytes()[..3]),
        8 => {
            // As most editors save a file.
            let passing = root.join("d0/.passing");
            fs::write(&passing, content).and_then(|()| fs::rename(&passing, &path))
        }
        9 => File::options().write(true).open(&path).and_then(|file| file.set_len(0)),
        10 => File::options().append(true).open(&path).and_then(|file| file.set_modified(UNIX_EPOCH)),
        _ => share(&root.join(format!("d{}/f{}", random.below(3), random.below(12))), &path),
    };
}

/// Shares content that is older than the file that shares it.
fn share(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (File::open(from)?, File::create(to)?);
    Ok(rustix::fs::ioctl_ficlone(&to, &from)?)
}

#[tokio::test]
async fn after_usual_edits_a_search_by_age_finds_what_a_walk_finds() {
    let pool = TestPool::new();
    let (image, id, rootfs) = pool.sandbox(256 * MIB).await;
    for folder in ["d0", "d1", "d2"] {
        fs::create_dir(rootfs.join(folder)).unwrap();
        (0..8).for_each(|file| fs::write(rootfs.join(folder).join(format!("f{file}")), folder).unwrap());
    }
    let mut number = 0;
    let (mut told, mut before) = (0, SnapshotId::generate());
    pool.disks.snapshot((&before).into(), (&id).into()).await.unwrap();
    for seed in 0..80 {
        let mut random = Random(seed);
        for _ in 0..random.below(8) {
            number += 1;
            usual_edit(&mut random, &rootfs, number);
        }
        let after = SnapshotId::generate();
        pool.disks.snapshot((&after).into(), (&id).into()).await.unwrap();
        let [old, new] = [&before, &after].map(|id| pool.disks.inner.open(&id.into()).unwrap());
        told += u32::from(younger::find(&old, &new).unwrap().is_some());
        let changes =
            pool.disks.changes(Some(&before), &after, &image, usize::MAX, Effort::Whole).await.unwrap();
        let roots = [
            pool.disks.locate((&before).into()).await.unwrap(),
            pool.disks.locate((&after).into()).await.unwrap(),
        ];
        let (found, wanted) = (show(&changes.paths), show(&expected(&roots[0], &roots[1])));
        assert_eq!(found, wanted, "with the seed {seed}");
        before = after;
    }
    // Changes of times alone, or of shared content, are left to the stream.
    assert!((20..80).contains(&told), "{told} of 80 were found by age");
}

#[tokio::test]
async fn disks_without_a_common_snapshot_are_not_compared_by_age() {
    let pool = TestPool::new();
    let (_, id, rootfs) = pool.sandbox(64 * MIB).await;
    let [first, second, third] = [(); 3].map(|()| SnapshotId::generate());
    pool.disks.snapshot((&first).into(), (&id).into()).await.unwrap();
    fs::write(rootfs.join("one"), "1").unwrap();
    pool.disks.snapshot((&second).into(), (&id).into()).await.unwrap();
    pool.disks.replace((&id).into(), (&first).into(), 64 * MIB).await.unwrap();
    pool.disks.snapshot((&third).into(), (&id).into()).await.unwrap();
    let [first, second, third] =
        [first, second, third].map(|id| pool.disks.inner.open(&(&id).into()).unwrap());
    let is_told = |old, new| younger::find(old, new).unwrap().is_some();
    assert!(is_told(&first, &second), "a later one of the same disk");
    assert!(is_told(&first, &third), "one of a disk that was made from it");
    assert!(!is_told(&second, &first), "an earlier one");
    assert!(!is_told(&second, &third), "one of another branch");
}
