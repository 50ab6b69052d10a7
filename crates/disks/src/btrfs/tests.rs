//! The driver on a real kernel: files, quotas, crashes, a full pool. Needs root, and a loop device per test.

mod changes;
mod disks;
mod dumps;
mod small_disk;
mod snapshots;

use std::fs;
use std::io::Write;
use std::time::{Duration, Instant};

use burrow_model::ImageId;
use tempfile::TempDir;

use super::*;
use crate::command::{command, run};
use crate::{
    ChangedPath, Comparison, DiskId, Disks, Effort, Inventory, Space, TimeComparison, Tree, conformance,
};

const MIB: u64 = 1 << 20;

/// A pool for one test, removed with it.
struct TestPool {
    disks: Arc<BtrfsDisks>,
    folder: TempDir,
}

impl TestPool {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let disks = BtrfsDisks::open(options(folder.path())).unwrap();
        Self { disks, folder }
    }

    fn reopen(&mut self) {
        self.disks = BtrfsDisks::open(options(self.folder.path())).unwrap();
    }

    /// A sealed image with one file, `greeting`, and a sandbox created from it.
    async fn sandbox(&self, disk_bytes: u64) -> (ImageId, SandboxId, PathBuf) {
        let (image, id) = (ImageId::generate(), SandboxId::generate());
        let staged = self.disks.stage((&image).into(), None).await.unwrap();
        fs::write(staged.join("greeting"), "hello").unwrap();
        self.disks.seal((&image).into()).await.unwrap();
        let rootfs = self.disks.create((&id).into(), Some((&image).into()), disk_bytes).await.unwrap();
        (image, id, rootfs)
    }
}

impl Drop for TestPool {
    fn drop(&mut self) {
        let unmounted = self.disks.unmount();
        if !std::thread::panicking() {
            unmounted.unwrap();
        }
    }
}

fn options(folder: &Path) -> Options {
    let pool = PoolSource::LoopFile { file: folder.join("pool.btrfs"), size_bytes: 4 * POOL_BYTES_MIN };
    Options { pool, mount: folder.join("pool") }
}

/// Writes `mib` mebibytes of incompressible data to the disk. Returns the error that stopped it.
fn fill(path: &Path, mib: u64) -> io::Result<()> {
    let mut file = File::create(path)?;
    let mut block = vec![0u8; MIB as usize];
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    for _ in 0..mib {
        for word in block.chunks_exact_mut(8) {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            word.copy_from_slice(&seed.to_ne_bytes());
        }
        file.write_all(&block)?;
    }
    file.sync_all()
}

/// Waits until `condition` holds, for as long as the kernel may take to free deleted extents on a busy machine.
#[track_caller]
fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "did not happen within a minute: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[tokio::test]
async fn btrfs_keeps_the_promises_of_the_seam() {
    let pool = TestPool::new();
    conformance::all(&*pool.disks).await;
    let shared: Arc<dyn Disks> = pool.disks.clone();
    conformance::concurrent(shared).await;
}

#[tokio::test]
async fn a_sandbox_starts_with_the_files_of_its_image_and_never_changes_it() {
    let pool = TestPool::new();
    let (image, _, rootfs) = pool.sandbox(64 * MIB).await;
    assert_eq!(fs::read_to_string(rootfs.join("greeting")).unwrap(), "hello");
    fs::write(rootfs.join("greeting"), "changed").unwrap();

    let second =
        pool.disks.create((&SandboxId::generate()).into(), Some((&image).into()), 64 * MIB).await.unwrap();
    assert_eq!(fs::read_to_string(second.join("greeting")).unwrap(), "hello");
    let sealed = pool.disks.root().join("images").join(image.as_str()).join("rootfs/greeting");
    assert_eq!(fs::write(sealed, "no").unwrap_err().kind(), io::ErrorKind::ReadOnlyFilesystem);
}

#[tokio::test]
async fn a_staged_image_is_emptied_when_it_is_staged_again() {
    let pool = TestPool::new();
    let image = ImageId::generate();
    let rootfs = pool.disks.stage((&image).into(), None).await.unwrap();
    fs::write(rootfs.join("half"), "made").unwrap();
    let again = pool.disks.stage((&image).into(), None).await.unwrap();
    assert_eq!(fs::read_dir(again).unwrap().count(), 0);
}

