//! Network egress: what the proxy adds to a connection, takes from a transfer, and costs when idle.
//!
//! ```text
//! proxied  sandbox's namespace ──veth──► gateway: tproxy ──► burrow egress ──► upstream
//! direct   another namespace  ──veth──────────────────────────────────────► upstream
//! ```
//!
//! Everything runs in separate network namespaces, with the real process and real listeners, and no daemon: the proxy is
//! measured. The upstream is an address of the same namespace that the operator has allowed. Direct is what this host
//! gives to a program without a proxy: a plain veth pair, and its default congestion control.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use burrow_egress::supervisor::{Options, Supervisor};
use burrow_egress::{Destination, DetectedProtocol, Egress, Host, Limits, Policy};
use burrow_model::{NetworkMode, NetworkPolicy, SandboxId};
use burrow_network::linux::LinuxNetwork;
use burrow_network::{Attachment, Network};

use super::Scale;
use crate::daemon::BenchSetup;
use crate::error::BenchError;
use crate::namespace::{DIRECT, Namespace, NamespaceHandle, UPSTREAM, measure_apart, resident_mib};
use crate::report::{Figure, Target};
use crate::samples::Samples;

/// Speaks TLS, as far as a proxy that passes it through can see.
const TLS_PORT: u16 = 443;
/// Sends as many bytes as requested.
const BULK_PORT: u16 = 8000;

const IDLE_CONNECTIONS: u32 = 1_000;
const RULES: u32 = 1_000;
/// Transfers per round of the files' figures. One takes a third of a second, in which three threads and other programs on
/// the machine share its cores, so single transfers vary by half.
const TRANSFERS_PER_ROUND: u32 = 3;
const MIB: usize = 1024 * 1024;

/// The uid of the process, which no user has.
const UID: u32 = 64_322;

pub(super) async fn measure(prepared: &BenchSetup, scale: &Scale) -> Result<Vec<Figure>, BenchError> {
    let (burrow, scale) = (prepared.burrow.clone(), *scale);
    measure_apart(async move || measure_inside(&burrow, &scale).await).await
}

async fn measure_inside(burrow: &Path, scale: &Scale) -> Result<Vec<Figure>, BenchError> {
    serve_tls()?;
    serve_bulk()?;
    let direct = Namespace::new()?;
    direct.connect_to_us()?;

    let folder = tempfile::tempdir().map_err(BenchError::io("make", "a folder"))?;
    let options =
        burrow_network::linux::Options { run_dir: folder.path().join("net"), pool_size: 0, own_ids: false };
    let network = LinuxNetwork::open(options).map_err(egress_error)?;
    let id = SandboxId::generate();
    let link = network.connect(&id).await.map_err(egress_error)?;
    let Attachment::Namespaces { net, .. } = &link.attachment else {
        return Err(wrong("the sandbox has no namespaces"));
    };
    let sandbox = NamespaceHandle::of(net.try_clone().map_err(BenchError::io("keep", "a namespace"))?);
    let supervisor = Supervisor::open(Options {
        program: vec![burrow.into(), "egress-process".into()],
        run_dir: folder.path().join("egress"),
        uid: UID,
        gid: UID,
        network: Arc::clone(&network) as Arc<dyn Network>,
        limits: Limits { connections_max: 2_000, connections_per_second: 100_000, ..Limits::STANDARD },
        extra_roots: Vec::new(),
    });
    let supervisor = supervisor.await.map_err(egress_error)?;
    let rules = [format!("https://{UPSTREAM}:{TLS_PORT}"), format!("tcp://{UPSTREAM}:{BULK_PORT}")];
    supervisor.attach(&id, &policy(&rules)?).await.map_err(egress_error)?;

    let mut figures = vec![connections(&direct.inside(), &sandbox, scale)?];
    figures.push(bulk(&direct.inside(), &sandbox, scale)?);
    figures.push(idle(&sandbox, supervisor.pid())?);
    figures.push(decisions()?);

    supervisor.shutdown().await;
    Supervisor::remove_all(&folder.path().join("egress")).await.map_err(egress_error)?;
    network.release(&id).await.map_err(egress_error)?;
    network.shutdown().await;
    drop(network);
    LinuxNetwork::remove_all(&folder.path().join("net")).map_err(egress_error)?;
    Ok(figures)
}

