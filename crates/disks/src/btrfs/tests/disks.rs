//! Power cuts and disks that fail: the pool's file on an ext4 that stops in the middle.

use burrow_model::{DumpId, SnapshotId};

use super::*;

/// A pool on its own disk, whose power can be cut.
struct Host {
    folder: TempDir,
    disks: Option<Arc<BtrfsDisks>>,
}

impl Host {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("host")).unwrap();
        let disk = folder.path().join("disk");
        File::create(&disk).unwrap().set_len(1 << 30).unwrap();
        run(command("mkfs.ext4").arg("-q").arg(&disk)).unwrap();
        let mut host = Self { folder, disks: None };
        host.boot();
        host
    }

    fn boot(&mut self) {
        let host = self.folder.path().join("host");
        let disk = self.folder.path().join("disk");
        // A process that is just being started may still have the dead file system in its copy of the mount table: then
        // this call mounts the dead file system again.
        eventually("the disk is alive again", || {
            run(command("mount").args(["-o", "loop"]).arg(&disk).arg(&host)).unwrap();
            let alive = fs::write(host.join("alive"), "").is_ok();
            if !alive {
                run(command("umount").arg(&host)).unwrap();
            }
            alive
        });
        self.disks = Some(BtrfsDisks::open(options(&host)).unwrap());
    }

    fn disks(&self) -> &Arc<BtrfsDisks> {
        self.disks.as_ref().unwrap()
    }

    /// From now on, nothing is written to the disk.
    fn cut_power(&self) {
        ioctl::cut_power_of_ext4(File::open(self.folder.path().join("host")).unwrap()).unwrap();
    }

    fn shut_down(&mut self) {
        let Some(disks) = self.disks.take() else { return };
        disks.unmount().unwrap();
        drop(disks);
        // The dead file system is busy until the loop device has released its file.
        let host = self.folder.path().join("host");
        eventually("the host's file system is unmounted", || run(command("umount").arg(&host)).is_ok());
    }

    fn lose_power_and_boot(&mut self) {
        self.cut_power();
        self.shut_down();
        self.boot();
    }

    async fn sandbox(&self) -> (SandboxId, PathBuf) {
        let (image, id) = (ImageId::generate(), SandboxId::generate());
        self.disks().stage((&image).into(), None).await.unwrap();
        self.disks().seal((&image).into()).await.unwrap();
        let rootfs = self.disks().create((&id).into(), Some((&image).into()), 64 * MIB).await.unwrap();
        (id, rootfs)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.shut_down();
    }
}

#[tokio::test]
async fn a_snapshot_that_was_acknowledged_survives_a_power_cut_with_all_that_was_written_before() {
    let mut host = Host::new();
    let (id, rootfs) = host.sandbox().await;
    let snapshot = SnapshotId::generate();
    // No process synced this; the snapshot has to.
    fs::write(rootfs.join("state"), "in RAM only").unwrap();
    fs::write(rootfs.join("large"), vec![7; 9 * MIB as usize]).unwrap();
    host.disks().snapshot((&snapshot).into(), (&id).into()).await.unwrap();
    host.lose_power_and_boot();

    let files = host.disks().locate((&snapshot).into()).await.unwrap();
    assert_eq!(fs::read_to_string(files.join("state")).unwrap(), "in RAM only");
    assert_eq!(fs::read(files.join("large")).unwrap(), vec![7; 9 * MIB as usize]);

    // And so does a sandbox made of it.
    let child = SandboxId::generate();
    host.disks().create((&child).into(), Some((&snapshot).into()), 16 * MIB).await.unwrap();
    host.lose_power_and_boot();
    let files = host.disks().locate((&child).into()).await.unwrap();
    assert_eq!(fs::read_to_string(files.join("state")).unwrap(), "in RAM only");
    assert_eq!(fill(&files.join("big"), 24).unwrap_err().kind(), io::ErrorKind::QuotaExceeded);
}

