//! Egress of a sandbox: policy, approvals, log, and explanations of decisions.

use std::time::Duration;

use burrow_api::policy::PolicyDocument;
use burrow_api::{
    AnswerApproval, EgressApproval, EgressEntry, EgressExplanation, EgressQuestion, EgressSet, EgressStatus,
    EgressTrial, Page, Sandbox,
};
use http::Method;

use crate::client::Call;
use crate::sandboxes::sandbox_path;
use crate::url::Path;
use crate::{ByteStream, Client, ClientError, NdjsonStream, PageQuery};

/// Attempts to resume a stream; with the pauses below, about half a minute.
const RESUMES_MAX: u32 = 30;
const RESUME_PAUSE: Duration = Duration::from_secs(1);

/// Selects log entries.
#[derive(Clone, Copy, Debug, Default)]
pub struct EgressLogQuery {
    /// Only denied connections and requests.
    pub denied: bool,
    /// Only entries after this sequence number.
    pub since: Option<u64>,
}

/// Entries in order and without duplicates.
#[derive(Debug)]
pub struct EgressLogStream {
    client: Client,
    sandbox: String,
    query: EgressLogQuery,
    lines: Option<NdjsonStream<EgressEntry>>,
    failures: u32,
}

fn egress_path(sandbox: &str, rest: &'static str) -> Path {
    sandbox_path(sandbox).fixed("egress").fixed(rest)
}

impl Client {
    /// The host sets of the daemon.
    pub async fn egress_sets(&self) -> Result<Vec<EgressSet>, ClientError> {
        let page: Page<EgressSet> = self.get(Path::new("/v1/egress/sets")).await?;
        Ok(page.items)
    }

    /// The policy in effect, and its counters.
    pub async fn egress(&self, sandbox: &str) -> Result<EgressStatus, ClientError> {
        self.get(sandbox_path(sandbox).fixed("egress")).await
    }

    /// What the policy would decide; nothing is resolved or dialled.
    pub async fn explain_egress(
        &self,
        sandbox: &str,
        question: &EgressQuestion,
    ) -> Result<EgressExplanation, ClientError> {
        self.send_json(Method::POST, egress_path(sandbox, "explain"), question).await
    }

    /// The result of an attempt by the egress process.
    pub async fn test_egress(
        &self,
        sandbox: &str,
        question: &EgressQuestion,
    ) -> Result<EgressTrial, ClientError> {
        self.send_json(Method::POST, egress_path(sandbox, "test"), question).await
    }

    /// Replaces a sandbox's whole policy atomically. Secrets are not part of it and have to exist already.
    pub async fn replace_egress_policy(
        &self,
        sandbox: &str,
        policy: &PolicyDocument,
    ) -> Result<Sandbox, ClientError> {
        self.send_json(Method::PUT, egress_path(sandbox, "policy"), policy).await
    }

    /// Requests of a sandbox that wait for an approval, oldest first.
    pub async fn egress_approvals(&self, sandbox: &str) -> Result<Vec<EgressApproval>, ClientError> {
        let page: Page<EgressApproval> = self.get(egress_path(sandbox, "approvals")).await?;
        Ok(page.items)
    }

    /// Approves or denies a waiting request.
    pub async fn answer_egress_approval(
        &self,
        sandbox: &str,
        approval: u64,
        allow: bool,
    ) -> Result<(), ClientError> {
        let path = egress_path(sandbox, "approvals").part(&approval.to_string());
        self.send_json_no_content(path, &AnswerApproval { allow }).await
    }

    /// One page of the log, newest first.
    pub async fn egress_log(
        &self,
        sandbox: &str,
        denied: bool,
        page: &PageQuery,
    ) -> Result<Page<EgressEntry>, ClientError> {
        self.page(egress_path(sandbox, "log").flag("denied", denied), page).await
    }

    /// Follows the log, oldest entry first, and resumes when the connection breaks.
    pub async fn follow_egress_log(
        &self,
        sandbox: &str,
        query: EgressLogQuery,
    ) -> Result<EgressLogStream, ClientError> {
        let lines = Some(self.egress_lines(sandbox, query).await?);
        Ok(EgressLogStream { client: self.clone(), sandbox: sandbox.to_owned(), query, lines, failures: 0 })
    }

    async fn egress_lines(
        &self,
        sandbox: &str,
        query: EgressLogQuery,
    ) -> Result<NdjsonStream<EgressEntry>, ClientError> {
        let path = egress_path(sandbox, "log")
            .flag("denied", query.denied)
            .flag("follow", true)
            .query_if("since", query.since);
        let shown = path.shown();
        let response = self.send(Call::new(Method::GET, path)).await?;
        Ok(NdjsonStream::new(ByteStream::new(response.into_body(), shown)))
    }
}

impl EgressLogStream {
    /// The next entry. The stream ends only when its sandbox is deleted.
    pub async fn next(&mut self) -> Result<Option<EgressEntry>, ClientError> {
        loop {
            let error = match self.step().await {
                Ok(Some(entry)) => {
                    self.failures = 0;
                    self.query.since = Some(entry.seq);
                    return Ok(Some(entry));
                }
                Ok(None) => ClientError::Truncated { path: egress_path(&self.sandbox, "log").shown() },
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

    async fn step(&mut self) -> Result<Option<EgressEntry>, ClientError> {
        if self.lines.is_none() {
            self.lines = Some(self.client.egress_lines(&self.sandbox, self.query).await?);
        }
        self.lines.as_mut().expect("it was just set").next().await
    }
}
