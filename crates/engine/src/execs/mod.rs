//! Execs: the guest runs them; the catalog records them; [`session`] starts them and does what belongs to one.
//!
//! While a sandbox runs, its guest has the true state of its execs. The rows in the catalog serve lists, and the time after: when a
//! sandbox stops, the last state that the guest reports for each exec is stored, and execs whose state is unknown are marked lost.

mod guard;
mod origin;
mod remember;
mod rollback_promises;
mod session;

use std::collections::BTreeMap;
use std::time::Duration;

use burrow_catalog::{ExecRow, ExecState as StoredState, PageRequest};
use burrow_guest::client::Connection;
use burrow_guest::protocol::{
    ExecInfo, ExecOutcome, ExecStart, ExecState, ReadMode, Request, StdinMode, TerminalSize,
};
use burrow_model::{ExecId, Remember, SandboxId, TenantId};

use crate::egress::secrets;
use crate::{Engine, EngineError, Guest, GuestStream};

pub(crate) use guard::Rollbacks;
pub use guard::{Rollback, RollbackMode, RollbackStatus};
pub use origin::{ExecCall, ExecKind, ExecMoment, ExecObserver, ExecOrigin, NoExecObserver, ObservedExec};
pub(crate) use remember::Remembering;
use rollback_promises::Promise;
pub use session::{ExecEvent, ExecReport, ExecSession, OutputStream};

/// Longest single wait for the end of an exec; callers repeat the request.
const WAIT_MAX: Duration = Duration::from_secs(300);

#[derive(Clone, Debug)]
pub struct ExecOptions {
    /// A new id if `None`. An exec with an id that the guest knows already is not started again: the answer is the existing exec,
    /// with its output from the beginning.
    pub id: Option<ExecId>,
    pub argv: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub workdir: Option<String>,
    pub user: Option<String>,
    pub stdin: StdinMode,
    pub terminal: Option<TerminalSize>,
    pub timeout_ms: Option<u64>,
    pub ring_bytes: u32,
    /// Continue with the output in the returned session.
    pub attach: Option<ReadMode>,
    pub hold: bool,
    pub then_stop: bool,
    pub rollback: RollbackMode,
}

/// The record of an exec.
#[derive(Clone, Debug)]
pub struct ExecRecord {
    pub row: ExecRow,
    /// From the guest, while it remembers the exec.
    pub info: Option<ExecInfo>,
}

impl ExecRecord {
    /// Its outcome, if it has ended and the outcome is known.
    pub fn outcome(&self) -> Option<ExecOutcome> {
        match &self.info {
            Some(ExecInfo { state: ExecState::Ended(outcome), .. }) => Some(outcome.clone()),
            Some(_) => None,
            None => serde_json::from_value(self.row.outcome.clone()?).ok(),
        }
    }

    /// When it started, and when it ended.
    fn times(&self) -> (u64, Option<u64>) {
        match &self.info {
            Some(info) => (info.started_ms, self.outcome().map(|outcome| outcome.ended_ms)),
            None => (self.row.started_ms, self.row.ended_ms),
        }
    }
}

/// Continues with the execs of earlier daemons: first keeps their promises, then remembers the others.
pub(crate) async fn resume(engine: &Engine) {
    rollback_promises::resume(engine).await;
    remember::resume(engine).await;
}

