//! Execs: start, list, inspect, wait, signal, resize, feed.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use burrow_api::{CreateExec, Exec, Page, RunResult, SendSignal, TerminalSize, defaults};
use burrow_catalog::{Idempotency, PageRequest};
use burrow_engine::{
    EngineError, ExecEvent, ExecOptions, ExecOrigin, ExecSession, ObjectKind, OutputStream, RollbackMode,
};
use burrow_guest::protocol::{Frame, Request};
use burrow_model::{ExecId, SandboxId, TenantId};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use utoipa::IntoParams;

use super::sandboxes::SandboxPath;
use burrow_http::app::App;
use burrow_http::auth::{Caller, Executor, Reader, check_reference};
use burrow_http::error::ApiError;
use burrow_http::idempotency::{IdempotentResponse, InProgressRecord, once};
use burrow_http::input::{JsonBody, NoParams, Params, Segments, idempotency_key};
use burrow_http::pages::{PageParams, page};
use burrow_http::refusals::{Common, GuestRefusals, IdempotencyRefusals, ObjectRefusals, WithBody};
use burrow_http::stream::GuestWriter;
use burrow_http::upload::{send_bytes, upload};
use burrow_http::{convert, exec_trace};

/// Duration of a wait: the default, and the maximum. Clients repeat the request to wait longer.
const WAIT_MS: u64 = 60_000;
const WAIT_MS_MAX: u64 = 300_000;

/// If the process does not read its input within this time, the rest is sent in the background.
const FEED_PATIENCE: Duration = Duration::from_secs(1);

/// Names an exec.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct ExecPath {
    /// The sandbox's id, a unique prefix of its id, or its name.
    #[param(pattern = "^[a-z0-9-]{1,63}$")]
    sandbox: String,
    /// The exec's id, or a unique prefix of it.
    #[param(pattern = "^[a-z0-9-]{1,63}$")]
    exec: String,
}

impl ExecPath {
    /// Resolves both.
    pub(super) async fn resolve(&self, app: &App, caller: &Caller) -> Result<(SandboxId, ExecId), ApiError> {
        let sandbox = caller.sandbox(app, &self.sandbox).await?;
        check_reference(&self.exec)?;
        let exec = match self.exec.parse() {
            Ok(exec) => exec,
            Err(_) => by_prefix(app, caller.tenant(), &sandbox, &self.exec).await?,
        };
        Ok((sandbox, exec))
    }
}

/// Only the newest execs are found by prefix; older ones must be named in full.
async fn by_prefix(
    app: &App,
    tenant: &TenantId,
    sandbox: &SandboxId,
    text: &str,
) -> Result<ExecId, ApiError> {
    let newest = PageRequest { cursor: None, limit: defaults::PAGE_LIMIT_MAX };
    let known = app.engine.execs(tenant, sandbox, newest).await?;
    let mut fitting =
        known.rows.into_iter().map(|record| record.row.id).filter(|id| id.as_str().starts_with(text));
    match (fitting.next(), fitting.next()) {
        (Some(id), None) => Ok(id),
        (Some(_), Some(_)) => Err(ApiError::invalid("ambiguous id prefix: it matches several execs")
            .hint("give more characters of the id")),
        (None, _) => {
            Err(EngineError::ExecNotFound { what: text.to_owned(), sandbox: sandbox.clone() }.into())
        }
    }
}

