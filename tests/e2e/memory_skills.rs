//! Skills in real sandboxes, and the entries that execs record by themselves.

use serde_json::Value;

use crate::harness::{Daemon, eventually};

#[test]
fn a_skill_made_of_execs_runs_with_other_parameters_and_learns() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    daemon.ok(&["exec", "alpha", "--", "mkdir", "-p", "/srv/site"]);
    daemon.cli(&["exec", "alpha", "--", "false"]);
    daemon.ok(&["exec", "alpha", "--", "sh", "-c", "echo hello db-2 > /srv/site/host"]);
    eventually("the execs to be listed", || {
        let execs = daemon.json(&["ps", "alpha", "--json"]);
        let ended = execs.as_array().unwrap().iter().filter(|exec| exec["state"] == "ended").count();
        (ended == 3).then_some(())
    });
    let skill = daemon.json(&[
        "skill",
        "promote",
        "alpha",
        "--name",
        "greet",
        "--last",
        "2",
        "-p",
        "host=db-2",
        "--description",
        "writes a greeting for a host",
        "--when",
        "a new host joins",
        "--json",
    ]);
    assert_eq!(skill["steps"].as_array().unwrap().len(), 2, "what failed is left out: {skill}");
    assert_eq!(skill["parameters"][0]["name"], "host");

    daemon.sh("alpha", "rm -r /srv/site");
    daemon.ok(&["skill", "run", "alpha", "greet", "-p", "host=db-3; touch /srv/injected"]);
    assert_eq!(
        daemon.sh("alpha", "cat /srv/site/host"),
        "hello db-3; touch /srv/injected",
        "a value stays a value"
    );
    assert!(!daemon.holds("alpha", "test -e /srv/injected"));
    daemon.ok(&["skill", "run", "alpha", "greet"]);
    assert_eq!(daemon.sh("alpha", "cat /srv/site/host"), "hello db-2", "without one, the one it had");
    let shown = daemon.json(&["skill", "show", "alpha", "greet", "--json"]);
    assert_eq!((&shown["successes"], &shown["failures"]), (&2.into(), &0.into()), "{shown}");

    // A skill that failed more often ranks below one that matches equally well.
    daemon.ok(&[
        "skill",
        "add",
        "alpha",
        "greet-badly",
        "--description",
        "writes a greeting for a host",
        "--when",
        "a new host joins",
        "--run",
        "echo one",
        "--run",
        "exit 7",
        "--run",
        "echo never",
    ]);
    for _ in 0..3 {
        let run = daemon.cli(&["skill", "run", "alpha", "greet-badly"]);
        assert_eq!(run.status.code(), Some(7), "the failing step's code");
        assert_eq!(String::from_utf8(run.stdout).unwrap(), "one\n", "it stops there");
    }
    let found = daemon.json(&["skill", "search", "alpha", "greeting for a new host", "--json"]);
    let names: Vec<&str> =
        found["hits"].as_array().unwrap().iter().map(|hit| hit["skill"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["greet", "greet-badly"], "{found}");
    assert_eq!(daemon.json(&["skill", "ls", "alpha", "--json"]).as_array().unwrap().len(), 2);
    daemon.ok(&["skill", "rm", "alpha", "greet-badly"]);
    assert!(daemon.refused(&["skill", "show", "alpha", "greet-badly"], 1).contains("greet-badly"));
}

#[test]
fn a_spaces_skill_runs_in_any_sandbox() {
    let daemon = Daemon::start();
    daemon.ok(&["space", "create", "ops"]);
    daemon.create("alpha");
    daemon.ok(&[
        "skill",
        "add",
        "space:ops",
        "say",
        "--run",
        "echo {{what}} > /root/said",
        "--description",
        "says something",
        "--param",
        "what",
    ]);
    let refused = daemon.cli(&["skill", "run", "space:ops", "say", "--in", "alpha"]);
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("what"),
        "a parameter that must be given is named"
    );
    daemon.ok(&["skill", "run", "space:ops", "say", "--in", "alpha", "-p", "what=a b  c"]);
    assert_eq!(daemon.sh("alpha", "cat /root/said"), "a b  c");
}

#[test]
fn a_failure_is_recorded_and_the_next_one_is_answered_with_its_fix() {
    let daemon = Daemon::start();
    daemon.ok(&["create", "--name", "alpha", "--remember", "errors"]);
    assert_eq!(daemon.inspect("alpha")["memory"]["remember"], "errors");
    let build = ["exec", "alpha", "--", "sh", "-c", "cat /srv/config.toml"];
    assert!(!daemon.cli(&build).status.success());
    let noted = |count: usize| {
        eventually("the failure to be noted", || {
            let list = daemon.json(&["memory", "ls", "alpha", "--json"]);
            (list.as_array().unwrap().len() >= count).then_some(list)
        })
    };
    let text = noted(1)[0]["text"].as_str().unwrap().to_owned();
    assert!(text.contains("cat /srv/config.toml") && text.contains("No such file"), "{text}");
    // A success is not recorded as a failure; a success after a failure of the same command is recorded as its fix.
    daemon.sh("alpha", "true");
    daemon.sh("alpha", "echo 'port = 80' > /srv/config.toml");
    assert!(daemon.cli(&build).status.success());
    daemon.sh("alpha", "rm /srv/config.toml");

    let mut with = vec!["exec", "--related"];
    with.extend(&build[1..]);
    let failed = eventually("what is remembered to be told", || {
        let failed = daemon.cli(&with);
        String::from_utf8_lossy(&failed.stderr).contains("remembered: ").then_some(failed)
    });
    assert!(failed.stdout.is_empty(), "never among the output");
    let quiet = daemon.cli(&build);
    assert!(
        !String::from_utf8_lossy(&quiet.stderr).contains("remembered: "),
        "nor where nobody is there to read it"
    );
    let counted = eventually("repeats to be counted", || {
        let list = daemon.json(&["memory", "ls", "alpha", "--kind", "error", "--json"]);
        let most = list.as_array().unwrap().iter().filter_map(|entry| entry["count"].as_u64()).max();
        (most > Some(1)).then_some(list)
    });
    assert!(counted.as_array().unwrap().len() < 3, "repeats are counted, not stored again: {counted}");
    let where_was_i = daemon.ok(&["memory", "context", "alpha"]);
    assert!(where_was_i.contains("config.toml"), "{where_was_i}");

    daemon.ok(&["update", "alpha", "--remember", "off"]);
    let before = daemon.json(&["memory", "stats", "alpha", "--json"])["seq"].clone();
    daemon.cli(&["exec", "alpha", "--", "false"]);
    assert_eq!(daemon.json(&["memory", "stats", "alpha", "--json"])["seq"], before);
}

#[test]
fn secrets_of_an_exec_are_not_remembered() {
    let daemon = Daemon::start();
    daemon.ok(&["create", "--name", "alpha", "--remember", "all"]);
    let secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD";
    daemon.sh("alpha", &format!("echo API_KEY={secret}; echo the build is green"));
    let list = eventually("the exec to be noted", || {
        let list = daemon.json(&["memory", "ls", "alpha", "--json"]);
        (!list.as_array().unwrap().is_empty()).then_some(list)
    });
    let text: &Value = &list[0]["text"];
    assert!(text.as_str().unwrap().contains("the build is green"), "{text}");
    assert!(!list.to_string().contains(secret), "{list}");
}
