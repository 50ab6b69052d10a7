//! A connection that was let through, until it ends.

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

/// See the module. It is judged again whenever the policy changes, by what it was judged by at first.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) meter: Meter,
    pub(super) client: TcpStream,
    pub(super) upstream: TcpStream,
    /// What the client said before the host was dialled.
    first: Mutex<Vec<u8>>,
}

/// What is known and counted of a connection that was let through, however its bytes are carried.
#[derive(Debug)]
pub(crate) struct Meter {
    pub(crate) destination: Destination,
    pub(crate) protocol: ProtocolSeen,
    /// Where it leads, if that is one address.
    pub(crate) address: Option<IpAddr>,
    pub(crate) began_ms: u64,
    rule: Arc<str>,
    began_epoch_ms: u64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    last_ms: AtomicU64,
    told: AtomicBool,
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

    /// Carries bytes both ways until both sides have ended.
    pub(super) async fn run(&self, pipes: &Pipes, sandbox: &Sandbox) {
        let first = std::mem::take(&mut *self.first.lock().unwrap_or_else(PoisonError::into_inner));
        let outcome = if self.protocol == ProtocolSeen::Http {
            http::run(self, pipes, sandbox, first).await
        } else {
            self.run_bytes(pipes, sandbox, first).await
        };
        if let Err(error) = outcome {
            self.set_trouble(format!("the connection broke: {error}"));
            // The other side must not take a broken stream for one that ended well.
            self.reset_on_close();
        }
    }

    /// Carries bytes, whatever they are. Each side may end before the other does.
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

    /// Carries what the host says.
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

    /// From now on, closing it resets both sides.
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
            told: AtomicBool::new(false),
            trouble: Mutex::new(None),
        }
    }

    /// The text of the rule that let it through.
    pub(crate) fn rule(&self) -> &str {
        &self.rule
    }

    /// Counts what the client said, and says how long to wait before more.
    pub(crate) fn went_out(&self, sandbox: &Sandbox, count: usize) -> Duration {
        self.bytes_out.fetch_add(count as u64, Ordering::Relaxed);
        sandbox.count_out(count as u64);
        self.alive();
        sandbox.pay(count)
    }

    /// The same of what it was told.
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

    /// `true` the first time.
    pub(crate) fn tell_once(&self) -> bool {
        !self.told.swap(true, Ordering::Relaxed)
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

/// Tells the other side that no more will come. It may be gone already, which is no failure of the flow's.
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
