//! Services: processes that run whenever their sandbox runs.

use serde_json::Value;

use crate::harness::{Daemon, eventually};

#[track_caller]
fn service(daemon: &Daemon, sandbox: &str, name: &str) -> Value {
    let services = daemon.json(&["service", "ls", sandbox, "--json"]);
    let found = services.as_array().unwrap().iter().find(|service| service["name"] == name);
    found.unwrap_or_else(|| panic!("no service {name}: {services}")).clone()
}

#[track_caller]
fn wait_for(daemon: &Daemon, line: &str) {
    eventually(line, || daemon.holds("alpha", line).then_some(()));
}

#[test]
fn a_service_is_started_again_as_its_policy_says() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    let add = |name: &str, policy: &str, code: u32| {
        let line = format!("echo run >> /root/{name}; exit {code}");
        daemon.ok(&["service", "add", "--restart", policy, "alpha", name, "--", "sh", "-c", &line]);
    };
    add("always", "always", 0);
    add("failing", "on-failure", 1);
    add("content", "on-failure", 0);
    add("once", "never", 1);
    wait_for(&daemon, "test $(wc -l < /root/always) -ge 3 && test $(wc -l < /root/failing) -ge 3");
    assert_eq!(daemon.sh("alpha", "cat /root/content /root/once"), "run\nrun");
    assert!(service(&daemon, "alpha", "always")["restarts"].as_u64().unwrap() >= 2);
    for name in ["content", "once"] {
        let service = service(&daemon, "alpha", name);
        assert_eq!((&service["state"], &service["restarts"]), (&"ended".into(), &0.into()), "{name}");
    }
    assert_eq!(daemon.inspect("alpha")["services"].as_array().unwrap().len(), 4);
}

#[test]
fn a_service_runs_as_asked_is_restarted_replaced_read_and_removed() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    let line = "echo I am $(id -un) in $PWD with $A; exec sleep 1000";
    let add =
        ["service", "add", "-e", "A=b", "-w", "/srv", "-u", "user", "alpha", "app", "--", "sh", "-c", line];
    daemon.ok(&add);
    eventually("its output", || {
        let logs = daemon.cli(&["logs", "alpha", "--service", "app"]);
        (logs.stdout == b"I am user in /srv with b\n").then_some(())
    });
    assert_eq!(service(&daemon, "alpha", "app")["state"], "running");
    let pid = daemon.sh("alpha", "pgrep -fx 'sleep 1000'");
    daemon.ok(&["service", "restart", "alpha", "app"]);
    wait_for(&daemon, &format!("pgrep -fx 'sleep 1000' && test $(pgrep -fx 'sleep 1000') != {pid}"));
    let said = daemon.refused(&["service", "add", "alpha", "app", "--", "sleep", "2000"], 1);
    assert!(said.contains("--replace"), "{said}");
    daemon.ok(&["service", "add", "--replace", "alpha", "app", "--", "sleep", "2000"]);
    wait_for(&daemon, "pgrep -fx 'sleep 2000' && ! pgrep -fx 'sleep 1000'");
    daemon.ok(&["service", "rm", "alpha", "app"]);
    wait_for(&daemon, "! pgrep -fx 'sleep 2000'");
    assert_eq!(daemon.json(&["service", "ls", "alpha", "--json"]), serde_json::json!([]));
    let said = daemon.refused(&["service", "restart", "alpha", "app"], 1);
    assert!(said.contains("app") && said.contains("alpha"), "{said}");
}

#[test]
fn services_start_with_their_sandbox_whether_new_or_started_again() {
    let daemon = Daemon::start();
    let folder = tempfile::tempdir().unwrap();
    let spec = folder.path().join("spec.yaml");
    let text = "name: alpha\nservices:\n  app:\n    command: echo up >> /root/starts; exec sleep 1000\n    restart: on-failure\n";
    std::fs::write(&spec, text).unwrap();
    daemon.ok(&["create", "-f", spec.to_str().unwrap()]);
    wait_for(&daemon, "test $(wc -l < /root/starts) = 1");
    daemon.ok(&["stop", "alpha"]);
    assert_eq!(service(&daemon, "alpha", "app")["state"], "stopped");
    daemon.ok(&["start", "alpha"]);
    wait_for(&daemon, "test $(wc -l < /root/starts) = 2");
    // A service that is added while the sandbox is stopped starts with it.
    daemon.ok(&["stop", "alpha"]);
    daemon.ok(&["service", "add", "alpha", "later", "--", "sleep", "3000"]);
    daemon.ok(&["start", "alpha"]);
    wait_for(&daemon, "pgrep -fx 'sleep 3000'");
}
