//! Installs the bridge in a sandbox and starts it.

use crate::Bridges;
use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use burrow_api::{ErrorCode, defaults};
use burrow_catalog::SandboxRow;
use burrow_engine::{ExecOptions, Guest, RollbackMode};
use burrow_guest::protocol::{ExecInfo, ExecState, FileEntry, Request, StdinMode, WriteFile};
use burrow_model::ExecId;
use http::Method;
use tokio::time::Instant;

use super::{BridgeRequest, Interpreter};
use burrow_gateway::e2b::variables::variables;
use burrow_http::error::ApiError;
use burrow_http::exec_trace;
use burrow_http::request_target::CODE_PORT;
use burrow_http::upload::upload;

/// The bridge, the code that it runs in each kernel first, and the Java kernel.
const FILES: [(&str, &str); 8] = [
    (BRIDGE, include_str!("../python/bridge.py")),
    ("contexts.py", include_str!("../python/contexts.py")),
    ("events.py", include_str!("../python/events.py")),
    ("kernels.py", include_str!("../python/kernels.py")),
    ("kernel_python.py", include_str!("../python/kernel_python.py")),
    ("kernel_charts.py", include_str!("../python/kernel_charts.py")),
    ("kernel_java.py", include_str!("../python/kernel_java.py")),
    ("JavaShell.java", include_str!("../python/JavaShell.java")),
];

const BRIDGE: &str = "bridge.py";

/// A tmpfs, so its files live as long as the sandbox's processes, and are never part of a diff or an export.
const FOLDER: &str = "/run/burrow-code";

/// Python loads half a dozen packages, which takes long in an emulated machine.
const READY_TIME: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The working directory of the kernels of E2B's clients.
const E2B_DIRECTORY: &str = "/home/user";

/// The exit code of shells for a program that does not exist.
const NO_SUCH_PROGRAM: i32 = 127;

const IMAGE_HINT: &str = "a sandbox that runs code needs python3 with ipykernel, jupyter_client and tornado: `burrow image build \
                          --ready python-interpreter` makes an image that has them, and more";

impl Interpreter {
    /// Makes sure that a bridge is running.
    pub(super) async fn start(&self) -> Result<(), ApiError> {
        let start_lock = self.app.part::<Bridges>().start_lock(&self.sandbox);
        let _turn = start_lock.lock().await;
        let guest = self.app.engine.guest(&self.tenant, &self.sandbox).await?;
        if !self.is_listening().await? {
            put(&guest).await?;
            let exec = self.begin(guest.sandbox()).await?;
            self.wait(&guest, &exec).await?;
        }
        self.give_variables(guest.sandbox()).await;
        self.app.part::<Bridges>().note(&self.sandbox, guest.sandbox().generation);
        Ok(())
    }

    /// Passes the variables by which programs recognise an E2B sandbox to the bridge: a forked bridge has those of
    /// another sandbox.
    async fn give_variables(&self, row: &SandboxRow) {
        if row.spec.lease.is_none() {
            return;
        }
        let env = variables(&row.id, &row.spec.image.to_string());
        let body = serde_json::json!({ "env": env }).to_string();
        let request =
            BridgeRequest { method: Method::POST, path: "/environment".to_owned(), body: Some(body.into()) };
        // A bridge of an older daemon does not know this request; code runs nevertheless.
        match self.send(&request).await {
            Ok(answer) if answer.status().is_success() => {}
            Ok(answer) => {
                tracing::debug!(sandbox = %row.id, status = %answer.status(), "could not pass variables to the bridge")
            }
            Err(error) => {
                tracing::debug!(sandbox = %row.id, ?error, "could not pass variables to the bridge")
            }
        }
    }

    async fn begin(&self, row: &SandboxRow) -> Result<ExecId, ApiError> {
        let bridge = format!("{FOLDER}/{}", BRIDGE);
        let port = CODE_PORT.to_string();
        let mut argv = ["python3", "-u", &bridge, "--port", &port].map(str::to_owned).to_vec();
        // E2B runs kernels as root, in the home directory of the user that runs its commands.
        let is_e2b = row.spec.lease.is_some();
        if is_e2b {
            argv.extend(["--user-cwd", E2B_DIRECTORY].map(str::to_owned));
        }
        let options = ExecOptions {
            id: None,
            argv,
            env: BTreeMap::new(),
            workdir: None,
            user: is_e2b.then(|| "root".to_owned()),
            stdin: StdinMode::Null,
            terminal: None,
            timeout_ms: None,
            ring_bytes: defaults::RING_BYTES,
            attach: None,
            hold: false,
            then_stop: false,
            rollback: RollbackMode::Nothing,
        };
        let origin = exec_trace::internal(self.actor.clone());
        let started = self.app.engine.exec(&self.tenant, &self.sandbox, options, origin).await;
        Ok(started.map_err(ApiError::from).map_err(without_python)?.id().clone())
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
                    format!("the code interpreter did not start listening within {} s", READY_TIME.as_secs());
                let hint = format!("see its output with `burrow logs {exec}`");
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
            "the code interpreter of the sandbox failed to start: exit code {code}; see `burrow logs {exec}`"
        )),
        None => absent("the code interpreter of the sandbox was killed while it started"),
    }
}

fn absent(message: &str) -> ApiError {
    ApiError::new(ErrorCode::Unprocessable, message).hint(IMAGE_HINT)
}
