//! Sandboxes that are microVMs: each guarantee is tested once. The machines are emulated, so that the test is the same on
//! every host; because that is slow, there are few tests, each of which checks much.

use std::fs;
use std::process::Stdio;

use burrow_engine::faults::DISK_POINTS;
use serde_json::Value;

use crate::crash::ready;
use crate::harness::{Daemon, eventually};
use crate::island::{self, CONFIG, OUTSIDE, Web};

/// Small enough to run beside the other tests.
const SMALL: [&str; 6] = ["--ram", "192M", "--cpu", "1", "--disk", "1G"];

pub(crate) fn start(extra: &str) -> Daemon {
    let mut daemon = Daemon::prepare_microvms(extra);
    daemon.launch();
    daemon
}

pub(crate) fn create(daemon: &Daemon, name: &str, further: &[&str]) -> String {
    let arguments = [&["create", "--name", name][..], &SMALL, further].concat();
    daemon.ok(&arguments)
}

/// Counts for as long as it runs; returns how far it has come.
pub(crate) fn begin_to_count(daemon: &Daemon, sandbox: &str) -> String {
    let counting = "i=0; while :; do i=$((i+1)); echo $i > /tmp/count.new; mv /tmp/count.new /tmp/count; sleep 0.05; done";
    let exec = daemon.ok(&["exec", "-d", sandbox, "--", "sh", "-c", counting]);
    eventually("a first number", || daemon.holds(sandbox, "test -s /tmp/count").then_some(()));
    exec
}

pub(crate) fn count(daemon: &Daemon, sandbox: &str) -> u64 {
    daemon.sh(sandbox, "cat /tmp/count").parse().unwrap()
}

/// It continues to count from where it was.
#[track_caller]
pub(crate) fn counts_on(daemon: &Daemon, sandbox: &str, from: u64) {
    let first = count(daemon, sandbox);
    assert!(first >= from, "it went back from {from} to {first}");
    eventually("a later number", || (count(daemon, sandbox) > first).then_some(()));
}

fn state(daemon: &Daemon, sandbox: &str) -> Value {
    daemon.get(&format!("/v1/sandboxes/{sandbox}")).expect(200)
}

#[test]
fn a_microvm_is_a_sandbox_like_any_other() {
    let mut daemon = start("");
    let host = daemon.get("/v1/host").expect(200);
    assert_eq!(host["default_driver"], "microvm", "{host}");
    let id = create(&daemon, "alpha", &[]);
    assert_eq!(state(&daemon, "alpha")["driver"], "microvm");
    let own = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_ne!(daemon.sh("alpha", "uname -r"), own.trim(), "its kernel is its own");
    // A single option chooses the other driver.
    daemon.ok(&["create", "--name", "shared", "--isolation", "container"]);
    assert_eq!(daemon.sh("shared", "uname -r"), own.trim());
    daemon.ok(&["rm", "--purge", "shared"]);

    // Commands, files, terminal sizes.
    assert_eq!(daemon.cli(&["exec", "alpha", "--", "sh", "-c", "exit 7"]).status.code(), Some(7));
    let fed = daemon.fed(&["exec", "-i", "alpha", "--", "sha256sum"], &vec![b'x'; 1 << 20]);
    let folder = tempfile::tempdir().unwrap();
    let (here, back) = (folder.path().join("here"), folder.path().join("back"));
    fs::write(&here, vec![b'x'; 1 << 20]).unwrap();
    daemon.ok(&["cp", here.to_str().unwrap(), "alpha:/root/there"]);
    let sum = daemon.sh("alpha", "sha256sum < /root/there");
    assert_eq!(String::from_utf8_lossy(&fed.stdout).trim(), sum);
    daemon.ok(&["cp", "alpha:/root/there", back.to_str().unwrap()]);
    assert!(fs::read(&back).unwrap() == fs::read(&here).unwrap());

    // A port, through the daemon.
    daemon.ok(&["exec", "-d", "alpha", "--", "python3", "-m", "http.server", "8000", "-d", "/root"]);
    let (site, key) = (format!("8000-{id}.localhost"), daemon.key());
    let page = || daemon.http_open("GET", "/there").header("host", &site).header("x-burrow-key", &key).send();
    let served = eventually("a server", || Some(page()).filter(|page| page.status == 200));
    assert!(served.body == fs::read(&here).unwrap());

    // Its disk grows while it runs.
    let size =
        |daemon: &Daemon| daemon.sh("alpha", "df -m / | tail -1 | awk '{print $2}'").parse::<u32>().unwrap();
    assert!((900..1100).contains(&size(&daemon)), "{}", size(&daemon));
    daemon.ok(&["update", "alpha", "--disk", "2G"]);
    assert!(size(&daemon) > 1900, "{}", size(&daemon));

    // Paused, asleep, and over a restart of the daemon: its processes continue.
    begin_to_count(&daemon, "alpha");
    daemon.ok(&["pause", "alpha"]);
    assert_eq!(state(&daemon, "alpha")["state"], "paused");
    daemon.ok(&["resume", "alpha"]);
    let before = count(&daemon, "alpha");
    daemon.kill();
    daemon.launch();
    assert_eq!(state(&daemon, "alpha")["state"], "running");
    counts_on(&daemon, "alpha", before);
    let before = count(&daemon, "alpha");
    daemon.ok(&["hibernate", "alpha"]);
    assert!(daemon.inventory().processes.is_empty(), "asleep, it costs no RAM");
    counts_on(&daemon, "alpha", before);

    // Stopped, its files stay; deleted, nothing does.
    daemon.sh("alpha", "echo kept > /root/kept");
    daemon.ok(&["stop", "alpha"]);
    daemon.ok(&["start", "alpha"]);
    assert_eq!(daemon.sh("alpha", "cat /root/kept; pgrep -f '[c]ount.new' || echo none"), "kept\nnone");
    daemon.ok(&["rm", "--purge", "alpha"]);
    assert_eq!(daemon.inventory().sandboxes(), [].into());
}

