//! The TCP ports of a sandbox: which listen, which are public, and byte streams into them.
//!
//! ```text
//!   connect ─► reach (wake a sleeping one, start a stopped one) ─► connect to the sandbox's own address
//!                                                                    │ refused: bound to loopback, or no listener
//!                                                                    └─► the agent connects to loopback inside
//! ```
//!
//! Many callers at once wake a sandbox once: its actor handles them one after the other. Programs in a sandbox need a moment to
//! listen after a start, so a port that refuses soon after a start is retried for a while.

use std::collections::BTreeSet;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use burrow_catalog::{CatalogError, PublishResult, SandboxRow};
use burrow_guest::client::GuestError;
use burrow_guest::protocol::{ErrorCode, ListeningPort, PORT, Request};
use burrow_model::{SandboxId, State, TenantId};
use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{Engine, EngineError, Guest, GuestStream, Maximum, ObjectKind};

/// How long after a start a port that refuses may still begin to listen: an interpreter loads its libraries.
const LISTEN_WAIT_MS: u64 = 15_000;

/// Pauses between two attempts, the first and the longest.
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(10);
const RETRY_PAUSE_MAX: Duration = Duration::from_millis(200);

/// More attempts than fit into the wait, whatever the clock says.
const ATTEMPTS_MAX: u32 = 200;

/// The ports of a sandbox.
#[derive(Clone, Debug)]
pub struct PortList {
    pub state: State,
    /// Empty while the sandbox does not run: asking for ports wakes no sandbox.
    pub listening: Vec<ListeningPort>,
    pub published: BTreeSet<u16>,
}

impl Engine {
    pub async fn ports(&self, tenant: &TenantId, id: &SandboxId) -> Result<PortList, EngineError> {
        let row = self.get(tenant, id).await?;
        let mut listening = Vec::new();
        if let Some(guest) = self.guest_if_running(&row).await? {
            listening = guest.call(&Request::ListPorts).await?;
        }
        let published = self.catalog().published_ports(tenant, id);
        Ok(PortList { state: row.state, listening, published })
    }

    /// Makes a port public. Does nothing if it is public already.
    pub async fn publish_port(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        port: u16,
    ) -> Result<(), EngineError> {
        check(port)?;
        match self.catalog().publish_port(tenant, id, port, self.now_ms()).await {
            Ok(PublishResult::Now) => {
                let detail = serde_json::json!({ "port": port });
                self.shared.event(tenant, "port.published", Some(id), detail);
                Ok(())
            }
            Ok(PublishResult::Already) => Ok(()),
            Ok(PublishResult::TooMany) => Err(EngineError::Maximum(Maximum::PublicPorts {
                id: id.clone(),
                max: burrow_catalog::PUBLISHED_MAX,
            })),
            Err(CatalogError::Unknown { .. }) => {
                Err(EngineError::NotFound { kind: ObjectKind::Sandbox, what: id.to_string() })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a port private again. Open connections continue.
    pub async fn unpublish_port(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        port: u16,
    ) -> Result<(), EngineError> {
        self.get(tenant, id).await?;
        if self.catalog().published_ports(tenant, id).contains(&port) {
            self.catalog().unpublish_port(tenant, id, port).await?;
            let detail = serde_json::json!({ "port": port });
            self.shared.event(tenant, "port.unpublished", Some(id), detail);
        }
        Ok(())
    }

    /// The tenant of a sandbox, without waiting. For callers whose right to know it was proven by other means than a key.
    pub fn owner(&self, id: &SandboxId) -> Option<TenantId> {
        let actor = self.shared.registry.get(id);
        actor.map(|actor| actor.tenant().clone()).or_else(|| self.shared.recovering.owner(id))
    }

    /// The generation that a sandbox of this tenant runs as, without waiting or waking it; `None` when it does not run.
    pub fn running(&self, tenant: &TenantId, id: &SandboxId) -> Option<u64> {
        self.shared.registry.running(tenant, id)
    }

    /// A byte stream to the listener of a port. Wakes the sandbox, and gives programs that were just started time to listen.
    pub async fn connect_port(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        port: u16,
    ) -> Result<PortStream, EngineError> {
        check(port)?;
        let guest = self.guest(tenant, id).await?;
        let mut pause = RETRY_PAUSE_MIN;
        for _ in 0..ATTEMPTS_MAX {
            match dial(&guest, port).await {
                Err(EngineError::PortClosed { .. }) if self.is_coming_up(guest.sandbox()) => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(RETRY_PAUSE_MAX);
                }
                result => return result,
            }
        }
        Err(EngineError::PortClosed { id: id.clone(), port })
    }

    /// Whether something listens on a port right now. Wakes the sandbox.
    pub async fn is_listening(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        port: u16,
    ) -> Result<bool, EngineError> {
        check(port)?;
        let guest = self.guest(tenant, id).await?;
        match dial(&guest, port).await {
            Ok(_) => Ok(true),
            Err(EngineError::PortClosed { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether a program may still begin to listen: not in a new sandbox, in which no program was started.
    fn is_coming_up(&self, row: &SandboxRow) -> bool {
        let expected = row.generation > 1 || !row.spec.services.is_empty();
        let since_ms = self.now_ms().saturating_sub(row.started_ms.unwrap_or(0));
        expected && since_ms < LISTEN_WAIT_MS
    }
}

/// Refuses 0, which is no port, and the agent's own port.
fn check(port: u16) -> Result<(), EngineError> {
    if port == 0 || port == PORT { Err(EngineError::PortReserved { port }) } else { Ok(()) }
}

async fn dial(guest: &Guest, port: u16) -> Result<PortStream, EngineError> {
    match guest.dial(port).await {
        Ok(stream) => Ok(PortStream { stream, head: Bytes::new() }),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => dial_inside(guest, port).await,
        Err(error) => Err(guest.error(GuestError::Io(error))),
    }
}

/// Through the agent, for servers that are bound to loopback.
async fn dial_inside(guest: &Guest, port: u16) -> Result<PortStream, EngineError> {
    let mut connection = guest.open_counted(&Request::Connect { port }).await?;
    match guest.reply::<()>(&mut connection).await {
        Ok(()) => {
            let (stream, head) = connection.into_raw();
            Ok(PortStream { stream, head: head.freeze() })
        }
        // An agent of an older version, in a sandbox that outlived an upgrade, does not support this request.
        Err(EngineError::Guest { source, id })
            if matches!(source.code, ErrorCode::NotFound | ErrorCode::Unsupported) =>
        {
            Err(EngineError::PortClosed { id, port })
        }
        Err(error) => Err(error),
    }
}

/// Bytes to and from a port. Shutting down its writing side is passed on, and leaves the reading side open.
#[derive(Debug)]
pub struct PortStream {
    stream: GuestStream,
    /// Bytes of the port that were read together with the agent's answer.
    head: Bytes,
}

impl AsyncRead for PortStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        ctx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.head.is_empty() {
            return Pin::new(&mut self.stream).poll_read(ctx, buffer);
        }
        let count = self.head.len().min(buffer.remaining());
        buffer.put_slice(&self.head[..count]);
        self.head.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for PortStream {
    fn poll_write(mut self: Pin<&mut Self>, ctx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(ctx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        ctx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(ctx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(ctx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(ctx)
    }
}
