//! Host sets of package managers, end to end: named by denials, added by name, and replaced by the configuration.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Daemon, run};
use crate::island::{self, CONFIG, OUTSIDE, Web};

/// The number of DNS questions about a host that were denied.
pub(crate) fn denied_questions(daemon: &Daemon, sandbox: &str, host: &str) -> u64 {
    let log = daemon.json(&["egress", "log", sandbox, "-n", "1000", "--denied", "--json"]);
    let about = |entry: &&Value| entry["host"] == host && entry["kind"] == "dns";
    log.as_array().unwrap().iter().filter(about).map(|entry| entry["times"].as_u64().unwrap()).sum()
}

/// A package index with one package, `demo`.
fn index(folder: &Path) {
    const WHEEL: &str = "import sys,zipfile\n\
        with zipfile.ZipFile(sys.argv[1],'w') as wheel:\n\
        \x20 wheel.writestr('demo.py','print(\"demo works\")')\n\
        \x20 info='demo-1.0.dist-info/'\n\
        \x20 wheel.writestr(info+'METADATA','Metadata-Version: 2.1\\nName: demo\\nVersion: 1.0\\n')\n\
        \x20 wheel.writestr(info+'WHEEL','Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
        \x20 wheel.writestr(info+'RECORD','')\n";
    let file = "demo-1.0-py3-none-any.whl";
    std::fs::create_dir_all(folder.join("simple/demo")).unwrap();
    run(Command::new("python3").args(["-c", WHEEL]).arg(folder.join(file)));
    let page = format!("<!DOCTYPE html><html><body><a href=\"/{file}\">{file}</a></body></html>");
    std::fs::write(folder.join("simple/demo/index.html"), page).unwrap();
}

