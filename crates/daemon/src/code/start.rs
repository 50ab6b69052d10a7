//! Putting the bridge into a sandbox and starting it there.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use burrow_api::{ErrorCode, defaults};
use burrow_catalog::SandboxRow;
use burrow_engine::{ExecOptions, Guest};
use burrow_guest::protocol::{ExecInfo, ExecState, FileEntry, Request, StdinMode, WriteFile};
use burrow_model::ExecId;
use http::Method;
use tokio::time::Instant;

use super::{CODE_PORT, Interpreter, Question};
use crate::e2b::envd::variables;
use crate::rest::error::ApiError;
use crate::rest::upload::upload;

/// The bridge, and what it runs in each kernel first.
const FILES: [(&str, &str); 6] = [
    (BRIDGE, include_str!("bridge.py")),
    ("contexts.py", include_str!("contexts.py")),
    ("events.py", include_str!("events.py")),
    ("kernels.py", include_str!("kernels.py")),
    ("kernel_python.py", include_str!("kernel_python.py")),
    ("kernel_charts.py", include_str!("kernel_charts.py")),
];

const BRIDGE: &str = "bridge.py";

/// Gone with the sandbox's processes, as they are; nothing of it is on a disk that somebody compares or exports.
const FOLDER: &str = "/run/burrow-code";

/// Python has half a dozen packages to load; in an emulated machine that takes a while.
const READY_TIME: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// As shells say it of a program that is not there.
const NO_SUCH_PROGRAM: i32 = 127;

const IMAGE_HINT: &str = "a sandbox that runs code needs python3 with ipykernel, jupyter_client and tornado: `burrow image build \
                          --ready python-interpreter` makes an image that has them, and more";

impl Interpreter {
    /// Sees to it that a bridge runs.
    pub(super) async fn start(&self) -> Result<(), ApiError> {
        let turn = self.app.bridges.turn(&self.sandbox);
        let _turn = turn.lock().await;
        let guest = self.app.engine.reach(&self.tenant, &self.sandbox).await?;
        if !self.is_listening().await? {
            put(&guest).await?;
            let exec = self.begin().await?;
            self.wait(&guest, &exec).await?;
        }
        self.give_variables(guest.sandbox()).await;
        self.app.bridges.note(&self.sandbox, guest.sandbox().generation);
        Ok(())
    }

    /// Tells the bridge what programs recognise an E2B sandbox by: a bridge that was forked has those of another sandbox.
    async fn give_variables(&self, row: &SandboxRow) {
        if row.spec.lease.is_none() {
            return;
        }
        let env = variables(&row.id, &row.spec.image.to_string());
        let body = serde_json::json!({ "env": env }).to_string();
        let question =
            Question { method: Method::POST, path: "/environment".to_owned(), body: Some(body.into()) };
        // One of an older daemon, that has slept since, does not know them; code runs all the same.
        match self.send(&question).await {
            Ok(answer) if answer.status().is_success() => {}
            Ok(answer) => {
                tracing::debug!(sandbox = %row.id, status = %answer.status(), "no variables for kernels")
            }
            Err(error) => tracing::debug!(sandbox = %row.id, ?error, "no variables for kernels"),
        }
    }

    async fn begin(&self) -> Result<ExecId, ApiError> {
        let bridge = format!("{FOLDER}/{}", BRIDGE);
        let port = CODE_PORT.to_string();
        let argv = ["python3", "-u", &bridge, "--port", &port].map(str::to_owned).to_vec();
        let options = ExecOptions {
            id: None,
            argv,
            env: BTreeMap::new(),
            workdir: None,
            user: None,
            stdin: StdinMode::Null,
            terminal: None,
            timeout_ms: None,
            ring_bytes: defaults::RING_BYTES,
            attach: None,
            hold: false,
            then_stop: false,
        };
        let started = self.app.engine.exec(&self.tenant, &self.sandbox, options).await;
        Ok(started.map_err(ApiError::from).map_err(without_python)?.id)
    }

    async fn wait(&self, guest: &Guest, exec: &ExecId) -> Result<(), ApiError> {
        let deadline = Instant::now() + READY_TIME;
        loop {
            if self.is_listening().await? {
                return Ok(());
            }
            let info: ExecInfo = guest.call(&Request::ExecGet { exec: exec.to_string() }).await?;
            if let ExecState::Ended(outcome) = &info.state {
                return Err(ended(exec, outcome.exit_code));
            }
            if Instant::now() > deadline {
                let message =
                    format!("the code interpreter did not begin to listen within {} s", READY_TIME.as_secs());
                let hint = format!("`burrow logs` of exec `{exec}` shows what it said");
                return Err(ApiError::new(ErrorCode::GatewayTimeout, message).hint(hint));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

async fn put(guest: &Guest) -> Result<(), ApiError> {
    for (name, text) in FILES {
        let write = WriteFile {
            path: format!("{FOLDER}/{name}"),
            mode: Some(0o644),
            user: None,
            parents: true,
            offset: None,
            sync: false,
            in_place: false,
            metadata: None,
        };
        upload::<FileEntry>(guest, &Request::Write(write), Body::from(text)).await?;
    }
    Ok(())
}

fn without_python(error: ApiError) -> ApiError {
    let missing = matches!(error.code(), ErrorCode::NoSuchProgram | ErrorCode::CannotExecute);
    if missing { absent("the sandbox has no python3") } else { error }
}

fn ended(exec: &ExecId, exit_code: Option<i32>) -> ApiError {
    match exit_code {
        Some(NO_SUCH_PROGRAM) => absent("the sandbox has no python3"),
        Some(code) => absent(&format!(
            "the code interpreter of the sandbox does not start: exit code {code}, `burrow logs` of exec `{exec}` says why"
        )),
        None => absent("the code interpreter of the sandbox was ended while it started"),
    }
}

fn absent(message: &str) -> ApiError {
    ApiError::new(ErrorCode::Unprocessable, message).hint(IMAGE_HINT)
}
