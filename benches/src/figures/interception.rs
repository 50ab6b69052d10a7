//! Requests that are decrypted on egress and get a secret injected.
//!
//! ```text
//! injected   sandbox's namespace ──TLS──► burrow egress (judge, record, inject, scrub) ──TLS──► upstream
//! direct     another namespace   ──TLS────────────────────────────────────────────────────────► upstream
//! mitmproxy  another namespace   ──TLS──► mitmdump, which sets the same header ──TLS──────────► upstream
//! ```
//!
//! The real process, real listeners and a real audit spool on this machine's disk; no daemon.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use burrow_audit::spool::Segment;
use burrow_egress::supervisor::{Options, Supervisor};
use burrow_egress::{Authority, Directives, Egress, Grant, Limits, Policy};
use burrow_model::network::{RequestRule, RequestScope, RuleMode};
use burrow_model::{NetworkPolicy, SandboxId, SecretBytes, Slot, TenantId};
use burrow_network::linux::LinuxNetwork;
use burrow_network::{Attachment, Network};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::Scale;
use super::upstream::{self, BULK, SMALL};
use crate::daemon::BenchSetup;
use crate::error::BenchError;
use crate::namespace::{
    DIRECT, Namespace, NamespaceHandle, UPSTREAM, leave_mounts, measure_apart, resident_mib, run,
};
use crate::report::{Figure, Target};
use crate::samples::Samples;

const NAME: &str = "upstream.example";
const TLS_PORT: u16 = 443;
const MITM_PORT: u16 = 8443;
const SECRET: &str = "sk-bench-0123456789abcdefghij";

/// Concurrent connections where requests per second are counted.
const CLIENTS: u32 = 8;
const IDLE_SANDBOXES: u32 = 100;
const IDLE_PER_SANDBOX: u32 = 10;
const MIB: usize = 1024 * 1024;

/// The uid of the process, which no user has.
const UID: u32 = 64_323;
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) async fn measure(prepared: &BenchSetup, scale: &Scale) -> Result<Vec<Figure>, BenchError> {
    let (prepared, scale) = (prepared.clone(), *scale);
    measure_apart(async move || measure_inside(&prepared, &scale).await).await
}

async fn measure_inside(prepared: &BenchSetup, scale: &Scale) -> Result<Vec<Figure>, BenchError> {
    let folder = tempfile::tempdir_in(&prepared.state).map_err(BenchError::io("make", "a folder"))?;
    own_hosts(folder.path())?;
    let certificates = Certificates::make(folder.path())?;
    upstream::serve(TLS_PORT, &certificates.server, &certificates.server_key)?;
    let direct = Namespace::new()?;
    direct.connect_to_us()?;

    let options =
        burrow_network::linux::Options { run_dir: folder.path().join("net"), pool_size: 0, own_ids: false };
    let network = LinuxNetwork::open(options).map_err(egress_error)?;
    let supervisor = Supervisor::open(Options {
        program: vec![prepared.burrow.clone().into(), "egress-process".into()],
        run_dir: folder.path().join("egress"),
        uid: UID,
        gid: UID,
        network: Arc::clone(&network) as Arc<dyn Network>,
        limits: Limits { connections_max: 2_000, connections_per_second: 100_000, ..Limits::STANDARD },
        extra_roots: vec![certificates.authority.to_vec()],
    });
    let supervisor = supervisor.await.map_err(egress_error)?;
    let segment = Segment::create(folder.path(), 1).map_err(BenchError::io("make", "a spool"))?;
    supervisor.set_spool(segment.file).await.map_err(egress_error)?;

    let policy = policy(&certificates)?;
    let (id, sandbox) = attach(&network, &supervisor, &policy).await?;
    let inside =
        ClientRoute { inside: sandbox, address: UPSTREAM, port: TLS_PORT, trust: certificates.trust() };
    let outside =
        ClientRoute { inside: direct.inside(), address: DIRECT, port: TLS_PORT, trust: certificates.trust() };

    let mut figures = vec![added(&outside, &inside, scale)?];
    figures.push(rates(prepared, folder.path(), &direct, &certificates, &inside, scale)?);
    figures.push(bulk(&outside, &inside, scale)?);
    let mut ids = vec![id];
    figures.push(idle(&network, &supervisor, &policy, &inside, &mut ids).await?);

    supervisor.shutdown().await;
    Supervisor::remove_all(&folder.path().join("egress")).await.map_err(egress_error)?;
    for id in &ids {
        network.release(id).await.map_err(egress_error)?;
    }
    network.shutdown().await;
    drop(network);
    LinuxNetwork::remove_all(&folder.path().join("net")).map_err(egress_error)?;
    Ok(figures)
}