/// Time from connecting to the first byte of the answer.
fn connections(
    direct: &NamespaceHandle,
    sandbox: &NamespaceHandle,
    scale: &Scale,
) -> Result<Figure, BenchError> {
    let hello = hello();
    let one = |inside: &NamespaceHandle, address: Ipv4Addr| {
        let hello = &hello;
        inside.run(move || -> io::Result<Duration> {
            let begin = Instant::now();
            let mut stream = TcpStream::connect((address, TLS_PORT))?;
            stream.set_nodelay(true)?;
            stream.write_all(hello)?;
            stream.read_exact(&mut [0])?;
            Ok(begin.elapsed())
        })
    };
    let (mut added, mut plain) = (Samples::default(), Samples::default());
    for _ in 0..scale.egress_connections {
        let without = one(direct, DIRECT).map_err(BenchError::io("connect", "directly"))?;
        let with = one(sandbox, UPSTREAM).map_err(BenchError::io("connect", "through the proxy"))?;
        plain.push_ms(without);
        added.push_ms(with.saturating_sub(without));
    }
    let note = "p50 of what the proxy adds from connect to the first byte of the answer, TLS passed through";
    let figure = Figure::median("egress connection, added", &added, "ms", note);
    Ok(figure.against("direct over veth", &plain).target(Target::Below { limit: 1.0 }))
}

fn bulk(direct: &NamespaceHandle, sandbox: &NamespaceHandle, scale: &Scale) -> Result<Figure, BenchError> {
    let bytes = scale.file_mib * MIB;
    let one = |inside: &NamespaceHandle, address: Ipv4Addr| {
        inside.run(move || -> io::Result<Duration> {
            let mut stream = TcpStream::connect((address, BULK_PORT))?;
            let begin = Instant::now();
            stream.write_all(&u64::try_from(bytes).unwrap_or(u64::MAX).to_be_bytes())?;
            let mut buffer = vec![0; MIB / 4];
            let mut left = bytes;
            while left > 0 {
                match stream.read(&mut buffer)? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    count => left -= count,
                }
            }
            Ok(begin.elapsed())
        })
    };
    #[expect(clippy::cast_precision_loss, reason = "a number of megabytes is small")]
    let rate = |elapsed: Duration| scale.file_mib as f64 / elapsed.as_secs_f64();
    let (mut proxied, mut plain) = (Samples::default(), Samples::default());
    for _ in 0..TRANSFERS_PER_ROUND * scale.file_rounds {
        plain.push(rate(one(direct, DIRECT).map_err(BenchError::io("read", "directly"))?));
        proxied.push(rate(one(sandbox, UPSTREAM).map_err(BenchError::io("read", "through the proxy"))?));
    }
    let note = "p50 of one bulk download through the proxy";
    let figure = Figure::median("egress bulk", &proxied, "MiB/s", note);
    Ok(figure.against("direct over veth", &plain).target(Target::RatioAtLeast { limit: 0.8 }))
}

fn idle(sandbox: &NamespaceHandle, pid: Option<u32>) -> Result<Figure, BenchError> {
    let pid = pid.ok_or_else(|| wrong("there is no egress process"))?;
    let before = resident_mib(pid)?;
    let hello = hello();
    let open = sandbox.run(|| -> io::Result<Vec<TcpStream>> {
        let mut open = Vec::new();
        for _ in 0..IDLE_CONNECTIONS {
            let mut stream = TcpStream::connect((UPSTREAM, TLS_PORT))?;
            stream.write_all(&hello)?;
            stream.read_exact(&mut [0])?;
            open.push(stream);
        }
        Ok(open)
    });
    let open = open.map_err(BenchError::io("open", "idle connections"))?;
    let grown = resident_mib(pid)? - before;
    drop(open);
    let note = "what the process grows by for 1,000 open connections that say nothing";
    Ok(Figure::new("egress, 1,000 idle", grown, "MiB", note).target(Target::Below { limit: 32.0 }))
}

