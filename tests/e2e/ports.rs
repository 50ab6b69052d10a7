//! Ports: listening ports are listed, and only authorised clients reach them.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::process::{Command, Stdio};

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use crate::harness::{Daemon, PATIENCE, eventually};
use crate::http::Call;

/// Answers requests, streams events, echoes WebSockets. Uses only Python's standard library.
const SERVER: &str = r#"
import base64, hashlib, json, os, struct, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        if self.headers.get("Upgrade", "").lower() == "websocket":
            return self.websocket()
        if self.path.startswith("/events"):
            return self.events()
        self.mirror(0, "")

    def do_POST(self):
        length = int(self.headers.get("Content-Length", 0))
        digest, left = hashlib.sha256(), length
        while left:
            piece = self.rfile.read(min(left, 65536))
            digest.update(piece)
            left -= len(piece)
        self.mirror(length, digest.hexdigest())

    def mirror(self, length, digest):
        seen = {"method": self.command, "path": self.path, "headers": self.headers.items(),
                "length": length, "digest": digest}
        body = json.dumps(seen).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def events(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for number in range(3):
            # The next one comes only when somebody has said that the last one has arrived.
            while number and not os.path.exists(f"/tmp/arrived-{number}"):
                time.sleep(0.01)
            self.wfile.write(f"data: {number}\n\n".encode())
            self.wfile.flush()
        self.close_connection = True

    def websocket(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        while True:
            head = self.rfile.read(2)
            if len(head) < 2:
                break
            length = head[1] & 127
            if length == 126:
                length = struct.unpack(">H", self.rfile.read(2))[0]
            mask = self.rfile.read(4)
            text = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(length)))
            if head[0] & 15 == 8:
                self.wfile.write(bytes([0x88, len(text)]) + text)
                break
            self.wfile.write(bytes([head[0], len(text)]) + text)
            self.wfile.flush()
        self.close_connection = True

ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
"#;

/// A daemon with a sandbox `web` that serves on port 8000, on loopback only, whenever it runs.
struct Site {
    daemon: Daemon,
    id: String,
}

fn site() -> Site {
    let daemon = Daemon::start();
    let id = daemon.create("web");
    let put = daemon.http("PUT", "/v1/sandboxes/web/files?path=/srv/server.py").body(SERVER);
    assert_eq!(put.send().status, 200);
    let site = Site { daemon, id };
    site.serve("app", "127.0.0.1", 8000);
    site
}

impl Site {
    fn serve(&self, name: &str, address: &str, number: u16) {
        let port = number.to_string();
        let argv = ["python3", "/srv/server.py", address, &port];
        self.daemon.ok(&[&["service", "add", "-u", "user", "web", name, "--"][..], &argv].concat());
        eventually("the server to listen", || {
            let ports = self.daemon.json(&["port", "ls", "web", "--json"]);
            ports.as_array().unwrap().iter().any(|entry| entry["port"] == number).then_some(())
        });
    }

    fn host(&self, port: u16) -> String {
        format!("{port}-{}.localhost", self.id)
    }

    fn listens_on(&self) -> String {
        self.daemon.url().rsplit_once(':').unwrap().1.to_owned()
    }

    /// A request in the host form, without credentials.
    fn http(&self, port: u16, target: &str) -> Call {
        self.daemon.http_open("GET", target).header("host", &self.host(port))
    }

    fn key_header(&self) -> String {
        format!("X-Burrow-Key: {}", self.daemon.key())
    }

