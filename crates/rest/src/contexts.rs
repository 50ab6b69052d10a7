//! Code contexts, and running code in them.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use burrow_api::{
    CodeContext, CodeEvent, CodeRun, CreateCodeContext, EgressDenied, ErrorCode, Page, RunCode, defaults,
};
use burrow_engine::Engine;
use burrow_model::{SandboxId, TenantId};
use bytes::Bytes;
use futures_util::{Stream, stream};
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::IntoParams;

use super::sandboxes::SandboxPath;
use burrow_gateway::Gateway;
use burrow_http::app::App;
use burrow_http::auth::{Caller, Executor, Reader};
use burrow_http::convert::{self, check_path, check_variables};
use burrow_http::error::ApiError;
use burrow_http::exec_trace;
use burrow_http::input::{JsonBody, NoParams, Params, Segments};
use burrow_http::pages::{PageParams, page_of_list};
use burrow_http::refusals::{Common, GuestRefusals, WithBody};
use burrow_http::stream::lines;
use burrow_interpreter::{BridgeRequest, Interpreter, Lines, done, held, read, succeeded};

const LANGUAGE: &str = "python";

/// The context that is created by its first run. For languages other than Python, their name is appended.
const DEFAULT: &str = "default";

const CODE_BYTES_MAX: usize = 1 << 20;
const TIMEOUT_MS_MAX: u64 = 24 * 60 * 60 * 1000;
const OUTPUT_BYTES_MAX: u64 = 16 << 20;

/// Limits for the results of a run with `wait`: their size as JSON (the limit of the bridge, plus room for the encoding),
/// and the memory that they take as values.
const RESULTS_BYTES_MAX: usize = 24 << 20;
const RESULTS_HELD_MAX: usize = 96 << 20;

/// Names a context.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct ContextPath {
    /// The sandbox's id, a unique prefix of its id, or its name.
    #[param(pattern = "^[a-z0-9-]{1,63}$")]
    sandbox: String,
    /// The context's id. `default` and `default-LANGUAGE` are created by their first run.
    #[param(pattern = "^[A-Za-z0-9_-]{1,64}$")]
    context: String,
}

impl ContextPath {
    async fn resolve(&self, app: &Arc<App>, caller: &Caller) -> Result<Interpreter, ApiError> {
        check_context(&self.context)?;
        interpreter(app, caller, &self.sandbox).await
    }

    /// Sends a request about this context if the sandbox has any. Creates no context and starts no bridge.
    async fn ask(
        &self,
        app: &Arc<App>,
        caller: &Caller,
        method: Method,
        rest: &str,
    ) -> Result<Response, ApiError> {
        let interpreter = self.resolve(app, caller).await?;
        let place = format!("/contexts/{}{rest}", self.context);
        let answer = interpreter.ask_if_running(&question(method, place, None)).await?;
        answer
            .filter(|answer| answer.status() != StatusCode::NOT_FOUND)
            .ok_or_else(|| no_context(&self.context))
    }
}

async fn interpreter(app: &Arc<App>, caller: &Caller, sandbox: &str) -> Result<Interpreter, ApiError> {
    let sandbox = caller.sandbox(app, sandbox).await?;
    let actor = exec_trace::actor(caller.trace());
    Ok(Interpreter { app: app.clone(), tenant: caller.tenant().clone(), sandbox, actor })
}

/// Checks the id of a context before it becomes part of a path.
fn check_context(text: &str) -> Result<(), ApiError> {
    let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    if (1..=64).contains(&text.len()) && text.bytes().all(good) {
        return Ok(());
    }
    Err(ApiError::invalid("a context's id is 1 to 64 letters, digits, hyphens and underscores"))
}

fn check_language(text: &str) -> Result<(), ApiError> {
    let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'+' | b'#' | b'.');
    if (1..=50).contains(&text.len()) && text.bytes().all(good) {
        return Ok(());
    }
    Err(ApiError::invalid("`language` must be a name such as `python`, `javascript` or `bash`"))
}

fn question(method: Method, path: impl Into<String>, body: Option<&Value>) -> BridgeRequest {
    let body = body.map(|body| Bytes::from(body.to_string()));
    BridgeRequest { method, path: path.into(), body }
}

