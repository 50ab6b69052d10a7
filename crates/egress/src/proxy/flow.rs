//! An allowed connection, until it ends.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::TcpStream;

use super::meter::Meter;
use super::socket::prepare;
use super::{Pipes, http, refuse};
use crate::account::Account;
use crate::policy::{Destination, DetectedProtocol};

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

impl std::ops::Deref for Flow {
    type Target = Meter;

    fn deref(&self) -> &Meter {
        &self.meter
    }
}

impl Flow {
    pub(super) fn new(
        destination: Destination,
        protocol: DetectedProtocol,
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
    pub(super) async fn run(&self, pipes: &Pipes, sandbox: &Account) {
        let first = std::mem::take(&mut *self.first.lock().unwrap_or_else(PoisonError::into_inner));
        let outcome = if self.protocol == DetectedProtocol::Http {
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
    pub(super) async fn run_bytes(&self, pipes: &Pipes, sandbox: &Account, first: Vec<u8>) -> io::Result<()> {
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
    pub(super) async fn answers(&self, pipes: &Pipes, sandbox: &Account) -> io::Result<()> {
        pipes.pump(&self.upstream, &self.client, |count| self.came_in(sandbox, count)).await
    }

    pub(super) async fn send_upstream(&self, sandbox: &Account, bytes: &[u8]) -> io::Result<()> {
        send(&self.upstream, bytes).await?;
        let wait = self.went_out(sandbox, bytes.len());
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        Ok(())
    }

    pub(super) async fn send_client(&self, sandbox: &Account, bytes: &[u8]) -> io::Result<()> {
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