    /// Output of curl, with these arguments and the key.
    #[track_caller]
    fn curl(&self, arguments: &[&str], port: u16, target: &str) -> String {
        let (host, at) = (self.host(port), self.listens_on());
        let output = Command::new("curl")
            .args(["-sS", "--max-time", "60", "--resolve", &format!("{host}:{at}:127.0.0.1")])
            .args(arguments)
            .arg(format!("http://{host}:{at}{target}"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn link(&self, port: u16, more: &[&str]) -> String {
        let port = port.to_string();
        self.daemon.ok(&[&["port", "url", "web", &port][..], more].concat())
    }

    fn token(&self, port: u16) -> String {
        self.link(port, &[]).split_once("burrow_token=").unwrap().1.to_owned()
    }
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn header<'a>(seen: &'a Value, name: &str) -> Vec<&'a str> {
    let headers = seen["headers"].as_array().unwrap();
    let named = headers.iter().filter(|pair| pair[0].as_str().unwrap().eq_ignore_ascii_case(name));
    named.map(|pair| pair[1].as_str().unwrap()).collect()
}

#[test]
fn listening_ports_are_listed_with_their_processes() {
    let site = site();
    site.daemon.ok(&["port", "publish", "web", "9999"]);
    let ports = site.daemon.json(&["port", "ls", "web", "--json"]);
    let ports = ports.as_array().unwrap();
    assert_eq!(ports.len(), 2, "{ports:?}");
    let (app, silent) = (&ports[0], &ports[1]);
    assert_eq!(
        (&app["port"], &app["published"], &app["user"]),
        (&8000.into(), &false.into(), &"user".into())
    );
    assert_eq!(app["addresses"], serde_json::json!(["127.0.0.1"]));
    assert_eq!(app["process"], "python3");
    assert!(app["command"].as_str().unwrap().contains("/srv/server.py 127.0.0.1 8000"), "{app}");
    assert!(site.daemon.holds("web", &format!("kill -0 {}", app["pid"])), "the pid is the sandbox's own");
    assert_eq!(app["url"], format!("http://{}:{}/", site.host(8000), site.listens_on()));
    assert_eq!(
        (&silent["port"], &silent["published"], &silent["pid"]),
        (&9999.into(), &true.into(), &Value::Null)
    );
    let table = site.daemon.ok(&["port", "ls", "web"]);
    assert!(table.contains("private") && table.contains("public"), "{table}");
    site.daemon.ok(&["stop", "web"]);
    let ports = site.daemon.json(&["port", "ls", "web", "--json"]);
    assert_eq!(ports.as_array().unwrap().len(), 1, "a list wakes nobody");
    assert_eq!(site.daemon.inspect("web")["state"], "stopped");
}

#[test]
fn real_clients_reach_servers_on_loopback_and_on_every_address() {
    let site = site();
    site.serve("wide", "0.0.0.0", 8001);
    let key = site.key_header();
    for port in [8000, 8001] {
        for version in ["--http1.1", "--http2-prior-knowledge", "--http1.0"] {
            let seen = parse(&site.curl(&[version, "-H", &key], port, "/a/b?c=%20d"));
            assert_eq!(seen["path"], "/a/b?c=%20d", "{version}");
            assert_eq!(header(&seen, "host"), [format!("{}:{}", site.host(port), site.listens_on())]);
            assert_eq!(header(&seen, "x-forwarded-for"), ["127.0.0.1"]);
            assert!(!seen.to_string().contains("e2b_"), "the key stays outside: {seen}");
        }
    }
    // By name, and in the path form.
    let at = site.listens_on();
    let named = site.daemon.http_open("GET", "/x").header("host", &format!("8000-web.localhost:{at}"));
    assert_eq!(named.header("x-burrow-key", &site.daemon.key()).send().expect(200)["path"], "/x");
    let answer = site.daemon.http("GET", "/p/web/8000/x?y").send();
    assert_eq!(answer.expect(200)["path"], "/x?y");
    assert!(answer.header("content-security-policy").unwrap().starts_with("sandbox"));
    assert_eq!(site.daemon.complaints(), Vec::<String>::new());
}

#[test]
fn a_large_body_passes_unchanged_with_constant_ram() {
    let site = site();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("large");
    let bytes: Vec<u8> =
        (0..96_u32 << 20).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(&file, &bytes).unwrap();
    let sum = Command::new("sha256sum").arg(&file).output().unwrap().stdout;
    let sum = String::from_utf8(sum).unwrap().split(' ').next().unwrap().to_owned();
    let (before, _) = site.daemon.ram_kib();
    let data = format!("@{}", file.display());
    let seen = parse(&site.curl(&["-H", &site.key_header(), "--data-binary", &data], 8000, "/up"));
    assert_eq!((&seen["length"], &seen["digest"]), (&bytes.len().into(), &sum.into()));
    let (_, peak) = site.daemon.ram_kib();
    assert!(peak < before + (32 << 10), "{before} KiB before, {peak} KiB at most");
}

#[test]
fn events_arrive_one_by_one() {
    let site = site();
    let call = site.http(8000, "/events").header("x-burrow-key", &site.daemon.key());
    let mut stream = BufReader::new(call.open());
    let mut next = || {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        let mut empty = String::new();
        stream.read_line(&mut empty).unwrap();
        line
    };
    for number in 0..3 {
        assert_eq!(next(), format!("data: {number}\n"));
        site.daemon.sh("web", &format!("touch /tmp/arrived-{}", number + 1));
    }
    assert_eq!(next(), "");
}

/// Opens a WebSocket, sends a message, and returns the echo, or the status of the refusal.
fn chat(site: &Site, target: &str, headers: &[(&str, &str)]) -> Result<String, u16> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let url = format!("ws://{}:{}{target}", site.host(8000), site.listens_on());
    let address = format!("127.0.0.1:{}", site.listens_on());
    runtime.block_on(async {
        let mut request = url.into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().append(name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap());
        }
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let opening = tokio::time::timeout(PATIENCE, tokio_tungstenite::client_async(request, stream));
        let mut socket = match opening.await.unwrap() {
            Ok((socket, _)) => socket,
            Err(tokio_tungstenite::tungstenite::Error::Http(answer)) => return Err(answer.status().as_u16()),
            Err(error) => panic!("{error}"),
        };
        for word in ["one", "two"] {
            socket.send(Message::text(word)).await.unwrap();
            let echo = tokio::time::timeout(PATIENCE, socket.next()).await.unwrap().unwrap().unwrap();
            assert_eq!(echo.to_text().unwrap(), word);
        }
        socket.close(None).await.unwrap();
        Ok("echoed".to_owned())
    })
}

