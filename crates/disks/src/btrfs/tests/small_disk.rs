//! A pool on a disk smaller than the pool's maximum size: whatever is written, the pool stays writable.

use super::*;

/// A mounted ext4 disk for one test, removed with it.
struct SmallDisk {
    folder: TempDir,
}

impl SmallDisk {
    fn new(mib: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let disk = Self { folder };
        let image = disk.folder.path().join("disk.img");
        File::create(&image).unwrap().set_len(mib * MIB).unwrap();
        run(command("mkfs.ext4").args(["-q", "-m", "0"]).arg(&image)).unwrap();
        fs::create_dir(disk.root()).unwrap();
        run(command("mount").args(["-o", "loop"]).arg(&image).arg(disk.root())).unwrap();
        disk
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    fn options(&self) -> Options {
        let pool = PoolSource::LoopFile { file: self.root().join("pool.img"), size_bytes: 64 << 30 };
        Options { pool, mount: self.folder.path().join("pool") }
    }

    fn backing(&self) -> Backing {
        Backing::of(&self.root().join("pool.img")).unwrap()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        for mount in [self.folder.path().join("pool"), self.root()] {
            let _ = rustix::mount::unmount(&mount, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

/// Whether the file system accepted every write and accepts more: btrfs turns read-only when one of its own writes failed.
fn is_writable(disks: &BtrfsDisks) -> bool {
    ioctl::commit(&disks.inner.pool.directory).is_ok() && fs::write(disks.root().join("probe"), "x").is_ok()
}

#[tokio::test]
async fn a_new_pool_fits_its_disk_and_stays_writable_when_a_sandbox_fills_it() {
    let disk = SmallDisk::new(1200);
    let disks = BtrfsDisks::open(disk.options()).unwrap();
    assert!(!disk.backing().is_overcommitted(), "{:?}", disk.backing());
    let (image, id) = (ImageId::generate(), SandboxId::generate());
    disks.stage((&image).into(), None).await.unwrap();
    disks.seal((&image).into()).await.unwrap();
    let rootfs = disks.create((&id).into(), Some((&image).into()), 1 << 40).await.unwrap();
    // As much as other writers may write if they leave the bytes promised to the pool.
    fill(&disk.root().join("others"), disk.backing().unpromised_bytes() / MIB - 32).unwrap();
    let stopped = fill(&rootfs.join("big"), 4096).unwrap_err();
    assert_eq!(stopped.raw_os_error(), Some(enospc()), "{stopped}");
    fs::remove_file(rootfs.join("big")).unwrap();
    // Removed data is free once the kernel has processed it; a read-only pool stays read-only.
    eventually("the pool takes writes again", || is_writable(&disks));
    disks.unmount().unwrap();
}

#[tokio::test]
async fn a_pool_larger_than_its_disk_is_shrunk_when_it_is_opened() {
    let disk = SmallDisk::new(1200);
    let file = disk.root().join("pool.img");
    File::create(&file).unwrap().set_len(4 << 30).unwrap();
    run(command("mkfs.btrfs").args(["--quiet", "--metadata", "single"]).arg(&file)).unwrap();
    assert!(disk.backing().is_overcommitted());
    let disks = BtrfsDisks::open(disk.options()).unwrap();
    eventually("the pool is smaller", || !disk.backing().is_overcommitted());
    assert!(disks.space().await.unwrap().total_bytes < 1200 * MIB);
    let stopped = fill(&disks.root().join("big"), 4096).unwrap_err();
    assert_eq!(stopped.raw_os_error(), Some(enospc()), "{stopped}");
    fs::remove_file(disks.root().join("big")).unwrap();
    eventually("the pool takes writes again", || is_writable(&disks));
    disks.unmount().unwrap();
}

#[test]
fn a_disk_without_room_for_a_pool_is_refused() {
    let disk = SmallDisk::new(300);
    let refused = BtrfsDisks::open(disk.options()).unwrap_err();
    assert!(matches!(refused, DiskError::NoRoomForPool { .. }), "{refused:?}");
    assert!(refused.hint().is_some());
    assert!(!disk.root().join("pool.img").exists());
}

fn enospc() -> i32 {
    rustix::io::Errno::NOSPC.raw_os_error()
}