#[tokio::test]
async fn writing_past_the_quota_fails_and_removing_makes_room_again() {
    let pool = TestPool::new();
    let (_, id, rootfs) = pool.sandbox(16 * MIB).await;
    let error = fill(&rootfs.join("big"), 24).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::QuotaExceeded, "{error}");
    let used = pool.disks.used((&id).into()).await.unwrap();
    assert!(used <= 16 * MIB, "{used} bytes are charged");

    fs::remove_file(rootfs.join("big")).unwrap();
    // Space that was freed is charged until the transaction that freed it is committed.
    ioctl::commit(&pool.disks.inner.pool.directory).unwrap();
    fill(&rootfs.join("small"), 4).unwrap();

    pool.disks.set_quota(&id, 48 * MIB).await.unwrap();
    fill(&rootfs.join("big"), 24).unwrap();
    let (inner, owner) = (&pool.disks.inner, Owner::Sandbox(id));
    eventually("the new data is charged", || {
        (28 * MIB..=48 * MIB).contains(&inner.quotas.used(&inner.pool.directory, &owner).unwrap())
    });
}

#[tokio::test]
async fn a_nested_subvolume_does_not_escape_the_quota() {
    let pool = TestPool::new();
    let (image, _, rootfs) = pool.sandbox(16 * MIB).await;
    ioctl::create_subvolume(File::open(&rootfs).unwrap(), "nested").unwrap();
    let error = fill(&rootfs.join("nested/big"), 24).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::QuotaExceeded, "{error}");

    // For comparison: with a limit on the subvolume's own group, the obvious way, a nested subvolume escapes the limit.
    let root = &pool.disks.inner.pool.directory;
    let source = File::open(pool.disks.root().join("images").join(image.as_str())).unwrap();
    ioctl::snapshot(root, "control", source, Access::Writable, None).unwrap();
    let control = pool.disks.root().join("control");
    let own_group = ioctl::subvolume_id(File::open(&control).unwrap()).unwrap();
    ioctl::limit_qgroup(root, own_group, 16 * MIB).unwrap();
    ioctl::create_subvolume(File::open(&control).unwrap(), "nested").unwrap();
    assert_eq!(fill(&control.join("big"), 24).unwrap_err().kind(), io::ErrorKind::QuotaExceeded);
    fill(&control.join("nested/big"), 24).unwrap();
}

#[tokio::test]
async fn a_disk_with_nested_subvolumes_is_removed_with_them() {
    let pool = TestPool::new();
    let (_, id, rootfs) = pool.sandbox(64 * MIB).await;
    for (parent, name) in [("", "one"), ("one", "two"), ("one", "three"), ("one/two", "four")] {
        ioctl::create_subvolume(File::open(rootfs.join(parent)).unwrap(), name).unwrap();
    }
    fs::write(rootfs.join("one/two/four/file"), "deep").unwrap();
    pool.disks.remove((&id).into()).await.unwrap();
    assert!(!rootfs.exists());
    assert_eq!(pool.disks.inventory().await.unwrap().sandboxes, []);
}

#[tokio::test]
async fn the_quota_group_of_a_destroyed_sandbox_goes_once_its_extents_are_freed() {
    let pool = TestPool::new();
    let (_, id, rootfs) = pool.sandbox(64 * MIB).await;
    fill(&rootfs.join("data"), 8).unwrap();
    let inner = &pool.disks.inner;
    let uuid = ioctl::filesystem_uuid(&inner.pool.directory).unwrap();
    let groups = PathBuf::from("/sys/fs/btrfs").join(uuid).join("qgroups");
    let ours = || {
        let names = fs::read_dir(&groups).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().starts_with("77_")).count()
    };
    assert_eq!(ours(), 1);
    pool.disks.remove((&id).into()).await.unwrap();
    eventually("the group is removed", || {
        inner.quotas.sweep(&inner.pool.directory);
        ioctl::commit(&inner.pool.directory).unwrap();
        ours() == 0
    });
}

#[tokio::test]
async fn a_sandbox_created_again_under_its_id_keeps_its_limit() {
    let pool = TestPool::new();
    let (image, id, rootfs) = pool.sandbox(16 * MIB).await;
    fill(&rootfs.join("data"), 4).unwrap();
    pool.disks.remove((&id).into()).await.unwrap();
    let rootfs = pool.disks.create((&id).into(), Some((&image).into()), 16 * MIB).await.unwrap();
    pool.disks.inner.quotas.sweep(&pool.disks.inner.pool.directory);
    assert_eq!(fill(&rootfs.join("big"), 24).unwrap_err().kind(), io::ErrorKind::QuotaExceeded);
}

