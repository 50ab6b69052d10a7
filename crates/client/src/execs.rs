//! Execs: start, inspect, wait, signal, write input, read output.

use std::time::Duration;

use burrow_api::{CreateExec, Exec, ExecState, OutputChunk, Page, RunResult, SendSignal, TerminalSize};
use http::Method;
use tokio::time::Instant;

use crate::client::Call;
use crate::sandboxes::sandbox_path;
use crate::url::Path;
use crate::{ByteStream, Client, ClientError, NdjsonStream, PageQuery, UploadBody};

/// A long wait consists of requests of this duration: short enough for proxies.
const WAIT_STEP: Duration = Duration::from_secs(30);
/// A wait survives this many failed requests in a row, a second apart: enough for a restart of the daemon.
const WAIT_FAILURES_MAX: u32 = 30;
const WAIT_PAUSE: Duration = Duration::from_secs(1);

/// The result of a wait with a time limit.
#[derive(Clone, Debug, PartialEq)]
pub enum WaitOutcome {
    Ended(Exec),
    StillRunning(Exec),
}

/// Selects output.
#[derive(Clone, Copy, Debug, Default)]
pub struct OutputQuery {
    /// Offset of the first byte.
    pub offset: u64,
    /// Continue until the exec ends.
    pub follow: bool,
}

pub(crate) fn exec_path(sandbox: &str, exec: &str) -> Path {
    sandbox_path(sandbox).fixed("execs").part(exec)
}

impl Client {
    /// Starts a process and returns at once. `request.wait` is ignored; see [`Client::run`].
    pub async fn create_exec(&self, sandbox: &str, request: &CreateExec) -> Result<Exec, ClientError> {
        let request = CreateExec { wait: false, ..request.clone() };
        Ok(self.create(sandbox_path(sandbox).fixed("execs"), &request).await?.1)
    }

    /// Runs a process to its end and returns its output.
    pub async fn run(&self, sandbox: &str, request: &CreateExec) -> Result<RunResult, ClientError> {
        let request = CreateExec { wait: true, ..request.clone() };
        Ok(self.create(sandbox_path(sandbox).fixed("execs"), &request).await?.1)
    }

    pub async fn execs(&self, sandbox: &str) -> Result<Vec<Exec>, ClientError> {
        self.all_pages(sandbox_path(sandbox).fixed("execs")).await
    }

    /// One page of a sandbox's execs, newest first.
    pub async fn list_execs(&self, sandbox: &str, page: &PageQuery) -> Result<Page<Exec>, ClientError> {
        self.page(sandbox_path(sandbox).fixed("execs"), page).await
    }

    pub async fn exec(&self, sandbox: &str, exec: &str) -> Result<Exec, ClientError> {
        self.get(exec_path(sandbox, exec)).await
    }

    /// An exec of any sandbox.
    pub async fn find_exec(&self, exec: &str) -> Result<Exec, ClientError> {
        self.get(Path::new("/v1/execs").part(exec)).await
    }

    /// Waits for the end of an exec, without limit if no `timeout` is given, across restarts of the daemon.
    pub async fn wait_exec(
        &self,
        sandbox: &str,
        exec: &str,
        timeout: Option<Duration>,
    ) -> Result<WaitOutcome, ClientError> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let mut failures = 0;
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let step = left.map_or(WAIT_STEP, |left| left.min(WAIT_STEP));
            let path =
                exec_path(sandbox, exec).fixed("wait").query("timeout_ms", &step.as_millis().to_string());
            let exec: Exec = match self.get(path).await {
                Ok(exec) => exec,
                Err(error) if error.is_transient() && failures < WAIT_FAILURES_MAX => {
                    failures += 1;
                    tokio::time::sleep(WAIT_PAUSE).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            failures = 0;
            match exec.state {
                ExecState::Ended | ExecState::Lost => return Ok(WaitOutcome::Ended(exec)),
                ExecState::Running if left.is_some_and(|left| left <= step) => {
                    return Ok(WaitOutcome::StillRunning(exec));
                }
                ExecState::Running => {}
            }
        }
    }

    pub async fn signal_exec(
        &self,
        sandbox: &str,
        exec: &str,
        signal: &SendSignal,
    ) -> Result<(), ClientError> {
        self.send_json_no_content(exec_path(sandbox, exec).fixed("signal"), signal).await
    }

    pub async fn resize_exec(
        &self,
        sandbox: &str,
        exec: &str,
        size: TerminalSize,
    ) -> Result<(), ClientError> {
        self.send_json_no_content(exec_path(sandbox, exec).fixed("resize"), &size).await
    }

    /// Writes to its standard input; `close` closes it afterwards.
    pub async fn write_stdin(
        &self,
        sandbox: &str,
        exec: &str,
        body: UploadBody,
        close: bool,
    ) -> Result<(), ClientError> {
        let path = exec_path(sandbox, exec).fixed("stdin").flag("close", close);
        let call = crate::files::upload_call(Method::POST, path, body);
        self.send_no_content(call).await
    }

    /// The output in chunks with stream and offset.
    pub async fn output(
        &self,
        sandbox: &str,
        exec: &str,
        query: OutputQuery,
    ) -> Result<NdjsonStream<OutputChunk>, ClientError> {
        Ok(NdjsonStream::new(self.output_bytes(sandbox, exec, query, "ndjson").await?))
    }

    /// The output as a stream of bytes.
    pub async fn output_raw(
        &self,
        sandbox: &str,
        exec: &str,
        query: OutputQuery,
    ) -> Result<ByteStream, ClientError> {
        self.output_bytes(sandbox, exec, query, "raw").await
    }

    async fn output_bytes(
        &self,
        sandbox: &str,
        exec: &str,
        query: OutputQuery,
        format: &str,
    ) -> Result<ByteStream, ClientError> {
        let path = exec_path(sandbox, exec)
            .fixed("output")
            .query("offset", &query.offset.to_string())
            .flag("follow", query.follow)
            .query("format", format);
        let shown = path.shown();
        let response = self.send(Call::new(Method::GET, path)).await?;
        Ok(ByteStream::new(response.into_body(), shown))
    }
}