#[tokio::test]
async fn a_dump_that_was_acknowledged_survives_a_power_cut_and_one_that_was_not_is_no_dump() {
    let mut host = Host::new();
    let (sealed, staged) = (DumpId::generate(), DumpId::generate());
    for id in [&staged, &sealed] {
        let path = host.disks().stage_dump(id).await.unwrap();
        for file in 0..50 {
            fs::write(path.join(format!("core-{file}.img")), vec![file; 100 * usize::from(file)]).unwrap();
        }
        fs::write(path.join("pages-1.img"), vec![5; 9 * MIB as usize]).unwrap();
    }
    let bytes = host.disks().seal_dump(&sealed, "about", true).await.unwrap();
    host.lose_power_and_boot();

    let dump = host.disks().open_dump(&sealed).await.unwrap();
    assert_eq!((dump.about.as_str(), dump.bytes), ("about", bytes));
    assert_eq!(fs::read(dump.path.join("core-49.img")).unwrap(), vec![49; 4900]);
    assert!(matches!(host.disks().open_dump(&staged).await, Err(DiskError::DumpNotFound { .. })));
    for id in [&staged, &sealed] {
        host.disks().remove_dump(id).await.unwrap();
    }
    assert_eq!(host.disks().inventory().await.unwrap().dumps, []);
}

#[tokio::test]
async fn a_replacement_that_was_acknowledged_survives_a_power_cut_and_one_that_was_not_is_swept() {
    let mut host = Host::new();
    let (id, rootfs) = host.sandbox().await;
    fs::write(rootfs.join("state"), "new").unwrap();
    let snapshot = SnapshotId::generate();
    host.disks().snapshot((&snapshot).into(), (&id).into()).await.unwrap();
    fs::write(rootfs.join("state"), "old").unwrap();
    File::open(rootfs.join("state")).unwrap().sync_all().unwrap();
    {
        let inner = &host.disks().inner;
        let source = inner.open(&(&snapshot).into()).unwrap();
        inner.prepare_replacement(&(&id).into(), &source, 64 * MIB).unwrap();
    }
    host.lose_power_and_boot();
    assert_eq!(fs::read_to_string(rootfs.join("state")).unwrap(), "old");
    assert_eq!(fs::read_dir(host.disks().root().join("replacing")).unwrap().count(), 0);

    host.disks().replace((&id).into(), (&snapshot).into(), 16 * MIB).await.unwrap();
    host.lose_power_and_boot();
    assert_eq!(fs::read_to_string(rootfs.join("state")).unwrap(), "new");
    assert_eq!(fs::read_dir(host.disks().root().join("replacing")).unwrap().count(), 0);
    assert_eq!(fill(&rootfs.join("big"), 24).unwrap_err().kind(), io::ErrorKind::QuotaExceeded);
}

/// Every write fails from here on, as on a disk that is gone.
#[tokio::test]
async fn on_a_disk_that_fails_nothing_is_acknowledged() {
    let mut host = Host::new();
    let (id, rootfs) = host.sandbox().await;
    let before = SnapshotId::generate();
    host.disks().snapshot((&before).into(), (&id).into()).await.unwrap();
    let dump = DumpId::generate();
    let staged = host.disks().stage_dump(&dump).await.unwrap();
    fs::write(staged.join("pages-1.img"), vec![5; 9 * MIB as usize]).unwrap();
    fs::write(rootfs.join("state"), "lost").unwrap();
    host.cut_power();

    host.disks().seal_dump(&dump, "about", false).await.unwrap_err();
    host.disks().seal_dump(&dump, "about", false).await.unwrap_err();
    let after = SnapshotId::generate();
    host.disks().snapshot((&after).into(), (&id).into()).await.unwrap_err();
    host.disks().replace((&id).into(), (&before).into(), 64 * MIB).await.unwrap_err();
    host.shut_down();
    host.boot();
    let inventory = host.disks().inventory().await.unwrap();
    assert_eq!((inventory.sandboxes, inventory.snapshots), (vec![id], vec![before]));
    assert!(matches!(host.disks().open_dump(&dump).await, Err(DiskError::DumpNotFound { .. })));
}
