//! Several forks try the same task; one of them wins.

use serde_json::Value;

use crate::harness::{Daemon, eventually};

fn sandboxes(daemon: &Daemon) -> usize {
    daemon.json(&["ls", "--all", "--json"]).as_array().unwrap().len()
}

fn race(daemon: &Daemon, id: &str) -> Value {
    daemon.json(&["race", "show", id, "--json"])
}

#[test]
fn the_fork_that_the_judge_chooses_is_merged_and_the_others_are_deleted() {
    let daemon = Daemon::start();
    daemon.create("web");
    daemon.sh("web", "echo 0 > /srv/answer");
    let done = daemon.json(&[
        "race",
        "web",
        "--attempts",
        "3",
        "--files-only",
        "--run",
        "echo $BURROW_ATTEMPT > /srv/answer; test $BURROW_ATTEMPT != 3",
        "--judge",
        "echo thinking; cat /srv/answer",
        "--merge-winner",
        "--json",
    ]);
    assert_eq!(
        (&done["stage"], &done["winner"]),
        (&"done".into(), &3.into()),
        "the highest score wins: {done}"
    );
    let attempts = done["attempts"].as_array().unwrap();
    assert_eq!(
        attempts.iter().map(|one| one["score"].as_f64().unwrap()).collect::<Vec<_>>(),
        [1.0, 2.0, 3.0]
    );
    assert!(attempts.iter().all(|one| one["gone"] == true && one["changed"] == 1), "{done}");
    assert_eq!(attempts[2]["exit_code"], 1);
    assert_eq!(daemon.sh("web", "cat /srv/answer"), "3");
    assert_eq!(sandboxes(&daemon), 1);
    let undo = done["merged"]["undo"].as_str().unwrap();
    daemon.ok(&["snapshot", "restore", undo, "--in-place", "web", "--yes"]);
    assert_eq!(daemon.sh("web", "cat /srv/answer"), "0");
    assert!(daemon.ok(&["race", "ls"]).contains("attempt 3 won"));
    daemon.ok(&["race", "rm", done["id"].as_str().unwrap()]);
    assert_eq!(daemon.json(&["race", "ls", "--json"]), Value::Array(Vec::new()));
}

#[test]
fn without_a_judge_the_exit_code_decides_and_the_winner_is_merged_on_request() {
    let daemon = Daemon::start();
    daemon.create("web");
    let done = daemon.json(&[
        "race",
        "web",
        "--attempts",
        "2",
        "--parallel",
        "1",
        "--files-only",
        "--run",
        "echo $BURROW_ATTEMPT > /srv/answer; test $BURROW_ATTEMPT = 2",
        "--json",
    ]);
    assert_eq!(done["winner"], 2, "{done}");
    assert_eq!(sandboxes(&daemon), 2, "the winner stays until its work is home");
    let id = done["id"].as_str().unwrap();
    let merged = daemon.json(&["race", "merge", id, "--json"]);
    assert_eq!(merged["applied"], true, "{merged}");
    assert_eq!(daemon.sh("web", "cat /srv/answer"), "2");
    assert_eq!(sandboxes(&daemon), 1);
    // If none succeeds, there is no winner, and the exit code reports it.
    let none = daemon.cli(&["race", "web", "--attempts", "1", "--files-only", "--run", "exit 7", "--json"]);
    assert_eq!(none.status.code(), Some(1));
    let none: Value = serde_json::from_slice(&none.stdout).unwrap();
    assert_eq!((&none["winner"], &none["attempts"][0]["exit_code"]), (&Value::Null, &7.into()));
    assert_eq!(sandboxes(&daemon), 1);
    let unknown = daemon.cli(&["race", "show", "rac00000000000000000000"]);
    assert!(
        String::from_utf8_lossy(&unknown.stderr).contains("no race")
            || String::from_utf8_lossy(&unknown.stderr).contains("no such race")
    );
}

#[test]
fn a_race_continues_after_the_daemon_was_killed() {
    let mut daemon = Daemon::start();
    daemon.create("web");
    let id = daemon.ok(&[
        "race", "web", "--attempts", "2", "--files-only", "--detach", "--merge-winner", "--run",
        "echo run >> /srv/runs; while test ! -e /srv/go; do sleep 0.1; done; echo $BURROW_ATTEMPT > /srv/answer; test $BURROW_ATTEMPT = 1",
    ]);
    let id = id.trim().to_owned();
    let running = eventually("both attempts run", || {
        let race = race(&daemon, &id);
        let attempts = race["attempts"].as_array().unwrap().clone();
        let run = |attempt: &Value| {
            attempt["state"] == "running"
                && daemon.holds(attempt["sandbox"].as_str().unwrap(), "test -s /srv/runs")
        };
        (attempts.len() == 2 && attempts.iter().all(run)).then_some(attempts)
    });
    daemon.kill();
    daemon.launch();
    // One ends after the restart. Both results are read from their guests, and neither is run again.
    for attempt in &running {
        daemon.sh(attempt["sandbox"].as_str().unwrap(), "test $(wc -l < /srv/runs) = 1; touch /srv/go");
    }
    let done = daemon.json(&["race", "wait", &id, "--json"]);
    assert_eq!((&done["winner"], &done["merged"]["applied"]), (&1.into(), &true.into()), "{done}");
    assert_eq!(daemon.sh("web", "cat /srv/answer; wc -l < /srv/runs"), "1\n1");
    assert_eq!(sandboxes(&daemon), 1);
}
