//! A start after a crash: a sandbox that is slow to recover does not delay the others.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use crate::harness::{Daemon, eventually};
use crate::sleep_crash::check_inventory;

/// Makes the daemon use a CRIU that runs `instead`, a line of shell, once the returned file exists.
fn use_faulty_criu(daemon: &Daemon, instead: &str) -> std::path::PathBuf {
    let fault = daemon.state_dir().with_file_name("fault");
    let wrapper = daemon.state_dir().with_file_name("criu");
    let real = std::env::var("BURROW_CRIU").unwrap();
    let script =
        format!("#!/bin/sh\nfault='{}'\n[ -e $fault ] && {instead}\nexec '{real}' \"$@\"\n", fault.display());
    fs::write(&wrapper, script).unwrap();
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    let config = fs::read_to_string(daemon.config()).unwrap();
    fs::write(daemon.config(), config.replace(&format!("{real:?}"), &format!("{:?}", wrapper.display())))
        .unwrap();
    fault
}

#[test]
fn a_dump_that_hangs_keeps_only_its_own_sandbox_waiting_and_leaves_its_files() {
    let mut daemon = Daemon::prepare("");
    // Frozen, like a process that was stopped, or that waits for a disk that does not answer.
    let hang = use_faulty_criu(&daemon, "exec sleep 1000");
    daemon.launch();
    for name in ["stuck", "other"] {
        daemon.create(name);
        daemon.sh(name, "echo kept > /root/file; sync");
    }
    fs::write(&hang, "").unwrap();
    let mut asking = daemon.command(&["hibernate", "stuck"]);
    let mut asking = asking.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually("the hibernate to begin", || {
        (daemon.inspect("stuck")["state"] == "hibernating").then_some(())
    });
    daemon.kill();
    asking.wait().unwrap();
    // The next daemon asks CRIU for its version; at that time the hanging one is already in place.
    fs::remove_file(&hang).unwrap();

    daemon.spawn();
    daemon.wait_up();
    assert_eq!(daemon.sh("other", "cat /root/file"), "kept", "the other is used at once");
    let stuck = daemon.inspect("stuck");
    let reason = stuck["recovering"].as_str().unwrap_or_else(|| panic!("{stuck}"));
    assert!(reason.contains("hibernate"), "{reason}");
    assert!(daemon.ok(&["ls"]).contains("recovering"));
    let refused = daemon.cli(&["exec", "stuck", "--", "true"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("recovering") && said.contains("hint: "), "{said}");

    let failed = eventually("the sandbox to be given up", || {
        let shown = daemon.inspect("stuck");
        (shown["recovering"].is_null()).then_some(shown)
    });
    assert_eq!(failed["state"], "failed", "{failed}");
    assert!(failed["failure"].as_str().unwrap().contains("makes no progress"), "{failed}");
    daemon.ok(&["start", "stuck"]);
    assert_eq!(daemon.sh("stuck", "cat /root/file"), "kept");
}

#[test]
fn a_restore_whose_criu_is_killed_is_tried_once_more() {
    let mut daemon = Daemon::prepare("");
    let die = use_faulty_criu(&daemon, "rm $fault && kill -9 $$");
    daemon.launch();
    daemon.create("alpha");
    let exec = daemon.ok(&["exec", "-d", "alpha", "--", "sleep", "1000"]);
    daemon.ok(&["hibernate", "alpha"]);
    fs::write(&die, "").unwrap();
    daemon.ok(&["wake", "alpha"]);
    assert!(!die.exists(), "CRIU was not killed");
    assert!(daemon.log().contains("a restore was interrupted"));
    assert!(daemon.ok(&["ps", "alpha"]).contains(&exec), "its processes are lost");
}

#[test]
fn a_restore_that_hangs_is_tried_once_more_and_no_other_sandbox_waits_for_it() {
    let mut daemon = Daemon::prepare("");
    let hang = use_faulty_criu(&daemon, "rm $fault && exec sleep 1000");
    daemon.launch();
    for name in ["stuck", "other"] {
        daemon.create(name);
    }
    let exec = daemon.ok(&["exec", "-d", "stuck", "--", "sleep", "1000"]);
    daemon.ok(&["hibernate", "stuck", "other"]);
    fs::write(&hang, "").unwrap();
    let mut wake = daemon.command(&["wake", "stuck"]);
    let mut wake = wake.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually("CRIU to hang", || (!hang.exists()).then_some(()));
    daemon.sh("other", "true");
    assert!(!daemon.log().contains("a restore was interrupted"), "the other waited for it");
    assert!(wake.wait().unwrap().success());
    assert!(daemon.log().contains("a restore was interrupted"));
    assert!(daemon.ok(&["ps", "stuck"]).contains(&exec), "its processes are lost");
}

#[test]
fn a_dump_whose_criu_is_killed_is_tried_once_more() {
    let mut daemon = Daemon::prepare("");
    let die = use_faulty_criu(&daemon, "rm $fault && kill -9 $$");
    daemon.launch();
    daemon.create("alpha");
    let exec = daemon.ok(&["exec", "-d", "alpha", "--", "sleep", "1000"]);
    fs::write(&die, "").unwrap();
    daemon.ok(&["hibernate", "alpha"]);
    assert!(!die.exists(), "CRIU was not killed");
    assert!(daemon.log().contains("retrying a dump"));
    daemon.ok(&["wake", "alpha"]);
    assert!(daemon.ok(&["ps", "alpha"]).contains(&exec), "its processes are lost");
}

#[test]
fn a_dump_that_hangs_while_the_daemon_lives_ends_and_no_other_sandbox_waits_for_it() {
    let mut daemon = Daemon::prepare("");
    // Only the CRIU of one sandbox hangs, at every attempt: CRIU runs in a cgroup that is named after its sandbox.
    let hang = use_faulty_criu(&daemon, "grep -q \"$(cat $fault)\" /proc/self/cgroup && exec sleep 1000");
    daemon.launch();
    for name in ["stuck", "other"] {
        daemon.create(name);
    }
    let exec = daemon.ok(&["exec", "-d", "stuck", "--", "sleep", "1000"]);
    fs::write(&hang, daemon.inspect("stuck")["id"].as_str().unwrap()).unwrap();
    let mut hibernate = daemon.command(&["hibernate", "stuck"]);
    let hibernate = hibernate.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the hibernate to begin", || {
        (daemon.inspect("stuck")["state"] == "hibernating").then_some(())
    });
    daemon.create("new");
    daemon.sh("new", "true");
    daemon.ok(&["fork", "other", "--name", "child"]);
    daemon.sh("child", "true");
    daemon.ok(&["hibernate", "other"]);
    daemon.ok(&["wake", "other"]);
    daemon.ok(&["rm", "--purge", "new"]);
    let ended = hibernate.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success() && said.contains("made no progress"), "{said}");
    assert!(daemon.log().contains("retrying a dump"));
    assert_eq!(daemon.inspect("stuck")["state"], "running");
    assert!(daemon.ok(&["ps", "stuck"]).contains(&exec), "its processes are lost");
    fs::remove_file(&hang).unwrap();
    daemon.ok(&["hibernate", "stuck"]);
    daemon.ok(&["wake", "stuck"]);
    assert!(daemon.ok(&["ps", "stuck"]).contains(&exec), "its processes are lost");
}