async fn attach(
    network: &Arc<LinuxNetwork>,
    supervisor: &Arc<Supervisor>,
    policy: &Policy,
) -> Result<(SandboxId, NamespaceHandle), BenchError> {
    let id = SandboxId::generate();
    let link = network.connect(&id).await.map_err(egress_error)?;
    let Attachment::Namespaces { net, .. } = &link.attachment else {
        return Err(wrong("the sandbox has no namespaces"));
    };
    let net = net.try_clone().map_err(BenchError::io("keep", "a namespace"))?;
    supervisor.attach(&id, policy).await.map_err(egress_error)?;
    Ok((id, NamespaceHandle::of(net)))
}

/// The name of the upstream, which resolves on this thread and in processes that it starts.
fn own_hosts(folder: &Path) -> Result<(), BenchError> {
    leave_mounts()?;
    let hosts = folder.join("hosts");
    fs::write(&hosts, format!("127.0.0.1 localhost\n{UPSTREAM} {NAME}\n"))
        .map_err(BenchError::io("write", hosts.display()))?;
    run(&format!("mount --bind {} /etc/hosts", hosts.display()))
}

// === The figures ===

/// The latency that interception adds to a request on an open connection.
fn added(direct: &ClientRoute, injected: &ClientRoute, scale: &Scale) -> Result<Figure, BenchError> {
    let (mut plain, mut through) = (direct.open()?, injected.open()?);
    for _ in 0..50 {
        plain.get(SMALL)?;
        through.get(SMALL)?;
    }
    let (mut added, mut without) = (Samples::default(), Samples::default());
    for _ in 0..scale.egress_connections {
        let (first, second) = (plain.get(SMALL)?.took, through.get(SMALL)?.took);
        without.push_ms(first);
        added.push_ms(second.saturating_sub(first));
    }
    let note = "p50 of what decrypting, judging, recording durably, injecting and scrubbing add to a request";
    let figure = Figure::median("injected request, added", &added, "ms", note);
    Ok(figure.against("direct HTTPS", &without).target(Target::Below { limit: 1.0 }))
}

/// Requests per second, compared with mitmproxy.
fn rates(
    prepared: &BenchSetup,
    folder: &Path,
    direct: &Namespace,
    certificates: &Certificates,
    injected: &ClientRoute,
    scale: &Scale,
) -> Result<Figure, BenchError> {
    let each = scale.egress_connections * 4;
    let ours = injected.rate(each)?;
    let note = "injected HTTPS requests per second over 8 kept connections";
    let figure = Figure::new("injected requests", ours, "1/s", note);
    let Some(mitmdump) = &prepared.mitmdump else { return Ok(figure) };
    let mitmproxy = Mitmproxy::start(mitmdump, folder, certificates)?;
    let way =
        ClientRoute { inside: direct.inside(), address: DIRECT, port: MITM_PORT, trust: mitmproxy.trust()? };
    let theirs = way.rate(each / 8)?;
    drop(mitmproxy);
    let mut peer = Samples::default();
    peer.push(theirs);
    Ok(figure.against("mitmproxy", &peer).target(Target::RatioAtLeast { limit: 10.0 }))
}

fn bulk(direct: &ClientRoute, injected: &ClientRoute, scale: &Scale) -> Result<Figure, BenchError> {
    let (mut plain, mut through) = (direct.open()?, injected.open()?);
    #[expect(clippy::cast_precision_loss, reason = "a number of megabytes is small")]
    let rate = |answer: &TimedAnswer| (answer.bytes / MIB) as f64 / answer.took.as_secs_f64();
    let (mut ours, mut without) = (Samples::default(), Samples::default());
    for _ in 0..3 * scale.file_rounds {
        without.push(rate(&plain.get(BULK)?));
        ours.push(rate(&through.get(BULK)?));
    }
    let note = "p50 of one download of 256 MiB that is decrypted, scrubbed and encrypted again";
    let figure = Figure::median("intercepted bulk", &ours, "MiB/s", note);
    Ok(figure.against("direct HTTPS", &without).target(Target::RatioAtLeast { limit: 0.5 }))
}

