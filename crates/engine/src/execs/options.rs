//! What a caller requests of an exec.

use std::collections::BTreeMap;

use burrow_guest::protocol::{ReadMode, StdinMode, TerminalSize};
use burrow_model::ExecId;

use super::rollbacks::RollbackMode;

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
