//! The audit log: who did what, and the proof of it.

use std::time::Duration;

use burrow_api::{AuditCheckpoint, AuditConsistency, AuditEvent, AuditInclusion, Page};
use http::Method;

use crate::client::Call;
use crate::url::Path;
use crate::{ByteStream, Client, ClientError, NdjsonStream, PageQuery};

/// Attempts to take a followed log up again before giving up; with the pauses below, about half a minute.
const RESUMES_MAX: u32 = 30;
const RESUME_PAUSE: Duration = Duration::from_secs(1);

/// Which events; all that is given must fit.
#[derive(Clone, Debug, Default)]
pub struct AuditQuery {
    pub sandbox: Option<String>,
    /// A whole action, or its first word.
    pub action: Option<String>,
    pub outcome: Option<String>,
    /// A key's id or name, `sandbox`, `daemon`.
    pub actor: Option<String>,
    pub secret: Option<String>,
    pub since_ms: Option<u64>,
    pub until_ms: Option<u64>,
}

/// Events in order as they happen, none twice.
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

    /// From event `from` on, or those to come. Only sandbox, action and outcome of the query count.
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

    /// That event `index` is in the log of `size` events, or of all.
    pub async fn audit_inclusion(
        &self,
        index: u64,
        size: Option<u64>,
    ) -> Result<AuditInclusion, ClientError> {
        let path = Path::new("/v1/audit/proof/inclusion").query("index", &index.to_string());
        self.get(path.query_if("size", size)).await
    }

    /// That the log of `to` events, or of all, begins with that of `from`.
    pub async fn audit_consistency(
        &self,
        from: u64,
        to: Option<u64>,
    ) -> Result<AuditConsistency, ClientError> {
        let path = Path::new("/v1/audit/proof/consistency").query("from", &from.to_string());
        self.get(path.query_if("to", to)).await
    }

    /// The whole log as JSON Lines, its checkpoint last.
    pub async fn export_audit(&self) -> Result<ByteStream, ClientError> {
        let path = Path::new("/v1/audit/export");
        let shown = path.shown();
        let response = self.send(Call::new(Method::GET, path)).await?;
        Ok(ByteStream::new(response.into_body(), shown))
    }
}

impl AuditStream {
    /// The next event. It has no end of its own.
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
