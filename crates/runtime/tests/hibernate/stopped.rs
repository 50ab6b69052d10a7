//! Processes that a signal has stopped, for example jobs suspended in a shell: they are still stopped after a dump and
//! a restore.

use std::fs;

use burrow_runtime::Runtime as _;

use super::programs::Distribution;
use super::support::{Host, options, poll, unified};
use super::{LIMITS, dump, plainly, restore};

/// Children that count, each in a separate job: one by a thread beside another, one that collects the zombies of its
/// children, one by one.
/// end leave behind, one by one.
const COUNTS: &str = r#"
import os, signal, subprocess, threading, time
def note(name, number):
    open("/" + name + ".new", "w").write(str(number))
    os.rename("/" + name + ".new", "/" + name)
def count(name):
    number = 0
    while True:
        number += 1
        note(name, number)
        time.sleep(.002)
def child(name, work):
    if os.fork() == 0:
        os.setpgid(0, 0)
        open("/proc/self/comm", "w").write(name)
        work(name)
        while True: time.sleep(1000)
def threads(name):
    threading.Thread(target=time.sleep, args=(1000,)).start()
    threading.Thread(target=count, args=(name,)).start()
def children(name):
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in range(1, 1 << 30):
        if os.fork() == 0:
            time.sleep(.02)
            os._exit(0)
        note(name, number)
        time.sleep(.001)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]: pass
        except ChildProcessError: pass
for name in ["stop", "tstp", "ttin", "ttou", "twice", "free"]: child(name, count)
child("threads", threads)
child("children", children)
signal.pause()
"#;

/// The stopped processes, and their signals.
const STOPPED: [(&str, &[i32]); 7] = [
    ("stop", &[libc::SIGSTOP]),
    ("tstp", &[libc::SIGTSTP]),
    ("ttin", &[libc::SIGTTIN]),
    ("ttou", &[libc::SIGTTOU]),
    ("twice", &[libc::SIGTSTP, libc::SIGSTOP, libc::SIGTTIN]),
    ("threads", &[libc::SIGTSTP]),
    ("children", &[libc::SIGSTOP]),
];

fn cycles() -> usize {
    if std::env::var_os("BURROW_TEST_ALL").is_some() { 50 } else { 5 }
}

/// A process of the machine by its name.
fn named(host: &Host, distribution: &Distribution, name: &str) -> i32 {
    let group = unified().join(host.group(&distribution.plot.id)).join("cgroup.procs");
    let is_it = |pid: &&str| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|found| found.trim() == name)
            // Forked children have the name of their parent.
            && fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
                let fields: Vec<&str> = stat.split(' ').collect();
                fields.get(4) == Some(pid)
            })
    };
    fs::read_to_string(group)
        .unwrap()
        .lines()
        .find(is_it)
        .unwrap_or_else(|| panic!("no {name}"))
        .parse()
        .unwrap()
}

fn state(pid: i32) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1[..1].to_owned()
}

fn send(pid: i32, signal: i32) {
    let sent =
        std::process::Command::new("kill").arg(format!("-{signal}")).arg(pid.to_string()).status().unwrap();
    assert!(sent.success());
}

#[tokio::test]
async fn stopped_processes_stay_stopped_until_they_are_continued() {
    let host = Host::keeping();
    let distribution = Distribution::new();
    let plot = &distribution.plot;
    distribution.script(COUNTS);
    let commands = ["spawn /usr/bin/python3 /script.py"];
    let mut machine = host.runtime.boot(&plot.id, options(plot, LIMITS, &commands)).await.unwrap();
    for name in STOPPED.map(|(name, _)| name).into_iter().chain(["free"]) {
        poll(name, || distribution.number(name) > 3);
    }
    let stand = || STOPPED.map(|(name, _)| (name, distribution.number(name)));
    for (name, signals) in STOPPED {
        let pid = named(&host, &distribution, name);
        for signal in signals {
            send(pid, *signal);
        }
        poll(name, || state(pid) == "T");
    }
    let before = stand();
    for cycle in 1..=cycles() {
        let kept = dump(&host, plot, &machine).await;
        assert_eq!(stand(), before, "one of them ran during dump {cycle}");
        // Sometimes the machine itself resumes, as after a snapshot.
        if cycle % 3 != 0 {
            host.runtime.destroy(&plot.id).await.unwrap();
            machine = restore(&host, plot, plainly(plot, &kept)).await;
            assert_eq!(stand(), before, "one of them ran during restore {cycle}");
        }
        host.runtime.resume(&plot.id).await.unwrap();
        let at = distribution.number("free");
        poll("the others to continue", || distribution.number("free") > at + 3);
        for (name, _) in STOPPED {
            let pid = named(&host, &distribution, name);
            poll(name, || state(pid) == "T");
        }
        assert_eq!(stand(), before, "one of them ran after dump {cycle}");
        fs::remove_dir_all(&kept.images).unwrap();
    }
    for (name, at) in before {
        send(named(&host, &distribution, name), libc::SIGCONT);
        poll(name, || distribution.number(name) > at + 3);
    }
    assert_eq!(distribution.read("log"), "");
    host.runtime.destroy(&plot.id).await.unwrap();
}
