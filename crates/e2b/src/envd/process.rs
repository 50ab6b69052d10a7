//! Processes: start, join, list, resize, signal. A process is an exec; clients know it by its pid inside the sandbox.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use burrow_api::{CreateExec, StdinMode, TerminalSize};
use burrow_engine::{EngineError, ExecOptions, ExecSession, Guest};
use burrow_guest::protocol::{self, Attach, ErrorCode as GuestCode, ExecInfo, ExecState, ReadMode, Request};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::error::{RpcCode, RpcError};
use super::super::mcp;
use super::connect::{StreamedCall, UnaryCall, broken};
use super::inside::EnvdRequest;
use super::marks;
use super::output::Output;
use crate::envd::Marks;
use burrow_gateway::e2b::variables::variables;
use burrow_http::app::App;
use burrow_http::{convert, exec_trace};

#[derive(Debug, Deserialize)]
pub(super) struct StartRequest {
    process: ProcessConfig,
    pty: Option<Pty>,
    tag: Option<String>,
    /// True when absent: older clients rely on it.
    stdin: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct ProcessConfig {
    #[serde(default)]
    cmd: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    envs: BTreeMap<String, String>,
    cwd: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Pty {
    size: Option<Size>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Size {
    #[serde(default)]
    cols: u16,
    #[serde(default)]
    rows: u16,
}

/// The default size of a terminal.
const COLUMNS: u16 = 80;
const ROWS: u16 = 24;

/// Selects a process.
#[derive(Debug, Deserialize)]
pub(super) struct Selector {
    pid: Option<u32>,
    tag: Option<String>,
}

impl Selector {
    /// The exec with this pid.
    pub(super) async fn find(&self, guest: &Guest) -> Result<ExecInfo, RpcError> {
        if self.tag.is_some() {
            return Err(no_tags());
        }
        let pid = self.pid.ok_or_else(|| RpcError::invalid("a process must be selected by its pid"))?;
        let all: Vec<ExecInfo> = guest.call(&Request::ExecList).await?;
        let runs = |info: &ExecInfo| info.pid == pid && info.state == ExecState::Running;
        let found = all.into_iter().find(runs);
        found.ok_or_else(|| RpcError::new(RpcCode::NotFound, format!("process with pid {pid} not found")))
    }
}

fn no_tags() -> RpcError {
    RpcError::new(RpcCode::Unimplemented, "Burrow does not support process tags: use the pid")
}

#[derive(Debug, Deserialize)]
pub(super) struct ConnectRequest {
    process: Selector,
}

pub(super) async fn start(
    State(app): State<Arc<App>>,
    inside: EnvdRequest,
    StreamedCall(request): StreamedCall<StartRequest>,
) -> Response {
    match begin(&app, &inside, request).await {
        Ok(output) => output.streamed(),
        Err(error) => broken(&app, &inside.sandbox, &error).await,
    }
}

async fn begin(
    app: &Arc<App>,
    inside: &EnvdRequest,
    request: Result<StartRequest, RpcError>,
) -> Result<Output, RpcError> {
    let request = request?;
    if request.tag.is_some() {
        return Err(no_tags());
    }
    // Like every use, this starts a stopped sandbox.
    let running = app.engine.running(&inside.tenant, &inside.sandbox);
    let mark = match app.part::<Marks>().of(&inside.sandbox, running) {
        Some(mark) => mark,
        None => marks::put(app, &inside.guest(app).await?).await,
    };
    let mut options = options(inside, &request)?;
    for (name, value) in variables(&inside.sandbox, &mark.template) {
        options.env.entry(name).or_insert(value);
    }
    if let Some(cwd) = options.workdir.take() {
        options.workdir = Some(place(app, inside, &cwd).await?);
    }
    let token = mark.has_mcp.then(|| mcp::token(&options.argv, &options.env).map(str::to_owned)).flatten();
    let session = run(app, inside, options, mark.has_user).await?;
    if let Some(token) = token {
        mcp::accept(app, &inside.tenant, &inside.sandbox, &token).await?;
    }
    Ok(Output::of(app, inside, session))
}

fn options(inside: &EnvdRequest, request: &StartRequest) -> Result<ExecOptions, RpcError> {
    let process = &request.process;
    let terminal = request.pty.as_ref().map(|pty| {
        let size = pty.size.unwrap_or(Size { cols: 0, rows: 0 });
        let or = |given: u16, usual: u16| if given == 0 { usual } else { given };
        TerminalSize { columns: or(size.cols, COLUMNS), rows: or(size.rows, ROWS) }
    });
    let piped = request.stdin.unwrap_or(true) || terminal.is_some();
    let timeout_ms = inside.timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
    let usual = CreateExec {
        argv: std::iter::once(process.cmd.clone()).chain(process.args.iter().cloned()).collect(),
        env: process.envs.clone(),
        user: inside.user.clone(),
        stdin: if piped { StdinMode::Pipe } else { StdinMode::Null },
        terminal,
        timeout_ms,
        wait: true,
        ..CreateExec::default()
    };
    let options = convert::exec_options(&usual)?;
    Ok(ExecOptions { workdir: process.cwd.clone().filter(|cwd| !cwd.is_empty()), ..options })
}

async fn place(app: &App, inside: &EnvdRequest, cwd: &str) -> Result<String, RpcError> {
    if cwd.starts_with('/') {
        convert::check_path("cwd", cwd)?;
        return Ok(cwd.to_owned());
    }
    let guest = inside.guest(app).await?;
    let user = inside.as_user(&guest)?;
    Ok(inside.path(&guest, &user, cwd).await?)
}

/// As the given user, else that of the sandbox, else the default user if the image has it, else the image's.
async fn run(
    app: &App,
    inside: &EnvdRequest,
    options: ExecOptions,
    has_user: bool,
) -> Result<ExecSession, RpcError> {
    let exec = |options| {
        app.engine.exec(&inside.tenant, &inside.sandbox, options, exec_trace::call(inside.trace.as_ref()))
    };
    if let Some(name) = options.user.clone() {
        return match exec(options).await {
            Err(EngineError::Guest { source, .. }) if source.code == GuestCode::UnknownUser => {
                Err(RpcError::new(RpcCode::Unauthenticated, format!("invalid username: '{name}'")))
            }
            started => Ok(started?),
        };
    }
    if has_user {
        return Ok(exec(options).await?);
    }
    let usual = ExecOptions { user: Some(super::inside::DEFAULT_USER.to_owned()), ..options.clone() };
    match exec(usual).await {
        Err(EngineError::Guest { source, .. }) if source.code == GuestCode::UnknownUser => {
            Ok(exec(options).await?)
        }
        started => Ok(started?),
    }
}

/// From now on: earlier output was for earlier readers.
pub(super) async fn connect(
    State(app): State<Arc<App>>,
    inside: EnvdRequest,
    StreamedCall(request): StreamedCall<ConnectRequest>,
) -> Response {
    match join(&app, &inside, request).await {
        Ok(output) => output.streamed(),
        Err(error) => broken(&app, &inside.sandbox, &error).await,
    }
}

async fn join(
    app: &Arc<App>,
    inside: &EnvdRequest,
    request: Result<ConnectRequest, RpcError>,
) -> Result<Output, RpcError> {
    let guest = inside.guest(app).await?;
    let found = request?.process.find(&guest).await?;
    let attach =
        Attach { exec: found.exec, offset: found.output_end, mode: ReadMode::Lossless, follow: true };
    let session = app.engine.attach_exec(&inside.tenant, &inside.sandbox, attach).await?;
    Ok(Output::of(app, inside, session))
}

pub(super) async fn list(
    State(app): State<Arc<App>>,
    inside: EnvdRequest,
    _: UnaryCall<Value>,
) -> Result<Json<Value>, RpcError> {
    let guest = inside.guest(&app).await?;
    let all: Vec<ExecInfo> = guest.call(&Request::ExecList).await?;
    let running = all.into_iter().filter(|info| info.state == ExecState::Running);
    let processes: Vec<Value> = running
        .map(|info| {
            let (cmd, args) =
                info.argv.split_first().map_or((String::new(), &[][..]), |(cmd, args)| (cmd.clone(), args));
            json!({ "pid": info.pid, "config": { "cmd": cmd, "args": args, "envs": {} } })
        })
        .collect();
    Ok(Json(json!({ "processes": processes })))
}

#[derive(Debug, Deserialize)]
pub(super) struct UpdateRequest {
    process: Selector,
    pty: Option<Pty>,
}

pub(super) async fn update(
    State(app): State<Arc<App>>,
    inside: EnvdRequest,
    UnaryCall(request): UnaryCall<UpdateRequest>,
) -> Result<Json<Value>, RpcError> {
    let guest = inside.guest(&app).await?;
    let found = request.process.find(&guest).await?;
    if let Some(Size { cols, rows }) = request.pty.and_then(|pty| pty.size) {
        if cols == 0 || rows == 0 {
            return Err(RpcError::invalid("a terminal must have at least one column and one row"));
        }
        let size = protocol::TerminalSize { columns: cols, rows };
        guest.call::<()>(&Request::ExecResize { exec: found.exec, size }).await?;
    }
    Ok(Json(json!({})))
}

#[derive(Debug, Deserialize)]
pub(super) struct SignalRequest {
    process: Selector,
    /// `SIGNAL_SIGTERM` or its number.
    signal: Value,
}

pub(super) async fn signal(
    State(app): State<Arc<App>>,
    inside: EnvdRequest,
    UnaryCall(request): UnaryCall<SignalRequest>,
) -> Result<Json<Value>, RpcError> {
    let word = match request.signal.as_str() {
        Some(word) => word.strip_prefix("SIGNAL_").unwrap_or(word).to_owned(),
        None => request.signal.to_string(),
    };
    let signal = convert::parse_signal(&word)
        .ok_or_else(|| RpcError::invalid("`signal` must be a signal, like `SIGNAL_SIGTERM`"))?;
    let guest = inside.guest(&app).await?;
    let found = request.process.find(&guest).await?;
    // Signals the whole group: if a shell is killed alone, its children continue to run.
    let request = Request::ExecSignal { exec: found.exec, signal, group: true };
    match guest.call::<()>(&request).await {
        Ok(()) => Ok(Json(json!({}))),
        Err(error) => Err(error.into()),
    }
}
