//! Memory is exported and imported as lines, survives a killed daemon, is erased permanently, and is consolidated.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::harness::{Daemon, eventually, run};

#[test]
fn exported_memory_is_imported_once_and_unchanged() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    let id = daemon.remember("alpha", "the tide turns at six");
    daemon.ok(&["memory", "update", "alpha", &id, "the tide turns at seven", "--meta", "checked=true"]);
    daemon.ok(&["memory", "add", "alpha", "the moon is full", "--kind", "fact", "--session", "night"]);
    let lines = daemon.ok(&["memory", "export", "alpha"]);
    assert!(lines.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{lines}");
    daemon.ok(&["space", "create", "copy"]);
    for round in 0..2 {
        let imported = daemon.fed(&["memory", "import", "space:copy", "-", "--json"], lines.as_bytes());
        assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
        let imported: Value = serde_json::from_slice(&imported.stdout).unwrap();
        let expected = if round == 0 { (2, 0) } else { (0, 2) };
        assert_eq!(
            (&imported["added"], &imported["existed"]),
            (&expected.0.into(), &expected.1.into()),
            "{imported}"
        );
    }
    assert_eq!(daemon.remembered("copy", &[]), daemon.remembered("alpha", &[]));
    let entry = daemon.json(&["memory", "get", "copy", &id, "--json"]);
    assert_eq!(entry["metadata"], json!({ "checked": true }), "{entry}");
    assert_eq!(daemon.recalled("copy", "moon", &["--session", "night"]), ["the moon is full"]);
    assert!(daemon.ok(&["memory", "check", "copy"]).contains("intact"));
    let file = tempfile::tempdir().unwrap();
    let path = file.path().join("lines.jsonl");
    daemon.ok(&["memory", "export", "alpha", "-o", path.to_str().unwrap()]);
    assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), lines.lines().count());
    // Versions: an entry that was changed first on the other side is not overwritten.
    let late = daemon.refused(&["memory", "update", "alpha", &id, "late", "--if-version", "1"], 1);
    assert!(late.contains('2'), "{late}");
    let history = daemon.json(&["memory", "history", "alpha", &id, "--json"]);
    assert_eq!(history.as_array().unwrap().len(), 2, "{history}");
}

#[test]
fn a_daemon_killed_during_adds_keeps_all_acknowledged_entries() {
    let mut daemon = Daemon::start();
    daemon.ok(&["space", "create", "log"]);
    for round in 0..3 {
        let stop = AtomicBool::new(false);
        let acknowledged = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..3)
                .map(|writer| {
                    let (daemon, stop) = (&daemon, &stop);
                    scope.spawn(move || {
                        let mut kept = Vec::new();
                        for n in 0.. {
                            if stop.load(Ordering::SeqCst) {
                                break;
                            }
                            let text = format!("round {round} writer {writer} entry {n}");
                            let output = daemon.cli(&["memory", "add", "log", &text]);
                            if output.status.success() {
                                kept.push((
                                    String::from_utf8(output.stdout).unwrap().trim().to_owned(),
                                    text,
                                ));
                            }
                        }
                        kept
                    })
                })
                .collect();
            // After some writes were acknowledged, while more are in progress.
            eventually("something to be stored", || {
                let seq = daemon.json(&["memory", "stats", "log", "--json"])["seq"].as_u64().unwrap();
                (seq >= 4 * (round + 1)).then_some(())
            });
            run(Command::new("kill").args(["-9", &daemon.pid().to_string()]));
            stop.store(true, Ordering::SeqCst);
            writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect::<Vec<_>>()
        });
        daemon.kill();
        daemon.launch();
        let check = daemon.json(&["memory", "check", "log", "--json"]);
        assert_eq!(check["ok"], true, "{check}");
        for (id, text) in acknowledged {
            assert_eq!(daemon.json(&["memory", "get", "log", &id, "--json"])["text"], text.as_str());
        }
    }
    assert!(daemon.ok(&["memory", "rebuild", "log"]).contains("intact"));
    assert!(!daemon.recalled("log", "writer entry", &[]).is_empty());
}

