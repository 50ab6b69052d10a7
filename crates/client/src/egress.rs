//! What a sandbox may reach, what it asked for, and why something is or is not let through.

use std::time::Duration;

use burrow_api::policy::PolicyDocument;
use burrow_api::{
    AnswerApproval, EgressApproval, EgressEntry, EgressExplanation, EgressQuestion, EgressStatus,
    EgressTrial, Page, Sandbox,
};
use http::Method;

use crate::client::Call;
use crate::sandboxes::sandbox_path;
use crate::url::Path;
use crate::{ByteStream, Client, ClientError, NdjsonStream, PageQuery};

/// Attempts to take a followed log up again before giving up; with the pauses below, about half a minute.
const RESUMES_MAX: u32 = 30;
const RESUME_PAUSE: Duration = Duration::from_secs(1);

/// Which entries of a log to follow.
#[derive(Clone, Copy, Debug, Default)]
pub struct EgressLogQuery {
    /// Only what was not let through.
    pub denied: bool,
    /// Only entries after this sequence number.
    pub since: Option<u64>,
}

/// Entries in order, none twice.
#[derive(Debug)]
pub struct EgressLogStream {
    client: Client,
    sandbox: String,
    query: EgressLogQuery,
    lines: Option<NdjsonStream<EgressEntry>>,
    failures: u32,
}

fn under(sandbox: &str, rest: &'static str) -> Path {
    sandbox_path(sandbox).fixed("egress").fixed(rest)
}

impl Client {
    /// What is in force, and what came of it.
    pub async fn egress(&self, sandbox: &str) -> Result<EgressStatus, ClientError> {
        self.get(sandbox_path(sandbox).fixed("egress")).await
    }

    /// What would happen; nothing is looked up or dialled.
    pub async fn explain_egress(
        &self,
        sandbox: &str,
        question: &EgressQuestion,
    ) -> Result<EgressExplanation, ClientError> {
        self.send_json(Method::POST, under(sandbox, "explain"), question).await
    }

    /// What does happen when the egress process tries.
    pub async fn test_egress(
        &self,
        sandbox: &str,
        question: &EgressQuestion,
    ) -> Result<EgressTrial, ClientError> {
        self.send_json(Method::POST, under(sandbox, "test"), question).await
    }

    /// Replaces a sandbox's whole policy at once. Secrets are no part of it: they are set before.
    pub async fn replace_egress_policy(
        &self,
        sandbox: &str,
        policy: &PolicyDocument,
    ) -> Result<Sandbox, ClientError> {
        self.send_json(Method::PUT, under(sandbox, "policy"), policy).await
    }

    /// Requests of a sandbox that wait for somebody to agree, oldest first.
    pub async fn egress_approvals(&self, sandbox: &str) -> Result<Vec<EgressApproval>, ClientError> {
        let page: Page<EgressApproval> = self.get(under(sandbox, "approvals")).await?;
        Ok(page.items)
    }

    /// Lets a request that waits go on, or refuses it.
    pub async fn answer_egress_approval(
        &self,
        sandbox: &str,
        approval: u64,
        allow: bool,
    ) -> Result<(), ClientError> {
        let path = under(sandbox, "approvals").part(&approval.to_string());
        self.send_json_for_nothing(path, &AnswerApproval { allow }).await
    }

    /// One page of the log, newest first.
    pub async fn egress_log(
        &self,
        sandbox: &str,
        denied: bool,
        page: &PageQuery,
    ) -> Result<Page<EgressEntry>, ClientError> {
        self.page(under(sandbox, "log").flag("denied", denied), page).await
    }

    /// The log as it is written, oldest first, taken up again when the connection breaks.
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
        let path = under(sandbox, "log")
            .flag("denied", query.denied)
            .flag("follow", true)
            .query_if("since", query.since);
        let shown = path.shown();
        let response = self.send(Call::new(Method::GET, path)).await?;
        Ok(NdjsonStream::new(ByteStream::new(response.into_body(), shown)))
    }
}

impl EgressLogStream {
    /// The next entry. Without end, until its sandbox goes.
    pub async fn next(&mut self) -> Result<Option<EgressEntry>, ClientError> {
        loop {
            let error = match self.step().await {
                Ok(Some(entry)) => {
                    self.failures = 0;
                    self.query.since = Some(entry.seq);
                    return Ok(Some(entry));
                }
                Ok(None) => ClientError::Truncated { path: under(&self.sandbox, "log").shown() },
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
