//! A test secret is injected, echoed by its host in every way, and then searched for in everything that can be read:
//! inside the sandbox, on the disk, in logs, exports and answers, and in memory.
//!
//! The same scanner also searches every place for a marker that is there, because a scanner that never finds anything
//! proves nothing. The control of the secret itself is the egress process, the only place that has it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use base64::Engine as _;
use serde_json::{Value, json};

use crate::harness::{Daemon, eventually};
use crate::island;
use crate::upstream::{Upstream, secret_of};

/// Printed in place of the secret wherever it must not appear.
const MARKER: &str = "marker-a81f04d7c6e2b953";

/// Reads a list of places and needles, and prints how often each needle is in each place.
///
/// Of a tree, only what changed since `since`: older files of an image cannot contain it.
const SCANNER: &str = r#"
import json, os, stat, sys
asked = json.load(sys.stdin)
needles = [bytes.fromhex(needle) for needle in asked["needles"]]
overlap = max(map(len, needles)) - 1
def count(pieces):
    counts, carry = [0] * len(needles), b""
    for piece in pieces:
        text = carry + piece
        for at, needle in enumerate(needles):
            # What lies wholly in the carry was counted before.
            counts[at] += text.count(needle) - carry.count(needle)
        carry = text[-overlap:]
    return counts
def chunks(file, left=None):
    while left is None or left > 0:
        try: piece = file.read(1 << 20 if left is None else min(left, 1 << 20))
        except OSError: return
        if not piece: return
        if left is not None: left -= len(piece)
        yield piece
def add(total, more, where, hits):
    for at, found in enumerate(more):
        total[at] += found
        if found: hits.setdefault(at, []).append(where)
def memory(pid, total, hits):
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as file:
        for line in maps:
            span, rights, *rest = line.split()
            name = rest[3] if len(rest) > 3 else ""
            if "r" not in rights or name in ("[vvar]", "[vvar_vclock]", "[vsyscall]"): continue
            start, end = (int(part, 16) for part in span.split("-"))
            file.seek(start)
            add(total, count(chunks(file, end - start)), f"{pid} {line.strip()}", hits)
def tree(path, since, total, hits):
    for folder, _, names in os.walk(path):
        for name in names:
            full = os.path.join(folder, name)
            try: about = os.lstat(full)
            except OSError: continue
            if not stat.S_ISREG(about.st_mode) or about.st_ctime < since: continue
            with open(full, "rb") as file: add(total, count(chunks(file)), full, hits)
answer = {}
for name, place in asked["places"].items():
    total, hits = [0] * len(needles), {}
    for pid in place.get("pids", []): memory(pid, total, hits)
    if "tree" in place: tree(place["tree"], place.get("since", 0), total, hits)
    if "file" in place:
        with open(place["file"], "rb") as file: add(total, count(chunks(file)), place["file"], hits)
    if "text" in place: add(total, count([place["text"].encode()]), "text", hits)
    answer[name] = {"counts": total, "hits": {str(at): where[:5] for at, where in hits.items()}}
json.dump(answer, sys.stdout)
"#;

/// Written differently from the program under test.
fn forms(secret: &str) -> Vec<Vec<u8>> {
    let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    let escape = |form: fn(u8) -> String| -> String {
        secret
            .bytes()
            .map(|b| if b.is_ascii_alphanumeric() { char::from(b).to_string() } else { form(b) })
            .collect()
    };
    let mut forms = vec![
        secret.to_owned(),
        hex.to_uppercase(),
        hex,
        escape(|b| format!("%{b:02X}")),
        escape(|b| format!("%{b:02x}")),
        secret.replace('/', "\\/"),
    ];
    // In base64 at each offset: without the characters that depend on its neighbours.
    for before in 0..3_usize {
        let whole =
            base64::engine::general_purpose::STANDARD.encode(format!("{}{secret}", "x".repeat(before)));
        let upto = (before + secret.len()) * 8 / 6;
        forms.push(whole[(before * 8).div_ceil(6)..upto].to_owned());
    }
    forms.into_iter().map(String::into_bytes).collect()
}

/// Places to search. The name is printed on failure.
struct Places(serde_json::Map<String, Value>);

impl Places {
    fn new() -> Self {
        Self(serde_json::Map::new())
    }

    fn text(&mut self, name: &str, text: &str) {
        self.0.insert(name.to_owned(), json!({ "text": text }));
    }

    fn memory(&mut self, name: &str, pids: impl IntoIterator<Item = u32>) {
        let pids: Vec<u32> = pids.into_iter().collect();
        assert!(!pids.is_empty(), "{name}: nobody there");
        self.0.insert(name.to_owned(), json!({ "pids": pids }));
    }

    fn tree(&mut self, name: &str, path: &Path, since: u64) {
        assert!(path.is_dir(), "{name}: no folder {}", path.display());
        self.0.insert(name.to_owned(), json!({ "tree": path, "since": since }));
    }