#[test]
fn pip_fails_at_once_when_denied_and_installs_with_the_set_that_the_denial_names() {
    if !island::landed(
        "host_sets::pip_fails_at_once_when_denied_and_installs_with_the_set_that_the_denial_names",
    ) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let web = Web::https(OUTSIDE, 443, folder.path());
    index(web.folder.path());
    let daemon = Daemon::start_with(&format!("{CONFIG}\negress.sets.pypi = [\"https://up.example\"]"));
    let id = daemon.create("alpha");
    daemon.ok(&["cp", &folder.path().join("ca.pem").display().to_string(), "alpha:/root/ca.pem"]);
    daemon.sh("alpha", "python3 -m venv /root/venv");
    let install = "PIP_DISABLE_PIP_VERSION_CHECK=1 /root/venv/bin/pip install --cert /root/ca.pem \
                   --index-url https://up.example/simple/ demo 2>&1";

    // Denied: the first of five retries follows at once and reports the reason; there is no second one.
    let request = json!({ "command": install, "wait": true });
    let result = daemon.post("/v1/sandboxes/alpha/execs", &request).expect(200);
    assert_ne!(result["exec"]["outcome"]["exit_code"], 0, "{result}");
    assert_eq!(result["exec"]["egress_denied"][0]["host"], "up.example", "{result}");
    assert_eq!(result["exec"]["egress_denied"][0]["set"], "pypi", "{result}");
    let said = result.to_string();
    assert!(said.contains("Name or service not known"), "{said}");
    assert_eq!(said.matches("Retrying").count(), 1, "{said}");
    let questions = denied_questions(&daemon, "alpha", "up.example");
    assert!((1..=4).contains(&questions), "two lookups are four questions, not {questions}");
    let output = daemon.cli(&["exec", "alpha", "--", "getent", "hosts", "up.example"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains(&format!("egress denied: `up.example`; `burrow egress allow {id} --set pypi`")),
        "{said}"
    );
    let explained = daemon.json(&["egress", "explain", "alpha", "https://up.example/simple/", "--json"]);
    assert_eq!(explained["hint"], "`burrow egress allow alpha --set pypi` allows it");

    // Allowed by name: the policy contains the set, not its rules.
    daemon.ok(&["egress", "allow", "alpha", "--set", "pypi"]);
    let shown = daemon.json(&["egress", "show", "alpha", "--json"]);
    assert_eq!(shown["network"]["sets"], json!(["pypi"]), "{shown}");
    assert_eq!(shown["rules"], json!([{ "rule": "https://up.example", "set": "pypi" }]), "{shown}");
    daemon.sh("alpha", install);
    assert_eq!(
        daemon.sh("alpha", "/root/venv/bin/python -m demo; echo ${PIP_RETRIES-retries}"),
        "demo works\nretries"
    );
    // An old denial is not reported with a later failure.
    let output = daemon.cli(&["exec", "alpha", "--", "false"]);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");

    // A fork keeps the set; `deny` removes it.
    let child = daemon.json(&["fork", "alpha", "--name", "child", "--json"]);
    assert_eq!(child["children"][0]["network"]["sets"], json!(["pypi"]), "{child}");
    daemon.ok(&["egress", "deny", "alpha", "--set", "pypi"]);
    assert_eq!(daemon.sh("alpha", "echo ${PIP_RETRIES-retries}"), "1");
}

#[test]
fn the_host_sets_are_listed_and_all_of_them_are_one_word() {
    let daemon = Daemon::start_with("egress.sets.ours = [\"ours.example\"]");
    let sets = daemon.json(&["egress", "sets", "--json"]);
    let rules = |set: &str| {
        let found = sets.as_array().unwrap().iter().find(|found| found["name"] == set);
        found.unwrap_or_else(|| panic!("{set}: {sets}"))["rules"].as_array().unwrap().clone()
    };
    for set in
        ["alpine", "crates", "debian", "dockerhub", "github", "gitlab", "go", "huggingface", "maven", "npm"]
    {
        for rule in rules(set) {
            assert!(rules("packages").contains(&rule), "{set}: {rule}");
        }
    }
    assert!(rules("pypi").contains(&json!("https://pypi.org")));
    assert_eq!(rules("ours"), [json!("ours.example")]);
    assert!(!rules("packages").contains(&json!("ours.example")));
    let listed = daemon.ok(&["egress", "sets"]);
    assert!(listed.starts_with("SET") && listed.contains("https://registry.npmjs.org"), "{listed}");

    daemon.ok(&["create", "--name", "alpha", "--net", "packages"]);
    let network = daemon.json(&["inspect", "alpha"])["network"].clone();
    assert_eq!(network, json!({ "mode": "allowlist", "allow": [], "sets": ["packages"] }));
    let explained =
        daemon.json(&["egress", "explain", "alpha", "https://index.crates.io/se/rd/serde", "--json"]);
    assert_eq!((&explained["allowed"], &explained["set"]), (&json!(true), &json!("packages")), "{explained}");
    let explained = daemon.json(&["egress", "explain", "alpha", "http://index.crates.io/", "--json"]);
    assert_eq!(explained["allowed"], false, "{explained}");
}

#[test]
fn denials_are_reported_when_a_command_or_code_succeeds_nevertheless() {
    let mut daemon = Daemon::prepare_for_code("egress.sets.ours = [\"https://files.example\"]");
    daemon.launch();
    daemon.ok(&["create", "--name", "lab", "--image", "python-interpreter"]);
    let id = daemon.inspect("lab")["id"].as_str().unwrap().to_owned();
    let output = daemon.cli(&["exec", "lab", "-c", "getent hosts files.example || true"]);
    assert!(output.status.success(), "{output:?}");
    let expected = format!("egress denied: `files.example`; `burrow egress allow {id} --set ours`\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), expected);

    let code =
        "import socket\ntry: socket.getaddrinfo('files.example', 443)\nexcept OSError as error: print(error)";
    let output = daemon.cli(&["code", "lab", "-e", code]);
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said, "egress denied: `files.example`; `burrow egress allow lab --set ours`\n");
    let request = json!({ "code": code, "wait": true });
    let run = daemon.post("/v1/sandboxes/lab/contexts/default/run", &request).expect(200);
    assert_eq!(run["status"], "ok", "{run}");
    assert_eq!(run["egress_denied"][0]["host"], "files.example", "{run}");
    assert_eq!(run["egress_denied"][0]["set"], "ours", "{run}");

    // Once it is allowed, a later failure does not name the old denial.
    daemon.ok(&["egress", "allow", "lab", "--set", "ours"]);
    let output = daemon.cli(&["exec", "lab", "--", "false"]);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let request = json!({ "code": "1/0", "wait": true });
    let run = daemon.post("/v1/sandboxes/lab/contexts/default/run", &request).expect(200);
    assert_eq!((&run["status"], &run["egress_denied"]), (&json!("error"), &Value::Null), "{run}");
}