#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/execs", tag = "execs", request_body = CreateExec,
    params(SandboxPath, ("Idempotency-Key" = Option<String>, Header, description = "Requests with the same key and body run one exec")),
    responses(
        (status = 201, description = "Started", body = Exec),
        (status = 200, description = "With `wait`: the exec has ended", body = RunResult),
        Common, GuestRefusals, WithBody, IdempotencyRefusals,
    ),
)]
pub(crate) async fn create(
    State(app): State<Arc<App>>,
    caller: Executor,
    _: NoParams,
    Segments(path): Segments<SandboxPath>,
    headers: HeaderMap,
    body: JsonBody<CreateExec>,
) -> Result<IdempotentResponse, ApiError> {
    let mut options = convert::exec_options(&body.value)?;
    let key = idempotency_key(&headers)?;
    let sandbox = caller.sandbox(&app, &path.sandbox).await?;
    let tenant = caller.tenant().clone();
    let scope = format!("execs of {sandbox}");
    let is_guarded = options.rollback != RollbackMode::Nothing;
    let mut begin = InProgressRecord::Durably;
    if !is_guarded && let Some(key) = &key {
        // The id is derived from the request, and no guest starts an id twice. So a repeat after a crash of this daemon
        // finds the exec.
        begin = InProgressRecord::Here;
        options.id =
            Some(ExecId::of_bytes(Idempotency::of(key, &body.bytes).digest(&[tenant.as_str(), &scope])));
    }
    let origin = exec_trace::call(caller.trace());
    let work = run(app.clone(), tenant.clone(), sandbox, options, body.value.input, origin);
    if !is_guarded {
        return once(&app, &tenant, key, &scope, &body.bytes, begin, work).await;
    }
    // When a client disconnects, a command with a rollback still receives all of its input.
    let work_app = app.clone();
    let work = async move { work_app.run_to_completion(work).await };
    once(&app, &tenant, key, &scope, &body.bytes, begin, work).await
}

async fn run(
    app: Arc<App>,
    tenant: TenantId,
    sandbox: SandboxId,
    options: ExecOptions,
    input: Option<String>,
    origin: ExecOrigin,
) -> Result<IdempotentResponse, ApiError> {
    let waits = options.attach.is_some();
    let session = app.engine.exec(&tenant, &sandbox, options, origin).await?;
    if waits {
        return IdempotentResponse::json(StatusCode::OK, &finish(session, input).await?);
    }
    if let Some(input) = input {
        feed(&app, &session, input).await;
    }
    IdempotentResponse::json(StatusCode::CREATED, &convert::exec_report(session.report()))
}

/// Runs one exec to its end, as a request with `wait` does. For calls that run several execs: each is recorded.
pub(super) async fn run_to_end(
    app: &App,
    tenant: &TenantId,
    sandbox: &SandboxId,
    request: &CreateExec,
    origin: ExecOrigin,
) -> Result<RunResult, ApiError> {
    let options = convert::exec_options(request)?;
    finish(app.engine.exec(tenant, sandbox, options, origin).await?, request.input.clone()).await
}

/// Sends the input and collects the output until the exec has ended.
async fn finish(mut session: ExecSession, input: Option<String>) -> Result<RunResult, ApiError> {
    let mut writer = session.take_input();
    let mut output = CollectedOutput::default();
    let ended = {
        let collected = session.read_to_end(|event| output.add(event));
        match input {
            None => collected.await?,
            // Concurrently: otherwise a process that writes output before it has read all of its input would cause a deadlock.
            Some(input) => {
                tokio::pin!(collected);
                tokio::select! {
                    ended = &mut collected => ended?,
                    () = feed_attached(&mut writer, input) => collected.await?,
                }
            }
        }
    };
    Ok(RunResult {
        exec: convert::exec_report(ended),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
        truncated: output.truncated,
    })
}

/// A process that no longer reads its input is not an error.
async fn feed_attached(writer: &mut GuestWriter, input: String) {
    if send_bytes(writer, Bytes::from(input)).await.is_ok() {
        let _ = writer.send(&Frame::End).await;
    }
}

