//! Common clients inside a sandbox that call hosts with keys that the sandbox does not have.
//!
//! The clients come from the host: one that is not installed there, or that the host's `pip` cannot download, is listed
//! as skipped. Downloads stay in `target/test-clients`. The hosts they call are `upstream`, on an island: each answers
//! 401 to requests without its secret.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::harness::{Daemon, burrow};
use crate::island;
use crate::mirrors::skipped;
use crate::upstream::{Upstream, base64, secret_of};

/// Pinned, so that a run next year tests the same versions.
const WHEELS: [&str; 4] = ["openai==3.49.0", "anthropic==2.8.0", "grpcio==1.85.1", "websockets==17.4"];

/// The Python of the default image.
const PYTHON: &str = "3.11";

/// The folder of downloads.
fn downloads() -> PathBuf {
    let target = burrow().ancestors().nth(2).expect("the binary is in target/debug");
    target.join("test-clients")
}

/// Runs `make` once, in the first test that needs the result. `None` if it cannot be made here.
fn made(name: &str, make: impl FnOnce(&Path) -> bool) -> Option<PathBuf> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _lock = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let place = downloads().join(name);
    if place.exists() {
        return Some(place);
    }
    std::fs::create_dir_all(downloads()).unwrap();
    let staged = tempfile::Builder::new().prefix("staged-").tempdir_in(downloads()).unwrap();
    let made = staged.path().join("made");
    if !make(&made) {
        return None;
    }
    std::fs::rename(made, &place).unwrap();
    Some(place)
}

/// Whether a command of the host succeeds.
fn works(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let output =
        Command::new(program).args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Printed beside the test results, because the tested versions are the purpose of these tests.
fn tell(what: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "clients in a sandbox: {what}");
}

/// A daemon with one sandbox that may call these hosts, with their secrets.
fn sandbox(upstream: &Upstream, hosts: &[&str]) -> Daemon {
    let daemon = Daemon::start_with(&upstream.config());
    daemon.ok(&["create", "--name", "alpha", "--ram", "1G"]);
    upstream.grant(&daemon, hosts, &["alpha"]);
    daemon
}

#[track_caller]
fn write(daemon: &Daemon, path: &str, text: &str) {
    let written = daemon.fed(&["files", "write", "alpha", path], text.as_bytes());
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
}

