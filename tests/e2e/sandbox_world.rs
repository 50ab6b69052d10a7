//! A sandbox as seen from inside: users, names, locale, time, tools, and enforced limits.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::harness::{Daemon, all_on_microvms, eventually};

#[test]
fn there_is_root_and_a_user_whose_sudo_works() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    assert_eq!(daemon.sh("alpha", "id -u; id -un; echo $HOME; pwd"), "0\nroot\n/root\n/root");
    let user = |line: &str| daemon.ok(&["exec", "-u", "user", "alpha", "--", "sh", "-c", line]);
    assert_eq!(user("id -u; id -un; echo $HOME; pwd"), "1000\nuser\n/home/user\n/home/user");
    assert_eq!(user("sudo -n id -un"), "root");
    assert_eq!(user("sudo -n sh -c 'echo by root > /etc/made' && cat /etc/made"), "by root");
    assert!(!daemon.cli(&["exec", "-u", "user", "alpha", "--", "touch", "/etc/forbidden"]).status.success());
    assert_eq!(daemon.sh("alpha", "sudo -u user id -un; su user -c 'id -un'"), "user\nuser");
}

#[test]
fn root_inside_is_unprivileged_outside() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    daemon.ok(&["exec", "-d", "alpha", "--", "sleep", "1000"]);
    for pid in daemon.inventory().processes {
        let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else { continue };
        let uids = status.lines().find(|line| line.starts_with("Uid:")).unwrap();
        assert!(uids.split_whitespace().skip(1).all(|uid| uid.parse::<u32>().unwrap() >= 100_000), "{uids}");
    }
}

#[test]
fn its_name_resolves_and_localhost_is_itself() {
    let daemon = Daemon::start();
    daemon.create("my-box");
    assert_eq!(daemon.sh("my-box", "hostname; cat /etc/hostname; uname -n"), "my-box\nmy-box\nmy-box");
    assert!(daemon.holds(
        "my-box",
        "getent hosts my-box && getent hosts localhost && grep -q '127.0.0.1.*localhost' /etc/hosts"
    ));
    let talk = "python3 -c \"
import socket
server = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(('localhost', server.getsockname()[1]))
server.accept()[0].send(b'heard')
print(client.recv(9).decode())\"";
    assert_eq!(daemon.sh("my-box", talk), "heard");
    let id = daemon.ok(&["create"]);
    assert_eq!(daemon.sh(&id, "hostname"), id, "without a name it is called by its id");
    daemon.ok(&["rename", "my-box", "other-box"]);
    daemon.ok(&["stop", "other-box"]);
    daemon.ok(&["start", "other-box"]);
    assert_eq!(daemon.sh("other-box", "hostname; getent hosts other-box | wc -l"), "other-box\n1");
}

#[test]
fn language_and_time_are_sane() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    assert_eq!(
        daemon.sh("alpha", "python3 -c \"print('grüße, 世界')\" && locale charmap"),
        "grüße, 世界\nUTF-8"
    );
    assert_eq!(daemon.sh("alpha", "locale 2>&1 | grep -ci 'cannot set' || true"), "0");
    assert_eq!(
        daemon.sh("alpha", "date +%Z; TZ=Europe/Berlin date -d '2024-07-01T00:00Z' +%H:%M"),
        "UTC\n02:00"
    );
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let before = now();
    let inside: u64 = daemon.sh("alpha", "date +%s").parse().unwrap();
    assert!((before..=now()).contains(&inside), "{inside} is not between {before} and now");
}

#[test]
fn python_git_and_apt_behave() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    let pool = "python3 -c 'import multiprocessing as m, ssl, sqlite3; print(m.Pool(2).map(abs, [-1, -2]))'";
    assert_eq!(daemon.sh("alpha", pool), "[1, 2]");
    assert!(daemon.holds("alpha", "python3 -m venv /tmp/venv && /tmp/venv/bin/python -m pip --version"));
    let git = "cd /tmp && git init -q -b main repo && cd repo && echo a > a && git add a &&
        git -c user.name=n -c user.email=e commit -qm first && git clone -q /tmp/repo /tmp/copy && cat /tmp/copy/a";
    assert_eq!(daemon.sh("alpha", git), "a");
    assert!(
        daemon.holds("alpha", "apt-get check && apt-get --simulate -y remove nano | grep -q '^Remv nano'")
    );
    // A package that is built here, because there is no network: apt unpacks, configures and records it for real.
    let package = "mkdir -p /tmp/p/DEBIAN /tmp/p/usr/bin && cd /tmp &&
        printf 'Package: local-tool\\nVersion: 1\\nArchitecture: all\\nMaintainer: x <x@example.org>\\nDescription: x\\n' > p/DEBIAN/control &&
        printf '#!/bin/sh\\necho installed\\n' > p/usr/bin/local-tool && chmod 755 p/usr/bin/local-tool &&
        dpkg-deb --build p local-tool.deb > /dev/null && apt-get install -y ./local-tool.deb > /tmp/log 2>&1 || { cat /tmp/log; exit 1; }
        local-tool && dpkg -s local-tool | grep ^Status";
    assert_eq!(daemon.sh("alpha", package), "installed\nStatus: install ok installed");
    daemon.ok(&["stop", "alpha"]);
    daemon.ok(&["start", "alpha"]);
    assert_eq!(daemon.sh("alpha", "local-tool"), "installed", "what was installed stays");
}

