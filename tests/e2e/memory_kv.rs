//! Working memory with concurrent writers: compare-and-set, watches, batches, expiry.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::harness::{Daemon, eventually};

fn code(daemon: &Daemon, arguments: &[&str]) -> Option<i32> {
    daemon.cli(arguments).status.code()
}

#[test]
fn of_two_concurrent_compare_and_sets_one_succeeds_and_no_increment_is_lost() {
    const STEPS: usize = 15;
    let daemon = Daemon::start();
    daemon.ok(&["space", "create", "shared"]);
    daemon.ok(&["kv", "set", "shared", "count", "0"]);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..STEPS {
                    eventually("a turn to be won", || {
                        let item = daemon.json(&["kv", "get", "shared", "count", "--json"]);
                        let (value, version) = (item["value"].as_u64().unwrap(), item["version"].to_string());
                        let next = (value + 1).to_string();
                        match code(&daemon, &["kv", "cas", "shared", "count", &next, "--version", &version]) {
                            Some(0) => Some(()),
                            Some(3) => None,
                            other => panic!("{other:?}"),
                        }
                    });
                }
            });
        }
    });
    assert_eq!(daemon.ok(&["kv", "get", "shared", "count"]), (2 * STEPS).to_string());
    // An increment needs no lock.
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                (0..STEPS).for_each(|_| drop(daemon.ok(&["kv", "incr", "shared", "n", "--by", "2"])))
            });
        }
    });
    assert_eq!(daemon.ok(&["kv", "get", "shared", "n"]), (4 * STEPS).to_string());
    assert_eq!(code(&daemon, &["kv", "set", "shared", "lock", "me", "--if-absent"]), Some(0));
    assert_eq!(code(&daemon, &["kv", "set", "shared", "lock", "you", "--if-absent"]), Some(3));
    assert_eq!(daemon.ok(&["kv", "get", "shared", "lock"]), "me");
}

#[test]
fn a_watch_sees_every_change_once_from_the_number_it_was_given() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    daemon.ok(&["kv", "set", "alpha", "plan/first", "1"]);
    let since = daemon.json(&["memory", "stats", "alpha", "--json"])["seq"].to_string();
    daemon.ok(&["kv", "set", "alpha", "plan/early", "2"]);
    daemon.ok(&["kv", "set", "alpha", "other", "0"]);
    let mut watch = daemon
        .command(&["kv", "watch", "alpha", "plan/", "--since", &since, "--count", "4", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(next()["item"]["key"], "plan/early", "what came before the watch, after the number");
    daemon.ok(&["kv", "set", "alpha", "plan/now", "{\"deep\":[1,2]}"]);
    let now = next();
    assert_eq!(
        (&now["item"]["key"], &now["item"]["value"]),
        (&json!("plan/now"), &json!({ "deep": [1, 2] }))
    );
    daemon.ok(&["kv", "rm", "alpha", "plan/first"]);
    let gone = next();
    assert_eq!((&gone["kind"], &gone["key"]), (&json!("deleted"), &json!("plan/first")));
    daemon.ok(&["kv", "set", "alpha", "plan/last", "9"]);
    assert_eq!(next()["item"]["key"], "plan/last");
    assert!(watch.wait().unwrap().success());
}

#[test]
fn a_batch_is_atomic_and_expired_keys_are_removed() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    let first = daemon.ok(&["kv", "set", "alpha", "a", "1"]);
    let batch = format!(
        "{}\n{}\n{}\n",
        json!({ "op": "set", "key": "b", "value": "two" }),
        json!({ "op": "increment", "key": "a", "by": 4 }),
        json!({ "op": "check", "key": "a", "if_version": first.parse::<u64>().unwrap() + 99 }),
    );
    let refused = daemon.fed(&["kv", "batch", "alpha"], batch.as_bytes());
    assert_eq!(refused.status.code(), Some(3), "{}", String::from_utf8_lossy(&refused.stderr));
    assert_eq!(code(&daemon, &["kv", "get", "alpha", "b"]), Some(4), "nothing of it happened");
    assert_eq!(daemon.ok(&["kv", "get", "alpha", "a"]), "1");
    let good = daemon
        .fed(&["kv", "batch", "alpha"], batch.lines().take(2).collect::<Vec<_>>().join("\n").as_bytes());
    assert!(good.status.success());
    assert_eq!(daemon.ok(&["kv", "get", "alpha", "a"]), "5");
    assert_eq!(daemon.ok(&["kv", "get", "alpha", "b"]), "two");
    assert_eq!(daemon.ok(&["kv", "get", "alpha", "a", "--as-of", &first]), "1");
    assert_eq!(daemon.json(&["kv", "history", "alpha", "a", "--json"]).as_array().unwrap().len(), 2);

    daemon.ok(&["kv", "set", "alpha", "soon", "1", "--ttl", "1s"]);
    eventually("the key to expire", || {
        (code(&daemon, &["kv", "get", "alpha", "soon"]) == Some(4)).then_some(())
    });
    let keys = daemon.ok(&["kv", "ls", "alpha", "-q"]);
    assert_eq!(keys.lines().collect::<Vec<_>>(), ["a", "b"]);
    let large = "x".repeat(300_000);
    let refused = daemon.fed(&["kv", "set", "alpha", "large", "-"], large.as_bytes());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("262144") && said.contains("hint: "), "{said}");
}
