//! An allowed connection, until it ends.

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use burrow_model::SandboxId;
use tokio::net::TcpStream;

use super::{Pipes, http, prepare, refuse};
use crate::clock::{epoch_ms, monotonic_ms};
use crate::policy::{Destination, ProtocolSeen};
use crate::sandbox::Sandbox;
use crate::{LogEntry, LogKind, Verdict};

/// An allowed connection whose bytes are forwarded unchanged. When the policy changes, it is checked again with the
/// same protocol and destination.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) meter: Meter,
    pub(super) client: TcpStream,
    pub(super) upstream: TcpStream,
    /// Bytes that the client sent before the host was connected.
    first: Mutex<Vec<u8>>,
}

/// Properties and counters of an allowed connection, spliced or intercepted.
#[derive(Debug)]
pub(crate) struct Meter {
    pub(crate) destination: Destination,
    pub(crate) protocol: ProtocolSeen,
    /// The address of the host, if it has a single one.
    pub(crate) address: Option<IpAddr>,
    pub(crate) began_ms: u64,
    rule: Arc<str>,
    began_epoch_ms: u64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    last_ms: AtomicU64,
    logged: AtomicBool,
    trouble: Mutex<Option<String>>,
}

impl std::ops::Deref for Flow {
    type Target = Meter;

    fn deref(&self) -> &Meter {
        &self.meter
    }
}

impl Flow {
    pub(super) fn new(
        destination: Destination,
        protocol: ProtocolSeen,
        rule: Arc<str>,
        address: IpAddr,
        client: TcpStream,
        upstream: TcpStream,
        first: Vec<u8>,
    ) -> Self {
        prepare(&client);
        prepare(&upstream);
        let meter = Meter::new(destination, protocol, rule, Some(address));
        Self { meter, client, upstream, first: Mutex::new(first) }
    }

    /// Forwards bytes in both directions until both sides have ended.
    pub(super) async fn run(&self, pipes: &Pipes, sandbox: &Sandbox) {
        let first = std::mem::take(&mut *self.first.lock().unwrap_or_else(PoisonError::into_inner));
        let outcome = if self.protocol == ProtocolSeen::Http {
            http::run(self, pipes, sandbox, first).await
        } else {
            self.run_bytes(pipes, sandbox, first).await
        };
        if let Err(error) = outcome {
            self.set_trouble(format!("the connection broke: {error}"));
            // The other side must not mistake a broken stream for a complete one.
            self.reset_on_close();
        }
    }

    /// Forwards any bytes. Each side may end before the other does.
    pub(super) async fn run_bytes(&self, pipes: &Pipes, sandbox: &Sandbox, first: Vec<u8>) -> io::Result<()> {
        if !first.is_empty() {
            self.send_upstream(sandbox, &first).await?;
        }
        drop(first);
        let out = async {
            pipes.pump(&self.client, &self.upstream, |count| self.went_out(sandbox, count)).await?;
            end(&self.upstream)
        };
        let answers = async {
            self.answers(pipes, sandbox).await?;
            end(&self.client)
        };
        tokio::try_join!(out, answers)?;
        Ok(())
    }

    /// Forwards the bytes of the host.
    pub(super) async fn answers(&self, pipes: &Pipes, sandbox: &Sandbox) -> io::Result<()> {
        pipes.pump(&self.upstream, &self.client, |count| self.came_in(sandbox, count)).await
    }

    pub(super) async fn send_upstream(&self, sandbox: &Sandbox, bytes: &[u8]) -> io::Result<()> {
        send(&self.upstream, bytes).await?;
        let wait = self.went_out(sandbox, bytes.len());
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        Ok(())
    }

    pub(super) async fn send_client(&self, sandbox: &Sandbox, bytes: &[u8]) -> io::Result<()> {
        send(&self.client, bytes).await?;
        self.came_in(sandbox, bytes.len());
        Ok(())
    }

    /// Makes closing the connection reset both sides.
    pub(crate) fn reset_on_close(&self) {
        refuse::reset_on_close(&self.client, true);
        refuse::reset_on_close(&self.upstream, true);
    }
}

impl Meter {
    pub(crate) fn new(
        destination: Destination,
        protocol: ProtocolSeen,
        rule: Arc<str>,
        address: Option<IpAddr>,
    ) -> Self {
        let now = monotonic_ms();
        Self {
            destination,
            protocol,
            address,
            began_ms: now,
            rule,
            began_epoch_ms: epoch_ms(),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            last_ms: AtomicU64::new(now),
            logged: AtomicBool::new(false),
            trouble: Mutex::new(None),
        }
    }

    /// The text of the rule that allowed it.
    pub(crate) fn rule(&self) -> &str {
        &self.rule
    }

    /// Counts bytes from the client, and returns how long to wait before reading more.
    pub(crate) fn went_out(&self, sandbox: &Sandbox, count: usize) -> Duration {
        self.bytes_out.fetch_add(count as u64, Ordering::Relaxed);
        sandbox.count_out(count as u64);
        self.alive();
        sandbox.pay(count)
    }

    /// Counts bytes to the client, and returns how long to wait before reading more.
    pub(crate) fn came_in(&self, sandbox: &Sandbox, count: usize) -> Duration {
        self.bytes_in.fetch_add(count as u64, Ordering::Relaxed);
        sandbox.count_in(count as u64);
        self.alive();
        sandbox.pay(count)
    }

    fn alive(&self) {
        self.last_ms.store(monotonic_ms(), Ordering::Relaxed);
    }

    pub(crate) fn last_ms(&self) -> u64 {
        self.last_ms.load(Ordering::Relaxed)
    }

    /// `true` at the first call.
    pub(crate) fn log_once(&self) -> bool {
        !self.logged.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn set_trouble(&self, text: String) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }

    pub(crate) fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn entry(&self, id: &SandboxId, duration_ms: Option<u64>, reason: Option<String>) -> LogEntry {
        LogEntry {
            sandbox: id.clone(),
            at_ms: self.began_epoch_ms,
            kind: LogKind::Tcp,
            host: self.destination.host.to_string(),
            port: self.destination.port,
            protocol: Some(self.protocol),
            verdict: Verdict::Allow,
            rule: Some(self.rule.to_string()),
            reason,
            address: self.address,
            bytes_in: self.bytes_in.load(Ordering::Relaxed),
            bytes_out: self.bytes_out.load(Ordering::Relaxed),
            duration_ms,
            count: 1,
        }
    }
}

/// Shuts down the sending side. The peer may have disconnected already, which is not an error of the flow.
fn end(stream: &TcpStream) -> io::Result<()> {
    match rustix::net::shutdown(stream, rustix::net::Shutdown::Write) {
        Ok(()) | Err(rustix::io::Errno::NOTCONN) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn send(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.writable().await?;
        match stream.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
