//! Secrets that never enter a sandbox: injected into requests outside, scrubbed from answers, rotated, revoked, approved
//! and counted; and searched for inside and in everything that is stored.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::harness::{Daemon, eventually, run};
use crate::island::{self, CONFIG, OUTSIDE};

/// Must appear only in the request that the host receives.
pub(crate) const CANARY: &str = "sk-canary-4f9d2c7b81e64a5f9c3d";
const ROTATED: &str = "sk-canary-second-77aa10c2f3e94b";

/// An API that returns what it received, in the body and in a header, and logs it where the test can read it.
const ECHO: &str = r#"
import http.server, json, ssl, sys
host, port, cert, key, seen = sys.argv[1:6]
class Echo(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_): pass
    def answer(self):
        length = int(self.headers.get("Content-Length", 0))
        self.rfile.read(length)
        with open(seen, "a") as file:
            file.write(json.dumps({"method": self.command, "path": self.path, "headers": {name.lower(): value for name, value in self.headers.items()}}) + "\n")
        said = self.headers.get("Authorization", "") + " " + self.path
        body = json.dumps({"said": said}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("X-Said", said)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_GET = do_POST = do_PUT = answer
server = http.server.ThreadingHTTPServer((host, int(port)), Echo)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(cert, key)
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"#;

pub(crate) struct Api {
    child: Child,
    folder: tempfile::TempDir,
}

impl Api {
    pub(crate) fn serve() -> Self {
        let folder = tempfile::Builder::new().prefix("burrow-api-").tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        let curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
        let mut authority = Command::new("openssl");
        authority.args(["req", "-x509", "-days", "2", "-subj", "/CN=burrow test authority"]).args(curve);
        run(authority.args(["-keyout", &at("ca.key"), "-out", &at("ca.pem")]));
        let mut request = Command::new("openssl");
        request.args(["req", "-subj", "/CN=up.example"]).args(curve);
        run(request.args(["-keyout", &at("key.pem"), "-out", &at("request.pem")]));
        fs::write(
            at("names"),
            "subjectAltName=DNS:up.example,DNS:other.example\nbasicConstraints=CA:FALSE\n",
        )
        .unwrap();
        let mut leaf = Command::new("openssl");
        leaf.args(["x509", "-req", "-days", "2", "-in", &at("request.pem"), "-CA", &at("ca.pem")]);
        leaf.args([
            "-CAkey",
            &at("ca.key"),
            "-CAcreateserial",
            "-extfile",
            &at("names"),
            "-out",
            &at("cert.pem"),
        ]);
        run(&mut leaf);
        let mut command = Command::new("python3");
        command.args(["-c", ECHO, OUTSIDE, "443", &at("cert.pem"), &at("key.pem"), &at("seen")]);
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        let place: SocketAddr = (OUTSIDE.parse::<IpAddr>().unwrap(), 443).into();
        eventually("the API to listen", || std::net::TcpStream::connect(place).ok());
        Self { child, folder }
    }

    /// The configuration of a daemon that trusts it.
    pub(crate) fn config(&self) -> String {
        format!("{CONFIG}\negress.roots = \"{}\"", self.folder.path().join("ca.pem").display())
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// The requests it received, oldest first.
    pub(crate) fn seen(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.folder.path().join("seen")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn last_authorization(&self) -> String {
        self.seen().last().unwrap()["headers"]["authorization"].as_str().unwrap_or_default().to_owned()
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn policy(slot: &str, rest: &str) -> String {
    format!(
        "secrets:\n  - name: key\n    from: {{ env: CANARY }}\n    allow: [{{ host: up.example, paths: [\"/v1/**\"] }}]\n    \
         slot: {slot}\negress:\n  rules:\n    - {{ host: up.example, secret: key{rest} }}\n"
    )
}

fn apply(daemon: &Daemon, file: &Path, sandboxes: &[&str]) {
    let mut command = daemon.command(&["egress", "apply", "-f"]);
    let output = command.arg(file).args(sandboxes).env("CANARY", CANARY).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The status and the complete answer, headers included.
fn call(daemon: &Daemon, sandbox: &str, arguments: &[&str]) -> (String, String) {
    let mut line = vec!["exec", sandbox, "--", "curl", "-sS", "-i", "--max-time", "60"];
    line.extend(arguments);
    let output = daemon.cli(&line);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let status = text.split(' ').nth(1).unwrap_or_default().to_owned();
    (status, text + &String::from_utf8_lossy(&output.stderr))
}

#[test]
fn a_secret_is_injected_outside_and_scrubbed_from_answers() {
    if !island::landed("secrets::a_secret_is_injected_outside_and_scrubbed_from_answers") {
        return;
    }
    let api = Api::serve();
    let daemon = Daemon::start_with(&api.config());
    daemon.create("alpha");
    for (slot, sent) in [
        ("{ header: Authorization, format: \"Bearer {}\" }", format!("Bearer {CANARY}")),
        ("{ basic: user }", format!("Basic {}", base64(&format!("user:{CANARY}")))),
    ] {
        apply(&daemon, &api.file("policy.yaml", &policy(slot, "")), &["alpha"]);
        let (status, answer) =
            call(&daemon, "alpha", &["-X", "POST", "https://up.example/v1/chat", "-d", "hi"]);
        assert_eq!(status, "200", "{answer}");
        assert_eq!(api.last_authorization(), sent);
        assert!(!answer.contains(CANARY) && !answer.contains(&base64(&format!("user:{CANARY}"))), "{answer}");
    }
    apply(&daemon, &api.file("policy.yaml", &policy("{ query: key }", "")), &["alpha"]);
    let (status, answer) = call(&daemon, "alpha", &["https://up.example/v1/chat?a=b"]);
    assert_eq!(status, "200", "{answer}");
    let path = api.seen().last().unwrap()["path"].as_str().unwrap().to_owned();
    assert!(path.starts_with("/v1/chat?") && path.contains(&format!("key={CANARY}")), "{path}");
    assert!(!answer.contains(CANARY), "{answer}");

    // Beyond the ceiling, whatever the rule allows.
    let before = api.seen().len();
    let (status, answer) = call(&daemon, "alpha", &["https://up.example/v2/chat"]);
    assert_eq!((status.as_str(), api.seen().len()), ("403", before), "{answer}");
    let explained = daemon.json(&["egress", "explain", "alpha", "https://up.example/v2/chat", "--json"]);
    assert_eq!(explained["allowed"], false, "{explained}");
    let explained =
        daemon.json(&["egress", "explain", "alpha", "https://up.example/v1/x", "-X", "PUT", "--json"]);
    assert_eq!(explained["request"]["secret"], "key", "{explained}");
    assert_eq!(explained["request"]["slot"], "query key", "{explained}");
    assert_eq!(explained["request"]["decrypted"], true, "{explained}");

    nowhere(&daemon, "alpha");
}

fn base64(text: &str) -> String {
    use ::base64::Engine as _;
    ::base64::engine::general_purpose::STANDARD.encode(text)
}

/// Searches for the canary wherever a process or a user could find it.
pub(crate) fn nowhere(daemon: &Daemon, sandbox: &str) {
    let inside = "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'; \
                  grep -rlF 'PATTERN' /root /home /etc /tmp /run /var 2>/dev/null; true";
    // The pattern is assembled inside, so that the command itself does not contain it.
    let (front, back) = CANARY.split_at(9);
    let script = inside.replace("'PATTERN'", &format!("\"$(printf '%s%s' {front} {back})\""));
    let found = daemon.sh(sandbox, &script);
    assert!(!found.contains(CANARY), "inside: {found}");
    let snapshot = daemon.ok(&["snapshot", "create", sandbox]);
    for (what, text) in [
        ("the log", daemon.log()),
        ("metrics", daemon.get("/metrics").text()),
        ("inspect", daemon.ok(&["inspect", sandbox])),
        ("secret ls", daemon.ok(&["secret", "ls", "--json"])),
        ("egress show", daemon.ok(&["egress", "show", sandbox, "--json"])),
        ("egress log", daemon.ok(&["egress", "log", sandbox, "--json"])),
        ("audit", daemon.ok(&["audit", "ls", "--json"])),
        ("the snapshot", daemon.ok(&["snapshot", "inspect", snapshot.trim()])),
    ] {
        assert!(!text.contains(CANARY), "{what} holds the secret");
    }
    let state = daemon.state_dir();
    let mut grep = Command::new("grep");
    let output = grep.args(["-rlaF", "--", CANARY]).arg(&state).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "what the daemon keeps holds the secret");
}

#[test]
fn rotation_and_revocation_reach_a_running_sandbox() {
    if !island::landed("secrets::rotation_and_revocation_reach_a_running_sandbox") {
        return;
    }
    let api = Api::serve();
    let daemon = Daemon::start_with(&api.config());
    daemon.create("alpha");
    let slot = "{ header: Authorization, format: \"Bearer {}\" }";
    apply(&daemon, &api.file("policy.yaml", &policy(slot, "")), &["alpha"]);
    assert_eq!(call(&daemon, "alpha", &["https://up.example/v1/a"]).0, "200");
    assert_eq!(api.last_authorization(), format!("Bearer {CANARY}"));
    let mut rotate = daemon.command(&["secret", "rotate", "key", "--from-env", "CANARY"]);
    run(rotate.env("CANARY", ROTATED));
    eventually("the new value to be used", || {
        call(&daemon, "alpha", &["https://up.example/v1/b"]);
        (api.last_authorization() == format!("Bearer {ROTATED}")).then_some(())
    });
    // A host may still return the former value.
    let answer = call(&daemon, "alpha", &[&format!("https://up.example/v1/b?stored={CANARY}")]).1;
    assert!(api.seen().last().unwrap()["path"].as_str().unwrap().contains(CANARY));
    assert!(answer.contains("stored=***") && !answer.contains(CANARY), "{answer}");
    assert_eq!(api.last_authorization(), format!("Bearer {ROTATED}"));
    daemon.ok(&["secret", "rm", "key", "--force"]);
    eventually("what needs it to be refused", || {
        (call(&daemon, "alpha", &["https://up.example/v1/c"]).0 == "403").then_some(())
    });
    let shown = daemon.json(&["egress", "show", "alpha", "--json"]);
    assert!(shown["requests"][0]["problem"].as_str().unwrap().contains("no secret `key`"), "{shown}");
}

#[test]
fn a_request_waits_for_approval_and_a_budget_is_enforced() {
    if !island::landed("secrets::a_request_waits_for_approval_and_a_budget_is_enforced") {
        return;
    }
    let api = Api::serve();
    let daemon = Daemon::start_with(&api.config());
    daemon.create("alpha");
    let slot = "{ header: Authorization }";
    let asking = policy(slot, ", approve: once");
    apply(&daemon, &api.file("policy.yaml", &asking), &["alpha"]);
    for (word, status) in [("approve", "200"), ("refuse", "403")] {
        let answer = std::thread::scope(|scope| {
            let call = scope.spawn(|| call(&daemon, "alpha", &["https://up.example/v1/a"]));
            daemon.ok(&["egress", word, "alpha", "--wait"]);
            call.join().unwrap()
        });
        assert_eq!(answer.0, status, "{}", answer.1);
    }
    assert_eq!(daemon.json(&["egress", "approvals", "alpha", "--json"]), json!([]));
    let counted = policy(slot, ", budget: { requestsPerDay: 2 }");
    apply(&daemon, &api.file("policy.yaml", &counted), &["alpha"]);
    for status in ["200", "200", "429"] {
        let answer = call(&daemon, "alpha", &["https://up.example/v1/a"]);
        assert_eq!(answer.0, status, "{}", answer.1);
    }
    let shown = daemon.json(&["egress", "show", "alpha", "--json"]);
    assert_eq!(shown["requests"][0]["left"]["requests_today"], 0, "{shown}");
}

#[test]
fn an_invalid_policy_file_is_refused_with_its_line() {
    let daemon = Daemon::start();
    daemon.create("alpha");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("policy.yaml");
    fs::write(&file, "egress:\n  rules:\n    - { host: up.example, secret: nobodys }\n").unwrap();
    let output = daemon.command(&["egress", "apply", "-f"]).arg(&file).arg("alpha").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("policy.yaml:3:35: secret `nobodys` does not exist"), "{said}");
    fs::write(&file, "egress:\n  rulez: []\n").unwrap();
    let output = daemon.command(&["egress", "apply", "-f"]).arg(&file).arg("alpha").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("policy.yaml:2:3: egress: unknown field `rulez`"), "{said}");
    let body = json!({ "egress": { "rules": [{ "host": "up.example", "secret": "nobodys" }] } });
    let refused = daemon.http("PUT", "/v1/sandboxes/alpha/egress/policy").json(&body).send();
    let said = refused.refused(422, "unprocessable").to_string();
    assert!(said.contains("`/egress/rules/0/secret`: secret `nobodys` does not exist"), "{said}");
}
