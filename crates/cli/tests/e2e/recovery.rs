//! A start after a crash: what cannot be recovered at once keeps nobody else waiting.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use crate::harness::{Daemon, eventually};

/// A CRIU that never ends once `hang` exists: as one that was stopped, or waits for a disk that does not answer.
fn use_hanging_criu(daemon: &Daemon) -> std::path::PathBuf {
    let hang = daemon.state_dir().with_file_name("hang");
    let wrapper = daemon.state_dir().with_file_name("criu");
    let real = std::env::var("BURROW_CRIU").unwrap();
    let script = format!("#!/bin/sh\n[ -e '{}' ] && exec sleep 1000\nexec '{real}' \"$@\"\n", hang.display());
    fs::write(&wrapper, script).unwrap();
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    let config = fs::read_to_string(daemon.config()).unwrap();
    fs::write(daemon.config(), config.replace(&format!("{real:?}"), &format!("{:?}", wrapper.display())))
        .unwrap();
    hang
}

#[test]
fn a_dump_that_hangs_keeps_only_its_own_sandbox_waiting_and_leaves_its_files() {
    let mut daemon = Daemon::prepare("");
    let hang = use_hanging_criu(&daemon);
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
    fs::remove_file(&hang).unwrap();
    daemon.ok(&["start", "stuck"]);
    assert_eq!(daemon.sh("stuck", "cat /root/file"), "kept");
}
