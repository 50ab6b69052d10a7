//! Execs: the guest runs them; the catalog records them; [`session`] starts them and does what belongs to one.
//!
//! While a sandbox runs, its guest has the true state of its execs. The rows in the catalog serve lists, and the time after: when a
//! sandbox stops, the last state that the guest reports for each exec is stored, and execs whose state is unknown are marked lost.

mod event;
mod guard;
mod options;
mod origin;
mod record;
mod remember;
mod rollback_promises;
pub(crate) mod rollbacks;
mod session;

use std::collections::BTreeMap;
use std::time::Duration;

use burrow_catalog::PageRequest;
use burrow_guest::client::Connection;
use burrow_guest::protocol::{ExecInfo, ExecStart, ExecState, Request};
use burrow_model::{ExecId, SandboxId, TenantId};

use crate::egress::secrets;
use crate::{Engine, EngineError, Guest, GuestStream, ObjectKind};
use record::{new_row, row_of};
use rollback_promises::RollbackPromise;

pub use event::{ExecEvent, OutputStream};
pub use options::ExecOptions;
pub use origin::{ExecCall, ExecKind, ExecMoment, ExecObserver, ExecOrigin, NoExecObserver, ObservedExec};
pub use record::ExecRecord;
pub(crate) use remember::ExecRecorder;
pub use rollbacks::{Rollback, RollbackMode, RollbackStatus};
pub use session::{ExecReport, ExecSession};

/// Longest single wait for the end of an exec; callers repeat the request.
const WAIT_MAX: Duration = Duration::from_secs(300);

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
        promise: Option<&RollbackPromise>,
        is_remembered: bool,
    ) -> Result<(ExecInfo, Guest, Connection<GuestStream>), EngineError> {
        let guest = self.guest(tenant, sandbox).await?;
        let config = self.shared.image_config(&guest.row.tenant, &guest.row.image).await?;
        let spec = &guest.row.spec;
        let mut env = secrets::environment(&self.shared, &guest.row).await?;
        let retries = self.shared.policy.egress.retry_limits(&spec.network);
        env.extend(retries.map(|(name, value)| (name.to_owned(), value.to_owned())));
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
        let info = match self.guest_if_running(&row).await? {
            Some(guest) => guest.call::<ExecInfo>(&Request::ExecGet { exec: exec.to_string() }).await.ok(),
            None => None,
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
                Err(EngineError::NotFound { kind: ObjectKind::Sandbox, .. }) => {
                    Err(EngineError::NotFound { kind: ObjectKind::Exec, what: exec.to_string() })
                }
                found => found,
            },
            None => Err(EngineError::NotFound { kind: ObjectKind::Exec, what: exec.to_string() }),
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
        if let Some(guest) = self.guest_if_running(&row).await? {
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
        let guest = self.guest_with_processes(tenant, sandbox).await?;
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
