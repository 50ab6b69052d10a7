//! Crash safety: a failure and a `kill -9` at every step of every operation; restarts and reboots.

use std::collections::BTreeSet;

use burrow_engine::faults::{POINTS, WARM_POOL_POINTS};

use crate::harness::{Daemon, eventually};
use crate::sleep_crash::check_inventory;

/// The API's sandboxes, by id and state.
fn listed(daemon: &Daemon) -> Vec<(String, String)> {
    let json: serde_json::Value = serde_json::from_str(&daemon.ok(&["ls", "--all", "--json"])).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    json.as_array().unwrap().iter().map(|row| (text(&row["id"]), text(&row["state"]))).collect()
}

/// Brings a fresh daemon to the start of `point`'s operation, arms the point and performs the operation.
fn hit(point: &str, action: &str) -> Daemon {
    let mut daemon = Daemon::start();
    let (operation, _) = point.split_once('.').unwrap();
    if operation != "create" {
        daemon.ok(&["create", "--name", "alpha"]);
        daemon.ok(&["exec", "alpha", "--", "sh", "-c", "echo kept > /root/file; sync"]);
    }
    if operation == "start" {
        daemon.ok(&["stop", "alpha"]);
    }
    daemon.terminate();
    daemon.arm(Some(&format!("{point}={action}")));
    daemon.launch();
    match operation {
        "create" => daemon.cli(&["create", "--name", "alpha"]),
        "start" => daemon.cli(&["start", "alpha"]),
        "stop" => daemon.cli(&["stop", "alpha"]),
        _ => daemon.cli(&["rm", "--purge", "-f", "alpha"]),
    };
    daemon
}

/// Checks the host after a fault: it is consistent, and everything works.
fn check_recovered(daemon: &mut Daemon, point: &str, context: &str) {
    daemon.arm(None);
    daemon.launch();
    check_inventory(daemon, context);
    let rows = listed(daemon);
    let (operation, moment) = point.split_once('.').unwrap();
    match operation {
        "create" => assert_eq!(rows.len(), usize::from(moment == "settled"), "{context}"),
        "start" | "stop" => {
            assert_eq!(rows.len(), 1, "{context}");
            daemon.ok(&["start", "alpha"]);
            assert_eq!(daemon.ok(&["exec", "alpha", "--", "cat", "/root/file"]), "kept", "{context}");
        }
        _ => assert!(rows.is_empty(), "a delete never comes back, {context}"),
    }
    daemon.ok(&["create", "--name", "omega"]);
    assert_eq!(daemon.ok(&["exec", "omega", "--", "echo", "new"]), "new", "{context}");
    for name in ["alpha", "omega"] {
        daemon.cli(&["rm", "--purge", "-f", name]);
    }
    check_inventory(daemon, context);
    assert!(daemon.inventory().sandboxes().is_empty(), "{context}");
}

#[test]
fn a_kill_at_every_step_of_every_operation_leaves_the_host_as_the_catalog_says() {
    for point in POINTS {
        let context = format!("after kill -9 at {point}");
        let mut daemon = hit(point, "kill");
        daemon.wait_dead();
        check_recovered(&mut daemon, point, &context);
    }
}

#[test]
fn a_failure_at_every_step_of_every_operation_leaves_the_host_as_the_catalog_says() {
    // After `settled` the work is done; a failure there leaves nothing to undo.
    for point in POINTS.iter().filter(|point| !point.ends_with(".settled")) {
        let context = format!("after a failure at {point}");
        let mut daemon = hit(point, "fail");
        if point.starts_with("create") || point.starts_with("start") {
            check_inventory(&daemon, &context);
        }
        daemon.terminate();
        check_recovered(&mut daemon, point, &context);
    }
}

#[test]
fn twenty_creates_and_deletes_at_once_leave_nothing_behind() {
    let daemon = Daemon::start();
    std::thread::scope(|scope| {
        for number in 0..20 {
            let daemon = &daemon;
            scope.spawn(move || {
                let name = format!("box-{number}");
                daemon.ok(&["create", "--name", &name]);
                assert_eq!(daemon.ok(&["exec", &name, "--", "hostname"]), name);
                daemon.ok(&["rm", "--purge", "-f", &name]);
            });
        }
    });
    check_inventory(&daemon, "after twenty lives at once");
    assert!(daemon.inventory().sandboxes().is_empty());
}

#[test]
fn concurrent_creates_of_one_name_share_one_sandbox() {
    let daemon = Daemon::start();
    let ids: BTreeSet<String> = std::thread::scope(|scope| {
        let creates: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| daemon.ok(&["create", "--name", "shared", "--if-not-exists"])))
            .collect();
        creates.into_iter().map(|create| create.join().unwrap()).collect()
    });
    assert_eq!(ids.len(), 1, "{ids:?}");
    assert_eq!(listed(&daemon).len(), 1);
}