#[test]
fn a_pre_created_microvm_is_used_and_a_crashed_machine_is_reported() {
    let mut daemon = Daemon::prepare_microvms("");
    daemon.keep_ready(1);
    daemon.launch();
    // The first machine of a specification makes the template, the second one shows that more are needed, the third
    // one was pre-created.
    for name in ["one", "two"] {
        create(&daemon, name, &[]);
        daemon.ok(&["rm", "--purge", name]);
    }
    // In addition to the one with default settings.
    eventually("two pre-created", || (ready(&daemon) == 2).then_some(()));
    let waiting: Vec<u32> = daemon.inventory().processes.into_iter().collect();
    create(&daemon, "three", &[]);
    assert!(
        daemon.inventory().processes.iter().any(|pid| waiting.contains(pid)),
        "it was there before it was asked for"
    );
    assert_eq!(daemon.sh("three", "hostname"), "three");

    // A guest that crashes its emulator affects no other sandbox.
    create(&daemon, "four", &[]);
    let mut command =
        daemon.command(&["exec", "three", "--", "sh", "-c", "echo c > /proc/sysrq-trigger; sleep 9999"]);
    let mut client = command.stderr(Stdio::piped()).spawn().unwrap();
    eventually("the end of a machine", || (state(&daemon, "three")["state"] == "stopped").then_some(()));
    let status = eventually("whoever listens to be told", || client.try_wait().unwrap());
    assert_eq!(status.code(), Some(125));
    assert_eq!(daemon.sh("four", "echo well"), "well");
    daemon.ok(&["start", "three"]);
    assert_eq!(daemon.sh("three", "echo again"), "again");
}

#[test]
fn a_crash_while_a_template_is_created_leaves_nothing_and_the_next_attempt_succeeds() {
    let mut daemon = Daemon::prepare_microvms("");
    for point in DISK_POINTS {
        daemon.arm(Some(&format!("{point}=kill")));
        daemon.launch();
        let refused = daemon.cli(&[&["create"][..], &SMALL].concat());
        assert!(!refused.status.success(), "{point}");
        daemon.wait_dead();
        daemon.arm(None);
        daemon.launch();
        let left = daemon.inventory();
        assert_eq!(left.sandboxes(), [].into(), "{point}");
        assert_eq!(left.processes, [].into(), "{point}");
        let staged = fs::read_dir(daemon.pool().join("staged")).unwrap().count();
        assert_eq!(staged, 0, "{point}");
        daemon.terminate();
    }
    daemon.launch();
    create(&daemon, "alpha", &[]);
    assert_eq!(daemon.sh("alpha", "echo well"), "well");
    assert!(!daemon.log().contains("the machine boots"), "it goes on from a template: {}", daemon.log());
}

