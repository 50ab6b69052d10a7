//! Crash safety of sleep, wake, snapshot, restore and fork: a failure and a `kill -9` at every step.

use std::collections::BTreeSet;

use burrow_engine::faults::SLEEP_POINTS;
use serde_json::Value;

use crate::harness::Daemon;
use crate::survivor::{self, SurvivorState};

fn rows(daemon: &Daemon) -> Vec<Value> {
    daemon.json(&["ls", "--all", "--json"]).as_array().unwrap().clone()
}

fn names(folder: std::path::PathBuf) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

/// Invariant 2: the host has exactly the resources that the catalog lists.
#[track_caller]
pub(crate) fn check_inventory(daemon: &Daemon, context: &str) {
    let rows = rows(daemon);
    let id = |row: &Value| row["id"].as_str().unwrap().to_owned();
    let all: BTreeSet<String> = rows.iter().map(id).collect();
    let up = |row: &&Value| row["state"] == "running" || row["state"] == "paused";
    let up: BTreeSet<String> = rows.iter().filter(up).map(id).collect();
    let inventory = daemon.inventory();
    assert_eq!(inventory.volumes, all, "subvolumes, {context}");
    assert_eq!(inventory.networks, up, "gateway namespaces, {context}");
    assert_eq!(inventory.cgroups, up, "cgroups, {context}");
    assert_eq!(inventory.processes.is_empty(), up.is_empty(), "processes, {context}");
    let snapshots = daemon.json(&["snapshot", "ls", "--all", "--json"]);
    let snapshots = snapshots.as_array().unwrap();
    let known: BTreeSet<String> = snapshots.iter().map(id).collect();
    assert_eq!(names(daemon.pool().join("snapshots")), known, "snapshots, {context}");
    let asleep = rows.iter().filter(|row| row["state"] == "hibernated").count();
    let kept = snapshots.iter().filter(|snapshot| snapshot["processes"] == true).count();
    let dumps = names(daemon.pool().join("dumps"));
    // A sleeping sandbox shares its dump with every snapshot that was taken while it slept.
    assert!(dumps.len() <= kept + asleep, "dumps, {context}: {dumps:?}");
    assert_eq!(dumps.is_empty(), kept + asleep == 0, "dumps, {context}: {dumps:?}");
    for row in &rows {
        let state = row["state"].as_str().unwrap();
        let settled = ["running", "paused", "hibernated", "stopped", "failed"].contains(&state);
        assert!(settled, "{} is {state}, {context}", row["id"]);
    }
}

/// Brings a fresh daemon to the start of `point`'s operation, arms the point and performs the operation.
fn hit(point: &str, action: &str) -> (Daemon, SurvivorState) {
    let mut daemon = Daemon::start();
    let (operation, _) = point.split_once('.').unwrap();
    daemon.create("alpha");
    let told = survivor::start(&daemon, "alpha");
    match operation {
        "wake" => drop(daemon.ok(&["hibernate", "alpha"])),
        "restore" => drop(daemon.ok(&["snapshot", "create", "alpha", "--name", "good"])),
        _ => {}
    }
    daemon.terminate();
    daemon.arm(Some(&format!("{point}={action}")));
    daemon.launch();
    match operation {
        "hibernate" => daemon.cli(&["hibernate", "alpha"]),
        "wake" => daemon.cli(&["wake", "alpha"]),
        "snapshot" => daemon.cli(&["snapshot", "create", "alpha", "--name", "good"]),
        "restore" => daemon.cli(&["snapshot", "restore", "good", "--in-place", "alpha", "--yes"]),
        _ => daemon.cli(&["fork", "alpha", "--count", "2", "--name", "child"]),
    };
    (daemon, told)
}

/// Checks the host after a fault: it is consistent, nothing is lost, and everything works.
fn check_recovered(daemon: &mut Daemon, told: &SurvivorState, point: &str, context: &str) {
    daemon.arm(None);
    daemon.launch();
    check_inventory(daemon, context);
    // In every case its processes run in it once it is awake.
    let now = survivor::ask(daemon, "alpha");
    survivor::goes_on(told, &now, context);
    survivor::still_locked(daemon, "alpha", context);
    for row in rows(daemon) {
        if let Some(name) = row["name"].as_str().filter(|name| name.starts_with("child")) {
            survivor::goes_on(told, &survivor::ask(daemon, name), &format!("{name}, {context}"));
        }
    }
    let (operation, moment) = point.split_once('.').unwrap();
    if operation == "snapshot" {
        let made = daemon.cli(&["snapshot", "inspect", "good"]).status.success();
        assert_eq!(made, moment == "settled", "it is there from its commit on, {context}");
    }
    // The operation can be repeated.
    daemon.ok(&["hibernate", "alpha"]);
    daemon.ok(&["fork", "alpha", "--name", "omega"]);
    survivor::goes_on(told, &survivor::ask(daemon, "omega"), context);
    for row in rows(daemon) {
        daemon.ok(&["rm", "--purge", "-f", "--snapshots", row["id"].as_str().unwrap()]);
    }
    check_inventory(daemon, context);
    assert!(daemon.inventory().sandboxes().is_empty(), "{context}");
}

#[test]
fn a_kill_at_every_step_of_sleep_and_fork_loses_nothing() {
    for point in SLEEP_POINTS {
        let context = format!("after kill -9 at {point}");
        let (mut daemon, told) = hit(point, "kill");
        daemon.wait_dead();
        check_recovered(&mut daemon, &told, point, &context);
    }
}

#[test]
fn a_failure_at_every_step_of_sleep_and_fork_loses_nothing() {
    // After `settled` the work is done; a failure there leaves nothing to undo.
    for point in SLEEP_POINTS.iter().filter(|point| !point.ends_with(".settled")) {
        let context = format!("after a failure at {point}");
        let (mut daemon, told) = hit(point, "fail");
        // Remains of a machine that could not be removed are removed before the next one, or at a start.
        if *point != "hibernate.machine" {
            check_inventory(&daemon, &context);
        }
        daemon.terminate();
        check_recovered(&mut daemon, &told, point, &context);
    }
}
