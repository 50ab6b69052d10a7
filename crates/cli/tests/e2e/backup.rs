//! Backups: everything out, everything back.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use crate::harness::Daemon;

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

    let mut other = Daemon::prepare_empty("");
    let restored = std::process::Command::new(crate::harness::burrow())
        .args(["backup", "restore", archive.path().to_str().unwrap(), "--config"])
        .arg(other.config())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    other.launch();
    other.ok(&["start", "alpha"]);
    assert_eq!(other.ok(&["exec", "alpha", "--", "cat", "/root/file"]), "precious");
    assert_eq!(other.ok(&["exec", "alpha", "--", "stat", "-c", "%U", "/home/user/mine"]), "user");
    assert_eq!(other.ok(&["exec", "alpha", "--", "sh", "-c", "echo $STAGE"]), "test");
    other.ok(&["create", "--name", "beta"]);
    assert_eq!(other.ok(&["exec", "beta", "--", "echo", "new"]), "new", "the image came along");
}
