//! Volumes over a dump: what is in them is not the dump's, and who may write is said by whoever restores.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::PathBuf;

use burrow_model::MountMode;
use burrow_runtime::{BootOptions, DumpOptions, Machine, Mount, RestoreOptions, Runtime as _};

use super::support::{self, Host, Plot, poll};
use super::{Kept, LIMITS, assert_nothing_left, plainly, restore};

fn mount(source: &std::path::Path, mode: MountMode) -> Vec<Mount> {
    vec![Mount { source: source.to_owned(), target: "/data".parse().unwrap(), mode }]
}

async fn boot(host: &Host, plot: &Plot, mounts: Vec<Mount>, commands: &[&str]) -> Machine {
    let options = BootOptions { mounts, ..support::options(plot, LIMITS, commands) };
    let machine = host.runtime.boot(&plot.id, options).await.unwrap();
    support::await_counting(plot);
    machine
}

async fn dump(host: &Host, plot: &Plot, machine: Machine, mounts: Vec<Mount>) -> Kept {
    let images = host.images();
    let options = DumpOptions { machine, root: plot.root.clone(), images: images.clone(), mounts };
    let dumped = host.runtime.dump(&plot.id, options).await.unwrap_or_else(|error| panic!("{error}"));
    Kept { images, dumped }
}

fn counted(volume: &std::path::Path) -> Option<u64> {
    fs::read_to_string(volume.join("count")).ok()?.split(' ').next()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_works_in_a_volume_goes_on_there() {
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
    poll("the count to go on", || counted(&volume).is_some_and(|number| number > before + 2));
    assert!(volume.join("meanwhile").exists(), "the volume is as it is, not as it was");
    host.runtime.destroy(&plot.id).await.unwrap();
    assert_nothing_left(&host, &plot.id).await;
}

/// Two of one dump: the second in a volume that it may only read.
#[tokio::test(flavor = "multi_thread")]
async fn a_child_of_one_that_writes_only_reads() {
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
async fn who_writes_at_that_moment_cannot_become_a_reader_and_says_so() {
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

/// CRIU would remove the socket that is there and bind its own, before the volume is read-only.
#[tokio::test(flavor = "multi_thread")]
async fn who_listens_in_a_volume_cannot_become_a_reader_and_the_socket_stays() {
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
    assert_eq!(socket().map(|socket| socket.ino()), Some(inode), "nobody has touched it");
    assert_nothing_left(&host, &plot.id).await;

    // Who writes wakes, and has its socket.
    let options = RestoreOptions { mounts: mount(&volume, MountMode::Rw), ..plainly(&plot, &kept) };
    restore(&host, &plot, options).await;
    assert!(socket().is_some_and(|socket| socket.file_type().is_socket()));
    host.runtime.resume(&plot.id).await.unwrap();
    support::await_counting(&plot);
    host.runtime.destroy(&plot.id).await.unwrap();
}

/// The way around a quota that is closed at a boot is closed after a restore.
#[tokio::test(flavor = "multi_thread")]
async fn contents_are_not_shared_with_a_volume_after_a_restore_either() {
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
    poll("an answer of the restored one", || answered().is_some());
    assert_eq!(answered().as_deref(), Some(expected.as_str()));
    host.runtime.destroy(&plot.id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_deleted_in_a_volume_while_it_is_open_is_in_the_way_of_a_dump() {
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