#[test]
fn a_websocket_goes_through_with_key_link_or_cookie_and_not_from_another_site() {
    let site = site();
    let (key, token) = (site.daemon.key(), site.token(8000));
    let own = format!("http://{}:{}", site.host(8000), site.listens_on());
    assert_eq!(chat(&site, "/", &[("x-burrow-key", &key)]), Ok("echoed".to_owned()));
    assert_eq!(chat(&site, &format!("/?burrow_token={token}"), &[]), Ok("echoed".to_owned()));
    let cookie = format!("burrow-port={token}");
    assert_eq!(chat(&site, "/", &[("cookie", &cookie), ("origin", &own)]), Ok("echoed".to_owned()));
    let other = [("cookie", cookie.as_str()), ("origin", "http://80-evil.localhost")];
    assert_eq!(chat(&site, "/", &other), Err(403));
    assert_eq!(chat(&site, "/", &[]), Err(401));
    site.daemon.ok(&["port", "publish", "web", "8000"]);
    assert_eq!(chat(&site, "/", &[("origin", "http://anywhere.example")]), Ok("echoed".to_owned()));
}

#[test]
fn a_link_works_in_a_browser_until_it_expires_or_its_key_is_revoked_or_it_is_altered() {
    let site = site();
    let link = site.link(8000, &["--expires", "10m"]);
    assert_eq!(site.daemon.ok(&["open", "web", "8000", "--print"]).split('?').next(), link.split('?').next());
    let target = format!("/page?{}", link.split_once('?').unwrap().1);
    let folder = tempfile::tempdir().unwrap();
    let jar = folder.path().join("jar").display().to_string();
    // Like a browser: follows the redirect, keeps the cookie, and then requests with the cookie alone.
    let browser = ["-L", "-c", &jar, "-b", &jar, "-H", "Accept: text/html"];
    let seen = parse(&site.curl(&browser, 8000, &target));
    assert_eq!((&seen["path"], header(&seen, "cookie").len()), (&"/page".into(), 0));
    let seen = parse(&site.curl(&["-b", &jar], 8000, "/again"));
    assert_eq!((&seen["path"], header(&seen, "cookie").len()), (&"/again".into(), 0));
    let page = site.curl(&["-H", "Accept: text/html"], 8000, "/page");
    assert!(page.contains("is private") && page.contains("<html"), "{page}");
    // The time has passed.
    let brief = site.daemon.ok(&["port", "url", "web", "8000", "--expires", "1s"]);
    let brief = format!("/?{}", brief.split_once('?').unwrap().1);
    eventually("the link to expire", || (site.http(8000, &brief).send().status == 401).then_some(()));
    // Changed letters.
    let token = site.token(8000);
    let changed = token.replacen('.', ".1", 1);
    for bad in [changed.as_str(), &token[1..], ""] {
        site.http(8000, &format!("/?burrow_token={bad}")).send().refused(401, "unauthorized");
    }
    site.http(8001, &format!("/?burrow_token={token}")).send().refused(401, "unauthorized");
    // The key was revoked.
    let created = site.daemon.json(&["key", "create", "ci", "--scope", "exec", "--json"]);
    let mut command = site.daemon.command(&["port", "url", "web", "8000"]);
    let output = command.env("BURROW_API_KEY", created["secret"].as_str().unwrap()).output().unwrap();
    let link = String::from_utf8(output.stdout).unwrap();
    let target = format!("/?{}", link.trim().split_once('?').unwrap().1);
    site.http(8000, &target).send().expect(200);
    site.daemon.ok(&["key", "revoke", created["key"]["id"].as_str().unwrap()]);
    site.http(8000, &target).send().refused(401, "unauthorized");
}

