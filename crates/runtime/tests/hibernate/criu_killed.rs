//! A CRIU that is killed during a dump or a restore: the operation takes longer, and nothing is lost.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use burrow_runtime::{DumpInfo, Machine, Runtime as _, RuntimeError};

use super::support::{self, Host, Plot, await_counting, unified};
use super::survive::is_closed;
use super::{StoredDump, assert_nothing_left, boot, plainly, restore, try_dump};

/// Longer than any dump or restore here takes.
const LONG: Duration = Duration::from_secs(120);

/// Attempts, since a dump may end before CRIU is killed at the intended moment.
const ATTEMPTS: usize = 50;

/// RAM of the first process, which takes a while to write.
const PAGES: std::ops::Range<u64> = 1 << 20..100 << 20;

/// When a dump's CRIU is killed.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// No image is written yet, and CRIU's code is in no process.
    Started,
    /// CRIU's code is in the first process, whose pages are being written.
    Writing,
}

/// Finds CRIU during a dump: beside the machine's cgroup.
struct Watch {
    aside: PathBuf,
    images: PathBuf,
}

impl Watch {
    fn of(host: &Host, plot: &Plot, images: &Path) -> Self {
        let aside = unified().join(format!("{}.aside", host.group(&plot.id)));
        Self { aside, images: images.to_owned() }
    }

    fn is_at(&self, moment: Moment) -> bool {
        match moment {
            Moment::Started => fs::read_dir(&self.images).is_ok_and(|mut images| images.next().is_none()),
            Moment::Writing => {
                let size = |name| fs::metadata(self.images.join(name)).map(|file| file.size());
                size("pages-1.img").is_ok_and(|size| PAGES.contains(&size)) && size("pages-2.img").is_err()
            }
        }
    }

    /// Kills CRIU at a moment; `false` if that had passed.
    fn kill_at(&self, moment: Moment) -> bool {
        let Some(criu) = self.stop_at(moment) else { return false };
        send("KILL", criu);
        send("CONT", criu);
        true
    }

    /// Stops CRIU at a moment; returns its pid, or `None` if the moment had passed.
    fn stop_at(&self, moment: Moment) -> Option<u32> {
        let criu = await_criu(&[&self.aside])?;
        while !self.is_at(moment) {
            if !is_criu(criu) {
                return None;
            }
        }
        send("STOP", criu);
        // The moment may have passed meanwhile.
        if self.is_at(moment) && is_criu(criu) {
            return Some(criu);
        }
        send("CONT", criu);
        None
    }
}

fn send(signal: &str, pid: u32) {
    // The process may have ended meanwhile.
    let _ = Command::new("kill").args([format!("-{signal}"), pid.to_string()]).output().unwrap();
}

/// By its name: the rest of its command line changes during its work.
fn is_criu(pid: u32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).any(|word| word.windows(4).any(|part| part == b"criu"))
}

/// The CRIU that is started in one of the cgroups.
fn await_criu(groups: &[&Path]) -> Option<u32> {
    let deadline = Instant::now() + LONG;
    while Instant::now() < deadline {
        for group in groups {
            let pids = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
            let criu = pids.lines().filter_map(|pid| pid.parse().ok()).find(|pid| is_criu(*pid));
            if criu.is_some() {
                return criu;
            }
        }
    }
    None
}

/// Dumps the machine until its CRIU was killed at the moment.
async fn dump_killed(host: &Host, plot: &Plot, machine: &Machine, moment: Moment) -> (PathBuf, DumpInfo) {
    dump_disturbed(host, plot, machine, move |watch| watch.kill_at(moment)).await
}

/// Dumps the machine until `disturb` reports that it was in time.
async fn dump_disturbed(
    host: &Host,
    plot: &Plot,
    machine: &Machine,
    disturb: impl Fn(&Watch) -> bool + Clone + Send + 'static,
) -> (PathBuf, DumpInfo) {
    for _ in 0..ATTEMPTS {
        let images = host.images();
        let watch = Watch::of(host, plot, &images);
        let disturb = disturb.clone();
        let killer = tokio::task::spawn_blocking(move || disturb(&watch));
        let dumped = try_dump(host, plot, machine, &images).await.unwrap_or_else(|error| panic!("{error}"));
        if killer.await.unwrap() {
            return (images, dumped);
        }
        host.runtime.resume(&plot.id).await.unwrap();
        fs::remove_dir_all(images).unwrap();
    }
    panic!("no CRIU could be disturbed in time");
}

fn processes(host: &Host, plot: &Plot) -> Vec<u32> {
    let list = fs::read_to_string(unified().join(host.group(&plot.id)).join("cgroup.procs")).unwrap();
    let mut pids: Vec<u32> = list.lines().map(|pid| pid.parse().unwrap()).collect();
    pids.sort_unstable();
    pids
}

