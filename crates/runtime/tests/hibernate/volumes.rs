//! Volumes across a dump: their contents are not part of it, and the restoring side sets the access modes.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;

use burrow_model::MountMode;
use burrow_runtime::{BootOptions, DumpOptions, Machine, Mount, RestoreOptions, Runtime as _};

use super::support::{self, Host, Plot, poll};
use super::{LIMITS, StoredDump, assert_nothing_left, plainly, restore};

fn mount(source: &std::path::Path, mode: MountMode) -> Vec<Mount> {
    vec![Mount { source: source.to_owned(), target: "/data".parse().unwrap(), mode }]
}

async fn boot(host: &Host, plot: &Plot, mounts: Vec<Mount>, commands: &[&str]) -> Machine {
    let options = BootOptions { mounts, ..support::options(plot, LIMITS, commands) };
    let machine = host.runtime.boot(&plot.id, options).await.unwrap();
    support::await_counting(plot);
    machine
}

async fn dump(host: &Host, plot: &Plot, machine: Machine, mounts: Vec<Mount>) -> StoredDump {
    let images = host.images();
    let options = DumpOptions { machine, root: plot.root.clone(), images: images.clone(), mounts };
    let dumped = host.runtime.dump(&plot.id, options).await.unwrap_or_else(|error| panic!("{error}"));
    StoredDump { images, dumped }
}

