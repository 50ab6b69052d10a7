//! The first steps: create, run, inspect, stop, start, delete.

use crate::harness::Daemon;

#[test]
fn a_sandbox_runs_commands_and_keeps_its_files_over_a_stop() {
    let daemon = Daemon::start();
    let id = daemon.ok(&["create", "--name", "alpha"]);
    assert_eq!(daemon.ok(&["exec", "alpha", "--", "echo", "hello"]), "hello");
    daemon.ok(&["exec", "alpha", "--", "sh", "-c", "echo kept > /root/file"]);
    daemon.ok(&["stop", "alpha"]);
    assert_eq!(daemon.inventory().processes.len(), 0);
    daemon.ok(&["start", &id]);
    assert_eq!(daemon.ok(&["exec", "alpha", "--", "cat", "/root/file"]), "kept");
    daemon.ok(&["rm", "--purge", "-f", "alpha"]);
    assert!(daemon.inventory().sandboxes().is_empty());
}

#[test]
fn an_exec_passes_its_exit_code_and_both_streams_through() {
    let daemon = Daemon::start();
    daemon.ok(&["create", "--name", "alpha"]);
    let output = daemon.cli(&["exec", "alpha", "--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "out\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "err\n");
}