fn no_context(id: &str) -> ApiError {
    let hint = "contexts end with the processes of their sandbox: when it is stopped, or restored to a point before they were created";
    ApiError::new(ErrorCode::NotFound, format!("the sandbox has no context `{id}`")).hint(hint)
}

#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/contexts", tag = "code", params(SandboxPath),
    request_body = CreateCodeContext,
    responses((status = 201, description = "Ready to run code", body = CodeContext), Common, GuestRefusals, WithBody),
)]
pub(crate) async fn create(
    State(app): State<Arc<App>>,
    caller: Executor,
    _: NoParams,
    Segments(path): Segments<SandboxPath>,
    body: JsonBody<CreateCodeContext>,
) -> Result<(StatusCode, Json<CodeContext>), ApiError> {
    let CreateCodeContext { language, cwd, env } = body.value;
    let language = language.unwrap_or_else(|| LANGUAGE.to_owned());
    check_language(&language)?;
    if let Some(cwd) = &cwd {
        check_path("cwd", cwd)?;
    }
    check_variables("env", &env)?;
    let interpreter = interpreter(&app, &caller, &path.sandbox).await?;
    let wanted = json!({ "language": language, "cwd": cwd, "env": env });
    let made = interpreter.ask(&question(Method::POST, "/contexts", Some(&wanted))).await?;
    Ok((StatusCode::CREATED, Json(read(made).await?)))
}

#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/contexts", tag = "code", params(SandboxPath, PageParams),
    responses(
        (status = 200, description = "In the order of their creation", body = Page<CodeContext>), Common, GuestRefusals,
    ),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    caller: Reader,
    Segments(path): Segments<SandboxPath>,
    Params(params): Params<PageParams>,
) -> Result<Json<Page<CodeContext>>, ApiError> {
    let request = params.request()?;
    let interpreter = interpreter(&app, &caller, &path.sandbox).await?;
    let contexts: Vec<CodeContext> =
        match interpreter.ask_if_running(&question(Method::GET, "/contexts", None)).await? {
            Some(answer) => read(answer).await?,
            None => Vec::new(),
        };
    Ok(Json(page_of_list(contexts, &request, |context| &context.id)?))
}

#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/contexts/{context}", tag = "code", params(ContextPath),
    responses((status = 200, description = "The context", body = CodeContext), Common, GuestRefusals),
)]
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    caller: Reader,
    _: NoParams,
    Segments(path): Segments<ContextPath>,
) -> Result<Json<CodeContext>, ApiError> {
    Ok(Json(read(path.ask(&app, &caller, Method::GET, "").await?).await?))
}

#[utoipa::path(
    delete, path = "/v1/sandboxes/{sandbox}/contexts/{context}", tag = "code", params(ContextPath),
    responses((status = 204, description = "The context has ended, and its variables are lost"), Common, GuestRefusals),
)]
pub(crate) async fn remove(
    State(app): State<Arc<App>>,
    caller: Executor,
    _: NoParams,
    Segments(path): Segments<ContextPath>,
) -> Result<StatusCode, ApiError> {
    done(path.ask(&app, &caller, Method::DELETE, "").await?).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/contexts/{context}/interrupt", tag = "code", params(ContextPath),
    responses((status = 204, description = "The running code and all waiting runs were interrupted"), Common, GuestRefusals),
)]
pub(crate) async fn interrupt(
    State(app): State<Arc<App>>,
    caller: Executor,
    _: NoParams,
    Segments(path): Segments<ContextPath>,
) -> Result<StatusCode, ApiError> {
    done(path.ask(&app, &caller, Method::POST, "/interrupt").await?).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/contexts/{context}/restart", tag = "code", params(ContextPath),
    responses((status = 200, description = "Restarted, with no variables", body = CodeContext), Common, GuestRefusals),
)]
pub(crate) async fn restart(
    State(app): State<Arc<App>>,
    caller: Executor,
    _: NoParams,
    Segments(path): Segments<ContextPath>,
) -> Result<Json<CodeContext>, ApiError> {
    done(path.ask(&app, &caller, Method::POST, "/restart").await?).await?;
    Ok(Json(read(path.ask(&app, &caller, Method::GET, "").await?).await?))
}