async fn idle(
    network: &Arc<LinuxNetwork>,
    supervisor: &Arc<Supervisor>,
    policy: &Policy,
    way: &ClientRoute,
    ids: &mut Vec<SandboxId>,
) -> Result<Figure, BenchError> {
    let pid = supervisor.pid().ok_or_else(|| wrong("there is no egress process"))?;
    let before = resident_mib(pid)?;
    let mut open = Vec::new();
    for _ in 0..IDLE_SANDBOXES {
        let (id, inside) = attach(network, supervisor, policy).await?;
        ids.push(id);
        let way = ClientRoute { inside, ..way.again() };
        for _ in 0..IDLE_PER_SANDBOX {
            let mut connection = way.open()?;
            connection.get(SMALL)?;
            open.push(connection);
        }
    }
    let grown = resident_mib(pid)? - before;
    drop(open);
    let note = "what the process grows by for 1,000 decrypted connections of 100 sandboxes that say nothing";
    Ok(Figure::new("intercepted, 1,000 idle", grown, "MiB", note).target(Target::Below { limit: 128.0 }))
}

// === Clients ===

/// A client's namespace, the address it connects to, and the certificate it trusts.
struct ClientRoute {
    inside: NamespaceHandle,
    address: Ipv4Addr,
    port: u16,
    trust: Arc<ClientConfig>,
}

struct Connection {
    stream: StreamOwned<ClientConnection, TcpStream>,
    buffer: Vec<u8>,
}

struct TimedAnswer {
    took: Duration,
    bytes: usize,
}

impl ClientRoute {
    fn again(&self) -> Self {
        Self {
            inside: self.inside.again(),
            address: self.address,
            port: self.port,
            trust: Arc::clone(&self.trust),
        }
    }

    fn open(&self) -> Result<Connection, BenchError> {
        let address = SocketAddr::from((self.address, self.port));
        let stream = self.inside.run(|| TcpStream::connect(address));
        let stream = stream.map_err(BenchError::io("connect to", address))?;
        let set = stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(PATIENCE)));
        set.map_err(BenchError::io("prepare", address))?;
        let name = ServerName::try_from(NAME).map_err(|_| wrong("a name is none"))?;
        let client = ClientConnection::new(Arc::clone(&self.trust), name).map_err(egress_error)?;
        Ok(Connection { stream: StreamOwned::new(client, stream), buffer: vec![0; MIB / 4] })
    }

    /// Over `CLIENTS` connections, `each` requests on every one.
    fn rate(&self, each: u32) -> Result<f64, BenchError> {
        let connections: Result<Vec<Connection>, BenchError> = (0..CLIENTS).map(|_| self.open()).collect();
        let mut connections = connections?;
        for connection in &mut connections {
            connection.get(SMALL)?;
        }
        let begin = Instant::now();
        thread::scope(|scope| {
            let work = |mut connection: Connection| {
                move || (0..each).try_for_each(|_| connection.get(SMALL).map(drop))
            };
            let running: Vec<_> =
                connections.into_iter().map(|connection| scope.spawn(work(connection))).collect();
            running.into_iter().try_for_each(|thread| thread.join().expect("a client does not panic"))
        })?;
        Ok(f64::from(CLIENTS * each) / begin.elapsed().as_secs_f64())
    }
}

impl Connection {
    fn get(&mut self, path: &str) -> Result<TimedAnswer, BenchError> {
        let begin = Instant::now();
        let bytes = self.exchange(path).map_err(BenchError::io("get", path))?;
        Ok(TimedAnswer { took: begin.elapsed(), bytes })
    }

    fn exchange(&mut self, path: &str) -> io::Result<usize> {
        write!(self.stream, "GET {path} HTTP/1.1\r\nHost: {NAME}\r\n\r\n")?;
        let mut had = 0;
        let (head, length) = loop {
            let count = self.stream.read(&mut self.buffer[had..])?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            had += count;
            if let Some(end) = self.buffer[..had].windows(4).position(|four| four == b"\r\n\r\n") {
                break (end + 4, length_in(&self.buffer[..end])?);
            }
        };
        let mut left = length.saturating_sub(had - head);
        while left > 0 {
            match self.stream.read(&mut self.buffer)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => left = left.saturating_sub(count),
            }
        }
        Ok(length)
    }
}

