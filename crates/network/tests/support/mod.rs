//! Shared by the tests of the real driver: a run directory for each test, and access to namespaces.
#![expect(clippy::unwrap_used, reason = "test support: a failure here is a failed test")]
#![allow(dead_code, reason = "every test file uses a part of it")]

/// Makes two tests of each function that takes a scene: one with a network in which a new machine was started, and one
/// into which a restored machine was plugged.
#[allow(unused_macros, reason = "not every test file uses it")]
macro_rules! both_ways {
    ($($test:ident),+ $(,)?) => {
        mod connected {
            $(#[tokio::test]
            async fn $test() {
                super::$test(super::Scene::new().await).await;
            })+
        }
        mod plugged {
            $(#[tokio::test]
            async fn $test() {
                super::$test(super::Scene::plugged().await).await;
            })+
        }
    };
}

pub(crate) mod listeners;
pub(crate) mod scene;

use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use burrow_network::linux::{LinuxNetwork, Options};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tempfile::TempDir;

/// A run directory that is removed at the end of the test, even on a panic.
pub(crate) struct Host {
    directory: TempDir,
}

impl Host {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn run_dir(&self) -> PathBuf {
        self.directory.path().join("net")
    }

    pub(crate) fn open(&self, pool_size: usize) -> Arc<LinuxNetwork> {
        LinuxNetwork::open(Options { run_dir: self.run_dir(), pool_size, own_ids: true }).unwrap()
    }

    /// The mounts at or below the run directory, in the mount namespace of `process`.
    pub(crate) fn mounts_seen_by(&self, process: &str) -> Vec<String> {
        let run_dir = self.run_dir().to_str().unwrap().to_owned();
        let mounts = std::fs::read_to_string(format!("/proc/{process}/mountinfo")).unwrap();
        mounts.lines().filter(|line| line.contains(&run_dir)).map(str::to_owned).collect()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let removed = LinuxNetwork::remove_all(&self.run_dir());
        if !thread::panicking() {
            removed.unwrap();
        }
    }
}

/// Runs `act` in a network namespace, on a thread that is used for nothing else.
pub(crate) fn inside<T: Send>(namespace: BorrowedFd<'_>, act: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let visit = || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            act()
        };
        scope.spawn(visit).join().unwrap()
    })
}

/// Runs a shell command in a network namespace; it must succeed.
pub(crate) fn shell(namespace: BorrowedFd<'_>, line: &str) {
    let output = inside(namespace, || Command::new("sh").args(["-ec", line]).output().unwrap());
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Waits until `done` returns true, and fails if that takes too long.
pub(crate) fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < patience, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}