#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/contexts/{context}/run", tag = "code", params(ContextPath),
    request_body = RunCode,
    responses(
        (status = 200, description = "The events of the run, one per line; with `wait`, a `CodeRun` when it has ended",
         content((CodeEvent = "application/x-ndjson"), (CodeRun = "application/json"))),
        Common, GuestRefusals, WithBody,
    ),
)]
pub(crate) async fn run(
    State(app): State<Arc<App>>,
    caller: Executor,
    _: NoParams,
    Segments(path): Segments<ContextPath>,
    body: JsonBody<RunCode>,
) -> Result<Response, ApiError> {
    check_run(&body.value)?;
    let interpreter = path.resolve(&app, &caller).await?;
    let slot = app.part::<Gateway>().slot(&interpreter.sandbox)?;
    let watch = RunWatch {
        engine: app.engine.clone(),
        tenant: caller.tenant().clone(),
        sandbox: interpreter.sandbox.clone(),
        started_ms: app.engine.now_ms(),
    };
    let asked = question(Method::POST, "/execute", Some(&execute(&path.context, &body.value)?));
    let answer = match interpreter.ask(&asked).await? {
        answer if answer.status() == StatusCode::NOT_FOUND => return Err(no_context(&path.context)),
        answer => succeeded(answer).await?,
    };
    let events = Lines::new(answer, slot);
    match body.value.wait {
        true => Ok(Json(collected(&app, events, &watch).await?).into_response()),
        false => Ok(lines(followed(app, events, watch))),
    }
}

fn check_run(run: &RunCode) -> Result<(), ApiError> {
    if run.code.len() > CODE_BYTES_MAX {
        let message = format!("`code` is larger than {CODE_BYTES_MAX} bytes");
        return Err(ApiError::new(ErrorCode::TooLarge, message).hint("write it to a file, and run that file"));
    }
    if run.timeout_ms.is_some_and(|timeout| !(1..=TIMEOUT_MS_MAX).contains(&timeout)) {
        return Err(ApiError::invalid(format!("`timeout_ms` must be from 1 to {TIMEOUT_MS_MAX}")));
    }
    if run.output_bytes_max.is_some_and(|bytes| !(1..=OUTPUT_BYTES_MAX).contains(&bytes)) {
        return Err(ApiError::invalid(format!("`output_bytes_max` must be from 1 to {OUTPUT_BYTES_MAX}")));
    }
    check_variables("env", &run.env)
}

/// The request to the bridge. A default context is named by its language, so that the bridge creates it if it does not
/// exist.
fn execute(context: &str, run: &RunCode) -> Result<Value, ApiError> {
    let (id, language) = match context.strip_prefix(DEFAULT) {
        Some("") => (None, Some(LANGUAGE)),
        Some(rest) if rest.starts_with('-') => (None, Some(&rest[1..])),
        Some(_) | None => (Some(context), None),
    };
    if let Some(language) = language {
        check_language(language)?;
    }
    Ok(json!({
        "code": run.code,
        "context_id": id,
        "language": language,
        "env_vars": run.env,
        "timeout": run.timeout_ms.map(|ms| ms as f64 / 1000.0),
        "max_output_bytes": run.output_bytes_max,
    }))
}

/// The sandbox of a run, and its start.
struct RunWatch {
    engine: Engine,
    tenant: TenantId,
    sandbox: SandboxId,
    started_ms: u64,
}

impl RunWatch {
    /// The connections of the sandbox that were denied since the start of the run.
    async fn denied(&self) -> Vec<EgressDenied> {
        let (from_ms, to_ms) = (self.started_ms, self.engine.now_ms());
        let denied = self.engine.denied_during(&self.tenant, &self.sandbox, from_ms, to_ms, true).await;
        denied.into_iter().map(convert::denied).collect()
    }
}

/// The events as they arrive. The last one says how the run ended.
fn followed(app: Arc<App>, events: Lines, watch: RunWatch) -> impl Stream<Item = CodeEvent> + Send + 'static {
    stream::unfold(Some((app, events, watch)), |state| async move {
        let (app, mut events, watch) = state?;
        let event = match app.draining.run_until_cancelled(events.next()).await {
            None => CodeEvent::Broken { error: shutting_down().into_detail() },
            Some(Ok(event)) => event,
            Some(Err(error)) => CodeEvent::Broken { error: error.into_detail() },
        };
        match event {
            CodeEvent::End { status, execution_count, duration_ms, .. } => {
                let egress_denied = watch.denied().await;
                Some((CodeEvent::End { status, execution_count, duration_ms, egress_denied }, None))
            }
            CodeEvent::Broken { .. } => Some((event, None)),
            CodeEvent::Stdout { .. }
            | CodeEvent::Stderr { .. }
            | CodeEvent::Result(_)
            | CodeEvent::Error(_) => Some((event, Some((app, events, watch)))),
        }
    })
}

