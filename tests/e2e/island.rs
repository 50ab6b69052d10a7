//! A separate network for a test: the test runs again in fresh network and mount namespaces, with hosts on an interface,
//! names in a private `/etc/hosts`, and no route to anything else.
//!
//! ```text
//!   test process ──unshare──► the same test: lo, out0 with every address below, /etc/hosts, /etc/resolv.conf
//!                               └─► daemon, egress process, sandboxes: all of them here
//! ```
//!
//! The addresses are in ranges for documentation, so the daemon must be allowed to connect to them
//! (`egress.allow_ranges`). To the other addresses it must never connect; decoys there count connections.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::harness::{eventually, run};

const INSIDE: &str = "BURROW_TEST_ISLAND";

/// Addresses of hosts that may be reached.
pub(crate) const OUTSIDE: &str = "198.51.100.1";
pub(crate) const OUTSIDE_V6: &str = "2001:db8:51::1";

/// The configuration that allows the egress process to connect to them.
pub(crate) const CONFIG: &str =
    "egress.allow_ranges = [\"198.51.100.0/24\", \"2001:db8:51::/48\"]\negress.connections_per_second = 500";

/// Addresses that no sandbox may reach: the host's own and its cloud's, private ones, carrier-grade NAT.
pub(crate) const FORBIDDEN: [&str; 6] =
    ["127.0.0.1", "169.254.169.254", "10.20.0.1", "100.64.0.1", "fd00:ec2::254", "::1"];

/// Names that resolve to an address of the island.
const NAMES: &[(&str, &str)] = &[
    (OUTSIDE, "up.example www.up.example other.example git.example db.example flood.example"),
    (OUTSIDE_V6, "six.example"),
    ("10.20.0.1", "private.example"),
    ("127.0.0.1", "localhost loopback.example"),
    ("169.254.169.254", "metadata.example"),
    ("::1", "loopback6.example"),
    ("100.64.0.1", "carrier.example"),
];

/// True in the namespaces, where the test must do its work. Otherwise the test has already been run there when this
/// returns.
#[track_caller]
pub(crate) fn landed(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        settle();
        return true;
    }
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--"]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(INSIDE, "1");
    let status = command.status().unwrap();
    assert!(status.success(), "`{test}` failed in a network of its own: {status}");
    false
}

fn ip(arguments: &[&str]) {
    run(Command::new("ip").args(arguments));
}

fn settle() {
    ip(&["link", "set", "lo", "up"]);
    ip(&["link", "add", "out0", "type", "bridge"]);
    ip(&["link", "set", "out0", "up"]);
    let outside = [(OUTSIDE, "24"), (OUTSIDE_V6, "64")];
    let forbidden = FORBIDDEN.iter().filter(|address| !is_loopback(address)).map(|address| (*address, "32"));
    for (address, prefix) in outside.into_iter().chain(forbidden) {
        let prefix = if address.contains(':') && prefix == "32" { "128" } else { prefix };
        let mut arguments = vec!["address", "add"];
        let with_prefix = format!("{address}/{prefix}");
        arguments.extend([with_prefix.as_str(), "dev", "out0"]);
        if address.contains(':') {
            arguments.push("nodad");
        }
        ip(&arguments);
    }
    let hosts: String = NAMES.iter().map(|(address, names)| format!("{address} {names}\n")).collect();
    replace("/etc/hosts", &hosts);
    // Nothing listens there, and connections are refused at once.
    replace("/etc/resolv.conf", &format!("nameserver {OUTSIDE}\noptions timeout:1 attempts:1\n"));
}

fn is_loopback(address: &str) -> bool {
    address.parse::<IpAddr>().unwrap().is_loopback()
}

/// Covers a file of the host, in this mount namespace only.
fn replace(path: &str, content: &str) {
    let folder = std::env::temp_dir().join(format!("burrow-island-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join(Path::new(path).file_name().unwrap());
    fs::write(&file, content).unwrap();
    run(Command::new("mount").arg("--bind").arg(&file).arg(path));
    // The mount keeps a reference to the file.
    fs::remove_file(&file).unwrap();
    let _ = fs::remove_dir(&folder);
}

/// Gives the island other names, from the next lookup on.
#[allow(dead_code, reason = "the attack suite shares this file and uses it")]
pub(crate) fn rewrite_hosts(content: &str) {
    // Never write to the host's own file.
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(mounts.lines().any(|line| line.split(' ').nth(4) == Some("/etc/hosts")), "not on an island");
    fs::write("/etc/hosts", content).unwrap();
}

/// A listener that counts connections and stores the first bytes of each.
#[derive(Debug)]
pub(crate) struct Decoy {
    pub(crate) address: SocketAddr,
    hits: Arc<AtomicUsize>,
    heard: Arc<Mutex<Vec<Vec<u8>>>>,
}

/// How a decoy handles a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DecoyBehaviour {
    /// Sends one line at once, then echoes.
    Greets,
    /// Reads the head of a request and answers it.
    Web,
}

/// Maximum number of bytes that are stored per connection.
const HEARD_BYTES_MAX: usize = 64 << 10;

impl Decoy {
    /// Answers every connection with one line, then echoes.
    pub(crate) fn open(address: &str, port: u16) -> Self {
        Self::with(address, port, DecoyBehaviour::Greets)
    }

    /// Answers every request with `ready`.
    #[allow(dead_code, reason = "the attack suite shares this file and uses it")]
    pub(crate) fn web(address: &str, port: u16) -> Self {
        Self::with(address, port, DecoyBehaviour::Web)
    }

    fn with(address: &str, port: u16, manners: DecoyBehaviour) -> Self {
        let address: SocketAddr = (address.parse::<IpAddr>().unwrap(), port).into();
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let decoy = Self { address, hits: Arc::default(), heard: Arc::default() };
        let (hits, heard) = (Arc::clone(&decoy.hits), Arc::clone(&decoy.heard));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                hits.fetch_add(1, Ordering::SeqCst);
                let heard = Arc::clone(&heard);
                std::thread::spawn(move || receive(stream, manners, &heard));
            }
        });
        decoy
    }

    /// All bytes received, in hexadecimal digits and as text.
    #[allow(dead_code, reason = "the attack suite shares this file and uses it")]
    pub(crate) fn heard(&self) -> String {
        let heard = self.heard.lock().unwrap();
        heard.iter().map(|said| format!("{}\n", String::from_utf8_lossy(said))).collect()
    }

    pub(crate) fn hits(&self) -> usize {
        self.hits.load(Ordering::SeqCst)
    }

    /// Whether it is reachable without restrictions; the check counts as a connection.
    pub(crate) fn answers(&self) -> bool {
        let Ok(mut stream) = std::net::TcpStream::connect_timeout(&self.address, Duration::from_secs(5))
        else {
            return false;
        };
        let mut line = [0; 6];
        stream.read_exact(&mut line).is_ok_and(|()| line == *b"ready\n")
    }
}

