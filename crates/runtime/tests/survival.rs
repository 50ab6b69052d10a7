//! What a machine survives. A separate program, since it ends every launcher of this process.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod support;

use std::fs;

use burrow_runtime::Runtime as _;
use rustix::process::{Pid, Signal, kill_process};
use support::{Host, poll};

/// The children of this process that are launchers.
fn launchers() -> Vec<i32> {
    let children = fs::read_dir("/proc/self/task").unwrap().flat_map(|task| {
        let text = fs::read_to_string(task.unwrap().path().join("children")).unwrap();
        text.split_whitespace().map(|pid| pid.parse::<i32>().unwrap()).collect::<Vec<_>>()
    });
    let is_launcher = |pid: &i32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "burrow-launcher")
    };
    children.filter(is_launcher).collect()
}

#[tokio::test]
async fn machines_outlive_the_launcher_and_the_driver() {
    let host = Host::new();
    let plot = host.plot();
    let machine = host.boot(&plot, &[]).await.unwrap();
    let launchers = launchers();
    assert_eq!(launchers.len(), 1);
    for launcher in launchers {
        kill_process(Pid::from_raw(launcher).unwrap(), Signal::KILL).unwrap();
    }
    // Another launcher takes over.
    let second = host.plot();
    host.boot(&second, &[]).await.unwrap();

    let again = host.reopen();
    assert!(again.adopt(&plot.id, &machine).await.unwrap());
    let (before, _) = plot.count().unwrap();
    poll("the machine to continue", || plot.count().is_some_and(|(number, _)| number > before));
    let mut found = again.inventory().await.unwrap();
    found.sort();
    let mut expected = vec![plot.id.clone(), second.id.clone()];
    expected.sort();
    assert_eq!(found, expected);
    let waiting = again.ended(&machine);
    let (ended, destroyed) = tokio::join!(waiting, again.destroy(&plot.id));
    ended.unwrap();
    destroyed.unwrap();
    again.destroy(&second.id).await.unwrap();
}