/// The status line of a good answer.
fn length_in(head: &[u8]) -> io::Result<usize> {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    if !head.starts_with("http/1.1 200") {
        return Err(io::Error::other(head.lines().next().unwrap_or_default().to_owned()));
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
    length.ok_or_else(|| io::Error::other("an answer without a length"))
}

// === Set-up ===

struct Certificates {
    authority: CertificateDer<'static>,
    key: Vec<u8>,
    server: PathBuf,
    server_key: PathBuf,
    authority_file: PathBuf,
}

impl Certificates {
    /// One certificate authority is used both for the internet and for the lineage, so that one client trusts both
    /// paths.
    fn make(folder: &Path) -> Result<Self, BenchError> {
        let at = |name: &str| folder.join(name);
        let curve = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2";
        run(&format!(
            "cd {} && openssl req -x509 {curve} -keyout ca.key -out ca.pem -subj /CN=bench \
             -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign 2>&1 \
             && openssl req {curve} -keyout server.key -out server.csr -subj /CN={NAME} 2>&1 \
             && printf 'subjectAltName=DNS:{NAME}\\nextendedKeyUsage=serverAuth\\n' > server.ext \
             && openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
                -extfile server.ext -out server.pem 2>&1",
            folder.display()
        ))?;
        let authority = CertificateDer::from_pem_file(at("ca.pem")).map_err(egress_error)?;
        let PrivateKeyDer::Pkcs8(key) = PrivateKeyDer::from_pem_file(at("ca.key")).map_err(egress_error)?
        else {
            return Err(wrong("openssl wrote a key in another form"));
        };
        let key = key.secret_pkcs8_der().to_vec();
        let (server, server_key, authority_file) = (at("server.pem"), at("server.key"), at("ca.pem"));
        Ok(Self { authority, key, server, server_key, authority_file })
    }

    fn trust(&self) -> Arc<ClientConfig> {
        trusting(self.authority.clone())
    }
}

fn trusting(authority: CertificateDer<'static>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(authority).expect("an authority of our own is one");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring speaks the default versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

fn policy(certificates: &Certificates) -> Result<Policy, BenchError> {
    let host = NAME.parse().map_err(|_| wrong("a name is none"))?;
    let scope = RequestScope::of(host);
    let name: burrow_model::Name = "bench".parse().map_err(|_| wrong("a name is none"))?;
    let slot = Slot::Header {
        name: "authorization".parse().map_err(|_| wrong("a header is none"))?,
        format: "Bearer {}".parse().map_err(|_| wrong("a format is none"))?,
    };
    let rule = RequestRule {
        scope: scope.clone(),
        mode: RuleMode::Intercept,
        secret: Some(name.clone()),
        budget: None,
        approve: None,
    };
    let grant = Grant {
        name,
        version: 1,
        slot,
        value: SecretBytes::new(SECRET.as_bytes().to_vec()),
        allow: vec![scope],
        placeholder: None,
        former: Vec::new(),
    };
    let key = SecretBytes::new(certificates.key.clone());
    let directives = Directives {
        tenant: TenantId::generate(),
        generation: 1,
        authority: Some(Authority { certificate: certificates.authority.to_vec(), key }),
        rules: vec![rule],
        grants: vec![grant],
        transforms: Vec::new(),
    };
    let open = ["198.51.100.0/24".parse().map_err(|_| wrong("a range is none"))?];
    let policy = Policy::new(&NetworkPolicy::closed(), &BTreeMap::new(), &open).map_err(egress_error)?;
    Ok(policy.with_directives(directives))
}

/// `mitmdump` as a reverse proxy of the upstream, which sets the same header.
struct Mitmproxy {
    child: Child,
    folder: PathBuf,
}

impl Mitmproxy {
    fn start(program: &Path, folder: &Path, certificates: &Certificates) -> Result<Self, BenchError> {
        let folder = folder.join("mitmproxy");
        let child = Command::new(program)
            .args(["--quiet", "--listen-port", &MITM_PORT.to_string()])
            .args(["--mode", &format!("reverse:https://{NAME}:{TLS_PORT}")])
            .args(["--set", &format!("confdir={}", folder.display())])
            .args(["--set", "keep_host_header=true"])
            .args([
                "--set",
                &format!("ssl_verify_upstream_trusted_ca={}", certificates.authority_file.display()),
            ])
            .args(["--modify-headers", &format!("/~q/Authorization/Bearer {SECRET}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(BenchError::io("start", program.display()))?;
        let mut started = Self { child, folder };
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect((UPSTREAM, MITM_PORT)).is_err() {
            let ended = started.child.try_wait().map_err(BenchError::io("wait for", "mitmproxy"))?;
            if ended.is_some() || Instant::now() > deadline {
                return Err(wrong("mitmproxy did not start"));
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(started)
    }

    fn trust(&self) -> Result<Arc<ClientConfig>, BenchError> {
        let file = self.folder.join("mitmproxy-ca-cert.pem");
        Ok(trusting(CertificateDer::from_pem_file(&file).map_err(egress_error)?))
    }
}

impl Drop for Mitmproxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wrong(what: &str) -> BenchError {
    BenchError::WrongAnswer { what: what.to_owned() }
}

fn egress_error(error: impl std::error::Error) -> BenchError {
    wrong(&crate::error::chain(&error))
}
