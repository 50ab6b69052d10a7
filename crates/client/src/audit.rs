//! The audit log: events, checkpoints and proofs.

use std::time::Duration;

use burrow_api::{AuditCheckpoint, AuditConsistency, AuditEvent, AuditInclusion, Page};
use http::Method;

use crate::client::Call;
use crate::url::Path;
use crate::{ByteStream, Client, ClientError, NdjsonStream, PageQuery};

/// Attempts to resume a stream; with the pauses below, about half a minute.
const RESUMES_MAX: u32 = 30;
const RESUME_PAUSE: Duration = Duration::from_secs(1);

/// Selects events; all given criteria must match.
#[derive(Clone, Debug, Default)]
pub struct AuditQuery {
    pub sandbox: Option<String>,
    /// An action, or the first word of one.
    pub action: Option<String>,
    pub outcome: Option<String>,
    /// The id or name of a key, `sandbox`, or `daemon`.
    pub actor: Option<String>,
    pub secret: Option<String>,
    pub since_ms: Option<u64>,
    pub until_ms: Option<u64>,
}

/// Events as they happen, in order and without duplicates.
#[derive(Debug)]
pub struct AuditStream {
    client: Client,
    query: AuditQuery,
    from: Option<u64>,
    lines: Option<NdjsonStream<AuditEvent>>,
    failures: u32,
}

impl Client {
    /// One page, newest first.
    pub async fn audit(&self, query: &AuditQuery, page: &PageQuery) -> Result<Page<AuditEvent>, ClientError> {
        let path = Path::new("/v1/audit")
            .query_if("sandbox", query.sandbox.as_ref())
            .query_if("action", query.action.as_ref())
            .query_if("outcome", query.outcome.as_ref())
            .query_if("actor", query.actor.as_ref())
            .query_if("secret", query.secret.as_ref())
            .query_if("since_ms", query.since_ms)
            .query_if("until_ms", query.until_ms);
        self.page(path, page).await
    }

    /// Follows the log from event `from`, or from the next event. Of the query, only sandbox, action and outcome apply.
    pub async fn follow_audit(
        &self,
        query: AuditQuery,
        from: Option<u64>,
    ) -> Result<AuditStream, ClientError> {
        let mut stream = AuditStream { client: self.clone(), query, from, lines: None, failures: 0 };
        stream.lines = Some(stream.open().await?);
        Ok(stream)
    }

    pub async fn audit_checkpoint(&self) -> Result<AuditCheckpoint, ClientError> {
        self.get(Path::new("/v1/audit/checkpoint")).await
    }

    /// Proof that event `index` is in the log of `size` events, or in the whole log.
    pub async fn audit_inclusion(
        &self,
        index: u64,
        size: Option<u64>,
    ) -> Result<AuditInclusion, ClientError> {
        let path = Path::new("/v1/audit/proof/inclusion").query("index", &index.to_string());
        self.get(path.query_if("size", size)).await
    }

    /// Proof that the log of `to` events, or the whole log, begins with the log of `from` events.
    pub async fn audit_consistency(
        &self,
        from: u64,
        to: Option<u64>,
    ) -> Result<AuditConsistency, ClientError> {
        let path = Path::new("/v1/audit/proof/consistency").query("from", &from.to_string());
        self.get(path.query_if("to", to)).await
    }

    /// The whole log as JSON Lines, followed by its checkpoint.
    pub async fn export_audit(&self) -> Result<ByteStream, ClientError> {
        let path = Path::new("/v1/audit/export");
        let shown = path.shown();
        let response = self.send(Call::new(Method::GET, path)).await?;
        Ok(ByteStream::new(response.into_body(), shown))
    }
}

impl AuditStream {
    /// The next event. The stream does not end by itself.
    pub async fn next(&mut self) -> Result<AuditEvent, ClientError> {
        loop {
            let error = match self.step().await {
                Ok(Some(event)) => {
                    self.failures = 0;
                    self.from = Some(event.index + 1);
                    return Ok(event);
                }
                Ok(None) => ClientError::Truncated { path: "/v1/audit/follow".to_owned() },
                Err(error) => error,
            };
            self.lines = None;
            if !error.is_transient() || self.failures >= RESUMES_MAX {
                return Err(error);
            }
            self.failures += 1;
            tokio::time::sleep(RESUME_PAUSE).await;
        }
    }

    async fn step(&mut self) -> Result<Option<AuditEvent>, ClientError> {
        if self.lines.is_none() {
            self.lines = Some(self.open().await?);
        }
        self.lines.as_mut().expect("it was just set").next().await
    }

    async fn open(&self) -> Result<NdjsonStream<AuditEvent>, ClientError> {
        let path = Path::new("/v1/audit/follow")
            .query_if("from", self.from)
            .query_if("sandbox", self.query.sandbox.as_ref())
            .query_if("action", self.query.action.as_ref())
            .query_if("outcome", self.query.outcome.as_ref());
        let shown = path.shown();
        let response = self.client.send(Call::new(Method::GET, path)).await?;
        Ok(NdjsonStream::new(ByteStream::new(response.into_body(), shown)))
    }
}