/// Output of a program inside, which must not contain a host's secret.
#[track_caller]
fn sh(daemon: &Daemon, host: &str, script: &str) -> String {
    let output = daemon.cli(&["exec", "--timeout", "120s", "alpha", "-c", script]);
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{script}\n{text}\n--- log\n{}", daemon.log());
    let secret = secret_of(host);
    for form in [secret.clone(), base64(&secret), secret.replace('/', "\\/")] {
        assert!(!text.contains(&form), "{script}\n{text}");
    }
    text.trim_end().to_owned()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn curl_git_and_pip_work_with_injected_keys() {
    if !island::landed("secret_clients::curl_git_and_pip_work_with_injected_keys") {
        return;
    }
    let upstream = Upstream::serve().with_packages();
    let daemon = sandbox(&upstream, &["curl", "git", "pip"]);
    let blotted = "*".repeat(secret_of("curl").len());
    for (option, version) in [("--http1.1", "HTTP/1.1"), ("--http2", "HTTP/2.0")] {
        let line = format!("curl -fsS {option} -w '%{{http_version}}' -d hi https://curl.example/a");
        let text = sh(&daemon, "curl", &line);
        let (told, used) = text.split_at(text.rfind('}').unwrap() + 1);
        let told = json(told);
        assert_eq!(told["credential"], format!("Bearer {blotted}"));
        assert_eq!(told["body"], "hi");
        assert_eq!(version.trim_end_matches(".0"), format!("HTTP/{used}"), "what curl spoke");
        assert_eq!(told["version"], "HTTP/2.0", "{told}");
    }
    // Whichever bundle a program reads: the one in its environment, or the system's.
    for unset in ["true", "unset SSL_CERT_FILE CURL_CA_BUNDLE"] {
        sh(&daemon, "curl", &format!("{unset}; curl -fsS https://curl.example/a"));
    }
    let python = "import urllib.request as u; print(u.urlopen('https://curl.example/a').status)";
    assert_eq!(sh(&daemon, "curl", &format!("unset SSL_CERT_FILE; python3 -c \"{python}\"")), "200");

    let line = "cd /root && git clone -q https://git.example/tiny.git && cd tiny && cat word && echo pushed > word && \
                git -c user.name=t -c user.email=t@example commit -qam second && git push -q origin main && git ls-remote";
    let text = sh(&daemon, "git", line);
    assert!(text.starts_with("from git\n") && text.contains("refs/heads/main"), "{text}");
    let pushed =
        said("git", &["-C", upstream.folder().join("tiny.git").to_str().unwrap(), "show", "main:word"]);
    assert_eq!(pushed.as_deref(), Some("pushed"));
    let posts = upstream.seen_by("git").into_iter().filter(|seen| seen.method == "POST");
    assert!(posts.clone().count() >= 2, "a clone and a push, not of files one by one");

    sh(&daemon, "pip", "python3 -m venv /root/venv");
    sh(&daemon, "pip", &format!("{PIP} tiny"));
    assert_eq!(sh(&daemon, "pip", "/root/venv/bin/python -c 'import tiny; print(tiny.word)'"), "from python");
    tell(&sh(&daemon, "pip", "curl --version | head -n 1 | cut -d ' ' -f 1-2; git --version; /root/venv/bin/pip --version | cut -d ' ' -f 1-2")
        .replace('\n', ", "));
    // All of them had the secret: no request was accepted without it.
    assert!(upstream.seen().len() > 8);
}

const PIP: &str = "PIP_DISABLE_PIP_VERSION_CHECK=1 /root/venv/bin/pip install -q --no-compile --retries 0 \
                   --index-url https://pip.example/simple/";

/// With `openai` and `anthropic`, plain and streamed. They require a key: they get a placeholder.
const SDKS: &str = r#"
import json, os, anthropic, openai
ask = [{"role": "user", "content": "hi"}]
told = {"keys": [os.environ["OPENAI_API_KEY"], os.environ["ANTHROPIC_API_KEY"]]}
one = openai.OpenAI(base_url="https://openai.example/v1", max_retries=0)
told["openai"] = one.chat.completions.create(model="m", messages=ask).choices[0].message.content
told["openai streamed"] = "".join(
    chunk.choices[0].delta.content or "" for chunk in one.chat.completions.create(model="m", messages=ask, stream=True))
two = anthropic.Anthropic(base_url="https://anthropic.example", max_retries=0)
told["anthropic"] = two.messages.create(model="m", max_tokens=9, messages=ask).content[0].text
with two.messages.stream(model="m", max_tokens=9, messages=ask) as stream:
    told["anthropic streamed"] = "".join(stream.text_stream)
try:
    one.models.list()
except openai.NotFoundError as error:
    told["error"] = str(error)
print(json.dumps(told))
"#;

/// One answer, a ping-pong conversation, an error; all with metadata and trailers. Then a WebSocket.
const STREAMS: &str = r#"
import grpc, json, queue
from websockets.sync.client import connect
told = {}
channel = grpc.secure_channel("grpc.example:443", grpc.ssl_channel_credentials())
mark = [("x-mark", "m1"), ("authorization", "Bearer own")]
answer, call = channel.unary_unary("/test.Echo/Unary").with_call(b"hello", metadata=mark, timeout=50)
trailers = dict(call.trailing_metadata())
told["unary"] = [answer.decode(), trailers["x-mark"], trailers["x-said"]]
requests = queue.Queue()
answers = channel.stream_stream("/test.Echo/Chat")(iter(requests.get, None), metadata=mark, timeout=50)
for turn in range(20):
    requests.put(b"turn %d" % turn)
    assert next(answers) == b"turn %d" % turn
requests.put(None)
assert list(answers) == []
told["chat"] = [dict(answers.trailing_metadata())["x-mark"], str(answers.code())]
try:
    channel.unary_unary("/test.Echo/Fail")(b"x", metadata=mark, timeout=50)
except grpc.RpcError as error:
    told["fail"] = [str(error.code()), error.details()]
with connect("wss://ws.example/chat?a=b", open_timeout=50) as socket:
    told["greeting"] = socket.recv(timeout=50)
    socket.send("x" * 100_000)
    told["long"] = len(socket.recv(timeout=50))
    socket.send(bytes(range(256)))
    assert socket.recv(timeout=50) == bytes(range(256))
print(json.dumps(told))
"#;

/// Wheels of the SDKs for the Python of the default image, downloaded by the host's pip.
fn wheels() -> Option<PathBuf> {
    made("wheels", |into| {
        let mut pip = Command::new("pip");
        let platform = format!("manylinux2014_{}", std::env::consts::ARCH);
        pip.args([
            "download",
            "--quiet",
            "--retries",
            "2",
            "--only-binary",
            ":all:",
            "--implementation",
            "cp",
        ]);
        pip.args(["--python-version", PYTHON, "--platform", &platform]).args(WHEELS).arg("--dest").arg(into);
        works(&mut pip)
    })
}

#[test]
fn sdks_of_python_and_grpc_work_where_the_index_is_reachable() {
    let Some(wheels) = wheels() else {
        return skipped("openai, anthropic, grpcio, websockets", "the host's own pip cannot download them");
    };
    if !island::landed("secret_clients::sdks_of_python_and_grpc_work_where_the_index_is_reachable") {
        return;
    }
    let upstream = Upstream::serve().with_wheels(&wheels);
    let daemon = sandbox(&upstream, &["pip", "openai", "anthropic", "grpc", "ws"]);
    sh(&daemon, "pip", "python3 -m venv /root/venv");
    sh(&daemon, "pip", &format!("{PIP} {}", WHEELS.join(" ")));
    write(&daemon, "/root/sdks.py", SDKS);
    let told = json(&sh(&daemon, "openai", "/root/venv/bin/python /root/sdks.py"));
    assert!(told["keys"][0].as_str().unwrap().starts_with("sk-proj-"), "{told}");
    assert!(told["keys"][1].as_str().unwrap().starts_with("sk-ant-api03-"), "{told}");
    for (host, before) in [("openai", "Bearer "), ("anthropic", "")] {
        let expected = format!("echo hi by {before}{}", "*".repeat(secret_of(host).len()));
        assert_eq!(told[host], expected, "{told}");
        assert_eq!(told[format!("{host} streamed")], expected, "{told}");
    }
    assert!(told["error"].as_str().unwrap().contains("no such thing"), "{told}");

    write(&daemon, "/root/streams.py", STREAMS);
    let told = json(&sh(&daemon, "grpc", "/root/venv/bin/python /root/streams.py"));
    let blotted = format!("Bearer {}", "*".repeat(secret_of("grpc").len()));
    assert_eq!(told["unary"], serde_json::json!(["hello", "m1", blotted]));
    assert_eq!(told["chat"], serde_json::json!(["m1", "StatusCode.OK"]));
    assert_eq!(told["fail"], serde_json::json!(["StatusCode.PERMISSION_DENIED", format!("by {blotted}")]));
    let greeting = told["greeting"].as_str().unwrap();
    assert!(greeting.starts_with("hello a=b&token=*****") && !greeting.contains(&secret_of("ws")), "{told}");
    assert_eq!(told["long"], 100_000);
    tell(&WHEELS.join(", "));
}

/// An archive of programs of the host, unpacked inside at `/opt/NAME`. `None` if they do not run in the image.
fn brought(daemon: &Daemon, archive: &Path, name: &str, trial: &str) -> bool {
    daemon.ok(&["cp", archive.to_str().unwrap(), "alpha:/root/brought.tar"]);
    daemon.sh("alpha", &format!("mkdir -p /opt/{name} && tar xf /root/brought.tar -C /opt/{name}"));
    daemon.holds("alpha", trial)
}

/// Node.js and npm of the host in one archive: the binary and its library.
fn node() -> Option<PathBuf> {
    let (binary, library) = (said("node", &["-p", "process.execPath"])?, said("npm", &["root", "-g"])?);
    let version = said("node", &["--version"])?;
    made(&format!("node-{version}.tar"), |into| {
        let mut tar = Command::new("tar");
        tar.arg("-chf").arg(into).arg("-C").arg(Path::new(&binary).parent().unwrap()).arg("node");
        works(tar.args(["-C", &library, "npm"]))
    })
}

#[test]
fn npm_and_node_work_where_the_host_has_them() {
    let Some(archive) = node() else {
        return skipped("npm with a secret", "the host has no Node.js and npm to bring along");
    };
    if !island::landed("secret_clients::npm_and_node_work_where_the_host_has_them") {
        return;
    }
    let upstream = Upstream::serve().with_packages();
    let daemon = sandbox(&upstream, &["npm", "curl"]);
    if !brought(&daemon, &archive, "node", "/opt/node/node --version") {
        return skipped("npm with a secret", "the host's Node.js does not run in the default image");
    }
    let npmrc = "registry=https://npm.example/\n//npm.example/:_authToken=${NPM_TOKEN}\nfetch-retries=0\n";
    daemon.sh("alpha", "mkdir -p /root/app");
    write(&daemon, "/root/app/.npmrc", npmrc);
    let line = "export PATH=/opt/node:$PATH; cd /root/app && node /opt/node/npm/bin/npm-cli.js install --no-audit --no-fund \
                --loglevel=error tiny >&2 && node -p \"require('tiny')\"";
    let text = sh(&daemon, "npm", line);
    assert!(text.lines().any(|line| line == "from node"), "{text}");
    let placeholder = daemon.sh("alpha", "printenv NPM_TOKEN");
    assert!(placeholder.starts_with("npm_"), "{placeholder}");
    let script = "const https = require('https'); fetch('https://curl.example/f').then(r => { console.log(r.status); \
                  https.get('https://curl.example/g', r => { console.log(r.statusCode); r.resume() }) })";
    assert_eq!(sh(&daemon, "curl", &format!("/opt/node/node -e \"{script}\"")), "200\n200");
    tell(&sh(
        &daemon,
        "npm",
        "export PATH=/opt/node:$PATH; echo node $(node --version), npm $(node /opt/node/npm/bin/npm-cli.js --version)",
    ));
}

/// By `HttpClient`, in both versions of HTTP, and by the older `HttpsURLConnection`.
const JAVA: &str = r#"
import java.net.*;
import java.net.http.*;
public class Call {
    public static void main(String[] arguments) throws Exception {
        for (HttpClient.Version version : HttpClient.Version.values()) {
            HttpClient client = HttpClient.newBuilder().version(version).build();
            HttpRequest request = HttpRequest.newBuilder(URI.create("https://java.example/a")).build();
            HttpResponse<String> response = client.send(request, HttpResponse.BodyHandlers.ofString());
            System.out.println(response.statusCode() + " " + response.version());
        }
        HttpURLConnection old = (HttpURLConnection) URI.create("https://java.example/b").toURL().openConnection();
        System.out.println(old.getResponseCode() + " " + System.getProperty("java.version"));
    }
}
"#;

/// A Java runtime with the modules that the program above needs, made from the host's, and the program.
fn java() -> Option<PathBuf> {
    let version = said("javac", &["-version"])?;
    made(&format!("java-{}.tar", version.replace(' ', "-")), |into| {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("Call.java"), JAVA).unwrap();
        let mut jlink = Command::new("jlink");
        jlink.args([
            "--add-modules",
            "java.base,java.net.http,jdk.crypto.ec",
            "--strip-debug",
            "--no-man-pages",
            "--output",
        ]);
        works(Command::new("javac").arg("-d").arg(folder.path()).arg(at("Call.java")))
            && works(jlink.arg(at("jre")))
            && works(
                Command::new("tar")
                    .arg("-cf")
                    .arg(into)
                    .arg("-C")
                    .arg(folder.path())
                    .args(["jre", "Call.class"]),
            )
    })
}

