//! Measures what a sandbox's network costs on this host: `cargo run --release -p burrow-network --example measure`.
//!
//! Needs root. Prints medians and 95th percentiles; asserts nothing, since hosts differ.
#![expect(clippy::print_stdout, reason = "a measuring program prints")]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use burrow_model::SandboxId;
use burrow_network::linux::{LinuxNetwork, Options, SlotError, slot};
use burrow_network::{Attachment, Network, SANDBOX_V4};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use rustix::time::{ClockId, clock_gettime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const ROUNDS: usize = 50;
const POOL_SIZE: usize = 16;
const DIALS: usize = 500;
const BALLAST_BYTES: usize = 400 << 20;
const BULK_BYTES: usize = 1 << 30;
const GUEST_PORT: u16 = 4100;
const BULK_PORT: u16 = 4101;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let run_dir = directory.path().join("net");
    measure_slots("slot, created in a small process")?;
    let ballast = vec![1u8; BALLAST_BYTES];
    measure_slots("slot, created in a process of 400 MiB")?;
    drop(ballast);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let outcome = runtime.block_on(async {
        measure_on_demand(&run_dir).await?;
        measure_driver(&run_dir).await
    });
    LinuxNetwork::remove_all(&run_dir)?;
    outcome
}

fn measure_slots(what: &str) -> Result<(), SlotError> {
    let (mut wall, mut processor, mut slots) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (start, cpu_start) = (Instant::now(), thread_time());
        slots.push(slot::make(true)?);
        wall.push(start.elapsed());
        processor.push(thread_time().saturating_sub(cpu_start));
    }
    report(what, wall);
    report("    of it processor time", processor);
    Ok(())
}

async fn measure_on_demand(run_dir: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
    let network = LinuxNetwork::open(Options { run_dir: run_dir.to_owned(), pool_size: 0, own_ids: true })?;
    let (mut connects, mut links) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let id = SandboxId::generate();
        let start = Instant::now();
        links.push(network.connect(&id).await?);
        connects.push(start.elapsed());
        network.release(&id).await?;
    }
    report("connect, none pre-created", connects);
    Ok(())
}

async fn measure_driver(run_dir: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
    let network =
        LinuxNetwork::open(Options { run_dir: run_dir.to_owned(), pool_size: POOL_SIZE, own_ids: true })?;
    let ids: Vec<SandboxId> = (0..ROUNDS).map(|_| SandboxId::generate()).collect();
    let (mut connects, mut releases, mut links) = (Vec::new(), Vec::new(), Vec::new());
    while network.slots_ready() < POOL_SIZE {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let all = Instant::now();
    for id in &ids {
        let start = Instant::now();
        links.push(network.connect(id).await?);
        connects.push(start.elapsed());
        // Time that a real create spends on its other steps.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    report("connect, 16 pre-created, one every 5 ms", connects);
    println!("    all {ROUNDS}, refills included: {:.1?}", all.elapsed());
    measure_dials(&links[0]).await?;
    for id in &ids {
        let start = Instant::now();
        network.release(id).await?;
        releases.push(start.elapsed());
    }
    report("release", releases);
    network.shutdown().await;
    Ok(())
}

async fn measure_dials(link: &burrow_network::Link) -> Result<(), Box<dyn std::error::Error>> {
    let Attachment::Namespaces { net, .. } = &link.attachment else {
        return Err("no namespaces".into());
    };
    let bind = || {
        move_into_link_name_space(net.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok((TcpListener::bind((SANDBOX_V4, GUEST_PORT))?, TcpListener::bind((SANDBOX_V4, BULK_PORT))?))
    };
    let bound: std::io::Result<_> =
        std::thread::scope(|scope| scope.spawn(bind).join().expect("binding does not panic"));
    let (guest, bulk) = bound?;
    std::thread::spawn(move || for _stream in guest.incoming() {});
    let mut dials = Vec::new();
    for _ in 0..DIALS {
        let start = Instant::now();
        link.dial.dial(GUEST_PORT).await?;
        dials.push(start.elapsed());
    }
    report("dial", dials);
    std::thread::spawn(move || {
        for stream in bulk.incoming().map_while(Result::ok) {
            serve_bulk(stream)
        }
    });
    let chunk = vec![7u8; 256 << 10];
    let mut stream = link.dial.dial(BULK_PORT).await?;
    let start = Instant::now();
    for _ in 0..BULK_BYTES / chunk.len() {
        stream.write_all(&chunk).await?;
    }
    stream.shutdown().await?;
    stream.read_u8().await?;
    println!("bulk in:  {:.2} GB/s", rate(start));
    let mut buffer = vec![0u8; 256 << 10];
    let start = Instant::now();
    while stream.read(&mut buffer).await? > 0 {}
    println!("bulk out: {:.2} GB/s", rate(start));
    Ok(())
}

/// Reads everything, reports the end, and sends as much back.
fn serve_bulk(mut stream: std::net::TcpStream) {
    let mut buffer = vec![0u8; 256 << 10];
    while stream.read(&mut buffer).is_ok_and(|length| length > 0) {}
    let _ = stream.write_all(&[1]);
    for _ in 0..BULK_BYTES / buffer.len() {
        if stream.write_all(&buffer).is_err() {
            return;
        }
    }
}

fn rate(start: Instant) -> f64 {
    f64::from(u32::try_from(BULK_BYTES).unwrap_or(u32::MAX)) / start.elapsed().as_secs_f64() / 1e9
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    println!("{what}: p50 {:.3?}, p95 {:.3?}", times[times.len() / 2], times[times.len() * 95 / 100]);
}
