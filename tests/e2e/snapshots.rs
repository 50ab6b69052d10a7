//! Snapshots, restores and forks of running sandboxes.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::Value;

use crate::harness::{Daemon, eventually};
use crate::survivor;

fn snapshot(daemon: &Daemon, arguments: &[&str]) -> Value {
    let mut all = vec!["snapshot", "create", "--json"];
    all.extend(arguments);
    daemon.json(&all)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

fn list(daemon: &Daemon, arguments: &[&str]) -> Vec<Value> {
    let mut all = vec!["snapshot", "ls", "--json"];
    all.extend(arguments);
    daemon.json(&all).as_array().unwrap().clone()
}

#[test]
fn a_restore_brings_back_files_and_processes_and_can_be_undone() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    let then = survivor::start(&daemon, "alpha");
    daemon.sh("alpha", "echo then > /root/file");
    let taken =
        snapshot(&daemon, &["alpha", "--name", "good", "--description", "it works", "--label", "a=b"]);
    assert_eq!(taken["processes"], true);
    assert!(taken["pause_us"].as_u64().unwrap() > 0 && taken["ram_bytes"].as_u64().unwrap() > 0, "{taken}");
    daemon.sh("alpha", "echo now > /root/file; pkill python3; echo left > /root/new");
    daemon.ok(&["exec", "-d", "alpha", "--", "sleep", "1234"]);

    let restored = daemon.json(&["snapshot", "restore", "good", "--in-place", "alpha", "--yes", "--json"]);
    let undo = text(&restored["undo"]["id"]).to_owned();
    assert_eq!(daemon.sh("alpha", "cat /root/file; ls /root/new 2>&1 | grep -c cannot"), "then\n1");
    survivor::goes_on(&then, &survivor::ask(&daemon, "alpha"), "after a restore");
    survivor::still_locked(&daemon, "alpha", "after a restore");
    assert!(!daemon.holds("alpha", "pgrep -x sleep"), "what ran before is gone");

    daemon.ok(&["snapshot", "restore", &undo, "--in-place", "alpha", "--yes"]);
    assert_eq!(daemon.sh("alpha", "cat /root/file /root/new"), "now\nleft");
    assert!(daemon.holds("alpha", "pgrep -x sleep"), "undone, processes included");
    assert!(!daemon.holds("alpha", "pgrep python3"));
    // A snapshot never changes: it can be restored any number of times.
    daemon.ok(&["snapshot", "restore", "good", "--in-place", "alpha", "--yes"]);
    survivor::goes_on(&then, &survivor::ask(&daemon, "alpha"), "after a second restore");
}

#[test]
fn the_answer_lists_changes_since_the_previous_snapshot() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    daemon.sh("alpha", "mkdir /srv/data; echo one > /srv/data/one; echo two > /srv/data/two");
    let first = snapshot(&daemon, &["alpha", "--files-only"]);
    daemon.sh("alpha", "echo more >> /srv/data/one; rm /srv/data/two; echo three > '/srv/data/three x'; mv /srv/data/one /srv/data/uno");
    let second = snapshot(&daemon, &["alpha", "--files-only"]);
    assert_eq!(second["changes"]["since"], first["id"]);
    let changes: BTreeSet<(String, String)> = second["changes"]["paths"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| (text(&change["path"]).to_owned(), text(&change["kind"]).to_owned()))
        .filter(|(path, _)| path.starts_with("/srv/data/"))
        .collect();
    let expected = [
        ("/srv/data/one", "deleted"),
        ("/srv/data/three x", "added"),
        ("/srv/data/two", "deleted"),
        ("/srv/data/uno", "added"),
    ];
    let expected = expected.map(|(path, kind)| (path.to_owned(), kind.to_owned())).into();
    assert_eq!(changes, expected, "{second}");
    assert_eq!(second["processes"], false);
    assert_eq!(second["parent"], first["id"]);
}