/// For an exec that no request waits for. Small input is written at once; the rest as the process reads.
async fn feed(app: &App, session: &ExecSession, input: String) {
    let (guest, exec) = (session.guest().clone(), session.id().clone());
    let task = app.tasks.spawn(async move {
        let request = Request::ExecStdin { exec: exec.to_string(), close: true };
        if let Err(error) = upload::<()>(&guest, &request, Body::from(input)).await {
            tracing::debug!(%exec, code = error.code().as_str(), "an exec did not take all of its input");
        }
    });
    let _ = tokio::time::timeout(FEED_PATIENCE, task).await;
}

/// The first bytes of each stream.
#[derive(Debug, Default)]
struct CollectedOutput {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    truncated: bool,
}

impl CollectedOutput {
    fn add(&mut self, event: &ExecEvent) {
        self.truncated |= match event {
            ExecEvent::Output { stream: OutputStream::Stdout, bytes, .. } => append(&mut self.stdout, bytes),
            ExecEvent::Output { stream: OutputStream::Stderr, bytes, .. } => append(&mut self.stderr, bytes),
            ExecEvent::Gap { .. } => true,
            ExecEvent::Drained { .. } | ExecEvent::Exit(_) => false,
        };
    }
}

/// Returns whether some of it was dropped because the limit was reached.
fn append(kept: &mut Vec<u8>, bytes: &[u8]) -> bool {
    let room = defaults::RUN_OUTPUT_BYTES - kept.len();
    kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
    bytes.len() > room
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/execs", tag = "execs", params(SandboxPath, PageParams),
    responses((status = 200, description = "Newest first", body = Page<Exec>), Common, GuestRefusals),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    caller: Reader,
    Segments(path): Segments<SandboxPath>,
    Params(params): Params<PageParams>,
) -> Result<Json<Page<Exec>>, ApiError> {
    let request = params.request()?;
    let sandbox = caller.sandbox(&app, &path.sandbox).await?;
    let found = app.engine.execs(caller.tenant(), &sandbox, request).await?;
    Ok(Json(page(found, convert::exec)))
}

#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/execs/{exec}", tag = "execs", params(ExecPath),
    responses((status = 200, description = "The exec", body = Exec), Common, GuestRefusals),
)]
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    caller: Reader,
    _: NoParams,
    Segments(path): Segments<ExecPath>,
) -> Result<Json<Exec>, ApiError> {
    let (sandbox, exec) = path.resolve(&app, &caller).await?;
    let record = app.engine.exec_info(caller.tenant(), &sandbox, &exec).await?;
    Ok(Json(convert::exec_report(app.engine.report_exec(record).await)))
}

/// Names an exec of any sandbox.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct AnyExecPath {
    /// The exec's full id.
    #[param(pattern = "^[a-z0-9-]{1,63}$")]
    exec: String,
}

#[utoipa::path(
    get, path = "/v1/execs/{exec}", tag = "execs", params(AnyExecPath),
    responses((status = 200, description = "The exec, including the id of its sandbox", body = Exec), Common, GuestRefusals),
)]
pub(crate) async fn find(
    State(app): State<Arc<App>>,
    caller: Reader,
    _: NoParams,
    Segments(path): Segments<AnyExecPath>,
) -> Result<Json<Exec>, ApiError> {
    check_reference(&path.exec)?;
    let unknown = || EngineError::NotFound { kind: ObjectKind::Exec, what: path.exec.clone() };
    let exec: ExecId = path.exec.parse().map_err(|_| unknown())?;
    let record = app.engine.find_exec(caller.tenant(), &exec).await?;
    // A key that is bound to one sandbox must not learn about others.
    if !caller.sees(&app, &record.row.sandbox).await? {
        return Err(unknown().into());
    }
    Ok(Json(convert::exec_report(app.engine.report_exec(record).await)))
}

/// How long to wait.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct WaitParams {
    /// Respond after this time even if the exec is still running; 60000 when absent.
    #[param(maximum = 300_000)]
    timeout_ms: Option<u64>,
}