#[test]
fn memory_beyond_the_limit_ends_the_process_and_is_reported() {
    let daemon = Daemon::start();
    daemon.ok(&["create", "--name", "alpha", "--ram", "96M"]);
    // A machine reports less than its limit, because its kernel keeps some.
    if !all_on_microvms() {
        let total: u64 = daemon.sh("alpha", "awk '/^MemTotal/ {print $2}' /proc/meminfo").parse().unwrap();
        assert_eq!(total, 96 << 10, "/proc/meminfo shows the limit");
        assert_eq!(daemon.sh("alpha", "free -m | awk '/^Mem:/ {print $2}'"), "96");
    }
    // In small pieces: the kernel of a machine would refuse a single allocation that exceeds its RAM.
    let program = "x = [bytearray(8 << 20) for _ in range(50)]\nprint('got it')";
    let output = daemon.cli(&["exec", "alpha", "--", "python3", "-c", program]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(137), "{said}");
    assert!(output.stdout.is_empty() && said.contains("RAM"), "{said}");
    let stats = daemon.json(&["stats", "alpha", "--json"])[0].clone();
    assert!(stats["oom_kills"].as_u64().unwrap() >= 1, "{stats}");
    assert_eq!(daemon.sh("alpha", "echo still here"), "still here");
    let result = daemon
        .post("/v1/sandboxes/alpha/execs", &json!({ "argv": ["python3", "-c", program], "wait": true }));
    assert_eq!(result.expect(200)["exec"]["outcome"]["killed_from_outside"], true);
}

#[test]
fn processor_time_does_not_exceed_its_limit() {
    let daemon = Daemon::start();
    daemon.ok(&["create", "--name", "alpha", "--cpu", "0.25"]);
    let line = "for i in 1 2; do timeout 1.5 sh -c 'while :; do :; done' & done; wait";
    let result =
        daemon.post("/v1/sandboxes/alpha/execs", &json!({ "command": line, "wait": true })).expect(200);
    let outcome = &result["exec"]["outcome"];
    let (cpu, wall) = (outcome["cpu_us"].as_f64().unwrap(), outcome["wall_us"].as_f64().unwrap());
    // Two endless loops would use two cores; the limit is a quarter of one, plus or minus a scheduling period.
    assert!(cpu / wall < 0.4, "{} of a core", cpu / wall);
    assert!(cpu > 0.0);
}

#[test]
fn processes_beyond_the_limit_are_refused_and_the_sandbox_stays_usable() {
    let daemon = Daemon::start();
    daemon.ok(&["create", "--name", "alpha", "--pids", "40"]);
    let program = "
import os, time
made = 0
try:
    for _ in range(200):
        if os.fork() == 0:
            time.sleep(1000)
            os._exit(0)
        made += 1
except OSError as error:
    print(error.errno == __import__('errno').EAGAIN, made < 40)
";
    assert_eq!(
        daemon.ok(&["exec", "alpha", "--timeout", "30s", "--", "python3", "-c", program]),
        "True True"
    );
    daemon.ok(&["update", "alpha", "--pids", "120"]);
    assert_eq!(daemon.sh("alpha", "echo room again"), "room again");
    assert_eq!(daemon.sh("alpha", "pkill -f '[t]ime.sleep'; echo done"), "done");
}

#[test]
fn disk_beyond_the_quota_is_refused_with_its_own_code_and_deleting_makes_room() {
    let daemon = Daemon::start();
    daemon.ok(&["create", "--name", "alpha", "--disk", "64M"]);
    let output =
        daemon.cli(&["exec", "alpha", "-c", "head -c 150M /dev/urandom > /root/large && sync /root/large"]);
    assert!(!output.status.success(), "150 MiB fit into 64");
    let size: u64 = daemon.sh("alpha", "stat -c %s /root/large").parse().unwrap();
    assert!(size <= 80 << 20, "{size} bytes were written");
    let put = || {
        daemon
            .http("PUT", "/v1/sandboxes/alpha/files?path=/root/more&sync=true")
            .body(vec![7; 32 << 20])
            .send()
    };
    let error = put().refused(507, "no_space");
    assert!(!error["hint"].is_null(), "{error}");
    assert!(daemon.holds("alpha", "test ! -e /root/more"), "nothing half-written is left");
    daemon.ok(&["files", "rm", "alpha", "/root/large"]);
    eventually("room after deleting", || (put().status == 200).then_some(()));
    let stats = daemon.json(&["stats", "alpha", "--json"])[0].clone();
    assert_eq!(stats["disk_limit_bytes"], 64 << 20);
}