#[tokio::test]
async fn a_dump_whose_criu_is_killed_is_retried_and_loses_nothing() {
    let host = Host::keeping();
    for moment in [Moment::Started, Moment::Writing] {
        let plot = host.plot();
        let commands = ["hold 7711", "keep 128", "second", "count-in /third", "close"];
        let machine = boot(&host, &plot, &commands).await;
        let before = processes(&host, &plot);
        let (images, dumped) = dump_killed(&host, &plot, &machine, moment).await;
        assert!(host.is_frozen(&plot.id), "{moment:?}");
        assert!(is_closed(machine.pid), "{moment:?}");
        assert_eq!(processes(&host, &plot), before, "{moment:?}");
        for pid in before {
            let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
            assert!(!maps.contains("CRIUMFD"), "{moment:?}: CRIU's code is left in {pid}: {maps}");
        }
        // The dump of the second attempt is complete.
        let kept = StoredDump { images, dumped };
        restore(&host, &plot, plainly(&plot, &kept)).await;
        host.runtime.resume(&plot.id).await.unwrap();
        await_counting(&plot);
        let names = fs::read_dir(&plot.root).unwrap().map(|entry| entry.unwrap().file_name());
        let left: Vec<_> = names.filter(|name| name.to_string_lossy().starts_with("link_remap")).collect();
        assert!(left.is_empty(), "{moment:?}: {left:?}");
        host.runtime.destroy(&plot.id).await.unwrap();
        assert_nothing_left(&host, &plot.id).await;
    }
}

/// Whether a process can still be stopped.
fn stop_again(pid: u32) -> bool {
    send("STOP", pid);
    is_criu(pid)
}

#[tokio::test]
async fn a_dump_whose_criu_is_stopped_is_continued_or_retried() {
    let host = Host::keeping();
    let plot = host.plot();
    let machine = boot(&host, &plot, &["hold 7711", "keep 128", "second", "count-in /third", "close"]).await;
    let before = processes(&host, &plot);
    // Once, after which it continues on `SIGCONT`; or repeatedly, until it is killed.
    for persists in [false, true] {
        let began = Instant::now();
        let (images, _) = dump_disturbed(&host, &plot, &machine, move |watch| {
            let Some(criu) = watch.stop_at(Moment::Writing) else { return false };
            while persists && stop_again(criu) {
                std::thread::sleep(Duration::from_millis(20));
            }
            true
        })
        .await;
        assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
        assert!(host.is_frozen(&plot.id));
        assert_eq!(processes(&host, &plot), before);
        assert!(is_closed(machine.pid));
        for pid in &before {
            let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
            assert!(!maps.contains("CRIUMFD"), "CRIU's code is left in {pid}: {maps}");
        }
        host.runtime.resume(&plot.id).await.unwrap();
        await_counting(&plot);
        fs::remove_dir_all(images).unwrap();
    }
    host.runtime.destroy(&plot.id).await.unwrap();
    assert_nothing_left(&host, &plot.id).await;
}

#[tokio::test]
async fn a_dump_that_always_hangs_fails_and_the_machine_continues() {
    let directory = tempfile::tempdir().unwrap();
    let hangs = directory.path().join("criu");
    let real = support::criu();
    let script =
        format!("#!/bin/sh\n[ \"$1\" = swrk ] && exec sleep 1000\nexec '{}' \"$@\"\n", real.display());
    fs::write(&hangs, script).unwrap();
    fs::set_permissions(&hangs, fs::Permissions::from_mode(0o755)).unwrap();
    let host = Host::with(support::guest(), Some(hangs));
    let plot = host.plot();
    let machine = boot(&host, &plot, &["second", "close"]).await;
    let before = processes(&host, &plot);
    let error = try_dump(&host, &plot, &machine, &host.images()).await.unwrap_err().to_string();
    assert!(error.contains("made no progress"), "{error}");
    assert!(!host.is_frozen(&plot.id));
    assert_eq!(processes(&host, &plot), before);
    await_counting(&plot);
    host.runtime.destroy(&plot.id).await.unwrap();
    assert_nothing_left(&host, &plot.id).await;
}

/// The caller retries those; this test checks that a retry is possible.
#[tokio::test]
async fn a_restore_whose_criu_is_killed_reports_it_and_can_be_repeated() {
    let host = Host::keeping();
    let plot = host.plot();
    let machine = boot(&host, &plot, &["hold 7711", "keep 64", "second", "close"]).await;
    let kept = super::dump(&host, &plot, &machine).await;
    host.runtime.destroy(&plot.id).await.unwrap();
    let (at, _) = plot.count().unwrap();
    for later_ms in [0, 5, 10, 20, 40, 80] {
        let group = unified().join(host.group(&plot.id));
        let killer = tokio::task::spawn_blocking(move || {
            let criu = await_criu(&[&group]).unwrap();
            std::thread::sleep(Duration::from_millis(later_ms));
            send("KILL", criu);
        });
        let outcome = host.runtime.restore(&plot.id, plainly(&plot, &kept)).await;
        killer.await.unwrap();
        match outcome {
            Ok(_) => host.runtime.destroy(&plot.id).await.unwrap(),
            Err(RuntimeError::RestoreCut { .. }) => {}
            Err(other) => panic!("{later_ms} ms: {other}"),
        }
        assert_nothing_left(&host, &plot.id).await;
        assert_eq!(plot.count().unwrap().0, at, "nothing has run");
    }
    restore(&host, &plot, plainly(&plot, &kept)).await;
    host.runtime.resume(&plot.id).await.unwrap();
    await_counting(&plot);
    host.runtime.destroy(&plot.id).await.unwrap();
    assert_nothing_left(&host, &plot.id).await;
}