#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/execs/{exec}/wait", tag = "execs", params(ExecPath, WaitParams),
    responses((status = 200, description = "The exec, which has ended or is still running after the timeout", body = Exec), Common, GuestRefusals),
)]
pub(crate) async fn wait(
    State(app): State<Arc<App>>,
    caller: Reader,
    Segments(path): Segments<ExecPath>,
    Params(params): Params<WaitParams>,
) -> Result<Json<Exec>, ApiError> {
    let timeout_ms = params.timeout_ms.unwrap_or(WAIT_MS);
    if timeout_ms > WAIT_MS_MAX {
        return Err(ApiError::invalid(format!("`timeout_ms` must be at most {WAIT_MS_MAX}")));
    }
    let (sandbox, exec) = path.resolve(&app, &caller).await?;
    let bound = Duration::from_millis(timeout_ms);
    let waited =
        app.draining.run_until_cancelled(app.engine.wait_exec(caller.tenant(), &sandbox, &exec, bound)).await;
    let record = waited.ok_or(EngineError::ShuttingDown)??;
    Ok(Json(convert::exec_report(app.engine.report_awaited_exec(record).await)))
}

#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/execs/{exec}/signal", tag = "execs", params(ExecPath),
    request_body = SendSignal,
    responses((status = 204, description = "Sent"), Common, GuestRefusals, WithBody),
)]
pub(crate) async fn signal(
    State(app): State<Arc<App>>,
    caller: Executor,
    _: NoParams,
    Segments(path): Segments<ExecPath>,
    body: JsonBody<SendSignal>,
) -> Result<StatusCode, ApiError> {
    let signal = convert::parse_signal(&body.value.signal)
        .ok_or_else(|| ApiError::invalid("`signal` must be a signal, such as `TERM`, `SIGTERM` or `15`"))?;
    let (sandbox, exec) = path.resolve(&app, &caller).await?;
    let guest = app.engine.guest_with_processes(caller.tenant(), &sandbox).await?;
    let group = body.value.group;
    guest.call::<()>(&Request::ExecSignal { exec: exec.to_string(), signal, group }).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/execs/{exec}/resize", tag = "execs", params(ExecPath),
    request_body = TerminalSize,
    responses((status = 204, description = "Resized"), Common, GuestRefusals, WithBody),
)]
pub(crate) async fn resize(
    State(app): State<Arc<App>>,
    caller: Executor,
    _: NoParams,
    Segments(path): Segments<ExecPath>,
    body: JsonBody<TerminalSize>,
) -> Result<StatusCode, ApiError> {
    let TerminalSize { columns, rows } = body.value;
    if columns == 0 || rows == 0 {
        return Err(ApiError::invalid("a terminal must have at least one column and one row"));
    }
    let (sandbox, exec) = path.resolve(&app, &caller).await?;
    let guest = app.engine.guest_with_processes(caller.tenant(), &sandbox).await?;
    let size = burrow_guest::protocol::TerminalSize { columns, rows };
    guest.call::<()>(&Request::ExecResize { exec: exec.to_string(), size }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What to do with standard input after the body.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct StdinParams {
    /// Close standard input; false when absent.
    #[serde(default)]
    #[param(required = false)]
    close: bool,
}

#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/execs/{exec}/stdin", tag = "execs", params(ExecPath, StdinParams),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 204, description = "Written"), Common, GuestRefusals, ObjectRefusals),
)]
pub(crate) async fn stdin(
    State(app): State<Arc<App>>,
    caller: Executor,
    Segments(path): Segments<ExecPath>,
    Params(params): Params<StdinParams>,
    body: Body,
) -> Result<StatusCode, ApiError> {
    let (sandbox, exec) = path.resolve(&app, &caller).await?;
    let guest = app.engine.guest_with_processes(caller.tenant(), &sandbox).await?;
    let request = Request::ExecStdin { exec: exec.to_string(), close: params.close };
    upload::<()>(&guest, &request, body).await?;
    Ok(StatusCode::NO_CONTENT)
}