fn receive(mut stream: std::net::TcpStream, manners: DecoyBehaviour, heard: &Mutex<Vec<Vec<u8>>>) {
    let _ = stream.set_read_timeout(Some(Duration::from_secs(120)));
    if manners == DecoyBehaviour::Greets && stream.write_all(b"ready\n").is_err() {
        return;
    }
    let place = {
        let mut heard = heard.lock().unwrap();
        heard.push(Vec::new());
        heard.len() - 1
    };
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        let whole = {
            let said = &mut heard.lock().unwrap()[place];
            let room = HEARD_BYTES_MAX.saturating_sub(said.len());
            said.extend_from_slice(&buffer[..count.min(room)]);
            said.windows(4).any(|bytes| bytes == b"\r\n\r\n")
        };
        let answer: &[u8] = match manners {
            DecoyBehaviour::Greets => &buffer[..count],
            DecoyBehaviour::Web if whole => {
                b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nready\n"
            }
            DecoyBehaviour::Web => b"",
        };
        if stream.write_all(answer).is_err() || (manners == DecoyBehaviour::Web && whole) {
            return;
        }
    }
}

/// A web server, HTTP or HTTPS, for a folder. Ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Web {
    child: Child,
    pub(crate) folder: tempfile::TempDir,
}

const SERVER: &str = "import functools,http.server,ipaddress,socket,ssl,sys\n\
    host,port,folder,cert,key=sys.argv[1:6]\n\
    class Server(http.server.ThreadingHTTPServer):\n\
    \x20 address_family=socket.AF_INET6 if ':' in host else socket.AF_INET\n\
    class Quiet(http.server.SimpleHTTPRequestHandler):\n\
    \x20 protocol_version='HTTP/1.1'\n\
    \x20 def log_message(self,*a): pass\n\
    server=Server((host,int(port)),functools.partial(Quiet,directory=folder))\n\
    if cert:\n\
    \x20 context=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)\n\
    \x20 context.load_cert_chain(cert,key)\n\
    \x20 server.socket=context.wrap_socket(server.socket,server_side=True)\n\
    server.serve_forever()\n";

impl Web {
    pub(crate) fn http(address: &str, port: u16) -> Self {
        Self::serve(address, port, None)
    }

    /// With a certificate that names every host of the island; its PEM is `ca.pem` in `folder`.
    pub(crate) fn https(address: &str, port: u16, folder: &Path) -> Self {
        let at = |name: &str| folder.join(name).display().to_string();
        if !folder.join("ca.pem").exists() {
            let names = NAMES.iter().flat_map(|(_, names)| names.split(' '));
            let names: Vec<String> = names.map(|name| format!("DNS:{name}")).collect();
            let mut openssl = Command::new("openssl");
            openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
            openssl.args(["-nodes", "-days", "2", "-subj", "/CN=burrow test"]);
            openssl.args(["-addext", &format!("subjectAltName={}", names.join(","))]);
            openssl.args(["-keyout", &at("key.pem"), "-out", &at("ca.pem")]);
            run(&mut openssl);
        }
        Self::serve(address, port, Some((at("ca.pem"), at("key.pem"))))
    }

    fn serve(address: &str, port: u16, tls: Option<(String, String)>) -> Self {
        let folder = tempfile::Builder::new().prefix("burrow-web-").tempdir().unwrap();
        fs::write(folder.path().join("index.html"), "hello from outside\n").unwrap();
        let (cert, key) = tls.unwrap_or_default();
        let mut command = Command::new("python3");
        command.args(["-c", SERVER, address, &port.to_string()]).arg(folder.path()).args([cert, key]);
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        let place: SocketAddr = (address.parse::<IpAddr>().unwrap(), port).into();
        eventually("a web server to listen", || std::net::TcpStream::connect(place).ok());
        Self { child, folder }
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