fn shutting_down() -> ApiError {
    ApiError::new(ErrorCode::Busy, "the daemon is shutting down")
        .hint("the code was interrupted; variables that it had set are kept and can be used again shortly")
}

async fn collected(app: &App, mut events: Lines, watch: &RunWatch) -> Result<CodeRun, ApiError> {
    let mut partial = PartialRun::default();
    loop {
        let event = app.draining.run_until_cancelled(events.next()).await;
        let event = event.ok_or_else(shutting_down)??;
        match event {
            CodeEvent::Stdout { text } => partial.truncated |= append(&mut partial.stdout, &text),
            CodeEvent::Stderr { text } => partial.truncated |= append(&mut partial.stderr, &text),
            CodeEvent::Result(result) => partial.show(*result),
            CodeEvent::Error(error) => partial.error = Some(error),
            CodeEvent::End { status, execution_count, duration_ms, .. } => {
                let PartialRun { stdout, stderr, results, error, truncated, .. } = partial;
                return Ok(CodeRun {
                    status,
                    execution_count,
                    duration_ms,
                    stdout,
                    stderr,
                    results,
                    error,
                    truncated,
                    egress_denied: watch.denied().await,
                });
            }
            CodeEvent::Broken { .. } => unreachable!("an interrupted run is an error"),
        }
    }
}

/// What a run has produced so far.
#[derive(Debug, Default)]
struct PartialRun {
    stdout: String,
    stderr: String,
    results: Vec<burrow_api::CodeResult>,
    results_bytes: usize,
    results_held: usize,
    error: Option<burrow_api::CodeError>,
    truncated: bool,
}

impl PartialRun {
    fn show(&mut self, result: burrow_api::CodeResult) {
        let text = serde_json::to_vec(&result).unwrap_or_default();
        self.results_bytes += text.len();
        self.results_held += size_of::<burrow_api::CodeResult>() + held(&text);
        if self.results_bytes > RESULTS_BYTES_MAX || self.results_held > RESULTS_HELD_MAX {
            self.truncated = true;
        } else {
            self.results.push(result);
        }
    }
}

/// Returns whether some of it was dropped because the limit was reached.
fn append(kept: &mut String, text: &str) -> bool {
    let room = defaults::RUN_OUTPUT_BYTES.saturating_sub(kept.len());
    let end = text.floor_char_boundary(room);
    kept.push_str(&text[..end]);
    end < text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_context_is_named_by_its_language() {
        let run = RunCode { code: "1".to_owned(), timeout_ms: Some(1500), ..RunCode::default() };
        let asked = |context: &str| {
            let value = execute(context, &run).unwrap();
            (value["context_id"].clone(), value["language"].clone())
        };
        assert_eq!(asked("default"), (Value::Null, json!("python")));
        assert_eq!(asked("default-bash"), (Value::Null, json!("bash")));
        assert_eq!(asked("defaulted"), (json!("defaulted"), Value::Null));
        assert_eq!(execute("default", &run).unwrap()["timeout"], 1.5);
        assert!(execute("default-", &run).is_err());
    }

    #[test]
    fn context_ids_cannot_change_the_path_of_a_request() {
        for bad in ["", ".", "..", "a/b", "a?b", "a b", "ä", &"x".repeat(65)] {
            assert!(check_context(bad).is_err(), "{bad}");
        }
        check_context("3f2a-B_9").unwrap();
    }

    #[test]
    fn output_beyond_the_limit_is_dropped_and_reported() {
        let mut kept = "x".repeat(defaults::RUN_OUTPUT_BYTES - 1);
        assert!(!append(&mut kept.clone(), "y"));
        assert!(append(&mut kept, "é"), "half a character is dropped");
        assert_eq!(kept.len(), defaults::RUN_OUTPUT_BYTES - 1);
    }
}