fn decisions() -> Result<Figure, BenchError> {
    let rules: Vec<String> = (0..RULES)
        .map(
            |number| {
                if number % 2 == 0 { format!("h{number}.example.com") } else { format!("*.d{number}.org") }
            },
        )
        .collect();
    let policy = policy(&rules)?;
    let asked: Vec<Destination> = (0..RULES)
        .map(|number| match number % 3 {
            0 => format!("h{number}.example.com"),
            1 => format!("a.b.c.d{number}.org"),
            _ => format!("a.b.c.other{number}.net"),
        })
        .map(|name| name.parse().map(|name| Destination { host: Host::Name(name), port: 443 }))
        .collect::<Result<_, _>>()
        .map_err(|_| wrong("a name is none"))?;
    let mut samples = Samples::default();
    for _ in 0..20 {
        let begin = Instant::now();
        for destination in &asked {
            black_box(policy.decide(black_box(destination), DetectedProtocol::Tls));
        }
        samples.push(begin.elapsed().as_secs_f64() * 1e6 / f64::from(RULES));
    }
    let note = "p50 of a decision, of names that are allowed by name, by wildcard, and not";
    Ok(Figure::median("egress decision, 1,000 rules", &samples, "us", note)
        .target(Target::Below { limit: 5.0 }))
}

fn policy(rules: &[String]) -> Result<Policy, BenchError> {
    let rules: Result<Vec<_>, _> = rules.iter().map(|rule| rule.parse()).collect();
    let rules = rules.map_err(|_| wrong("a rule is none"))?;
    let policy = NetworkPolicy { mode: NetworkMode::Allowlist, rules, ..NetworkPolicy::closed() };
    let open = ["198.51.100.0/24".parse().map_err(|_| wrong("a range is none"))?];
    Policy::new(&policy, &BTreeMap::new(), &open).map_err(egress_error)
}

/// A TLS ClientHello without a server name, as clients send it to an address: a record and a minimal message.
fn hello() -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0x13, 0x01, 1, 0, 0, 0]);
    let mut bytes = vec![22, 3, 1, 0, u8::try_from(body.len() + 4).unwrap_or(0), 1, 0, 0];
    bytes.push(u8::try_from(body.len()).unwrap_or(0));
    bytes.extend(body);
    bytes
}

/// Answers the first bytes of a connection with one byte, and then waits for its end.
fn serve_tls() -> Result<(), BenchError> {
    serve(TLS_PORT, |mut stream| {
        let mut buffer = [0; 1024];
        if stream.read(&mut buffer).is_ok_and(|count| count > 0) && stream.write_all(&[22]).is_ok() {
            let _ = stream.read(&mut buffer);
        }
    })
}

/// Sends as many bytes as the first eight bytes specify.
fn serve_bulk() -> Result<(), BenchError> {
    serve(BULK_PORT, |mut stream| {
        let mut wanted = [0; 8];
        if stream.read_exact(&mut wanted).is_err() {
            return;
        }
        let buffer = vec![b'x'; MIB / 4];
        let mut left = u64::from_be_bytes(wanted);
        while left > 0 {
            let count = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            if stream.write_all(&buffer[..count]).is_err() {
                return;
            }
            left -= count as u64;
        }
    })
}

/// Serves in this thread's namespace. The threads end with the process.
fn serve(port: u16, answer: impl Fn(TcpStream) + Send + Clone + 'static) -> Result<(), BenchError> {
    let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    let listener = TcpListener::bind(address).map_err(BenchError::io("listen on", address))?;
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let answer = answer.clone();
            // A small stack: there will be a thousand threads.
            let _ = thread::Builder::new().stack_size(64 * 1024).spawn(move || answer(stream));
        }
    });
    Ok(())
}

fn wrong(what: &str) -> BenchError {
    BenchError::WrongAnswer { what: what.to_owned() }
}

fn egress_error(error: impl std::error::Error) -> BenchError {
    wrong(&crate::error::chain(&error))
}