/// With a CRIU that fails for every sandbox except `alpha`, once the returned file exists, so that trials fail.
fn use_criu_that_fails_trials(daemon: &mut Daemon) -> (std::path::PathBuf, String) {
    let fault = use_faulty_criu(daemon, "! grep -q \"$(cat $fault)\" /proc/self/cgroup && exit 1");
    daemon.launch();
    daemon.create("alpha");
    let exec = daemon.ok(&["exec", "-d", "alpha", "--", "sleep", "1000"]);
    (fault, exec)
}

/// The request is refused because of a trial, and `alpha` continues as if it had not been made.
fn check_refused(daemon: &Daemon, request: &[&str], exec: &str) {
    let refused = daemon.cli(request);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("trial restore") && said.contains("hint: "), "{said}");
    assert_eq!(daemon.inspect("alpha")["state"], "running");
    assert!(daemon.ok(&["ps", "alpha"]).contains(exec), "its processes are lost");
    daemon.sh("alpha", "true");
}

#[test]
fn a_hibernate_whose_trial_fails_changes_nothing() {
    let mut daemon = Daemon::prepare("");
    let (fault, exec) = use_criu_that_fails_trials(&mut daemon);
    fs::write(&fault, daemon.inspect("alpha")["id"].as_str().unwrap()).unwrap();
    check_refused(&daemon, &["hibernate", "alpha"], &exec);
    check_inventory(&daemon, "after a trial that failed");
    fs::remove_file(&fault).unwrap();
    daemon.ok(&["hibernate", "alpha"]);
    daemon.ok(&["wake", "alpha"]);
    assert!(daemon.ok(&["ps", "alpha"]).contains(&exec), "its processes are lost");
}

#[test]
fn a_restart_of_the_daemon_causes_no_new_trials() {
    let mut daemon = Daemon::prepare("");
    let (fault, exec) = use_criu_that_fails_trials(&mut daemon);
    for _ in 0..2 {
        daemon.ok(&["hibernate", "alpha"]);
        daemon.ok(&["wake", "alpha"]);
    }
    daemon.kill();
    daemon.launch();
    fs::write(&fault, daemon.inspect("alpha")["id"].as_str().unwrap()).unwrap();
    daemon.ok(&["hibernate", "alpha"]);
    fs::remove_file(&fault).unwrap();
    daemon.ok(&["wake", "alpha"]);
    assert!(daemon.ok(&["ps", "alpha"]).contains(&exec), "its processes are lost");
}

#[test]
fn a_restore_in_place_whose_trial_fails_changes_nothing() {
    let mut daemon = Daemon::prepare("");
    let (fault, exec) = use_criu_that_fails_trials(&mut daemon);
    daemon.ok(&["snapshot", "create", "alpha", "--name", "then"]);
    daemon.sh("alpha", "echo kept > /root/file");
    fs::write(&fault, daemon.inspect("alpha")["id"].as_str().unwrap()).unwrap();
    check_refused(&daemon, &["snapshot", "restore", "then", "--in-place", "alpha", "--yes"], &exec);
    assert_eq!(daemon.sh("alpha", "cat /root/file"), "kept");
    check_inventory(&daemon, "after a trial that failed");
    fs::remove_file(&fault).unwrap();
    daemon.ok(&["snapshot", "restore", "then", "--in-place", "alpha", "--yes"]);
    assert!(daemon.ok(&["ps", "alpha"]).contains(&exec), "its processes are lost");
    assert!(!daemon.holds("alpha", "test -e /root/file"), "its files are not those of the snapshot");
}