#[tokio::test]
async fn a_full_pool_refuses_to_create_and_works_again_when_something_is_removed() {
    let outer = TestPool::new();
    // A pool in a directory cannot grow.
    let directory = outer.disks.root().join("inner");
    fs::create_dir(&directory).unwrap();
    let options = Options { pool: PoolSource::Directory(directory), mount: PathBuf::new() };
    let pool = BtrfsDisks::open(options).unwrap();
    let (image, filler) = (conformance::sealed(&*pool).await, SandboxId::generate());
    let rootfs = pool.create((&filler).into(), Some((&image).into()), 1 << 40).await.unwrap();
    let error = fill(&rootfs.join("big"), 512).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");

    let id = SandboxId::generate();
    let refused = pool.create((&id).into(), Some((&image).into()), MIB).await;
    assert!(matches!(refused, Err(DiskError::Full { .. })), "{refused:?}");
    assert_eq!(pool.inventory().await.unwrap().sandboxes, std::slice::from_ref(&filler));
    assert!(matches!(pool.stage((&ImageId::generate()).into(), None).await, Err(DiskError::Full { .. })));

    pool.remove((&filler).into()).await.unwrap();
    let handle = tokio::runtime::Handle::current();
    tokio::task::spawn_blocking(move || {
        eventually("the pool has room again", || {
            ioctl::commit(&pool.inner.pool.directory).unwrap();
            handle.block_on(pool.create((&id).into(), Some((&image).into()), MIB)).is_ok()
        });
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_pool_grows_before_it_refuses() {
    let pool = TestPool::new();
    let before = pool.disks.space().await.unwrap();
    // As much as is free needs no growth.
    let same = pool.disks.space_for(before.free_bytes / 2).await.unwrap();
    assert_eq!(same.total_bytes, before.total_bytes);
    let needed_bytes = before.free_bytes + 64 * MIB;
    let (one, two) =
        tokio::join!(pool.disks.space_for(needed_bytes), pool.disks.space_for(needed_bytes / 2 * 3));
    for space in [one.unwrap(), two.unwrap()] {
        assert!(space.total_bytes > before.total_bytes, "{space:?}");
    }
    let after = pool.disks.space().await.unwrap();
    assert!(after.free_bytes >= needed_bytes / 2 * 3, "{after:?}");
    // What no disk holds is not available, and does not fail.
    let all = pool.disks.space_for(u64::MAX).await.unwrap();
    assert!(all.free_bytes < u64::MAX && all.total_bytes >= after.total_bytes, "{all:?}");
}

#[tokio::test]
async fn a_pool_grows_with_its_sandboxes_in_it() {
    let pool = TestPool::new();
    let (_, _, rootfs) = pool.sandbox(1 << 40).await;
    let before = pool.disks.space().await.unwrap();
    pool.disks.grow(2 * POOL_BYTES_MIN).await.unwrap();
    let after = pool.disks.space().await.unwrap();
    assert_eq!(after.total_bytes - before.total_bytes, POOL_BYTES_MIN);
    assert_eq!(fs::read_to_string(rootfs.join("greeting")).unwrap(), "hello");

    // At four fifths it grows automatically. Written in small pieces, because one large write may find no room for its metadata.
    let is_full = |space: &Space| space.free_bytes < space.total_bytes / 5;
    let mut full = pool.disks.space().await.unwrap();
    for piece in 0..32 {
        fill(&rootfs.join(format!("piece-{piece}")), 16).unwrap();
        full = pool.disks.space().await.unwrap();
        if is_full(&full) {
            break;
        }
        pool.disks.inner.grow_if_filling().unwrap();
        assert_eq!(pool.disks.space().await.unwrap().total_bytes, after.total_bytes, "{full:?}");
    }
    assert!(is_full(&full), "{full:?}");
    pool.disks.inner.grow_if_filling().unwrap();
    let grown = pool.disks.space().await.unwrap();
    assert!(grown.total_bytes > after.total_bytes, "{full:?} {grown:?}");
}

#[tokio::test]
async fn opening_again_finds_the_same_mount_and_after_unmounting_the_same_files() {
    let mut pool = TestPool::new();
    let (image, id, _) = pool.sandbox(64 * MIB).await;
    let device = pool::mounted_from(pool.disks.root()).unwrap();
    pool.reopen();
    assert_eq!(pool::mounted_from(pool.disks.root()).unwrap(), device);

    pool.disks.unmount().unwrap();
    assert_eq!(pool::mounted_from(pool.disks.root()).unwrap(), None);
    pool.reopen();
    let inventory = pool.disks.inventory().await.unwrap();
    assert_eq!(
        inventory,
        Inventory { sandboxes: vec![id.clone()], images: vec![image], ..Inventory::default() }
    );
    let rootfs = pool.disks.locate((&id).into()).await.unwrap();
    assert_eq!(fs::read_to_string(rootfs.join("greeting")).unwrap(), "hello");
    assert_eq!(fs::metadata(pool.disks.root()).unwrap().mode() & 0o7777, 0o700);
}

#[tokio::test]
async fn entries_of_the_pool_that_are_not_ids_are_ignored() {
    let pool = TestPool::new();
    let sandboxes = pool.disks.root().join("sandboxes");
    let (plain, file) = (SandboxId::generate(), SandboxId::generate());
    fs::create_dir(sandboxes.join("notes")).unwrap();
    ioctl::create_subvolume(File::open(&sandboxes).unwrap(), "lost+found").unwrap();
    // Named like sandboxes, but not subvolumes.
    fs::create_dir(sandboxes.join(plain.as_str())).unwrap();
    fs::write(sandboxes.join(file.as_str()), "").unwrap();
    assert_eq!(pool.disks.inventory().await.unwrap(), Inventory::default());
    assert!(matches!(
        pool.disks.locate((&plain).into()).await,
        Err(DiskError::NotFound { disk: DiskId::Sandbox(_) })
    ));
}

#[tokio::test]
async fn an_incomplete_pool_is_created_again() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("pool.unfinished"), vec![7u8; 4096]).unwrap();
    let disks = BtrfsDisks::open(options(folder.path())).unwrap();
    assert!(!folder.path().join("pool.unfinished").exists());
    let pool = TestPool { disks, folder };
    conformance::sealed(&*pool.disks).await;
}

#[test]
fn a_directory_that_is_not_on_btrfs_is_refused_by_name() {
    let options = Options { pool: PoolSource::Directory("/proc".into()), mount: PathBuf::new() };
    let error = BtrfsDisks::open(options).unwrap_err();
    assert_eq!(error.to_string(), "pool `/proc` is on proc, which is not btrfs");
    assert!(error.hint().is_some());
}

#[test]
fn a_mount_of_something_else_is_refused() {
    let pool = TestPool::new();
    let mut other = options(pool.folder.path());
    other.pool = PoolSource::LoopFile { file: pool.folder.path().join("other"), size_bytes: POOL_BYTES_MIN };
    let refused = BtrfsDisks::open(other);
    assert!(matches!(refused, Err(DiskError::MountTaken { .. })), "{refused:?}");
    assert!(!pool.folder.path().join("other").exists());
}

/// The pool's file is on an ext4 that loses power: all acknowledged changes exist afterwards, limits included.
#[tokio::test]
async fn acknowledged_changes_survive_a_power_cut() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, host) = (folder.path().join("disk"), folder.path().join("host"));
    fs::create_dir(&host).unwrap();
    File::create(&disk).unwrap().set_len(1 << 30).unwrap();
    run(command("mkfs.ext4").arg("-q").arg(&disk)).unwrap();
    run(command("mount").args(["-o", "loop"]).args([&disk, &host])).unwrap();

    let disks = BtrfsDisks::open(options(&host)).unwrap();
    let (image, id) = (ImageId::generate(), SandboxId::generate());
    let staged = disks.stage((&image).into(), None).await.unwrap();
    fs::write(staged.join("greeting"), "hello").unwrap();
    disks.seal((&image).into()).await.unwrap();
    disks.create((&id).into(), Some((&image).into()), 4 * MIB).await.unwrap();
    disks.set_quota(&id, 16 * MIB).await.unwrap();
    ioctl::cut_power_of_ext4(File::open(&host).unwrap()).unwrap();

    let mount = disks.root().to_owned();
    disks.unmount().unwrap();
    drop(disks);
    // The dead file system is busy until the loop device has released its file.
    eventually("the host's file system is unmounted", || run(command("umount").arg(&host)).is_ok());
    run(command("mount").args(["-o", "loop"]).args([&disk, &host])).unwrap();
    let disks = BtrfsDisks::open(options(&host)).unwrap();
    let inventory = disks.inventory().await.unwrap();
    let rootfs = disks.locate((&id).into()).await;
    let greeting = fs::read_to_string(mount.join("sandboxes").join(id.as_str()).join("rootfs/greeting"));
    let filled = fill(&mount.join("sandboxes").join(id.as_str()).join("rootfs/big"), 24);
    fs::remove_file(mount.join("sandboxes").join(id.as_str()).join("rootfs/big")).unwrap();
    // The space of removed files is freed after the commit.
    let small = mount.join("sandboxes").join(id.as_str()).join("rootfs/small");
    eventually("what was removed is given back", || {
        ioctl::commit(&disks.inner.pool.directory).unwrap();
        fill(&small, 8).is_ok()
    });
    disks.unmount().unwrap();
    drop(disks);
    eventually("the host's file system is unmounted", || run(command("umount").arg(&host)).is_ok());

    assert_eq!((inventory.sandboxes, inventory.images), (vec![id], vec![image]));
    assert!(rootfs.is_ok());
    assert_eq!(greeting.unwrap(), "hello");
    assert_eq!(filled.unwrap_err().kind(), io::ErrorKind::QuotaExceeded);
}
