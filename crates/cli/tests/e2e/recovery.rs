//! A start after a crash: a sandbox that is slow to recover does not delay the others.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use crate::harness::{Daemon, eventually};

/// Has the daemon use a CRIU that does `instead`, a line of shell, once the file exists that this answers with.
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
    // As one that was stopped, or waits for a disk that does not answer.
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
    // The next daemon asks CRIU for its version; the one that hangs is there already.
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
    assert!(daemon.log().contains("trying a restore once more"));
    assert!(daemon.ok(&["ps", "alpha"]).contains(&exec), "its processes are lost");
}