#[test]
fn a_published_port_is_public_also_after_a_restart() {
    let mut site = site();
    site.http(8000, "/").send().refused(401, "unauthorized");
    site.daemon.ok(&["port", "publish", "web", "8000"]);
    site.http(8000, "/").send().expect(200);
    site.daemon.terminate();
    site.daemon.launch();
    site.http(8000, "/").send().expect(200);
    site.daemon.ok(&["port", "unpublish", "web", "8000"]);
    site.http(8000, "/").send().refused(401, "unauthorized");
    let said = site.daemon.refused(&["port", "publish", "nothere", "80"], 1);
    assert!(said.contains("nothere"), "{said}");
    assert!(site.daemon.refused(&["port", "publish", "web", "7711"], 1).contains("7711"));
    site.daemon.ok(&["port", "publish", "web", "8000"]);
    site.daemon.ok(&["rm", "--purge", "web"]);
    site.http(8000, "/").send().refused(401, "unauthorized");
}

#[test]
fn a_sleeping_or_stopped_sandbox_wakes_once_for_concurrent_requests_to_its_port() {
    let site = site();
    let key = site.daemon.key();
    let ask = || site.http(8000, "/").header("x-burrow-key", &key).send().status;
    assert_eq!(ask(), 200);
    site.daemon.ok(&["pause", "web"]);
    assert_eq!(ask(), 200);
    assert_eq!(site.daemon.inspect("web")["state"], "running");
    site.daemon.ok(&["stop", "web"]);
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        asking.into_iter().map(|asking| asking.join().unwrap()).collect()
    });
    assert_eq!(statuses, [200; 8]);
    let events = site.daemon.ok(&["events", "--json"]);
    assert_eq!(events.matches("sandbox.started").count(), 1, "{events}");
    site.daemon.ok(&["stop", "web"]);
    site.http(8000, "/").send().refused(401, "unauthorized");
    assert_eq!(site.daemon.inspect("web")["state"], "stopped", "strangers wake nobody");
}