#[test]
fn snapshots_of_sleeping_and_stopped_sandboxes_contain_their_state() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    let before = survivor::start(&daemon, "alpha");
    daemon.ok(&["hibernate", "alpha"]);
    let asleep = snapshot(&daemon, &["alpha", "--name", "asleep"]);
    assert_eq!(asleep["processes"], true);
    daemon.ok(&["stop", "alpha"]);
    let stopped = snapshot(&daemon, &["alpha", "--name", "stopped"]);
    assert_eq!(stopped["processes"], false);
    // The sandbox is deleted; its snapshot stays, and is started under another name.
    daemon.ok(&["rm", "--purge", "-f", "alpha"]);
    daemon.ok(&["snapshot", "restore", "asleep", "--name", "beta"]);
    survivor::goes_on(&before, &survivor::ask(&daemon, "beta"), "in a sandbox of its own");
    daemon.ok(&["snapshot", "restore", "stopped", "--name", "gamma"]);
    assert!(daemon.holds("gamma", "test -s /root/survivor.db") && !daemon.holds("gamma", "pgrep python3"));
    assert_eq!(daemon.sh("beta", "hostname"), "beta");
    assert_eq!(list(&daemon, &[]).len(), 2);
    daemon.ok(&["snapshot", "rm", "asleep", "stopped"]);
    assert_eq!(std::fs::read_dir(daemon.pool().join("dumps")).unwrap().count(), 0);
    assert_eq!(std::fs::read_dir(daemon.pool().join("snapshots")).unwrap().count(), 0);
    survivor::goes_on(&before, &survivor::ask(&daemon, "beta"), "without the snapshot it came from");
}

/// Invariant 13, P-S1: everything that forks must not share differs before any of their processes runs.
#[test]
fn children_of_a_running_sandbox_continue_from_one_moment_and_are_distinct() {
    let daemon = Daemon::start();
    daemon.create("parent");
    daemon.sh("parent", "systemd-machine-id-setup 2>/dev/null || cat /proc/sys/kernel/random/uuid | tr -d - > /etc/machine-id");
    daemon
        .sh("parent", "mkdir -p /etc/ssh; ssh-keygen -A 2>/dev/null || echo key > /etc/ssh/ssh_host_rsa_key");
    let before = survivor::start(&daemon, "parent");
    let forked = daemon.json(&["fork", "parent", "--count", "3", "--name", "child", "--json"]);
    assert!(forked["pause_us"].as_u64().unwrap() > 0, "{forked}");
    let names = ["child-1", "child-2", "child-3"];
    let said: Vec<&str> =
        forked["children"].as_array().unwrap().iter().map(|child| text(&child["name"])).collect();
    assert_eq!(said, names);
    let mut moments = BTreeSet::new();
    let all = ["parent", names[0], names[1], names[2]];
    let mut distinct: [BTreeSet<String>; 4] = Default::default();
    for name in all {
        let now = survivor::ask(&daemon, name);
        survivor::goes_on(&before, &now, name);
        survivor::still_locked(&daemon, name, name);
        moments.insert(now.nonce);
        distinct[0].insert(daemon.sh(name, "hostname; cat /etc/hostname"));
        // Processes that were started under the parent's name can still resolve their own host by it.
        assert_eq!(daemon.sh(name, "getent ahostsv4 parent | head -1 | cut -d' ' -f1"), "127.0.1.1");
        distinct[1].insert(daemon.sh(name, "cat /etc/machine-id"));
        distinct[2].insert(
            daemon.sh(name, "head -c 16 /dev/urandom | od -An -tx1; cat /proc/sys/kernel/random/uuid"),
        );
        distinct[3]
            .insert(daemon.sh(name, "cat /etc/ssh/ssh_host_*key 2>/dev/null || echo none for $(hostname)"));
    }
    assert_eq!(moments.len(), 1, "all are the same program");
    assert!(distinct.iter().all(|values| values.len() == all.len()), "{distinct:?}");
    // They are independent: changes in one are not visible in the others, and ending one ends no other.
    daemon.sh(names[0], "echo mine > /root/mine");
    assert!(!daemon.holds("parent", "test -e /root/mine") && !daemon.holds(names[1], "test -e /root/mine"));
    daemon.ok(&["rm", "--purge", "-f", "parent"]);
    survivor::ask(&daemon, names[1]);
    let tree = daemon.ok(&["tree"]);
    assert!(names.iter().all(|name| tree.contains(name)), "{tree}");
    // A child is a sandbox like any other: it sleeps, wakes and can be forked.
    daemon.ok(&["hibernate", names[2]]);
    daemon.ok(&["fork", names[2], "--name", "grandchild"]);
    survivor::goes_on(&before, &survivor::ask(&daemon, "grandchild"), "a child of one that sleeps");
    assert!(
        daemon.json(&["inspect", names[2], "--json"]).to_string().contains("\"hibernated\""),
        "it sleeps on"
    );
    for name in ["child-1", "child-2", "child-3", "grandchild"] {
        daemon.ok(&["rm", "--purge", "-f", name]);
    }
    assert_eq!(
        std::fs::read_dir(daemon.pool().join("snapshots")).unwrap().count(),
        0,
        "nothing is left of the forks"
    );
    assert_eq!(std::fs::read_dir(daemon.pool().join("dumps")).unwrap().count(), 0);
}