#[test]
fn snapshots_and_forks_of_a_microvm_preserve_its_whole_state() {
    let daemon = start("");
    create(&daemon, "alpha", &[]);
    begin_to_count(&daemon, "alpha");
    daemon.sh("alpha", "echo then > /root/file; mkdir /dev/shm/ram; echo only > /dev/shm/ram/here");
    let taken = daemon.json(&["snapshot", "create", "alpha", "--name", "good", "--json"]);
    assert_eq!(taken["processes"], true, "{taken}");
    assert!(taken["pause_us"].as_u64().unwrap() > 0 && taken["ram_bytes"].as_u64().unwrap() > 0, "{taken}");
    let then = count(&daemon, "alpha");
    daemon.sh("alpha", "echo now > /root/file; pkill -f '[c]ount.new'; rm -r /dev/shm/ram");

    // Two children, and a grandchild; each continues, and each has its own identity.
    daemon.ok(&["snapshot", "restore", "good", "--in-place", "alpha", "--yes"]);
    assert_eq!(daemon.sh("alpha", "cat /root/file /dev/shm/ram/here"), "then\nonly");
    counts_on(&daemon, "alpha", then.saturating_sub(100));
    let forked = daemon.json(&["fork", "alpha", "--count", "2", "--name", "child", "--json"]);
    let children: Vec<String> = forked["children"]
        .as_array()
        .unwrap()
        .iter()
        .map(|child| child["id"].as_str().unwrap().to_owned())
        .collect();
    let grandchild = daemon.json(&["fork", &children[0], "--json"]);
    let grandchild = grandchild["children"][0]["id"].as_str().unwrap().to_owned();
    let mut seen = std::collections::BTreeSet::new();
    for sandbox in children.iter().chain([&grandchild]) {
        assert_eq!(daemon.sh(sandbox, "cat /root/file /dev/shm/ram/here"), "then\nonly");
        counts_on(&daemon, sandbox, 1);
        let own = daemon.sh(sandbox, "cat /etc/machine-id; hostname; head -c 16 /dev/urandom | od -An -tx1");
        assert!(own.lines().all(|line| seen.insert(line.to_owned())), "two are the same: {own}");
        assert_eq!(daemon.sh(sandbox, "getent ahostsv4 alpha | head -1 | cut -d' ' -f1"), "127.0.1.1");
    }
    daemon.sh(&children[0], "echo mine > /root/file");
    assert_eq!(daemon.sh(&children[1], "cat /root/file"), "then", "what one writes is its own");

    // A files-only snapshot of a running machine includes written data.
    daemon.sh("alpha", "echo late > /root/late");
    let files = daemon.json(&["snapshot", "create", "alpha", "--files-only", "--json"]);
    daemon.ok(&["snapshot", "restore", files["id"].as_str().unwrap(), "--name", "other"]);
    assert_eq!(daemon.sh("other", "cat /root/late; pgrep -f '[c]ount.new' || echo none"), "late\nnone");
}

#[test]
fn a_microvm_moves_to_another_host_with_its_processes() {
    let (here, there) = (start(""), start(""));
    create(&here, "alpha", &[]);
    begin_to_count(&here, "alpha");
    let before = count(&here, "alpha");
    here.ok(&["snapshot", "create", "alpha", "--name", "good"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("alpha.burrow");
    let file = file.to_str().unwrap();
    let written = here.json(&["export", "good", file, "--json"]);
    there.ok(&["import", file, "--trust", written["signer"].as_str().unwrap()]);
    there.ok(&["snapshot", "restore", "good", "--name", "beta"]);
    assert_eq!(there.sh("beta", "hostname"), "beta");
    counts_on(&there, "beta", before.max(1));
}

#[test]
fn a_microvm_reaches_what_its_rules_allow_and_nothing_else() {
    if !island::landed("microvms::a_microvm_reaches_what_its_rules_allow_and_nothing_else") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let _https = Web::https(OUTSIDE, 443, folder.path());
    let daemon = start(CONFIG);
    create(&daemon, "alpha", &[]);
    let fetch = "curl -fsSk --max-time 30 https://up.example/";
    assert!(!daemon.holds("alpha", fetch));
    daemon.ok(&["egress", "allow", "alpha", "up.example"]);
    assert_eq!(daemon.sh("alpha", fetch), "hello from outside");
    // The host itself is unreachable on every path.
    assert!(!daemon.holds(
        "alpha",
        "curl -fsS --max-time 5 http://127.0.0.1:1/ || curl -fsSk --max-time 5 https://10.20.0.1/"
    ));
    // The same after a sleep.
    daemon.ok(&["hibernate", "alpha"]);
    assert_eq!(daemon.sh("alpha", fetch), "hello from outside");
    daemon.ok(&["egress", "deny", "alpha", "up.example"]);
    assert!(!daemon.holds("alpha", fetch));
}