impl Engine {
    /// Sends an exec to its guest. The rollback that is promised, if any, is durable before it runs.
    async fn launch(
        &self,
        (tenant, sandbox, id): (&TenantId, &SandboxId, &ExecId),
        options: &ExecOptions,
        promise: Option<&Promise>,
        is_remembered: bool,
    ) -> Result<(ExecInfo, Guest, Connection<GuestStream>), EngineError> {
        let guest = self.guest(tenant, sandbox).await?;
        let config = self.shared.image_config(&guest.row.tenant, &guest.row.image).await?;
        let spec = &guest.row.spec;
        let mut env = secrets::environment(&self.shared, &guest.row).await?;
        env.extend(config.env);
        env.extend(spec.env.clone());
        env.extend(options.env.clone());
        // Without one the guest uses the home directory of the user.
        let cwd = options.workdir.clone().or_else(|| spec.workdir.clone()).or(config.workdir);
        let mut row = new_row(&guest, id, options, cwd.as_deref(), is_remembered, self.now_ms());
        let start = ExecStart {
            exec: id.to_string(),
            argv: options.argv.clone(),
            env,
            cwd,
            user: options.user.clone().or_else(|| spec.user.clone()).or(config.user),
            stdin: options.stdin,
            terminal: options.terminal,
            timeout_ms: options.timeout_ms,
            ring_bytes: options.ring_bytes,
            attach: options.attach,
            hold: options.hold,
            then_stop: options.then_stop,
        };
        if let Some(promise) = promise {
            let mut row = row.clone();
            row.command[burrow_catalog::PROMISE] = rollback_promises::to_value(promise);
            self.shared.seams.catalog.insert_promised_exec(row).await?;
        }
        let started = async {
            let mut connection = guest.open(&Request::ExecStart(start)).await?;
            let info: ExecInfo = guest.reply(&mut connection).await?;
            Ok::<_, EngineError>((connection, info))
        };
        let (connection, info) = match started.await {
            Err(error) if promise.is_some() => {
                self.shared.seams.catalog.forget_exec(id).await?;
                return Err(error);
            }
            started => started?,
        };
        // The row is only for lists, and contains nothing that the guest does not know. So it is stored asynchronously, unless it
        // had to be stored before the exec.
        row.started_ms = info.started_ms;
        match promise {
            None => self.shared.record_exec(row),
            Some(_) => self.shared.record_start(&row),
        }
        Ok((info, guest, connection))
    }

    pub async fn exec_info(
        &self,
        tenant: &TenantId,
        sandbox: &SandboxId,
        exec: &ExecId,
    ) -> Result<ExecRecord, EngineError> {
        let row = self.get(tenant, sandbox).await?;
        let missing = || EngineError::ExecNotFound { what: exec.to_string(), sandbox: row.id.clone() };
        let stored =
            self.shared.seams.catalog.exec(tenant, exec).await?.filter(|row| row.sandbox == *sandbox);
        // A request for information wakes no sandbox: for a sleeping one the catalog answers.
        let info = if row.state == burrow_model::State::Running {
            let guest = self.guest(tenant, sandbox).await?;
            guest.call::<ExecInfo>(&Request::ExecGet { exec: exec.to_string() }).await.ok()
        } else {
            None
        };
        match (stored, info) {
            (Some(row), info) => Ok(ExecRecord { row, info }),
            // The guest starts services' runs by itself, and a row may be stored shortly after its exec started.
            (None, Some(info)) => {
                let row = row_of(&row, exec, &info);
                Ok(ExecRecord { row, info: Some(info) })
            }
            (None, None) => Err(missing()),
        }
    }

    /// An exec of any sandbox of the tenant.
    pub async fn find_exec(&self, tenant: &TenantId, exec: &ExecId) -> Result<ExecRecord, EngineError> {
        // Rows are stored asynchronously: that of an exec that was just started may be missing.
        self.shared.flush_records().await;
        match self.shared.seams.catalog.exec(tenant, exec).await? {
            Some(row) => match self.exec_info(tenant, &row.sandbox, exec).await {
                // Its sandbox was deleted in the meantime, and the exec with it.
                Err(EngineError::NotFound { .. }) => Err(EngineError::NoExec { what: exec.to_string() }),
                found => found,
            },
            None => Err(EngineError::NoExec { what: exec.to_string() }),
        }
    }

    /// Newest first.
    pub async fn execs(
        &self,
        tenant: &TenantId,
        sandbox: &SandboxId,
        page: PageRequest,
    ) -> Result<burrow_catalog::Page<ExecRecord>, EngineError> {
        let row = self.get(tenant, sandbox).await?;
        let mut live = BTreeMap::new();
        if row.state == burrow_model::State::Running {
            let guest = self.guest(tenant, sandbox).await?;
            let infos: Vec<ExecInfo> = guest.call(&Request::ExecList).await.unwrap_or_default();
            live.extend(infos.into_iter().map(|info| (info.exec.clone(), info)));
        }
        let stored = self.shared.seams.catalog.list_execs(tenant, sandbox, page).await?;
        let rows = stored.rows.into_iter();
        let rows = rows.map(|row| ExecRecord { info: live.remove(row.id.as_str()), row }).collect();
        Ok(burrow_catalog::Page { rows, next_cursor: stored.next_cursor })
    }

