//! The daemon itself: its OpenAPI document, health, metrics, logs, TLS, configuration, and shutdown.

use std::io::Read as _;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Daemon, burrow, eventually, run};

#[test]
fn the_openapi_document_it_serves_is_the_committed_one() {
    let daemon = Daemon::start();
    let served = daemon.http_open("GET", "/v1/openapi.json").send();
    assert_eq!(served.header("content-type"), Some("application/json"));
    let committed =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/openapi.json")).unwrap();
    assert_eq!(served.json(), serde_json::from_str::<Value>(&committed).unwrap());
    assert!(served.json()["openapi"].as_str().unwrap().starts_with("3.1"));
}

#[test]
fn health_readiness_version_and_metrics_report_the_state_of_the_daemon() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    daemon.sh("alpha", "true");
    assert_eq!(daemon.get("/healthz").text(), "ok\n");
    assert_eq!(daemon.get("/readyz").expect(200), json!({ "ready": true, "waiting_for": [] }));
    assert_eq!(daemon.get("/v1/version").expect(200)["version"], env!("CARGO_PKG_VERSION"));
    let metrics = daemon.get("/metrics");
    assert!(
        metrics.header("content-type").unwrap().contains("openmetrics"),
        "{:?}",
        metrics.header("content-type")
    );
    let text = metrics.text();
    let value = |begin: &str, with: &str| -> f64 {
        let line = text.lines().find(|line| line.starts_with(begin) && line.contains(with));
        let line = line.unwrap_or_else(|| panic!("no {begin} with {with} in\n{text}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert_eq!(value("burrow_sandboxes{", "running"), 1.0);
    assert!(value("burrow_execs_started_total", "") >= 1.0);
    assert!(text.trim_end().ends_with("# EOF"));
    assert!(!text.contains("alpha"), "what callers choose is in no label");
    let host = daemon.get("/v1/host").expect(200);
    assert_eq!(host["sandboxes_running"], 1);
    let container =
        host["drivers"].as_array().unwrap().iter().find(|driver| driver["name"] == "container").unwrap();
    assert_eq!(container["available"]["yes"], true, "{container}");
}

#[test]
fn logs_are_structured_and_carry_sandbox_and_exec_ids() {
    let mut daemon = Daemon::prepare("");
    let config = std::fs::read_to_string(daemon.config()).unwrap();
    std::fs::write(
        daemon.config(),
        config.replace("level = \"debug\"", "level = \"debug\"\nformat = \"json\""),
    )
    .unwrap();
    daemon.launch();
    let id = daemon.create("alpha");
    let exec = daemon.ok(&["exec", "-d", "alpha", "--", "true"]);
    daemon.get(&format!("/v1/sandboxes/{id}/execs/{exec}/wait")).expect(200);
    daemon.terminate();
    let log = daemon.log();
    let lines: Vec<Value> =
        log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect();
    assert!(lines.iter().all(|line| line["level"].is_string() && line["timestamp"].is_string()));
    let asked = lines.iter().find(|line| line["exec"] == exec.as_str() && line["sandbox"] == id.as_str());
    assert!(asked.is_some(), "no line about sandbox {id} and exec {exec}:\n{log}");
}

#[test]
fn it_serves_https_to_clients_that_trust_its_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    self_signed(&at("key.pem"), &at("cert.pem"));
    let daemon =
        Daemon::start_with(&format!("tls.cert = {:?}\ntls.key = {:?}", at("cert.pem"), at("key.pem")));
    let url = daemon.url().replace("http://", "https://");
    let ask = |arguments: &[&str]| {
        let mut command = daemon.command(arguments);
        command.env("BURROW_URL", &url).output().unwrap()
    };
    let create = ask(&["--ca-file", &at("cert.pem"), "create", "--name", "alpha"]);
    assert!(create.status.success(), "{}", String::from_utf8_lossy(&create.stderr));
    let exec = ask(&["--ca-file", &at("cert.pem"), "exec", "alpha", "--", "echo", "over TLS"]);
    assert_eq!(exec.stdout, b"over TLS\n", "{}", String::from_utf8_lossy(&exec.stderr));
    let untrusted = ask(&["ls"]);
    assert!(!untrusted.status.success());
    assert!(String::from_utf8_lossy(&untrusted.stderr).contains("certificate"), "{untrusted:?}");
    let plain = daemon.cli(&["ls"]);
    assert!(!plain.status.success(), "and nothing in clear");
    certificate_changes_without_a_restart(&daemon, &folder, &url);
}

/// SIGHUP loads a new certificate; an invalid one leaves the previous one in use.
fn certificate_changes_without_a_restart(daemon: &Daemon, folder: &tempfile::TempDir, url: &str) {
    let at = |name: &str| folder.path().join(name).display().to_string();
    let ask = |trusted: &str| {
        let mut command = daemon.command(&["--ca-file", trusted, "ls"]);
        command.env("BURROW_URL", url).output().unwrap().status.success()
    };
    let old = at("old.pem");
    std::fs::copy(at("cert.pem"), &old).unwrap();
    self_signed(&at("key.pem"), &at("cert.pem"));
    assert!(ask(&old) && !ask(&at("cert.pem")), "nobody has told it yet");
    let hang_up = || run(Command::new("kill").args(["-HUP", &daemon.pid().to_string()]));
    hang_up();
    eventually("the new certificate", || ask(&at("cert.pem")).then_some(()));
    assert!(!ask(&old));
    std::fs::copy(at("cert.pem"), &old).unwrap();
    std::fs::write(at("cert.pem"), "nonsense").unwrap();
    hang_up();
    eventually("a word about it", || daemon.log().contains("the old one stays in use").then_some(()));
    assert!(ask(&old));
}

fn self_signed(key: &str, certificate: &str) {
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
    openssl.args(["-days", "2", "-subj", "/CN=burrow test", "-addext", "subjectAltName=IP:127.0.0.1"]);
    openssl.args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", key, "-out", certificate]);
    run(&mut openssl);
}

#[test]
fn it_listens_beyond_this_host_only_with_tls_or_an_explicit_setting() {
    let daemon = Daemon::prepare("");
    let config = std::fs::read_to_string(daemon.config()).unwrap();
    std::fs::write(daemon.config(), config.replace("127.0.0.1:0", "0.0.0.0:0")).unwrap();
    let output = Command::new(burrow()).arg("serve").arg("--config").arg(daemon.config()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("`listen` on line ") && said.contains("tls"), "{said}");
}

#[test]
fn a_bad_configuration_names_the_key_and_the_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.toml");
    for (text, key, line) in [
        ("listen = \"127.0.0.1:0\"\n[limits]\nsandboxes = -3\n", "limits.sandboxes", "line 3"),
        ("listen = \"nowhere\"\n", "listen", "line 1"),
        ("\n[defaults]\nram = \"much\"\n", "defaults.ram", "line 3"),
        ("[pool]\nsise = \"64G\"\n", "pool.sise", "line 2"),
        ("[log]\nlevel = \"loud\"\n", "log.level", "line 2"),
        ("a = [\n", "", "line 1"),
    ] {
        std::fs::write(&file, text).unwrap();
        let output = Command::new(burrow()).arg("serve").arg("--config").arg(&file).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{text}");
        assert!(said.contains(key) && said.contains(line), "{text}\n{said}");
    }
}

#[test]
fn a_shutdown_ends_streams_with_a_message_and_leaves_sandboxes_running() {
    let mut daemon = Daemon::start();
    daemon.create("alpha");
    let exec = daemon.ok(&["exec", "-d", "alpha", "--", "sh", "-c", "echo first; exec sleep 1000"]);
    let mut output =
        daemon.http("GET", &format!("/v1/sandboxes/alpha/execs/{exec}/output?follow=true")).open();
    assert_eq!(output.line().unwrap()["text"], "first\n");
    let mut events = daemon.http("GET", "/v1/events?follow=true").open();
    let before = daemon.inventory().processes;
    assert_eq!(daemon.terminate(), Some(0), "a clean end");
    let last = output.line().unwrap();
    assert_eq!(last["kind"], "error", "{last}");
    assert!(output.line().is_none());
    let mut rest = String::new();
    events.read_to_string(&mut rest).unwrap();
    assert!(daemon.inventory().processes.is_superset(&before), "sandboxes outlive it");
    daemon.launch();
    assert_eq!(daemon.get(&format!("/v1/sandboxes/alpha/execs/{exec}")).expect(200)["state"], "running");
    assert_eq!(daemon.complaints(), [""; 0]);
}

#[test]
fn a_create_during_a_shutdown_is_complete_or_undone() {
    let mut daemon = Daemon::start();
    let call = daemon.http("POST", "/v1/sandboxes").json(&json!({ "name": "alpha" }));
    let stream = std::thread::spawn(move || call.send().status);
    daemon.terminate();
    // A connection that came too late is refused, which is also a valid answer.
    let status = stream.join().ok();
    daemon.launch();
    let rows = daemon.json(&["ls", "--json"]);
    let rows = rows.as_array().unwrap();
    assert_eq!(daemon.inventory().volumes.len(), rows.len());
    if status == Some(201) {
        assert_eq!(rows.len(), 1, "what was answered is there");
    }
    for row in rows {
        assert_eq!(row["state"], "running");
        assert!(daemon.holds("alpha", "true"));
    }
}

#[test]
fn the_first_key_is_readable_only_by_the_user_who_called_sudo() {
    use std::os::unix::fs::MetadataExt as _;
    let mut daemon = Daemon::prepare("");
    daemon.set_env("SUDO_UID", "4321");
    daemon.set_env("SUDO_GID", "4322");
    daemon.launch();
    let file = std::fs::metadata(daemon.config().with_file_name("admin.key")).unwrap();
    assert_eq!((file.uid(), file.gid(), file.mode() & 0o777), (4321, 4322, 0o600));
    let run_dir = std::fs::metadata(daemon.config().with_file_name("run")).unwrap();
    assert_eq!(run_dir.mode() & 0o022, 0, "nobody else can put anything beside it");
}

#[test]
fn a_changed_log_level_applies_without_a_restart() {
    let daemon = Daemon::start();
    let config = std::fs::read_to_string(daemon.config()).unwrap();
    std::fs::write(daemon.config(), config.replace("level = \"debug\"", "level = \"error\"")).unwrap();
    run(Command::new("kill").arg("-HUP").arg(daemon.pid().to_string()));
    eventually("the log to fall silent", || {
        let before = daemon.log().lines().count();
        daemon.get("/v1/sandboxes").expect(200);
        (daemon.log().lines().count() == before).then_some(())
    });
}

#[test]
fn ordinary_use_logs_no_warnings() {
    let mut daemon = Daemon::start();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "content\n").unwrap();
    daemon.ok(&["create", "--name", "alpha", "--ram", "256M", "--label", "a=b"]);
    daemon.ok(&["cp", folder.path().to_str().unwrap(), "alpha:/srv/copied"]);
    assert_eq!(daemon.sh("alpha", "cat /srv/copied/file"), "content");
    daemon.ok(&["service", "add", "alpha", "app", "--", "sleep", "1000"]);
    daemon.ok(&["exec", "-d", "alpha", "--", "sleep", "1000"]);
    for command in ["pause", "resume", "stop", "start"] {
        daemon.ok(&[command, "alpha"]);
    }
    daemon.ok(&["rename", "alpha", "beta"]);
    daemon.ok(&["update", "beta", "--ram", "128M", "--disk", "1G"]);
    daemon.ok(&["run", "--rm", "--", "true"]);
    daemon.cli(&["exec", "beta", "--", "false"]);
    daemon.get("/v1/sandboxes/nowhere").refused(404, "not_found");
    assert_eq!(daemon.terminate(), Some(0));
    daemon.launch();
    daemon.ok(&["exec", "beta", "--", "true"]);
    daemon.ok(&["rm", "--purge", "beta"]);
    assert_eq!(daemon.terminate(), Some(0));
    assert_eq!(daemon.complaints(), [""; 0]);
    assert!(daemon.inventory().sandboxes().is_empty());
}

#[test]
fn two_daemons_cannot_share_one_state_directory() {
    let daemon = Daemon::start();
    let output = Command::new(burrow()).arg("serve").arg("--config").arg(daemon.config()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{said}");
    eventually("the first one to go on", || (daemon.get("/healthz").status == 200).then_some(()));
}