#[test]
fn forks_of_files_only_boot_and_are_distinct_too() {
    let daemon = Daemon::start();
    daemon.create("parent");
    daemon.sh("parent", "echo 0123456789abcdef0123456789abcdef > /etc/machine-id; echo text > /root/file");
    daemon.ok(&["exec", "-d", "parent", "--", "sleep", "1000"]);
    daemon.ok(&["fork", "parent", "--files-only", "--name", "child"]);
    assert_eq!(daemon.sh("child", "cat /root/file; hostname"), "text\nchild");
    assert_ne!(daemon.sh("child", "cat /etc/machine-id"), daemon.sh("parent", "cat /etc/machine-id"));
    assert!(!daemon.holds("child", "pgrep sleep") && daemon.holds("parent", "pgrep sleep"));
}

#[test]
fn a_failed_command_leaves_no_trace() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    let before = survivor::start(&daemon, "alpha");
    let spoil = "echo spoilt > /root/file; pkill python3; rm -rf /usr/lib/python3*; echo output; exit 3";
    let output = daemon.cli(&["exec", "--rollback-on-failure", "alpha", "--", "sh", "-c", spoil]);
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "output", "its output came through");
    survivor::goes_on(&before, &survivor::ask(&daemon, "alpha"), "after a rollback");
    assert!(!daemon.holds("alpha", "test -e /root/file"));
    eventually("the snapshots it took to go", || list(&daemon, &["--all"]).is_empty().then_some(()));
    // A command that succeeds keeps its changes.
    daemon.ok(&["exec", "--rollback-on-failure", "alpha", "--", "sh", "-c", "echo good > /root/file"]);
    assert_eq!(daemon.sh("alpha", "cat /root/file"), "good");
    // On request, it also leaves a snapshot to restore.
    daemon.ok(&["exec", "--snapshot", "alpha", "--", "sh", "-c", "echo worse > /root/file"]);
    let kept = list(&daemon, &["alpha"]);
    assert_eq!(kept.len(), 1, "{kept:?}");
    daemon.ok(&["snapshot", "restore", text(&kept[0]["id"]), "--in-place", "alpha", "--yes"]);
    assert_eq!(daemon.sh("alpha", "cat /root/file"), "good");
}

