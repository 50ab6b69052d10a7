//! A sandbox's own listener: programs inside use memory without a key, and can reach only their own sandbox's memory.

use serde_json::Value;

use crate::harness::Daemon;

/// The answer to a request of a program inside to its own listener: the status, and the body.
const ASK: &str = "\
import sys, urllib.request
request = urllib.request.Request('http://10.88.0.1:7700' + sys.argv[2], method=sys.argv[1],
    data=sys.argv[3].encode() if len(sys.argv) > 3 else None, headers={'Content-Type': 'application/json'})
try:
    answer = urllib.request.urlopen(request, timeout=20)
    print(answer.status, answer.read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
";

impl Daemon {
    #[track_caller]
    fn ask_from_inside(&self, sandbox: &str, request: &[&str]) -> (u16, Value) {
        let mut arguments = vec!["exec", sandbox, "--", "python3", "-c", ASK];
        arguments.extend(request);
        let answer = self.ok(&arguments);
        let (status, body) = answer.split_once(' ').unwrap_or((&answer, ""));
        (
            status.parse().unwrap_or_else(|_| panic!("{answer}")),
            serde_json::from_str(body).unwrap_or(Value::Null),
        )
    }
}

#[test]
fn a_program_inside_remembers_without_a_key_and_outside_it_is_the_same_memory() {
    let daemon = Daemon::start();
    daemon.create("inner");
    let id = daemon.ok(&[
        "exec",
        "inner",
        "--",
        "burrow-memory",
        "add",
        "--kind",
        "fact",
        "the cellar floods in March",
    ]);
    assert!(id.starts_with("mem"), "{id}");
    let found = daemon.ok(&["exec", "inner", "--", "burrow-memory", "search", "cellar"]);
    assert!(found.contains(&id) && found.contains("floods in March"), "{found}");
    let outside = daemon.json(&["memory", "search", "inner", "cellar", "--json"]);
    assert_eq!(outside["hits"][0]["entry"]["id"], Value::String(id.clone()));

    daemon.ok(&["exec", "inner", "--", "burrow-memory", "kv", "set", "plan/next", "{\"step\": 3}"]);
    assert_eq!(
        daemon.ok(&["exec", "inner", "--", "burrow-memory", "kv", "get", "plan/next"]),
        "{\"step\":3}"
    );
    assert_eq!(daemon.ok(&["exec", "inner", "--", "burrow-memory", "kv", "incr", "count", "2"]), "2");
    daemon.ok(&[
        "exec",
        "inner",
        "--",
        "sh",
        "-c",
        "head -c 3000000 /dev/urandom > /tmp/a && burrow-memory artifact put a /tmp/a",
    ]);
    daemon.ok(&["exec", "inner", "--", "sh", "-c", "burrow-memory artifact get a | cmp - /tmp/a"]);
    let context = daemon.ok(&["exec", "inner", "--", "burrow-memory", "context", "cellar"]);
    assert!(context.contains("floods in March"), "{context}");
    // A login shell finds it too, also when it runs as an unprivileged user.
    let help = daemon.ok(&["exec", "inner", "-u", "nobody", "--", "sh", "-lc", "burrow-memory --help"]);
    assert!(help.contains("Usage: burrow-memory"), "{help}");
    let refused = daemon.cli(&["exec", "inner", "--", "burrow-memory", "get", "mem"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(1) && said.starts_with("burrow-memory: "), "{said}");
}

#[test]
fn the_own_listener_works_after_a_daemon_restart_a_sleep_a_stop_and_in_a_fork() {
    let mut daemon = Daemon::start();
    daemon.create("walker");
    let remember = |daemon: &Daemon, of: &str, text: &str| {
        daemon.ok(&["exec", of, "--", "burrow-memory", "add", text]);
    };
    remember(&daemon, "walker", "first the bridge");
    daemon.terminate();
    daemon.launch();
    remember(&daemon, "walker", "then the ferry");
    daemon.ok(&["hibernate", "walker"]);
    remember(&daemon, "walker", "then the tunnel");
    daemon.ok(&["stop", "walker"]);
    daemon.ok(&["start", "walker"]);
    remember(&daemon, "walker", "then the ladder");
    daemon.ok(&["fork", "walker", "--name", "second"]);
    remember(&daemon, "second", "a road of its own");
    assert_eq!(daemon.remembered("walker", &[]).len(), 4);
    let child = daemon.remembered("second", &[]);
    assert_eq!(child.len(), 5, "{child:?}");
}

#[test]
fn the_own_listener_serves_the_sandboxes_own_memory_and_nothing_else() {
    let daemon = Daemon::start();
    daemon.create("mine");
    daemon.create("foreign");
    daemon.remember("foreign", "the vault is behind the mirror");
    daemon.ok(&["space", "create", "team"]);
    assert_eq!(daemon.ask_from_inside("mine", &["GET", "/v1/memory/self"]).0, 200, "control");
    for place in [
        "/v1/memory/foreign/entries",
        "/v1/memory/sandbox:foreign/entries",
        "/v1/memory/space:team/entries",
        "/v1/memory/team",
        "/v1/spaces",
        "/v1/sandboxes",
        "/v1/keys",
        "/v1/backup",
        "/v1/memory/self/../foreign/entries",
        "/v1/memory/self%2f..%2fforeign/entries",
        "/",
    ] {
        let (status, body) = daemon.ask_from_inside("mine", &["GET", place]);
        assert!((400..500).contains(&status), "{place}: {status} {body}");
        assert!(!body.to_string().contains("vault"), "{place}: {body}");
    }
    for place in ["/v1/memory/self/erase", "/v1/memory/self/rebuild", "/v1/memory/self/check", "/v1/spaces"] {
        let (status, body) = daemon.ask_from_inside("mine", &["POST", place, "{\"ids\":[]}"]);
        assert!((400..500).contains(&status), "{place}: {status} {body}");
    }
    let merged = daemon.ask_from_inside("mine", &["POST", "/v1/memory/self/merge", "{\"from\":\"foreign\"}"]);
    assert!((400..500).contains(&merged.0), "{merged:?}");
    let entries = daemon.ask_from_inside(
        "mine",
        &["POST", "/v1/memory/self/search", "{\"query\":\"vault mirror\",\"spaces\":[\"team\",\"foreign\"]}"],
    );
    assert!(!entries.1.to_string().contains("vault"), "{entries:?}");
}

#[test]
fn a_read_only_shared_space_cannot_be_written_from_inside() {
    let daemon = Daemon::start();
    daemon.ok(&["space", "create", "library"]);
    daemon.ok(&["memory", "add", "space:library", "the index is by colour"]);
    daemon.ok(&["create", "--name", "reader", "--attach", "library:ro"]);
    let (status, found) =
        daemon.ask_from_inside("reader", &["POST", "/v1/memory/self/search", "{\"query\":\"index colour\"}"]);
    assert_eq!((status, found["hits"][0]["space"].as_str()), (200, Some("library")), "{found}");
    let write = ["POST", "/v1/memory/self/entries?space=library", "{\"text\":\"by size\"}"];
    let (status, body) = daemon.ask_from_inside("reader", &write);
    assert!((400..500).contains(&status), "{status} {body}");
    daemon.ok(&["update", "reader", "--attach", "library:rw"]);
    assert_eq!(daemon.ask_from_inside("reader", &write).0, 201);
    assert_eq!(daemon.remembered("space:library", &[]).len(), 2);
}