#[test]
fn java_works_where_the_host_has_a_development_kit() {
    let Some(archive) = java() else {
        return skipped("Java with a secret", "the host has no Java development kit to make one of");
    };
    if !island::landed("secret_clients::java_works_where_the_host_has_a_development_kit") {
        return;
    }
    let upstream = Upstream::serve();
    let daemon = sandbox(&upstream, &["java"]);
    if !brought(&daemon, &archive, "java", "/opt/java/jre/bin/java -version") {
        return skipped("Java with a secret", "the host's Java does not run in the default image");
    }
    let text = sh(&daemon, "java", "/opt/java/jre/bin/java -cp /opt/java Call");
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("200 ")).collect();
    assert_eq!(lines[..2], ["200 HTTP_1_1", "200 HTTP_2"], "{text}");
    let version = lines[2].strip_prefix("200 ").unwrap_or_else(|| panic!("{text}"));
    tell(&format!("java {version}"));
}

/// The host's cargo alone: fetching compiles nothing.
fn cargo() -> Option<PathBuf> {
    let version = said("cargo", &["--version"])?;
    let binary = said("rustup", &["which", "cargo"]).or_else(|| said("sh", &["-c", "command -v cargo"]))?;
    let version = version.split(' ').nth(1).unwrap_or("unknown").to_owned();
    made(&format!("cargo-{version}.tar"), |into| {
        let mut tar = Command::new("tar");
        works(tar.arg("-chf").arg(into).arg("-C").arg(Path::new(&binary).parent().unwrap()).arg("cargo"))
    })
}

