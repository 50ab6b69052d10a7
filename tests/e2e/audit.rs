//! The audit log through the real binary: its content, its verification, and that changes to it are detected.

use std::fs;

use serde_json::Value;

use crate::harness::{Daemon, eventually};

/// Standard output of `burrow`, which must succeed.
#[track_caller]
fn says(daemon: &Daemon, args: &[&str]) -> String {
    let output = daemon.command(args).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// Standard error of `burrow`, which must fail.
#[track_caller]
fn complains(daemon: &Daemon, args: &[&str]) -> String {
    let output = daemon.command(args).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{args:?}: {}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn events(daemon: &Daemon, more: &[&str]) -> Vec<Value> {
    let mut args = vec!["audit", "ls", "--json", "-n", "1000"];
    args.extend(more);
    serde_json::from_str::<Vec<Value>>(&says(daemon, &args)).unwrap()
}

fn actions(events: &[Value]) -> Vec<&str> {
    events.iter().rev().map(|event| event["action"].as_str().unwrap()).collect()
}

#[test]
fn the_audit_log_records_who_did_what_and_survives_the_daemon() {
    let mut daemon = Daemon::start();
    let sandbox = daemon.create("web");
    says(&daemon, &["exec", "web", "--", "sh", "-c", "true hunter2"]);
    says(&daemon, &["snapshot", "create", "web", "--files-only"]);
    says(&daemon, &["fork", "web", "--name", "child", "--files-only"]);
    says(&daemon, &["key", "create", "ci", "--scope", "read"]);
    says(&daemon, &["rm", "--purge", "-f", "child"]);
    let found = events(&daemon, &[]);
    let words = actions(&found);
    for action in [
        "daemon.start",
        "sandbox.create",
        "exec.start",
        "snapshot.create",
        "sandbox.fork",
        "key.create",
        "sandbox.delete",
    ] {
        assert!(words.contains(&action), "no {action} in {words:?}");
    }
    let began = found.iter().find(|event| event["action"] == "exec.start").unwrap();
    assert_eq!(
        (began["sandbox_id"].as_str(), began["reason"].as_str()),
        (Some(sandbox.as_str()), Some("sh"))
    );
    assert!(began["actor"].as_str().unwrap().starts_with("key"), "{began}");
    let text = serde_json::to_string(&found).unwrap();
    assert!(!text.contains("hunter2") && !text.contains(daemon.key().trim()), "{text}");
    assert!(says(&daemon, &["audit", "tail", "-n", "3"]).lines().count() == 3);

    let kept = daemon.state_dir().join("kept");
    fs::write(&kept, says(&daemon, &["audit", "checkpoint"])).unwrap();
    daemon.kill();
    daemon.launch();
    eventually("the start in the log", || {
        let starts = events(&daemon, &["--action", "daemon.start"]);
        (starts.len() == 2).then_some(())
    });
    let after = events(&daemon, &[]);
    assert!(after.ends_with(&found), "what was there before is there still");
    let kept = kept.to_str().unwrap();
    let verified = says(&daemon, &["audit", "verify", "--checkpoint", kept]);
    assert!(verified.contains("verified: ") && verified.contains("1 stored checkpoint"), "{verified}");
    assert!(says(&daemon, &["audit", "prove", "0"]).contains("proven: event 0"));
    assert!(says(&daemon, &["audit", "prove", "--grown-from", "1"]).contains("proven: "));
}

#[test]
fn an_export_verifies_offline_until_it_is_changed() {
    let daemon = Daemon::start();
    daemon.create("web");
    says(&daemon, &["exec", "web", "--", "true"]);
    let at = |name: &str| daemon.state_dir().join(name).to_str().unwrap().to_owned();
    let (export, kept, key) = (at("audit.jsonl"), at("kept"), at("key.pub"));
    fs::write(&kept, says(&daemon, &["audit", "checkpoint"])).unwrap();
    fs::write(&key, says(&daemon, &["audit", "key"])).unwrap();
    says(&daemon, &["exec", "web", "--", "true"]);
    says(&daemon, &["audit", "export", "-o", &export]);
    // No daemon listens at this address, so the check must be done offline.
    let nowhere = "http://127.0.0.1:9";
    let verify = [
        "audit",
        "verify",
        "--url",
        nowhere,
        "--export",
        &export,
        "--checkpoint",
        &kept,
        "--public-key",
        &key,
    ];
    let told: Value = {
        let mut args = verify.to_vec();
        args.push("--json");
        serde_json::from_str(&says(&daemon, &args)).unwrap()
    };
    assert_eq!((&told["verified"], &told["checkpoints"]), (&Value::Bool(true), &Value::from(1)));

    let text = fs::read_to_string(&export).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let without = |gone: usize| {
        lines
            .iter()
            .enumerate()
            .filter(|(n, _)| *n != gone)
            .map(|(_, line)| format!("{line}\n"))
            .collect::<String>()
    };
    let mut swapped = lines.clone();
    swapped.swap(0, 1);
    let joined = |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    for (what, changed) in [
        ("an event removed", without(1)),
        ("two swapped", joined(&swapped)),
        ("one edited", text.replacen("\"outcome\":\"done\"", "\"outcome\":\"dune\"", 1)),
        ("one edited well", text.replacen("sandbox.create", "sandbox.delete", 1)),
        ("the end cut off", joined(&lines[..lines.len() - 1])),
    ] {
        assert_ne!(changed, text, "{what}");
        fs::write(&export, changed).unwrap();
        let said = complains(&daemon, &verify);
        assert!(said.contains("does not verify") && said.contains("hint: "), "{what}: {said}");
    }
}

#[test]
fn verify_detects_a_changed_log_file() {
    let mut daemon = Daemon::start();
    daemon.create("web");
    says(&daemon, &["exec", "web", "--", "true"]);
    says(&daemon, &["audit", "verify"]);
    daemon.kill();
    let store = rusqlite::Connection::open(daemon.state_dir().join("audit/audit.db")).unwrap();
    let edit = "UPDATE leaves SET body = cast(replace(cast(body AS TEXT), 'sandbox.create', 'sandbox.delete') AS BLOB)";
    assert!(store.execute(edit, ()).unwrap() > 0);
    drop(store);
    daemon.launch();
    let said = complains(&daemon, &["audit", "verify"]);
    assert!(said.contains("does not verify"), "{said}");
}
