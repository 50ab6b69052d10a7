//! The record of an exec: its row, and what its guest knows about it.

use burrow_catalog::{ExecRow, ExecState as StoredState};
use burrow_guest::protocol::{ExecInfo, ExecOutcome, ExecState};
use burrow_model::{ExecId, RememberMode};

use super::options::ExecOptions;
use crate::Guest;

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
    pub(super) fn times(&self) -> (u64, Option<u64>) {
        match &self.info {
            Some(info) => (info.started_ms, self.outcome().map(|outcome| outcome.ended_ms)),
            None => (self.row.started_ms, self.row.ended_ms),
        }
    }
}

pub(super) fn new_row(
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
    let remembers = guest.row.spec.memory.remember != RememberMode::Off && is_remembered;
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

pub(super) fn row_of(sandbox: &burrow_catalog::SandboxRow, exec: &ExecId, info: &ExecInfo) -> ExecRow {
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
