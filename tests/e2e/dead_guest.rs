//! A guest that is frozen or dead is reported clearly, within time limits, and without an effect on other sandboxes.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Daemon, eventually, run};

/// PID 1 of the only sandbox, by its pid on the host.
fn first_process(daemon: &Daemon, sandbox: &str) -> u32 {
    let inside = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let numbers = status.lines().find(|line| line.starts_with("NSpid:")).unwrap_or_default();
        let cgroup = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        numbers.split_whitespace().last() == Some("1") && cgroup.contains(sandbox)
    };
    daemon.inventory().processes.into_iter().find(inside).expect("a running sandbox has a first process")
}

fn signal(pid: u32, name: &str) {
    run(Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()));
}

#[test]
fn a_frozen_guest_is_reported_as_unreachable_and_other_sandboxes_are_unaffected() {
    let daemon = Daemon::start();
    let id = daemon.create("alpha");
    daemon.create("beta");
    let pid = first_process(&daemon, &id);
    signal(pid, "STOP");
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            let exec = json!({ "argv": ["true"], "wait": true });
            daemon.post("/v1/sandboxes/alpha/execs", &exec).refused(504, "guest_unreachable")
        });
        let read = scope.spawn(|| {
            daemon.get("/v1/sandboxes/alpha/files?path=/etc/hosts").refused(504, "guest_unreachable")
        });
        while !asked.is_finished() || !read.is_finished() {
            assert_eq!(daemon.ok(&["exec", "beta", "--", "echo", "well"]), "well");
            assert_eq!(daemon.json(&["ls", "--json"]).as_array().unwrap().len(), 2);
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        let error = asked.join().unwrap();
        assert!(error["message"].as_str().unwrap().contains(&id) && !error["hint"].is_null(), "{error}");
        read.join().unwrap();
    });
    signal(pid, "CONT");
    assert_eq!(daemon.sh("alpha", "echo back"), "back", "it was only frozen, and nothing was given up");
    // Deleting does not need the guest's help.
    signal(pid, "STOP");
    daemon.ok(&["rm", "--purge", "alpha"]);
    assert!(!daemon.inventory().sandboxes().contains(&id));
    assert!(daemon.holds("beta", "true"));
}

#[test]
fn a_sandbox_whose_guest_is_killed_is_stopped_and_keeps_its_files() {
    let daemon = Daemon::start();
    let id = daemon.create("alpha");
    daemon.sh("alpha", "echo kept > /root/file; sync");
    let exec = daemon.ok(&["exec", "-d", "alpha", "--", "sleep", "1000"]);
    signal(first_process(&daemon, &id), "KILL");
    let stopped = eventually("the end to be noticed", || {
        let sandbox = daemon.inspect("alpha");
        (sandbox["state"] == "stopped").then_some(sandbox)
    });
    assert_eq!(stopped["stop_reason"], "guest_exited");
    let inventory = daemon.inventory();
    assert!(inventory.processes.is_empty() && inventory.networks.is_empty() && inventory.cgroups.is_empty());
    let lost = daemon.get(&format!("/v1/sandboxes/alpha/execs/{exec}")).expect(200);
    assert_eq!((&lost["state"], &lost["outcome"]), (&json!("lost"), &Value::Null));
    let unused = daemon.cli(&["exec", "--no-start", "alpha", "--", "true"]);
    assert!(
        unused.status.code() == Some(125)
            && String::from_utf8_lossy(&unused.stderr).contains("`burrow start alpha` starts it"),
        "{unused:?}"
    );
    assert_eq!(daemon.inspect("alpha")["state"], "stopped");
    assert_eq!(daemon.sh("alpha", "cat /root/file"), "kept");
}

#[test]
fn a_client_whose_sandbox_dies_gets_an_error_instead_of_waiting() {
    let daemon = Daemon::start();
    let id = daemon.create("alpha");
    let mut command = daemon.command(&["exec", "alpha", "--", "sh", "-c", "echo begun; sleep 1000"]);
    let mut client =
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut first = [0; 6];
    std::io::Read::read_exact(client.stdout.as_mut().unwrap(), &mut first).unwrap();
    signal(first_process(&daemon, &id), "KILL");
    let status = eventually("the client to leave", || client.try_wait().unwrap());
    assert_eq!(status.code(), Some(125));
    let mut said = String::new();
    std::io::Read::read_to_string(client.stderr.as_mut().unwrap(), &mut said).unwrap();
    assert!(!said.is_empty(), "it says why");
}

#[test]
fn an_ephemeral_sandbox_whose_guest_dies_is_deleted() {
    let daemon = Daemon::start();
    let id = daemon.ok(&["create", "--ephemeral"]);
    signal(first_process(&daemon, &id), "KILL");
    eventually("it to be gone", || {
        (daemon.inventory().sandboxes().is_empty() && daemon.json(&["ls", "--json"]) == json!([]))
            .then_some(())
    });
}