/// A client that runs a command which must leave no trace if it fails, and its daemon, which is killed meanwhile.
#[test]
fn rollback_on_failure_survives_crashes_of_the_daemon_and_the_host() {
    let mut daemon = Daemon::start();
    daemon.create("alpha");
    let before = survivor::start(&daemon, "alpha");
    let spoil = "echo spoilt > /root/file; touch /root/begun; while ! test -e /root/end; do sleep 0.05; done; \
                 exit $(cat /root/end)";
    // How the command ends: while no daemon runs, or under the next daemon; successfully or not; or with the host.
    for (how, code) in [("meanwhile", 3), ("after", 3), ("after", 0), ("with the host", 3)] {
        let mut client = daemon.command(&["exec", "--rollback-on-failure", "alpha", "--", "sh", "-c", spoil]);
        let mut client = client.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        eventually("the command to begin", || daemon.holds("alpha", "test -e /root/begun").then_some(()));
        let end = format!("echo {code} > /root/end.new; mv /root/end.new /root/end");
        if how == "meanwhile" {
            daemon.ok(&["exec", "-d", "alpha", "--", "sh", "-c", &format!("sleep 1; {end}")]);
        }
        daemon.kill();
        client.wait().unwrap();
        if how == "with the host" {
            daemon.reboot();
        }
        daemon.launch();
        if how == "after" {
            daemon.sh("alpha", &end);
        }
        eventually("the promise to be kept", || list(&daemon, &["--all"]).is_empty().then_some(()));
        let spoilt = daemon.holds("alpha", "test -e /root/file");
        assert_eq!(spoilt, code == 0, "{how}, {code}");
        survivor::goes_on(&before, &survivor::ask(&daemon, "alpha"), how);
        daemon.sh("alpha", "rm -f /root/file /root/begun /root/end");
    }
}

#[test]
fn snapshots_are_kept_by_policy_and_expire() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    daemon.ok(&["snapshot", "policy", "alpha", "--every", "10s", "--keep", "1", "--files-only"]);
    snapshot(&daemon, &["alpha", "--files-only", "--name", "short", "--expires", "1s"]);
    eventually("the one to expire", || {
        (!list(&daemon, &["alpha"]).iter().any(|found| found["name"] == "short")).then_some(())
    });
    eventually("one by policy", || {
        daemon.sh("alpha", "true");
        list(&daemon, &["alpha"]).iter().any(|found| found["kind"] == "policy").then_some(())
    });
    daemon.ok(&["snapshot", "policy", "alpha", "--off"]);
}

#[test]
fn outside_connections_end_cleanly_and_inside_ones_live_on() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    survivor::start(&daemon, "alpha");
    // A connection from outside into the sandbox, for which a process in the sandbox waits.
    let wait = "import socket; s = socket.create_server(('0.0.0.0', 9000)); print('up', flush=True); c, _ = s.accept(); print('in', flush=True)\ntry: c.recv(1); print('closed', flush=True)\nexcept OSError as e: print('closed', flush=True)";
    let exec = daemon.ok(&["exec", "-d", "alpha", "--", "python3", "-c", wait]);
    eventually("it to listen", || daemon.ok(&["logs", &exec]).contains("up").then_some(()));
    let mut forward = daemon.command(&["port-forward", "alpha", "0:9000"]);
    let mut forward = forward.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(forward.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.split(" -> ").next().unwrap().to_owned();
    let _outside = std::net::TcpStream::connect(&address).unwrap();
    eventually("it to be connected", || daemon.ok(&["logs", &exec]).contains("in").then_some(()));
    daemon.ok(&["hibernate", "alpha"]);
    daemon.ok(&["wake", "alpha"]);
    eventually("the reader inside to notice", || {
        daemon.ok(&["logs", &exec]).contains("closed").then_some(())
    });
    survivor::ask(&daemon, "alpha");
    let _ = forward.kill();
    let _ = forward.wait();
}

#[test]
fn garbage_is_listed_with_its_size_and_only_automatic_snapshots_are_removed() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    snapshot(&daemon, &["alpha", "--files-only", "--name", "mine"]);
    daemon.ok(&["snapshot", "restore", "mine", "--in-place", "alpha", "--yes", "--files-only"]);
    daemon.ok(&["stop", "alpha"]);
    let report = daemon.ok(&["gc", "--unused-for", "0s"]);
    assert!(report.contains("alpha"), "{report}");
    assert_eq!(list(&daemon, &["--all"]).len(), 2);
    daemon.ok(&["gc", "--unused-for", "0s", "--apply", "--yes"]);
    let left = list(&daemon, &["--all"]);
    assert_eq!(left.len(), 1);
    assert_eq!(left[0]["name"], "mine");
    daemon.ok(&["start", "alpha"]);
    daemon.ok(&["rm", "--purge", "-f", "--snapshots", "alpha"]);
    assert!(list(&daemon, &["--all"]).is_empty());
}