#[test]
fn cargo_fetches_where_the_host_has_it() {
    let Some(archive) = cargo() else {
        return skipped("cargo with a secret", "the host has no cargo to bring along");
    };
    if !island::landed("secret_clients::cargo_fetches_where_the_host_has_it") {
        return;
    }
    let upstream = Upstream::serve().with_packages();
    let daemon = sandbox(&upstream, &["cargo"]);
    if !brought(&daemon, &archive, "cargo", "/opt/cargo/cargo --version") {
        return skipped("cargo with a secret", "the host's cargo does not run in the default image");
    }
    let manifest = "[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\
                    [dependencies]\ntiny = { version = \"1\", registry = \"tiny\" }\n";
    daemon.sh("alpha", "mkdir -p /root/app/src /root/app/.cargo");
    write(&daemon, "/root/app/Cargo.toml", manifest);
    write(&daemon, "/root/app/src/lib.rs", "");
    let config = "[registries.tiny]\nindex = \"sparse+https://cargo.example/index/\"\ncredential-provider = \"cargo:token\"\n\
                  [net]\nretry = 0\n";
    write(&daemon, "/root/app/.cargo/config.toml", config);
    let line = "cd /root/app && /opt/cargo/cargo vendor -q >&2 && cat vendor/tiny/src/lib.rs";
    let text = sh(&daemon, "cargo", line);
    assert!(text.contains("from cargo"), "{text}");
    tell(&sh(&daemon, "cargo", "/opt/cargo/cargo --version"));
}