fn counted(volume: &std::path::Path) -> Option<u64> {
    fs::read_to_string(volume.join("count")).ok()?.split(' ').next()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_works_in_a_volume_continues_there() {
    let host = Host::keeping();
    let (plot, volume) = (host.plot(), host.volume());
    let machine = boot(&host, &plot, mount(&volume, MountMode::Rw), &["count-in /data/count"]).await;
    poll("a count in the volume", || counted(&volume).is_some_and(|number| number > 3));
    let kept = dump(&host, &plot, machine, mount(&volume, MountMode::Rw)).await;
    let before = counted(&volume).unwrap();
    host.runtime.destroy(&plot.id).await.unwrap();
    fs::write(volume.join("meanwhile"), "by the host").unwrap();

    let options = RestoreOptions { mounts: mount(&volume, MountMode::Rw), ..plainly(&plot, &kept) };
    restore(&host, &plot, options).await;
    assert_eq!(counted(&volume), Some(before), "nothing of it has run");
    host.runtime.resume(&plot.id).await.unwrap();
    poll("the count to continue", || counted(&volume).is_some_and(|number| number > before + 2));
    assert!(volume.join("meanwhile").exists(), "the volume has its present state, not that of the dump");
    host.runtime.destroy(&plot.id).await.unwrap();
    assert_nothing_left(&host, &plot.id).await;
}

/// Two machines from one dump: the second may only read the volume.
#[tokio::test(flavor = "multi_thread")]
async fn a_child_of_a_writer_only_reads() {
    let host = Host::keeping();
    let (plot, volume) = (host.plot(), host.volume());
    let machine = boot(&host, &plot, mount(&volume, MountMode::Rw), &[]).await;
    let kept = dump(&host, &plot, machine, mount(&volume, MountMode::Rw)).await;
    host.runtime.destroy(&plot.id).await.unwrap();
    let options = RestoreOptions { mounts: mount(&volume, MountMode::Ro), ..plainly(&plot, &kept) };
    let machine = restore(&host, &plot, options).await;
    assert_eq!(support::sees(machine.pid, "/data"), Some(MountMode::Ro));
    host.runtime.destroy(&plot.id).await.unwrap();

    let options = RestoreOptions { mounts: mount(&volume, MountMode::Rw), ..plainly(&plot, &kept) };
    let machine = restore(&host, &plot, options).await;
    assert_eq!(support::sees(machine.pid, "/data"), Some(MountMode::Rw));
    host.runtime.destroy(&plot.id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_with_a_file_open_for_writing_cannot_become_a_reader() {
    let host = Host::keeping();
    let (plot, volume) = (host.plot(), host.volume());
    let machine = boot(&host, &plot, mount(&volume, MountMode::Rw), &["hold-open /data/held"]).await;
    let kept = dump(&host, &plot, machine, mount(&volume, MountMode::Rw)).await;
    host.runtime.destroy(&plot.id).await.unwrap();
    let options = RestoreOptions { mounts: mount(&volume, MountMode::Ro), ..plainly(&plot, &kept) };
    let error = host.runtime.restore(&plot.id, options).await.unwrap_err().to_string();
    assert!(error.contains("open for writing in `/data`"), "{error}");
    assert_nothing_left(&host, &plot.id).await;
    let options = RestoreOptions { mounts: mount(&volume, MountMode::Rw), ..plainly(&plot, &kept) };
    restore(&host, &plot, options).await;
    host.runtime.destroy(&plot.id).await.unwrap();
}

/// CRIU would remove the existing socket and bind its own, before the volume is read-only.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_listens_in_a_volume_cannot_become_a_reader_and_its_socket_stays() {
    let host = Host::keeping();
    let (plot, volume) = (host.plot(), host.volume());
    let machine = boot(&host, &plot, mount(&volume, MountMode::Rw), &["listen /data/app.sock"]).await;
    let socket = || fs::symlink_metadata(volume.join("app.sock")).ok();
    poll("a socket in the volume", || socket().is_some());
    let kept = dump(&host, &plot, machine, mount(&volume, MountMode::Rw)).await;
    host.runtime.destroy(&plot.id).await.unwrap();
    let inode = socket().unwrap().ino();
    let options = RestoreOptions { mounts: mount(&volume, MountMode::Ro), ..plainly(&plot, &kept) };
    let error = host.runtime.restore(&plot.id, options).await.unwrap_err().to_string();
    assert!(error.contains("a socket at `/data/app.sock`, and `/data` is read-only here"), "{error}");
    assert_eq!(socket().map(|socket| socket.ino()), Some(inode), "it is unchanged");
    assert_nothing_left(&host, &plot.id).await;

    // A machine that may write wakes, and has its socket.
    let options = RestoreOptions { mounts: mount(&volume, MountMode::Rw), ..plainly(&plot, &kept) };
    restore(&host, &plot, options).await;
    assert!(socket().is_some_and(|socket| socket.file_type().is_socket()));
    host.runtime.resume(&plot.id).await.unwrap();
    support::await_counting(&plot);
    host.runtime.destroy(&plot.id).await.unwrap();
}

/// A bypass of the quota that is closed at a boot is closed after a restore, too.
#[tokio::test(flavor = "multi_thread")]
async fn contents_are_not_shared_with_a_volume_after_a_restore() {
    let host = Host::keeping();
    let (plot, volume) = (host.plot(), host.volume());
    let mounts = || mount(&volume, MountMode::Rw);
    let asking = format!("call-on /data/answer {} 99 0 99 0 1 0", libc::SYS_copy_file_range);
    let machine = boot(&host, &plot, mounts(), &[&asking]).await;
    let answered = || fs::read_to_string(volume.join("answer")).ok();
    poll("an answer", || answered().is_some());
    let kept = dump(&host, &plot, machine, mounts()).await;
    let expected = format!("errno {}", libc::EXDEV);
    assert_eq!(answered().as_deref(), Some(expected.as_str()));
    host.runtime.destroy(&plot.id).await.unwrap();
    fs::remove_file(volume.join("answer")).unwrap();

    restore(&host, &plot, RestoreOptions { mounts: mounts(), ..plainly(&plot, &kept) }).await;
    host.runtime.resume(&plot.id).await.unwrap();
    poll("an answer of the restored machine", || answered().is_some());
    assert_eq!(answered().as_deref(), Some(expected.as_str()));
    host.runtime.destroy(&plot.id).await.unwrap();
}

/// As another user of the volume may have done.
#[tokio::test(flavor = "multi_thread")]
async fn an_open_file_of_a_volume_may_change_its_length_and_mode_meanwhile() {
    let host = Host::keeping();
    let (plot, volume) = (host.plot(), host.volume());
    let mounts = || mount(&volume, MountMode::Rw);
    let held = volume.join("held");
    let mut machine = boot(&host, &plot, mounts(), &["hold-open /data/held"]).await;
    poll("an open file", || held.exists());
    for length in [4096_u64, 100, 0] {
        let kept = dump(&host, &plot, machine, mounts()).await;
        host.runtime.destroy(&plot.id).await.unwrap();
        let file = fs::File::options().write(true).open(&held).unwrap();
        file.set_len(length).unwrap();
        fs::set_permissions(&held, fs::Permissions::from_mode(0o600 + u32::from(length == 0))).unwrap();
        machine = restore(&host, &plot, RestoreOptions { mounts: mounts(), ..plainly(&plot, &kept) }).await;
        host.runtime.resume(&plot.id).await.unwrap();
        support::await_counting(&plot);
        assert_eq!(fs::metadata(&held).unwrap().len(), length);
    }

    // A missing file is named, and the same dump can be restored when the file exists again.
    let kept = dump(&host, &plot, machine, mounts()).await;
    host.runtime.destroy(&plot.id).await.unwrap();
    fs::rename(&held, volume.join("away")).unwrap();
    let options = || RestoreOptions { mounts: mounts(), ..plainly(&plot, &kept) };
    let error = host.runtime.restore(&plot.id, options()).await.unwrap_err().to_string();
    assert!(error.contains("data/held") && error.contains("descriptor"), "{error}");
    assert_nothing_left(&host, &plot.id).await;
    fs::rename(volume.join("away"), &held).unwrap();
    restore(&host, &plot, options()).await;
    host.runtime.resume(&plot.id).await.unwrap();
    support::await_counting(&plot);
    host.runtime.destroy(&plot.id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_file_that_was_deleted_in_a_volume_prevents_a_dump() {
    let host = Host::keeping();
    let (plot, volume) = (host.plot(), host.volume());
    let mounts = || mount(&volume, MountMode::Rw);
    let machine = boot(&host, &plot, mounts(), &["hold-open /data/held"]).await;
    fs::remove_file(volume.join("held")).unwrap();
    let images: PathBuf = host.images();
    let options = DumpOptions { machine, root: plot.root.clone(), images, mounts: mounts() };
    let error = host.runtime.dump(&plot.id, options).await.unwrap_err();
    assert!(format!("{error:?}").contains("in a volume"), "{error:?}");
    support::await_counting(&plot);
    host.runtime.destroy(&plot.id).await.unwrap();
}
