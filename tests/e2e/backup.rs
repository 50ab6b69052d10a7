//! Backups: everything is exported, everything is restored.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;

use crate::harness::Daemon;

/// A fresh host, with a backup restored on it.
fn bring_back(archive: &Path) -> Daemon {
    let mut other = Daemon::prepare_empty("");
    let restored = std::process::Command::new(crate::harness::burrow())
        .args(["backup", "restore", archive.to_str().unwrap(), "--config"])
        .arg(other.config())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    other.launch();
    other
}

#[test]
fn a_backup_brings_sandboxes_back_on_another_host() {
    let daemon = Daemon::start();
    daemon.ok(&["create", "--name", "alpha", "--label", "team=a"]);
    daemon.ok(&[
        "exec",
        "alpha",
        "--",
        "sh",
        "-c",
        "echo precious > /root/file; echo me > /home/user/mine; chown user /home/user/mine",
    ]);
    daemon.ok(&["env", "set", "alpha", "STAGE=test"]);
    let archive = tempfile::NamedTempFile::new().unwrap();
    daemon.ok(&["backup", "-o", archive.path().to_str().unwrap()]);
    let mode = std::fs::metadata(archive.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "it is for its owner's eyes only");
    drop(daemon);

    let other = bring_back(archive.path());
    other.ok(&["start", "alpha"]);
    assert_eq!(other.ok(&["exec", "alpha", "--", "cat", "/root/file"]), "precious");
    assert_eq!(other.ok(&["exec", "alpha", "--", "stat", "-c", "%U", "/home/user/mine"]), "user");
    assert_eq!(other.ok(&["exec", "alpha", "--", "sh", "-c", "echo $STAGE"]), "test");
    other.ok(&["create", "--name", "beta"]);
    assert_eq!(other.ok(&["exec", "beta", "--", "echo", "new"]), "new", "the image came along");
}

#[test]
fn a_restored_backup_opens_nothing_to_tokens_from_before() {
    let daemon = Daemon::start();
    let id = daemon.ok(&["create", "--name", "alpha"]);
    let health = |daemon: &Daemon, token: &str| {
        let call = daemon.http_open("GET", "/health").header("e2b-sandbox-id", &id);
        call.header("x-access-token", token).send().status
    };
    let connect = |daemon: &Daemon| {
        let opened = daemon.post(&format!("/sandboxes/{id}/connect"), &serde_json::json!({})).json();
        opened["envdAccessToken"].as_str().unwrap().to_owned()
    };
    let revoked_later = connect(&daemon);
    let archive = tempfile::NamedTempFile::new().unwrap();
    daemon.ok(&["backup", "-o", archive.path().to_str().unwrap()]);
    assert_eq!(health(&daemon, &revoked_later), 204);
    let mut before = vec![revoked_later];
    for _ in 0..2 {
        daemon.ok(&["key", "revoke-tokens", "alpha"]);
        before.push(connect(&daemon));
    }
    drop(daemon);

    let other = bring_back(archive.path());
    other.ok(&["start", "alpha"]);
    for token in &before {
        assert_eq!(health(&other, token), 401);
    }
    assert_eq!(health(&other, &connect(&other)), 204);
}

#[test]
fn a_backup_carries_snapshots_as_files_and_brings_back_no_processes() {
    let daemon = Daemon::start();
    daemon.ok(&["create", "--name", "alpha"]);
    for text in ["first", "second"] {
        daemon.ok(&["exec", "alpha", "--", "sh", "-c", &format!("echo {text} > /root/file; sync")]);
        daemon.ok(&["snapshot", "create", "alpha", "--name", text]);
    }
    daemon.ok(&["exec", "alpha", "--", "sh", "-c", "echo third > /root/file; sync"]);
    daemon.ok(&["hibernate", "alpha"]);
    let archive = tempfile::NamedTempFile::new().unwrap();
    daemon.ok(&["backup", "-o", archive.path().to_str().unwrap()]);
    drop(daemon);

    let other = bring_back(archive.path());
    let alpha: serde_json::Value = serde_json::from_str(&other.ok(&["inspect", "alpha", "--json"])).unwrap();
    let alpha = if alpha.is_array() { alpha[0].clone() } else { alpha };
    assert_eq!(alpha["state"], "stopped", "its processes are not in a backup");
    other.ok(&["start", "alpha"]);
    assert_eq!(other.ok(&["exec", "alpha", "--", "cat", "/root/file"]), "third");
    let listed: serde_json::Value = serde_json::from_str(&other.ok(&["snapshot", "ls", "--json"])).unwrap();
    let listed = listed.as_array().unwrap();
    assert_eq!(listed.len(), 2, "{listed:?}");
    assert!(listed.iter().all(|snapshot| snapshot["processes"] == false), "{listed:?}");
    // The second snapshot was stored as its difference to the first.
    for text in ["second", "first"] {
        other.ok(&["snapshot", "restore", text, "--name", &format!("from-{text}")]);
        assert_eq!(other.ok(&["exec", &format!("from-{text}"), "--", "cat", "/root/file"]), text);
    }
    assert_eq!(std::fs::read_dir(other.pool().join("dumps")).unwrap().count(), 0);
}