    fn file(&mut self, name: &str, path: &Path) {
        self.0.insert(name.to_owned(), json!({ "file": path }));
    }

    /// How often each place has the secret, in any form, and the marker: `(secret, marker, where)`.
    fn scan(&self, secrets: &[String]) -> Vec<(String, u64, u64, Value)> {
        let mut needles: Vec<Vec<u8>> = secrets.iter().flat_map(|secret| forms(secret)).collect();
        needles.push(MARKER.as_bytes().to_vec());
        let hex = |needle: &Vec<u8>| needle.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let question = json!({ "places": self.0, "needles": needles.iter().map(hex).collect::<Vec<_>>() });
        let mut command = Command::new("python3");
        command.args(["-c", SCANNER]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(question.to_string().as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        let of = |(name, found): (&String, &Value)| {
            let counts: Vec<u64> =
                found["counts"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
            let (marker, secret) = counts.split_last().unwrap();
            (name.clone(), secret.iter().sum(), *marker, found["hits"].clone())
        };
        answer.as_object().unwrap().iter().map(of).collect()
    }

    /// The secret is in none of them, the marker in each.
    #[track_caller]
    fn clean(&self, secrets: &[String]) {
        for (name, secret, marker, hits) in self.scan(secrets) {
            assert_eq!(secret, 0, "{name} holds the secret: {hits}");
            assert!(marker > 0, "{name}: the scanner does not find what is there");
        }
    }
}

/// Calls its host in all ways, keeps every answer in memory and on disk, and continues to run.
const CALLER: &str = r#"
import os, time, urllib.error, urllib.request
kept = []
def call(url):
    try:
        with urllib.request.urlopen(url, timeout=50) as answer: kept.append((str(answer.headers), answer.read()))
    except urllib.error.HTTPError as error: kept.append((str(error.headers), error.read()))
for path in ("echo", "fail", "events", "echo?a=b"):
    call(f"https://curl.example/{path}".replace("/echo", "/" + os.environ["MARK"]))
with open("/root/answers", "w") as file: file.write(os.environ["MARK"] + repr(kept))
open("/root/done", "w").close()
while True: time.sleep(1)
"#;

fn rotation(value: &str) -> String {
    json!({ "value": base64::engine::general_purpose::STANDARD.encode(value) }).to_string()
}

/// Sends a request over HTTP/2, and keeps its end of the connection open with the answer.
fn post_by_http2(daemon: &Daemon, path: &str, body: String) -> (u16, impl Sized + use<>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (url, key) = (daemon.url(), daemon.key());
    let asked = async move {
        let stream = tokio::net::TcpStream::connect(url.trim_start_matches("http://")).await.unwrap();
        let io = hyper_util::rt::TokioIo::new(stream);
        let executor = hyper_util::rt::TokioExecutor::new();
        let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
        tokio::spawn(connection);
        let request = http::Request::post(format!("{url}{path}"))
            .header("authorization", format!("Bearer {key}"))
            .header("content-type", "application/json")
            .body(http_body_util::Full::new(bytes::Bytes::from(body)))
            .unwrap();
        (sender.send_request(request).await.unwrap().status().as_u16(), sender)
    };
    let (status, sender) = runtime.block_on(asked);
    (status, (sender, runtime))
}

/// Sends a request on a kept-alive connection, and returns the connection.
fn post_by_hand(daemon: &Daemon, path: &str, body: &str) -> (String, TcpStream) {
    let address = daemon.url().trim_start_matches("http://").to_owned();
    let mut stream = TcpStream::connect(&address).unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        daemon.key(),
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    stream.set_read_timeout(Some(crate::harness::PATIENCE)).unwrap();
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    while !answer.ends_with(b"}") {
        match stream.read(&mut piece) {
            Ok(count @ 1..) => answer.extend_from_slice(&piece[..count]),
            Ok(_) | Err(_) => break,
        }
    }
    (String::from_utf8_lossy(&answer).into_owned(), stream)
}

#[test]
fn a_test_secret_is_found_only_in_the_egress_process() {
    if !island::landed("secret_canary::a_test_secret_is_found_only_in_the_egress_process") {
        return;
    }
    let began = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() - 1;
    let upstream = Upstream::serve();
    let daemon = Daemon::start_with(&upstream.config());
    daemon.ok(&["create", "--name", MARKER, "--env", &format!("MARK={MARKER}")]);
    upstream.grant(&daemon, &["curl"], &[MARKER]);
    let written = daemon.fed(&["files", "write", MARKER, "/root/caller.py"], CALLER.as_bytes());
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    let exec = daemon.ok(&["exec", "-d", MARKER, "--", "python3", "/root/caller.py"]);
    eventually("every call to be answered", || daemon.holds(MARKER, "test -e /root/done").then_some(()));
    let seen = upstream.seen_by("curl");
    assert_eq!(seen.len(), 4, "it reached its host: {seen:?}");
    let mut secrets = vec![secret_of("curl")];

    // Further values, by clients that keep the connection open, and with refused bodies: none of that is logged or
    // kept.
    let (second, third) = ("second+1c9ab2/e07f44=real", "third+a07733/c1d2e9=real");
    let body = rotation(second);
    let path = "/v1/secrets/curl/rotate";
    let (refused, _open) = post_by_hand(&daemon, path, &body.replace("value", "valeu"));
    assert!(refused.starts_with("HTTP/1.1 400") && refused.contains("valeu"), "{refused}");
    let (answer, _also_open) = post_by_hand(&daemon, path, &body);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let (status, _open_too) = post_by_http2(&daemon, path, rotation(third));
    assert_eq!(status, 200);
    upstream.expect("curl", third);
    secrets.extend([second.to_owned(), third.to_owned()]);
    let call = format!("curl -sS -o /dev/null -w '%{{http_code}}' https://curl.example/{MARKER}; true");
    eventually("the new value to be used", || (daemon.sh(MARKER, &call) == "200").then_some(()));

    in_memory(&daemon, &secrets);
    in_answers(&daemon, &secrets, &exec, &refused);
    on_disk(&daemon, &secrets, began);
}

fn in_memory(daemon: &Daemon, secrets: &[String]) {
    let mut places = Places::new();
    places.memory("the egress process", daemon.egress_processes());
    let found = places.scan(secrets);
    assert!(
        found.iter().all(|(_, secret, _, _)| *secret > 0),
        "the scanner does not find a secret: {found:?}"
    );
    let mut places = Places::new();
    places.memory("the sandbox's processes", daemon.inventory().processes);
    places.clean(secrets);
    let mut places = Places::new();
    places.memory("the daemon", [daemon.pid()]);
    // The daemon may be handing over the secret at this moment, and keeps it only that long.
    let mut last = Value::Null;
    let deadline = std::time::Instant::now() + crate::harness::PATIENCE;
    while std::time::Instant::now() < deadline {
        let (_, found, marker, hits) = places.scan(secrets).remove(0);
        assert!(marker > 0, "the scanner does not find what is there");
        if found == 0 {
            return;
        }
        last = hits;
    }
    panic!("the daemon goes on holding the secret: {last}");
}

fn in_answers(daemon: &Daemon, secrets: &[String], exec: &str, refused: &str) {
    let mut places = Places::new();
    let kept = daemon.sh(MARKER, "cat /root/answers");
    assert!(kept.contains("credential") && kept.contains("data: *"), "{kept}");
    places.text("answers and errors of the host", &kept);
    let environ = daemon.sh(MARKER, "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' '\\n'");
    places.text("environments inside", &environ);
    places.text("the daemon's log and the egress process's", &daemon.log());
    places.text("inspect", &daemon.ok(&["inspect", MARKER]));
    places.text("egress show", &format!("{MARKER} {}", daemon.ok(&["egress", "show", MARKER, "--json"])));
    places.text("egress log", &format!("{MARKER} {}", daemon.ok(&["egress", "log", MARKER, "--json"])));
    let explain = ["egress", "explain", MARKER, &format!("https://curl.example/{MARKER}"), "--json"];
    places.text("egress explain", &daemon.ok(&explain));
    places.text("secret ls", &daemon.ok(&["secret", "ls", "--json"]));
    places.text("audit export", &daemon.ok(&["audit", "export"]));
    places.text("audit ls", &daemon.ok(&["audit", "ls", "--json"]));
    places.text("events", &daemon.get("/v1/events?limit=1000").text());
    // Entries without a sandbox: these are expected.
    let metrics = daemon.get("/metrics").text();
    assert!(metrics.contains("burrow_"), "{metrics}");
    places.text("metrics", &format!("{MARKER} {metrics}"));
    places.text("a refused body", &format!("{MARKER} {refused}"));
    places.text("an exec's output", &format!("{MARKER} {}", daemon.ok(&["logs", exec])));
    places.clean(secrets);
}

fn on_disk(daemon: &Daemon, secrets: &[String], began: u64) {
    let exported = tempfile::tempdir().unwrap();
    let at = |name: &str| exported.path().join(name);
    daemon.ok(&["snapshot", "create", MARKER, "--name", "kept"]);
    daemon.ok(&["image", "commit", MARKER, "--name", "committed"]);
    let image = at("image.tar").display().to_string();
    daemon.ok(&["image", "export", "committed", "--compression", "none", "-o", &image]);
    daemon.ok(&["backup", "-o", &at("backup.tar").display().to_string()]);
    daemon.ok(&["hibernate", MARKER]);
    let mut places = Places::new();
    let pool = daemon.pool();
    for part in ["sandboxes", "snapshots", "dumps", "images"] {
        places.tree(&format!("the pool's {part}"), &pool.join(part), began);
    }
    places.tree("the catalog, the audit log and all state", &daemon.state_dir(), 0);
    places.file("an exported image", &at("image.tar"));
    places.file("a backup", &at("backup.tar"));
    places.memory("the daemon, after all that", [daemon.pid()]);
    places.clean(secrets);
}
