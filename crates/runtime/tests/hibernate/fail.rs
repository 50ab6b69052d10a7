//! Dumps that fail leave the machine in its earlier state; restores that fail leave nothing behind.

use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use burrow_model::Limits;
use burrow_network::{Attachment, Plug};
use burrow_runtime::{Obstacle, RestoreOptions, Runtime as _, RuntimeError};

use super::support::{Host, await_counting};
use super::survive::is_closed;
use super::{LIMITS, assert_nothing_left, boot, dump, plainly, restore, try_dump};

#[tokio::test]
async fn obstacles_are_named_and_the_machine_continues() {
    let cases = [("traced", "is being traced by a debugger"), ("deleted 65", "the deleted file `/large")];
    for (command, reason) in cases {
        let host = Host::keeping();
        let plot = host.plot();
        let machine = boot(&host, &plot, &[command]).await;
        let is_it = |found: &[Obstacle]| {
            found.iter().any(|obstacle| {
                obstacle.reason.contains(reason) && obstacle.process == "guest" && !obstacle.passes
            })
        };
        let found = host.runtime.obstacles(&plot.id).await.unwrap();
        assert!(is_it(&found), "{found:?}");
        for paused in [false, true] {
            if paused {
                host.runtime.pause(&plot.id).await.unwrap();
            }
            let images = host.images();
            let error = try_dump(&host, &plot, &machine, &images).await.unwrap_err();
            assert!(error.to_string().contains(reason), "{error}");
            let RuntimeError::Obstacles { obstacles, .. } = error else { panic!("{error}") };
            assert!(is_it(&obstacles), "{obstacles:?}");
            assert_eq!(fs::read_dir(&images).unwrap().count(), 0, "nothing was written");
            assert_eq!(host.is_frozen(&plot.id), paused);
        }
        host.runtime.resume(&plot.id).await.unwrap();
        await_counting(&plot);
        host.runtime.destroy(&plot.id).await.unwrap();
        assert_nothing_left(&host, &plot.id).await;
    }
}

/// A file system that is full after a few kilobytes; unmounted at the end.
struct TinyFileSystem<'a>(&'a Path);

impl<'a> TinyFileSystem<'a> {
    fn at(path: &'a Path) -> Self {
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"])
            .arg(path)
            .status()
            .unwrap();
        assert!(status.success());
        Self(path)
    }
}

impl Drop for TinyFileSystem<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

#[tokio::test]
async fn a_dump_that_fails_midway_leaves_the_machine_unchanged() {
    let host = Host::keeping();
    let plot = host.plot();
    let machine = boot(&host, &plot, &["keep 16", "close", "second"]).await;
    let images = host.images();
    let _tiny = TinyFileSystem::at(&images);
    for paused in [false, true] {
        if paused {
            host.runtime.pause(&plot.id).await.unwrap();
        }
        let error = try_dump(&host, &plot, &machine, &images).await.unwrap_err();
        assert!(matches!(error, RuntimeError::Dump { .. }), "{error}");
        assert!(fs::read_dir(&images).unwrap().count() > 0, "the dump had begun");
        assert_eq!(host.is_frozen(&plot.id), paused);
        assert!(is_closed(machine.pid));
        for entry in fs::read_dir(&images).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
    }
    host.runtime.resume(&plot.id).await.unwrap();
    await_counting(&plot);
    // Nothing of the attempts disturbs the next dump.
    dump(&host, &plot, &machine).await;
    host.runtime.destroy(&plot.id).await.unwrap();
    assert_nothing_left(&host, &plot.id).await;
}

/// A network that cannot be connected.
#[derive(Debug)]
struct BrokenNetwork;

impl Plug for BrokenNetwork {
    fn plug(&self, _: BorrowedFd<'_>) -> io::Result<()> {
        Err(io::Error::other("the gateway is gone"))
    }
}

#[tokio::test]
async fn a_restore_that_fails_leaves_nothing_and_reports_why() {
    let host = Host::keeping();
    let plot = host.plot();
    let machine = boot(&host, &plot, &["keep 32", "second", "close"]).await;
    let kept = dump(&host, &plot, &machine).await;
    host.runtime.destroy(&plot.id).await.unwrap();
    let (at, _) = plot.count().unwrap();

    let unplugged = RestoreOptions { attachment: Attachment::None, ..plainly(&plot, &kept) };
    let broken =
        RestoreOptions { attachment: Attachment::Later(Arc::new(BrokenNetwork)), ..plainly(&plot, &kept) };
    let small = Limits { ram_mib: 16, ..LIMITS };
    let cramped = RestoreOptions { limits: small, ..plainly(&plot, &kept) };
    let nowhere = RestoreOptions { root: plot.root.join("missing"), ..plainly(&plot, &kept) };
    let empty = RestoreOptions { images: host.images(), ..plainly(&plot, &kept) };
    let cases = [
        (unplugged, "creates its own network namespace"),
        (broken, "could not connect the network during a restore: the gateway is gone"),
        (cramped, "the RAM limit of 16 MiB is too small"),
        (nowhere, "could not open the root directory: No such file"),
        (empty, "the dump has no user namespace"),
    ];
    for (options, expected) in cases {
        let error = host.runtime.restore(&plot.id, options).await.unwrap_err();
        // If there is no RAM, the kernel kills CRIU or the processes that it has restored.
        let cut = matches!(error, RuntimeError::RestoreCut { .. }) && expected.contains("RAM");
        assert!(cut || matches!(error, RuntimeError::Restore { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{expected}: {error}");
        assert_nothing_left(&host, &plot.id).await;
    }
    assert_eq!(plot.count().unwrap().0, at, "nothing has run");

    // The images themselves: a damaged one, and the hint at a different kernel.
    let pages = kept.images.join("core-1.img");
    let whole = fs::read(&pages).unwrap();
    fs::write(&pages, &whole[..whole.len() / 2]).unwrap();
    let about = kept.dumped.about.replace("\"kernel\":\"", "\"kernel\":\"not-");
    let damaged = RestoreOptions { about, ..plainly(&plot, &kept) };
    let error = host.runtime.restore(&plot.id, damaged).await.unwrap_err();
    assert!(error.to_string().contains("the dump was created with kernel not-"), "{error}");
    assert_nothing_left(&host, &plot.id).await;

    fs::write(&pages, &whole).unwrap();
    restore(&host, &plot, plainly(&plot, &kept)).await;
    host.runtime.resume(&plot.id).await.unwrap();
    await_counting(&plot);
    host.runtime.destroy(&plot.id).await.unwrap();
}