    /// Waits for the end, but at most `bound`.
    pub async fn wait_exec(
        &self,
        tenant: &TenantId,
        sandbox: &SandboxId,
        exec: &ExecId,
        bound: Duration,
    ) -> Result<ExecRecord, EngineError> {
        let record = self.exec_info(tenant, sandbox, exec).await?;
        if record.info.as_ref().is_none_or(|info| info.state != ExecState::Running) {
            return Ok(record);
        }
        let bound = bound.min(WAIT_MAX);
        let guest = self.guest(tenant, sandbox).await?;
        let timeout_ms = u64::try_from(bound.as_millis()).unwrap_or(u64::MAX);
        let request = Request::ExecWait { exec: exec.to_string(), timeout_ms };
        let info = guest.call_within(bound + Duration::from_secs(10), &request).await?;
        Ok(ExecRecord { row: record.row, info: Some(info) })
    }
}

/// Stores the last state that the guest reports for its execs, before it ends.
pub(crate) async fn settle(shared: &crate::shared::Shared, guest: &Guest) {
    let row = &guest.row;
    // Only stored rows can be marked as ended.
    shared.flush_records().await;
    let infos: Vec<ExecInfo> = match guest.call_within(Duration::from_secs(5), &Request::ExecList).await {
        Ok(infos) => infos,
        Err(error) => {
            tracing::warn!(sandbox = %row.id, %error, "could not ask the guest for its execs before it stops");
            Vec::new()
        }
    };
    for info in infos {
        let Ok(exec) = info.exec.parse::<ExecId>() else { continue };
        if let ExecState::Ended(outcome) = info.state {
            let ended_ms = outcome.ended_ms;
            let outcome = serde_json::to_value(&outcome).expect("an outcome is JSON");
            if let Err(error) = shared.seams.catalog.finish_exec(&exec, ended_ms, outcome).await {
                tracing::warn!(sandbox = %row.id, %exec, %error, "could not record the end of an exec");
            }
        }
    }
}

fn new_row(
    guest: &Guest,
    id: &ExecId,
    options: &ExecOptions,
    cwd: Option<&str>,
    is_remembered: bool,
    started_ms: u64,
) -> ExecRow {
    let mut command = serde_json::json!({
        "workdir": options.workdir, "user": options.user, "terminal": options.terminal.is_some(),
        "timeout_ms": options.timeout_ms, "cwd": cwd,
    });
    // Only the daemon that starts an exec knows the secrets in its environment: another daemon could not recognise them in its output,
    // and so does not remember it.
    let knows_secrets = !burrow_memory::remember::secret_values(&options.env).is_empty();
    // A sandbox that ends after its exec ends as soon as the output was read, so the daemon must not read it.
    let remembers = guest.row.spec.memory.remember != Remember::Off && is_remembered;
    if remembers && !knows_secrets && !options.then_stop {
        command[burrow_catalog::UNREMEMBERED] = true.into();
    }
    ExecRow {
        id: id.clone(),
        tenant: guest.row.tenant.clone(),
        sandbox: guest.row.id.clone(),
        argv: options.argv.clone(),
        command,
        started_ms,
        ended_ms: None,
        outcome: None,
        state: StoredState::Running,
        generation: guest.row.generation,
    }
}

fn row_of(sandbox: &burrow_catalog::SandboxRow, exec: &ExecId, info: &ExecInfo) -> ExecRow {
    ExecRow {
        id: exec.clone(),
        tenant: sandbox.tenant.clone(),
        sandbox: sandbox.id.clone(),
        argv: info.argv.clone(),
        command: serde_json::Value::Null,
        started_ms: info.started_ms,
        ended_ms: None,
        outcome: None,
        state: StoredState::Running,
        generation: sandbox.generation,
    }
}
