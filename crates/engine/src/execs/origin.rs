//! Who starts an exec, and the records that it leaves: the engine says when, the daemon above it writes them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use burrow_catalog::SandboxRow;
use burrow_guest::protocol::ExecOutcome;
use burrow_model::{ExecId, SandboxId, TenantId};

/// Who starts an exec.
#[derive(Clone, Debug)]
pub struct ExecOrigin {
    /// The caller, as the audit log names it.
    pub actor: Option<String>,
    pub kind: ExecKind,
}

#[derive(Clone, Debug)]
pub enum ExecKind {
    /// A request that starts this exec only: the record of the request is that of the end, too.
    Call(Arc<dyn ExecCall>),
    /// One of several execs that a request starts.
    Step,
    /// A program that the daemon runs for the caller: an attempt of a race, a command of a template, the code interpreter. Its
    /// failures are no experience of the sandbox, and so are not remembered.
    Internal,
    /// A step of an image build, which is recorded as a whole.
    Build,
}

/// A request that starts one exec.
pub trait ExecCall: fmt::Debug + Send + Sync {
    fn record(&self, exec: &ExecId, moment: ExecMoment<'_>);
}

/// An exec, for its records.
#[derive(Clone, Copy, Debug)]
pub struct ObservedExec<'a> {
    pub tenant: &'a TenantId,
    pub sandbox: &'a SandboxId,
    pub exec: &'a ExecId,
    pub actor: Option<&'a str>,
    pub at_ms: u64,
}

#[derive(Clone, Copy, Debug)]
pub enum ExecMoment<'a> {
    /// The process runs, `took` after it was requested. `program` is its first argument.
    Started { program: &'a str, took: Duration },
    /// It ended, and its caller waited for that.
    Ended(&'a ExecOutcome),
}

/// Records execs in the audit log and in metrics.
#[async_trait]
pub trait ExecObserver: fmt::Debug + Send + Sync {
    /// The end of an [`ExecKind::Call`] is recorded by the call itself.
    async fn record(&self, exec: ObservedExec<'_>, moment: ExecMoment<'_>);

    /// It was stored in memory, or could not be.
    fn remembered(&self, stored: bool);
}

/// Records nothing: for engines that are not part of a daemon.
#[derive(Clone, Copy, Debug)]
pub struct NoExecObserver;

#[async_trait]
impl ExecObserver for NoExecObserver {
    async fn record(&self, _exec: ObservedExec<'_>, _moment: ExecMoment<'_>) {}

    fn remembered(&self, _stored: bool) {}
}

impl ExecOrigin {
    pub(crate) fn build() -> Self {
        Self { actor: None, kind: ExecKind::Build }
    }

    /// Whether its end is stored in the memory of the sandbox.
    pub(super) fn is_remembered(&self) -> bool {
        match self.kind {
            ExecKind::Call(_) | ExecKind::Step => true,
            ExecKind::Internal | ExecKind::Build => false,
        }
    }

    pub(super) async fn record(
        &self,
        (observer, at_ms): (&dyn ExecObserver, u64),
        row: &SandboxRow,
        exec: &ExecId,
        moment: ExecMoment<'_>,
    ) {
        match (&self.kind, moment) {
            (ExecKind::Call(call), ExecMoment::Started { .. }) => call.record(exec, moment),
            (ExecKind::Call(call), ExecMoment::Ended(_)) => return call.record(exec, moment),
            (ExecKind::Step | ExecKind::Internal, _) => {}
            (ExecKind::Build, _) => return,
        }
        let actor = self.actor.as_deref();
        let observed = ObservedExec { tenant: &row.tenant, sandbox: &row.id, exec, actor, at_ms };
        observer.record(observed, moment).await;
    }
}
