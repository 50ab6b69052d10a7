//! What the audit log records about an exec: its start, at once, and its end, if a request waited for it.
//!
//! Only the program is named. Arguments may contain anything, including passwords.

use burrow_api::{Exec, ExecOutcome};
use burrow_audit::{Action, Event, Outcome, Text};
use burrow_engine::ExecOptions;
use burrow_model::{ExecId, SandboxId, TenantId};

use super::auth::Caller;
use crate::app::App;
use crate::audit::Trace;

#[derive(Debug)]
pub struct ExecTrace {
    /// `None` where the call is not recorded.
    trace: Option<Trace>,
    program: Text,
}

impl ExecTrace {
    pub fn of(caller: &Caller, options: &ExecOptions) -> Self {
        Self::by(caller.trace().cloned(), options)
    }

    /// For a call without a key.
    pub fn by(trace: Option<Trace>, options: &ExecOptions) -> Self {
        let program = options.argv.first().map(String::as_str).unwrap_or_default();
        // If the first argument contains spaces, it is a whole command.
        let program = program.split_whitespace().next().unwrap_or_default();
        Self { trace, program: Text::new(program) }
    }

    pub async fn began(&self, app: &App, tenant: &TenantId, sandbox: &SandboxId, exec: &ExecId) {
        let Some(trace) = &self.trace else { return };
        trace.target(exec.as_str());
        trace.exec_began();
        self.record(app, tenant, sandbox, exec.as_str(), Action::ExecStart, self.program.clone()).await;
    }

    /// For one of several execs that a call runs in sequence: the call itself is a separate event.
    pub async fn step_began(&self, app: &App, tenant: &TenantId, sandbox: &SandboxId, exec: &ExecId) {
        self.record(app, tenant, sandbox, exec.as_str(), Action::ExecStart, self.program.clone()).await;
    }

    pub async fn step_ended(&self, app: &App, tenant: &TenantId, sandbox: &SandboxId, exec: &Exec) {
        self.record(app, tenant, sandbox, &exec.id, Action::ExecEnd, Text::new(&ending(exec))).await;
    }

    async fn record(
        &self,
        app: &App,
        tenant: &TenantId,
        sandbox: &SandboxId,
        exec: &str,
        action: Action,
        reason: Text,
    ) {
        let Some(trace) = &self.trace else { return };
        let event = Event {
            actor: trace.facts().actor,
            sandbox: Some(sandbox.clone()),
            target: Some(Text::new(exec)),
            reason: Some(reason),
            ..Event::new(app.engine.now_ms(), tenant.clone(), action, Outcome::Done)
        };
        app.audited(event).await;
    }

    pub fn ended(&self, exec: &Exec) {
        if let Some(trace) = &self.trace {
            trace.exec_ended(&ending(exec));
        }
    }
}

fn ending(exec: &Exec) -> String {
    exec.outcome.as_ref().map_or_else(|| "ended".to_owned(), describe)
}

fn describe(outcome: &ExecOutcome) -> String {
    match (outcome.timed_out, outcome.exit_code, &outcome.signal) {
        (true, _, _) => "timed out".to_owned(),
        (false, Some(code), _) => format!("exited with {code}"),
        (false, None, Some(signal)) => format!("killed by {signal}"),
        (false, None, None) => "ended".to_owned(),
    }
}