#[test]
fn limits_change_while_the_sandbox_runs_and_are_kept() {
    let daemon = Daemon::start();
    daemon.ok(&["create", "--name", "alpha", "--ram", "96M", "--pids", "64", "--disk", "64M"]);
    let before = daemon.inventory().processes;
    daemon.ok(&["update", "alpha", "--ram", "192M", "--pids", "128", "--disk", "256M", "--cpu", "0.5"]);
    assert!(daemon.inventory().processes.is_superset(&before), "nothing was restarted");
    assert_eq!(daemon.sh("alpha", "awk '/^MemTotal/ {print $2}' /proc/meminfo"), (192 << 10).to_string());
    assert_eq!(daemon.sh("alpha", "python3 -c \"x = bytearray(120 << 20); print('fits')\""), "fits");
    assert_eq!(
        daemon.sh("alpha", "head -c 100M /dev/urandom > /root/large && sync /root/large && echo fits"),
        "fits"
    );
    let limits = json!({ "ram_mib": 192, "cpu_millis": 500, "pids": 128, "disk_mib": 256 });
    assert_eq!(daemon.inspect("alpha")["limits"], limits);
    daemon.ok(&["stop", "alpha"]);
    daemon.ok(&["update", "alpha", "--ram", "128M"]);
    daemon.ok(&["start", "alpha"]);
    assert_eq!(daemon.sh("alpha", "awk '/^MemTotal/ {print $2}' /proc/meminfo"), (128 << 10).to_string());
    let call = daemon.http("PATCH", "/v1/sandboxes/alpha").json(&json!({ "limits": { "ram_mib": 1 } }));
    call.send().refused(400, "invalid_request");
    assert_eq!(daemon.inspect("alpha")["limits"]["ram_mib"], 128, "a refused change changes nothing");
}

#[test]
fn environment_workdir_user_and_labels_are_those_of_the_create_request() {
    let daemon = Daemon::start();
    let create = [
        "create", "--name", "alpha", "-e", "A=one", "-e", "B=two", "-w", "/srv", "-u", "user", "--label",
        "team=a",
    ];
    daemon.ok(&create);
    assert_eq!(daemon.sh("alpha", "echo $A $B; pwd; id -un"), "one two\n/srv\nuser");
    let over = [
        "exec",
        "-e",
        "B=three",
        "-w",
        "/tmp",
        "-u",
        "root",
        "alpha",
        "--",
        "sh",
        "-c",
        "echo $A $B; pwd; id -un",
    ];
    assert_eq!(daemon.ok(&over), "one three\n/tmp\nroot");
    let sandbox = daemon.inspect("alpha");
    assert_eq!(sandbox["labels"], json!({ "team": "a" }));
    assert_eq!((&sandbox["workdir"], &sandbox["user"]), (&json!("/srv"), &json!("user")));
    assert_eq!((&sandbox["ephemeral"], &sandbox["expires_ms"]), (&json!(false), &Value::Null));
    assert_eq!(sandbox["driver"], if all_on_microvms() { "microvm" } else { "container" });
}

#[test]
fn an_expired_sandbox_is_deleted_with_all_its_resources() {
    let daemon = Daemon::start();
    daemon.ok(&["create", "--name", "brief", "--ttl", "1s"]);
    daemon.create("lasting");
    eventually("the sandbox to expire", || {
        (daemon.get("/v1/sandboxes/brief").status == 404 && daemon.inventory().volumes.len() == 1)
            .then_some(())
    });
    assert!(daemon.holds("lasting", "true"));
    let events = daemon.ok(&["events", "--json"]);
    assert!(events.contains("sandbox.expired"), "{events}");
}

#[test]
fn an_ephemeral_sandbox_leaves_nothing_behind_when_it_stops() {
    let daemon = Daemon::start();
    daemon.ok(&["create", "--name", "fleeting", "--ephemeral"]);
    daemon.sh("fleeting", "echo x > /root/file");
    daemon.ok(&["stop", "fleeting"]);
    daemon.get("/v1/sandboxes/fleeting").refused(404, "not_found");
    assert!(daemon.inventory().sandboxes().is_empty());
    assert!(daemon.inventory().processes.is_empty());
    // It is also deleted when its last process ends it from inside.
    daemon.ok(&["create", "--name", "again", "--ephemeral"]);
    let last = json!({ "argv": ["true"], "then_stop": true });
    daemon.post("/v1/sandboxes/again/execs", &last).expect(201);
    eventually("the sandbox to go with its last exec", || {
        daemon.inventory().sandboxes().is_empty().then_some(())
    });
}
