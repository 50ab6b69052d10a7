//! HTTP through the port gateway, compared with nginx as a reverse proxy to the same server in the same sandbox.
//!
//! Both get the same clients: one thread with kept-alive connections, each sending the next request as soon as it has its
//! answer. They alternate in short rounds, so that the noise is the same for both.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use burrow_api::{CreateExec, CreateSandbox};
use burrow_client::{Client, UploadBody, UploadOptions};
use tokio::net::TcpStream;

use super::{Scale, at_once};
use crate::daemon::{BenchSetup, Daemon};
use crate::error::BenchError;
use crate::nginx::Nginx;
use crate::report::{Figure, Target};
use crate::samples::Samples;
use crate::tiny_server;
use crate::wire::Wire;

const CONNECTIONS: u32 = 16;
const ROUNDS: u32 = 5;
const PORT: u16 = 8080;
/// The address by which every sandbox sees itself.
const INSIDE: &str = "10.88.0.2:8080";
const PROGRAM: &str = "/srv/tiny-server";
const PEER: &str = "nginx, a worker per core, proxy_pass with keepalive";
/// The server listens within milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) async fn measure(
    daemon: &Daemon,
    prepared: &BenchSetup,
    scale: &Scale,
) -> Result<Vec<Figure>, BenchError> {
    let Some(nginx) = &prepared.nginx else {
        eprintln!("    no nginx: `scripts/setup.sh --bench` fetches it");
        return Ok(Vec::new());
    };
    let client = daemon.client()?;
    let sandbox = serve_inside(&client).await?;
    let request = request(daemon, &sandbox);
    let ours = Side::Gateway { address: daemon.address().to_owned(), request: request.clone() };
    wait_until_served(&ours).await?;
    let namespace = daemon.place().run_dir.join("network").join(&sandbox);
    // The same bytes to both; nginx ignores the key and passes it on.
    let theirs = Side::Nginx { nginx: Nginx::start(nginx, &namespace, INSIDE)?, request };
    let each = scale.gateway_requests / CONNECTIONS / ROUNDS;
    let (mut own, mut peer) = (Series::default(), Series::default());
    for side in [&ours, &theirs] {
        round(side, each.min(500)).await?;
    }
    for _ in 0..ROUNDS {
        own.add(round(&ours, each).await?);
        peer.add(round(&theirs, each).await?);
    }
    Ok(figures(&own, &peer))
}

/// The target of the requests.
enum Side {
    Gateway { address: String, request: String },
    Nginx { nginx: Nginx, request: String },
}

impl Side {
    async fn connect(&self) -> Result<Wire, BenchError> {
        match self {
            Self::Gateway { address, request } => {
                let stream =
                    TcpStream::connect(address).await.map_err(BenchError::io("connect to", address))?;
                stream.set_nodelay(true).map_err(BenchError::io("set up the connection to", address))?;
                Ok(Wire::over(stream, request.clone()))
            }
            Self::Nginx { nginx, request } => {
                let stream = TcpStream::from_std(nginx.connect()?);
                let stream = stream.map_err(BenchError::io("use the connection to", "nginx"))?;
                Ok(Wire::over(stream, request.clone()))
            }
        }
    }
}

fn request(daemon: &Daemon, sandbox: &str) -> String {
    format!("GET / HTTP/1.1\r\nhost: {PORT}-{sandbox}.localhost\r\nx-burrow-key: {}\r\n\r\n", daemon.key())
}

/// A sandbox that runs the server.
async fn serve_inside(client: &Client) -> Result<String, BenchError> {
    let sandbox = client.create_sandbox(&CreateSandbox::default()).await;
    let sandbox = sandbox.map_err(BenchError::api("create a sandbox"))?.id;
    let program: PathBuf = std::env::current_exe().map_err(BenchError::io("find", "this program"))?;
    let bytes = std::fs::read(&program).map_err(BenchError::io("read", program.display()))?;
    let options = UploadOptions { mode: Some("0755".to_owned()), ..UploadOptions::default() };
    client
        .upload(&sandbox, PROGRAM, &options, UploadBody::from_bytes(bytes))
        .await
        .map_err(BenchError::api("put the server into the sandbox"))?;
    let argv = [PROGRAM, tiny_server::ROLE, "0.0.0.0:8080"];
    let request =
        CreateExec { argv: argv.iter().map(|word| (*word).to_owned()).collect(), ..CreateExec::default() };
    client.create_exec(&sandbox, &request).await.map_err(BenchError::api("start the server"))?;
    Ok(sandbox)
}

async fn wait_until_served(side: &Side) -> Result<(), BenchError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let asked = match side.connect().await {
            Ok(mut wire) => wire.ask().await,
            Err(error) => Err(error),
        };
        match asked {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

#[derive(Debug, Default)]
struct Series {
    /// Requests per second of each round.
    rates: Samples,
    each_ms: Samples,
}

impl Series {
    fn add(&mut self, (rate, samples): (f64, Samples)) {
        self.rates.push(rate);
        self.each_ms.extend(&samples);
    }
}

async fn round(side: &Side, each: u32) -> Result<(f64, Samples), BenchError> {
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut wire = side.connect().await?;
        // Both connections, to the proxy and behind it, are opened before the measurement.
        wire.ask().await?;
        clients.push(async move {
            let mut samples = Samples::default();
            for _ in 0..each {
                let begin = Instant::now();
                wire.ask().await?;
                samples.push_ms(begin.elapsed());
            }
            Ok(samples)
        });
    }
    let begin = Instant::now();
    let parts = at_once(clients).await?;
    let rate = f64::from(each * CONNECTIONS) / begin.elapsed().as_secs_f64();
    let mut all = Samples::default();
    parts.iter().for_each(|part| all.extend(part));
    Ok((rate, all))
}

fn figures(own: &Series, peer: &Series) -> Vec<Figure> {
    vec![
        Figure::median(
            "gateway_requests",
            &own.rates,
            "1/s",
            "GET of 100 bytes through the gateway with a key, 16 kept-alive connections, rounds alternating with nginx",
        )
        .against(PEER, &peer.rates)
        .target(Target::RatioAtLeast { limit: 0.5 }),
        Figure::median("gateway_p50", &own.each_ms, "ms", "one request among them").against(PEER, &peer.each_ms),
        Figure::p99("gateway_p99", &own.each_ms, "ms", "one request among them"),
        Figure::p99("peer_nginx_p99", &peer.each_ms, "ms", "the peer's"),
    ]
}