/// Invariant 3: sandboxes outlive the daemon, and no exec output is lost.
#[test]
fn sandboxes_outlive_the_daemon() {
    let mut daemon = Daemon::start();
    daemon.ok(&["create", "--name", "alpha"]);
    let count = "i=0; while [ $i -lt 400 ]; do echo line $i; i=$((i+1)); sleep 0.01; done";
    let exec = daemon.ok(&["exec", "-d", "alpha", "--", "sh", "-c", count]);
    // The agent and the shell; the shell's own children come and go.
    let before: BTreeSet<u32> = daemon.inventory().processes.into_iter().take(2).collect();
    daemon.kill();
    assert!(daemon.inventory().processes.is_superset(&before), "a killed daemon ends no sandbox");
    daemon.launch();
    assert_eq!(listed(&daemon)[0].1, "running");
    let log = daemon.ok(&["attach", &exec]);
    let expected: Vec<String> = (0..400).map(|number| format!("line {number}")).collect();
    assert_eq!(log.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>(), expected);
    let agent: BTreeSet<u32> = before.into_iter().take(1).collect();
    assert!(daemon.inventory().processes.is_superset(&agent), "PID 1 is the one it was");
}

#[test]
fn an_attached_client_continues_over_a_restart_of_the_daemon() {
    let mut daemon = Daemon::start_with("");
    // The port must stay, so that the client finds the daemon again.
    let address = daemon.url().trim_start_matches("http://").to_owned();
    let config = std::fs::read_to_string(daemon.config()).unwrap();
    std::fs::write(daemon.config(), config.replace("127.0.0.1:0", &address)).unwrap();
    daemon.ok(&["create", "--name", "alpha"]);
    let count = "i=0; while [ $i -lt 300 ]; do echo line $i; i=$((i+1)); sleep 0.01; done; exit 3";
    let mut client = daemon.command(&["exec", "alpha", "--", "sh", "-c", count]);
    let client = client.stdout(std::process::Stdio::piped()).spawn().unwrap();
    eventually("the exec to start", || {
        let found = daemon.cli(&["exec", "alpha", "--", "pgrep", "-f", "line"]);
        found.status.success().then_some(())
    });
    daemon.kill();
    daemon.launch();
    let output = client.wait_with_output().unwrap();
    let lines: Vec<String> = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    let expected: Vec<String> = (0..300).map(|number| format!("line {number}")).collect();
    assert_eq!(lines, expected);
    assert_eq!(output.status.code(), Some(3), "the exit code comes through too");
}

#[test]
fn after_a_reboot_persistent_sandboxes_come_back_stopped_with_files_and_services() {
    let mut daemon = Daemon::start();
    daemon.ok(&["create", "--name", "kept"]);
    daemon.ok(&["create", "--name", "fleeting", "--ephemeral"]);
    daemon.ok(&["exec", "kept", "--", "sh", "-c", "echo survived > /root/file; sync"]);
    daemon.ok(&[
        "service",
        "add",
        "kept",
        "ticker",
        "--",
        "sh",
        "-c",
        "echo up >> /root/starts; exec sleep 1000",
    ]);
    eventually("the service to start", || {
        daemon.cli(&["exec", "kept", "--", "test", "-s", "/root/starts"]).status.success().then_some(())
    });
    daemon.ok(&["exec", "kept", "--", "sync"]);
    daemon.reboot();
    assert!(daemon.inventory().processes.is_empty());
    daemon.launch();
    let rows = listed(&daemon);
    assert_eq!(rows.len(), 1, "the ephemeral one is gone: {rows:?}");
    assert_eq!(rows[0].1, "stopped");
    check_inventory(&daemon, "after a reboot");
    daemon.ok(&["start", "kept"]);
    assert_eq!(daemon.ok(&["exec", "kept", "--", "cat", "/root/file"]), "survived");
    eventually("the service to start again", || {
        let starts = daemon.ok(&["exec", "kept", "--", "cat", "/root/starts"]);
        (starts.lines().count() == 2).then_some(())
    });
}

/// Pre-created sandboxes that the daemon reports as ready.
pub(crate) fn ready(daemon: &Daemon) -> usize {
    let page = daemon.http_open("GET", "/metrics").send().text();
    let line = page.lines().find_map(|line| line.strip_prefix("burrow_warm_pool_ready "));
    line.expect("the page tells").parse().unwrap()
}