#[test]
fn a_request_to_a_closed_port_lists_the_open_ones() {
    let site = site();
    let key = site.daemon.key();
    let error = site.http(8123, "/").header("x-burrow-key", &key).send().refused(502, "port_closed");
    assert!(error["message"].as_str().unwrap().contains("8123"), "{error}");
    assert_eq!(error["hint"], "ports with a listening process: 8000 (`python3`)");
    site.http(7711, "/").header("x-burrow-key", &key).send().refused(400, "invalid_request");
    site.daemon.ok(&["service", "rm", "web", "app"]);
    eventually("the server to end", || {
        let answer = site.http(8000, "/").header("x-burrow-key", &key).send();
        (answer.status == 502 && answer.text().contains("nothing listens")).then_some(())
    });
}

/// A `burrow port-forward` that runs, and the addresses it listens on.
struct RunningForward {
    child: std::process::Child,
    addresses: Vec<String>,
}

impl RunningForward {
    fn start(site: &Site, ports: &[&str]) -> Self {
        let mut command = site.daemon.command(&[&["port-forward", "web"][..], ports].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = |line: String| line.split(" -> ").next().unwrap().to_owned();
        let addresses = ports.iter().map(|_| address(lines.next().unwrap().unwrap())).collect();
        Self { child, addresses }
    }

    fn connect(&self, index: usize) -> TcpStream {
        let stream = TcpStream::connect(&self.addresses[index]).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends Ctrl-C; returns its exit code and its output.
    fn end(mut self) -> (Option<i32>, String) {
        crate::harness::run(Command::new("kill").args(["-INT", &self.child.id().to_string()]));
        let status = self.child.wait().unwrap();
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (status.code(), said)
    }
}

#[test]
fn port_forward_carries_raw_tcp_both_ways_and_the_end_of_each() {
    let site = site();
    // Sends something first, then answers only after it has received everything.
    let program = "
import socket
server = socket.create_server(('127.0.0.1', 9000))
while True:
    client, _ = server.accept()
    client.sendall(b'hello\\n')
    heard = b''
    while piece := client.recv(65536):
        heard += piece
    client.sendall(b'%d bytes' % len(heard))
    client.close()
";
    site.daemon.ok(&["service", "add", "web", "raw", "--", "python3", "-c", program]);
    eventually("it to listen", || site.daemon.ok(&["port", "ls", "web"]).contains("9000").then_some(()));
    let forwarding = RunningForward::start(&site, &["0:9000", "0:8000", "0:8123"]);
    for size in [0, 10, 3 << 20] {
        let mut stream = forwarding.connect(0);
        let mut hello = [0; 6];
        stream.read_exact(&mut hello).unwrap();
        assert_eq!(&hello, b"hello\n");
        stream.write_all(&vec![7; size]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut rest = String::new();
        stream.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, format!("{size} bytes"));
    }
    // The second of several ports, and many connections at once.
    std::thread::scope(|scope| {
        for number in 0..16 {
            let forwarding = &forwarding;
            scope.spawn(move || {
                let mut stream = forwarding.connect(1);
                write!(stream, "GET /{number} HTTP/1.0\r\nconnection: close\r\n\r\n").unwrap();
                let mut answer = String::new();
                stream.read_to_string(&mut answer).unwrap();
                assert!(answer.contains(&format!("\"path\": \"/{number}\"")), "{answer}");
            });
        }
    });
    let mut nothing = forwarding.connect(2);
    // Closed normally or reset, but closed: connecting to a server that has just been started is retried, but not for
    // ever.
    // (To the end, because any signal interrupts a single read of a socket with a timeout.)
    match nothing.read_to_end(&mut Vec::new()) {
        Ok(count) => assert_eq!(count, 0, "nobody is there"),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
    }
    site.daemon.ok(&["pause", "web"]);
    let mut stream = forwarding.connect(0);
    stream.read_exact(&mut [0; 6]).unwrap();
    drop(stream);
    let (code, said) = forwarding.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("nothing listens on port 8123"), "{said}");
    let said = site.daemon.refused(&["port-forward", "nothere", "80"], 1);
    assert!(said.contains("nothere"), "{said}");
}
