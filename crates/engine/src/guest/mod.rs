//! The guest of a running sandbox, as the rest of the daemon accesses it.

pub(crate) mod own_api;
pub(crate) mod own_listener;
pub(crate) mod ports;
pub(crate) mod services;

use std::sync::Arc;
use std::time::Duration;

use burrow_catalog::SandboxRow;
use burrow_guest::client::{Connection, FrameReader, FrameWriter, GuestError};
use burrow_guest::protocol::{PORT, Request};
use burrow_network::Dial;
use serde::de::DeserializeOwned;
use tokio::io::{ReadHalf, WriteHalf};
use tokio::time::timeout;

use crate::EngineError;
use crate::sleep::activity::{GuestStream, Lease, StreamCutter};

/// The agent answers at once or never; on a busy host, an answer may take seconds.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

pub type GuestReader = FrameReader<ReadHalf<GuestStream>>;
pub type GuestWriter = FrameWriter<WriteHalf<GuestStream>>;

/// Created while the sandbox runs. If it stops, calls fail with `GuestUnreachable`.
#[derive(Clone, Debug)]
pub struct Guest {
    pub(crate) row: Arc<SandboxRow>,
    pub(crate) dial: Arc<dyn Dial>,
    /// Ends its streams when the machine is removed.
    pub(crate) cut: StreamCutter,
    /// While any clone of this exists, the sandbox is in use.
    pub(crate) lease: Arc<Lease>,
}

impl Guest {
    pub fn sandbox(&self) -> &SandboxRow {
        &self.row
    }

    /// The same guest for an observer: connections through it do not count as use, so the sandbox may fall asleep and end them.
    pub fn without_lease(&self) -> Self {
        Self { lease: Lease::none(), ..self.clone() }
    }

    /// A connection to one of its ports.
    pub(crate) async fn dial(&self, port: u16) -> std::io::Result<GuestStream> {
        Ok(GuestStream::new(self.dial.dial(port).await?, &self.cut, self.lease.clone()))
    }

    /// Sends a request; the caller reads the answer. For streams. The traffic belongs to the daemon, and does not count towards the
    /// sandbox's network rate.
    pub async fn open(&self, request: &Request) -> Result<Connection<GuestStream>, EngineError> {
        let dialled = async {
            let stream = self.dial.dial_uncounted(PORT).await?;
            Ok(GuestStream::new(stream, &self.cut, self.lease.clone()))
        };
        self.open_over(dialled, request).await
    }

    /// The same for a stream that carries the sandbox's own traffic to an outside client.
    pub(crate) async fn open_counted(
        &self,
        request: &Request,
    ) -> Result<Connection<GuestStream>, EngineError> {
        self.open_over(self.dial(PORT), request).await
    }

    async fn open_over(
        &self,
        dialled: impl Future<Output = std::io::Result<GuestStream>>,
        request: &Request,
    ) -> Result<Connection<GuestStream>, EngineError> {
        let work = async {
            let stream = dialled.await.map_err(GuestError::Io)?;
            Connection::open(stream, &self.row.token, request).await
        };
        self.bounded(REPLY_TIMEOUT, work).await
    }

    /// Sends a request and reads its one answer.
    pub async fn call<T: DeserializeOwned>(&self, request: &Request) -> Result<T, EngineError> {
        self.call_within(REPLY_TIMEOUT, request).await
    }

    /// As [`Guest::call`], for requests that may take long.
    pub async fn call_within<T: DeserializeOwned>(
        &self,
        bound: Duration,
        request: &Request,
    ) -> Result<T, EngineError> {
        let mut connection = self.open(request).await?;
        self.bounded(bound, connection.reply()).await
    }

    /// The first answer on a connection from [`Guest::open`].
    pub async fn reply<T: DeserializeOwned>(
        &self,
        connection: &mut Connection<GuestStream>,
    ) -> Result<T, EngineError> {
        self.bounded(REPLY_TIMEOUT, connection.reply()).await
    }

    /// Converts an error of a connection to this guest.
    pub fn error(&self, error: GuestError) -> EngineError {
        if let Some(cut) = self.cut.error(&self.row.id) {
            return cut;
        }
        let id = self.row.id.clone();
        match error {
            GuestError::Refused(source) => EngineError::Guest { id, source },
            source @ (GuestError::Io(_)
            | GuestError::Frame(_)
            | GuestError::Message(_)
            | GuestError::HungUp
            | GuestError::OutOfTurn) => EngineError::GuestUnreachable { id, source },
        }
    }

    async fn bounded<T>(
        &self,
        bound: Duration,
        work: impl Future<Output = Result<T, GuestError>>,
    ) -> Result<T, EngineError> {
        match timeout(bound, work).await {
            Ok(result) => result.map_err(|error| self.error(error)),
            Err(_) => Err(EngineError::GuestTimeout { id: self.row.id.clone(), seconds: bound.as_secs() }),
        }
    }
}