#[test]
fn pre_created_sandboxes_are_used_replaced_and_removed_with_the_daemon() {
    let mut daemon = Daemon::prepare("");
    daemon.keep_ready(2);
    daemon.launch();
    eventually("the warm pool to fill", || (ready(&daemon) == 2).then_some(()));
    let precreated = daemon.inventory();
    assert_eq!((precreated.volumes.len(), precreated.networks.len(), precreated.cgroups.len()), (2, 2, 2));
    assert_eq!(listed(&daemon).len(), 0, "it is nobody's sandbox yet");

    // One sandbox gets its name when it is taken from the pool; the other keeps its default name.
    daemon.ok(&["create", "--name", "alpha"]);
    let plain = daemon.ok(&["create"]);
    let ids: Vec<String> = listed(&daemon).into_iter().map(|(id, _)| id).collect();
    assert!(
        ids.iter().all(|id| precreated.volumes.contains(id)),
        "{ids:?} are not of {:?}",
        precreated.volumes
    );
    for (sandbox, name) in [("alpha", "alpha"), (plain.as_str(), plain.as_str())] {
        let said =
            daemon.ok(&["exec", sandbox, "-c", "hostname; cat /etc/hostname; getent hosts $(hostname)"]);
        assert_eq!(
            said.lines().filter(|line| line.split_whitespace().any(|word| word == name)).count(),
            3,
            "{said}"
        );
    }
    // Within 10 %, because the kernel of a machine takes RAM too.
    let has_its_ram = "awk '/^MemTotal:/ {exit !($2 > 943718 && $2 < 1153434)}' /proc/meminfo";
    daemon.ok(&["exec", "alpha", "-c", &format!("{has_its_ram} && echo kept > /root/file")]);

    eventually("the warm pool to fill again", || (ready(&daemon) == 2).then_some(()));
    assert_eq!(daemon.inventory().volumes.len(), 4);
    assert_eq!(daemon.terminate(), Some(0));
    let left = daemon.inventory();
    assert_eq!(left.sandboxes(), ids.iter().cloned().collect(), "an orderly end leaves no warm_pool");

    // The next start removes what a crash leaves, without a warning in the log.
    daemon.launch();
    eventually("the warm pool to fill", || (ready(&daemon) == 2).then_some(()));
    daemon.kill();
    assert_eq!(daemon.inventory().volumes.len(), 4);
    daemon.keep_ready(0);
    daemon.launch();
    check_inventory(&daemon, "after a crash with a full warm pool");
    assert!(!daemon.log().contains("removing an unused"), "{}", daemon.log());
    assert_eq!(daemon.ok(&["exec", "alpha", "--", "cat", "/root/file"]), "kept");
}

#[test]
fn a_kill_at_every_step_of_the_warm_pool_leaves_the_host_as_the_catalog_says() {
    for point in WARM_POOL_POINTS {
        let context = format!("after kill -9 at {point}");
        let mut daemon = Daemon::prepare("");
        daemon.keep_ready(1);
        daemon.arm(Some(&format!("{point}=kill")));
        // A fault point of filling the warm pool ends the daemon as soon as it is up, possibly before a client can
        // see that it is.
        let is_of_create = point.starts_with("create");
        daemon.spawn();
        if is_of_create {
            daemon.wait_up();
            eventually("the warm pool to fill", || (ready(&daemon) == 1).then_some(()));
            daemon.cli(&["create", "--name", "alpha"]);
        }
        daemon.wait_dead();
        daemon.arm(None);
        daemon.keep_ready(0);
        daemon.launch();
        check_inventory(&daemon, &context);
        // From that commit on, it is a sandbox.
        assert_eq!(listed(&daemon).len(), usize::from(*point == "create.claimed"), "{context}");
        daemon.cli(&["rm", "--purge", "-f", "alpha"]);
        daemon.ok(&["create", "--name", "omega"]);
        assert_eq!(daemon.ok(&["exec", "omega", "--", "echo", "new"]), "new", "{context}");
        daemon.ok(&["rm", "--purge", "-f", "omega"]);
        assert!(daemon.inventory().sandboxes().is_empty(), "{context}");
    }
}

#[test]
fn a_failure_of_the_warm_pool_fails_no_create() {
    for point in WARM_POOL_POINTS.iter().filter(|point| **point != "create.claimed") {
        let context = format!("after a failure at {point}");
        let mut daemon = Daemon::prepare("");
        daemon.keep_ready(1);
        daemon.arm(Some(&format!("{point}=fail")));
        daemon.launch();
        if point.starts_with("create") {
            eventually("the warm pool to fill", || (ready(&daemon) == 1).then_some(()));
        }
        daemon.ok(&["create", "--name", "alpha"]);
        assert_eq!(daemon.ok(&["exec", "alpha", "--", "hostname"]), "alpha", "{context}");
        assert_eq!(daemon.terminate(), Some(0));
        daemon.arm(None);
        daemon.keep_ready(0);
        daemon.launch();
        check_inventory(&daemon, &context);
        assert_eq!(listed(&daemon).len(), 1, "{context}");
    }
}
