//! Programs that wait for some time: they wait for the time that was left, and notice nothing.

#![cfg(target_arch = "x86_64")]

use std::fs;
use std::thread;
use std::time::Duration;

use burrow_runtime::{Machine, Runtime as _};

use super::programs::Distribution;
use super::support::{self, Host, Plot, poll, unified};
use super::{LIMITS, boot, dump, plainly, restore};

/// The shortest of the waits.
const WAIT_MS: u64 = 40_000;
/// Copies of each kind. Thirty threads sleep at once, each for a different time.
const COPIES: usize = 5;
/// Time for which the machine does not run.
const AWAY: Duration = Duration::from_secs(3);
/// On a busy host threads wait for the processor, and a sleep that is started again continues a bit later than it was
/// interrupted.
const LATE_MS: u64 = 30_000;

/// Sleeps of every kind that the kernel continues.
const SLEEPS: [&str; 6] =
    ["nanosleep", "nanosleep-without-remainder", "nanosleep-in-place", "realtime", "boottime", "absolute"];
/// Waits with a timeout, which may end with `EINTR`, and one without.
const WAITS: [&str; 3] = ["poll", "futex", ENDLESS];
const ENDLESS: &str = "endless-poll";
const ETIMEDOUT: i32 = 110;

/// Shells that start a program for each of their sleeps.
const SHORT_SLEEPS: &str = r#"
import subprocess
loop = "n=0; while :; do n=$((n+1)); echo $n > /n%d.new; mv /n%d.new /n%d; sleep 0.0%d || echo $? >> /failed; done"
for number in range(4):
    subprocess.Popen(["sh", "-c", loop % (number, number, number, number + 1)])
import time
time.sleep(10000)
"#;
const LOOPS: usize = 4;
const SNAPSHOTS: usize = 20;

/// The error that ended a wait, or zero; its duration in milliseconds by the machine's own clock, and the requested
/// duration.
fn outcome(plot: &Plot, name: &str, copy: usize) -> Option<(i32, u64, u64)> {
    let text = fs::read_to_string(plot.root.join(format!("slept-{name}-{copy}"))).ok()?;
    let words: Vec<&str> = text.split(' ').collect();
    let [errno, took, wanted] = words[..] else { return None };
    Some((errno.parse().ok()?, took.parse().ok()?, wanted.parse().ok()?))
}

async fn begin(host: &Host, plot: &Plot) -> Machine {
    let machine = boot(host, plot, &[&format!("sleeps {WAIT_MS} {COPIES}")]).await;
    poll("the threads to begin", || plot.root.join("sleeping").exists());
    thread::sleep(Duration::from_millis(500));
    machine
}

/// Resumes the machine, and checks that no thread has woken early.
async fn go_on(host: &Host, plot: &Plot) {
    host.runtime.resume(&plot.id).await.unwrap();
    support::await_counting(plot);
    for name in SLEEPS {
        for copy in 0..COPIES {
            assert_eq!(
                outcome(plot, name, copy),
                None,
                "{name} {copy} has ended early, or this took too long"
            );
        }
    }
}

fn check(plot: &Plot) {
    // `poll` waits no longer than they take.
    thread::sleep(Duration::from_millis(WAIT_MS / 2));
    // If the remaining time of a sleep cannot be determined, it is interrupted; on a busy host that may happen to one
    // thread.
    let mut interrupted = 0;
    for copy in 0..COPIES {
        for name in SLEEPS {
            poll(name, || outcome(plot, name, copy).is_some());
            let (errno, took, wanted) = outcome(plot, name, copy).unwrap();
            if errno == libc::EINTR && interrupted == 0 {
                interrupted += 1;
                continue;
            }
            assert_eq!(errno, 0, "{name} {copy} after {took} of {wanted} ms");
            assert!((wanted - 1..wanted + LATE_MS).contains(&took), "{name} {copy}: {took} of {wanted} ms");
        }
        for name in WAITS {
            poll(name, || outcome(plot, name, copy).is_some());
            let (errno, took, wanted) = outcome(plot, name, copy).unwrap();
            match errno {
                libc::EINTR if name != ENDLESS => {}
                0 | ETIMEDOUT => assert!(took + 1 >= wanted, "{name} {copy}: {took} of {wanted} ms"),
                other => panic!("{name} {copy}: error {other}"),
            }
        }
    }
}

