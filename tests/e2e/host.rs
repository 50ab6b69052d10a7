//! The host: the output of `doctor`, and `up` and `down` on a host without systemd.

use std::net::TcpListener;
use std::process::Command;

use serde_json::Value;

use crate::harness::{Daemon, burrow};

#[test]
fn doctor_checks_each_part_of_the_host_and_suggests_a_command_for_every_problem() {
    let daemon = Daemon::start();
    let output = daemon.cli(&["doctor", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = report["checks"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_lowercase();
    let about: Vec<String> = checks
        .iter()
        .map(|check| format!("{} {}: {}", text(&check["area"]), text(&check["name"]), text(&check["found"])))
        .collect();
    for part in ["kernel", "cgroup", "btrfs", "nft", "criu", "qemu", "container"] {
        assert!(about.iter().any(|name| name.contains(part)), "nothing about {part} in {about:?}");
    }
    for check in checks {
        assert!(["ok", "note", "warn", "fail"].contains(&text(&check["verdict"]).as_str()), "{check}");
        assert!(!text(&check["found"]).is_empty(), "{check}");
        if check["verdict"] == "fail" {
            assert!(
                check["fix"].as_str().is_some_and(|fix| !fix.is_empty()),
                "a problem without its command: {check}"
            );
        }
    }
    let failed = checks.iter().any(|check| check["verdict"] == "fail");
    assert_eq!(output.status.code(), Some(i32::from(failed)));
    assert_eq!(report["ok"], !failed);
    let human = daemon.cli(&["doctor"]);
    assert!(
        String::from_utf8_lossy(&human.stdout).lines().count() > checks.len(),
        "as many lines as checks, for people"
    );
}

#[test]
fn doctor_works_while_the_daemon_is_down() {
    let mut command = Command::new(burrow());
    command.args(["doctor", "--json"]).env("BURROW_URL", "http://127.0.0.1:1");
    let report: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
    assert!(report["checks"].as_array().unwrap().len() > 5, "{report}");
}

/// In a separate mount namespace, so that the host's `/run` and its log are not touched.
#[test]
fn up_starts_a_daemon_in_the_background_and_down_ends_it_while_sandboxes_continue() {
    let daemon = Daemon::prepare("");
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config = std::fs::read_to_string(daemon.config()).unwrap();
    let run_dir = config.lines().find(|line| line.starts_with("run_dir")).unwrap().to_owned();
    let key_line = config.lines().find(|line| line.starts_with("admin_key_file")).unwrap();
    let key_file = key_line.split('"').nth(1).unwrap();
    // Where the command line finds its user's key.
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join("burrow")).unwrap();
    std::os::unix::fs::symlink(key_file, home.path().join("burrow/key")).unwrap();
    let config = config
        .replace("127.0.0.1:0", &format!("127.0.0.1:{port}"))
        .replace(&run_dir, "run_dir = \"/run/burrow\"");
    std::fs::write(daemon.config(), config).unwrap();
    let script = r#"
        set -e
        mount -t tmpfs tmpfs /run; mount -t tmpfs tmpfs /var/log
        trap 'kill $(cat /run/burrow/daemon.pid 2>/dev/null) 2>/dev/null || true' EXIT
        "$BURROW" up --config "$CONFIG" 2>&1
        "$BURROW" up --config "$CONFIG" --no-image > /dev/null 2>&1
        "$BURROW" create --name alpha > /dev/null
        "$BURROW" exec -d alpha -- sleep 1000 > /dev/null
        "$BURROW" down 2>&1
        ! "$BURROW" ls 2>/dev/null
        "$BURROW" down 2>&1
        "$BURROW" up --config "$CONFIG" 2>/dev/null
        "$BURROW" exec alpha -- pgrep -fx 'sleep 1000' > /dev/null && echo it goes on
        "$BURROW" down --stop-sandboxes 2>&1
        "$BURROW" up --config "$CONFIG" --no-image 2>/dev/null
        "$BURROW" ls --json | grep '"state"'
        "$BURROW" rm alpha
        "$BURROW" down 2>/dev/null
    "#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "bash", "-c", script]);
    command.env("BURROW", burrow()).env("CONFIG", daemon.config()).env("XDG_CONFIG_HOME", home.path());
    command.env("BURROW_URL", format!("http://127.0.0.1:{port}")).env_remove("BURROW_API_KEY");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    for part in ["next steps", "the daemon has stopped", "is not running", "it goes on", "\"stopped\""] {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
    assert!(daemon.inventory().sandboxes().is_empty());
}