#[test]
fn forgotten_entries_are_readable_as_of_an_earlier_time_and_erased_ones_nowhere() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    let kept = daemon.remember("alpha", "the greenhouse is open");
    let forgotten = daemon.remember("alpha", "the greenhouse alarm code is 1234");
    let erased = daemon.remember("alpha", "zanzibarthirteen lives in the greenhouse");
    daemon.ok(&["snapshot", "create", "alpha", "--name", "early", "--files-only"]);
    daemon.ok(&["fork", "alpha", "--name", "child"]);
    let dry = daemon.ok(&["memory", "forget", "alpha", &forgotten, "--dry-run"]);
    assert_eq!(dry, forgotten);
    assert_eq!(daemon.remembered("alpha", &[]).len(), 3);
    daemon.ok(&["memory", "forget", "alpha", &forgotten]);
    assert_eq!(daemon.recalled("alpha", "greenhouse alarm code", &[]).len(), 2);
    assert_eq!(daemon.remembered("alpha", &["--as-of", "early"]).len(), 3);
    assert_eq!(daemon.remembered("child", &[]).len(), 3, "forgetting is this branch's alone");

    let refused = daemon.refused(&["memory", "erase", "alpha", &erased], 1);
    assert!(refused.contains("--yes"), "it asks, or is told not to: {refused}");
    daemon.ok(&["memory", "erase", "alpha", &erased, "--yes"]);
    for (of, as_of) in [("alpha", None), ("alpha", Some("early")), ("child", None)] {
        let more: Vec<&str> = as_of.iter().flat_map(|as_of| ["--as-of", as_of]).collect();
        let found = daemon.recalled(of, "zanzibarthirteen", &more);
        assert!(found.iter().all(|text| !text.contains("zanzibarthirteen")), "{of} {as_of:?}: {found:?}");
        assert!(!daemon.ok(&[&["memory", "export", of][..], &more].concat()).contains("zanzibarthirteen"));
    }
    let mut on_disk = Vec::new();
    for file in std::fs::read_dir(daemon.state_dir().join("memory")).unwrap() {
        let path = file.unwrap().path();
        if path.is_file() {
            on_disk.extend(std::fs::read(path).unwrap());
        }
    }
    assert!(!on_disk.windows(16).any(|window| window == b"zanzibarthirteen"), "not a trace on the disk");
    assert!(daemon.ok(&["memory", "check", "alpha"]).contains("intact"));
    assert_eq!(daemon.json(&["memory", "get", "alpha", &kept, "--json"])["text"], "the greenhouse is open");
}

#[test]
fn many_lines_are_imported_found_and_consolidated_without_loss() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    let day_ms = 24 * 3_600 * 1_000_u64;
    let lines: String = (0..1_500_u64)
        .map(|n| {
            let text = format!("on run {} the turbine showed {} degrees", n / 3, 40 + n % 7);
            let entry = json!({ "text": text, "session": format!("s{}", n / 50), "at_ms": 1_700_000_000_000 + n / 50 * day_ms });
            format!("{entry}\n")
        })
        .collect();
    let added = daemon.fed(&["memory", "add", "alpha", "--jsonl", "--kind", "observation"], lines.as_bytes());
    assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
    assert_eq!(added.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count(), 1_500);
    let again = daemon.ok(&["memory", "add", "alpha", "once only", "--once", "k"]);
    assert_eq!(daemon.ok(&["memory", "add", "alpha", "once only", "--once", "k"]), again);
    let found = daemon.json(&[
        "memory",
        "search",
        "alpha",
        "turbine degrees on run 77",
        "--json",
        "--kind",
        "observation",
    ]);
    assert!(found["hits"][0]["entry"]["text"].as_str().unwrap().contains("run 77 "), "{}", found["hits"][0]);
    assert!(found["arms"].as_array().unwrap().iter().any(|arm| arm["state"] == "took"), "{}", found["arms"]);

    let plan = daemon.json(&["memory", "consolidate", "alpha", "--older-than", "30d", "--dry-run", "--json"]);
    let stats = |name: &str| daemon.json(&["memory", "stats", "alpha", "--json"])[name].clone();
    let before = stats("seq");
    assert_eq!(plan["dry_run"], true);
    assert_eq!(stats("seq"), before, "a dry run writes nothing");
    let done =
        daemon.json(&["memory", "consolidate", "alpha", "--older-than", "30d", "--keep", "0.5", "--json"]);
    assert!(done["after"].as_u64() < done["before"].as_u64(), "{done}");
    // Nothing is lost: it is all readable as of an earlier time, in the export, and by id.
    let then = daemon.json(&["memory", "ls", "alpha", "--all", "--as-of", &before.to_string(), "--json"]);
    assert_eq!(then.as_array().unwrap().len(), 1_501);
    let exported = daemon.ok(&["memory", "export", "alpha"]);
    for n in [0, 499] {
        assert!(exported.contains(&format!("on run {n} the turbine")), "{n}");
    }
    assert!(daemon.ok(&["memory", "check", "alpha"]).contains("intact"));
}