#[tokio::test]
async fn sleeps_have_the_right_duration_over_two_hibernates_and_a_snapshot() {
    let host = Host::keeping();
    let plot = host.plot();
    let mut machine = begin(&host, &plot).await;
    for stopped in [false, true] {
        if stopped {
            stop(&sleeper(&host, &plot));
        }
        let kept = dump(&host, &plot, &machine).await;
        host.runtime.destroy(&plot.id).await.unwrap();
        thread::sleep(AWAY);
        machine = restore(&host, &plot, plainly(&plot, &kept)).await;
        go_on(&host, &plot).await;
        if stopped {
            let sleeper = sleeper(&host, &plot);
            poll("the sleeper to stop again", || state(&sleeper) == "T");
            send(&sleeper, "-CONT");
        }
    }
    dump(&host, &plot, &machine).await;
    go_on(&host, &plot).await;
    check(&plot);
    host.runtime.destroy(&plot.id).await.unwrap();
}

#[tokio::test]
async fn sleeps_continue_after_snapshots_of_running_paused_and_stopped_processes() {
    let host = Host::keeping();
    let plot = host.plot();
    let machine = begin(&host, &plot).await;
    dump(&host, &plot, &machine).await;
    go_on(&host, &plot).await;
    host.runtime.pause(&plot.id).await.unwrap();
    dump(&host, &plot, &machine).await;
    go_on(&host, &plot).await;

    let sleeper = sleeper(&host, &plot);
    stop(&sleeper);
    dump(&host, &plot, &machine).await;
    go_on(&host, &plot).await;
    poll("the sleeper to stop again", || state(&sleeper) == "T");
    send(&sleeper, "-CONT");
    check(&plot);
    host.runtime.destroy(&plot.id).await.unwrap();
}

/// Programs that constantly end, each after a sleep that may end while it is inspected.
#[tokio::test]
async fn short_sleeps_of_ending_programs_do_not_prevent_snapshots() {
    let host = Host::keeping();
    let distribution = Distribution::new();
    let plot = &distribution.plot;
    distribution.script(SHORT_SLEEPS);
    let commands = ["spawn /usr/bin/python3 /script.py"];
    let machine = host.runtime.boot(&plot.id, support::options(plot, LIMITS, &commands)).await.unwrap();
    for _ in 0..SNAPSHOTS {
        let before: Vec<u64> = (0..LOOPS).map(|number| distribution.number(&format!("n{number}"))).collect();
        for (number, before) in before.into_iter().enumerate() {
            poll("a loop to continue", || distribution.number(&format!("n{number}")) > before + 1);
        }
        dump(&host, plot, &machine).await;
        host.runtime.resume(&plot.id).await.unwrap();
    }
    host.runtime.destroy(&plot.id).await.unwrap();
    assert_eq!(distribution.read("failed"), "");
}

/// The process with the threads.
fn sleeper(host: &Host, plot: &Plot) -> String {
    let pids = fs::read_to_string(unified().join(host.group(&plot.id)).join("cgroup.procs")).unwrap();
    let threads = |pid: &&str| fs::read_dir(format!("/proc/{pid}/task")).unwrap().count();
    pids.lines().max_by_key(threads).unwrap().to_owned()
}

fn state(pid: &str) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1[..1].to_owned()
}

fn stop(pid: &str) {
    send(pid, "-STOP");
    poll("the sleeper to stop", || state(pid) == "T");
}

fn send(pid: &str, signal: &str) {
    assert!(std::process::Command::new("kill").args([signal, pid]).status().unwrap().success());
}
