//! What the audit log and the metrics record about an exec: its start, at once, and its end, if its caller waited for it.
//!
//! Only the program is named. Arguments may contain anything, including passwords.

use std::sync::Arc;

use async_trait::async_trait;
use burrow_audit::{Action, Event, Outcome, Text};
use burrow_engine::{ExecCall, ExecKind, ExecMoment, ExecObserver, ExecOrigin, ObservedExec};
use burrow_guest::protocol::{ExecOutcome, signal_name};
use burrow_model::ExecId;

use crate::audit::{Audit, Trace};
use crate::metrics::Metrics;

/// Records the execs of the engine.
#[derive(Clone, Debug)]
pub struct ExecRecords {
    pub audit: Arc<Audit>,
    pub metrics: Arc<Metrics>,
}

#[async_trait]
impl ExecObserver for ExecRecords {
    async fn record(&self, exec: ObservedExec<'_>, moment: ExecMoment<'_>) {
        let (action, reason) = match moment {
            ExecMoment::Started { program, took } => {
                self.metrics.exec_started(took);
                // If the first argument contains spaces, it is a whole command.
                (Action::ExecStart, Text::new(program.split_whitespace().next().unwrap_or_default()))
            }
            ExecMoment::Ended(outcome) => (Action::ExecEnd, ending(outcome)),
        };
        let event = Event {
            actor: exec.actor.map(Text::new),
            sandbox: Some(exec.sandbox.clone()),
            target: Some(Text::new(exec.exec.as_str())),
            reason: Some(reason),
            ..Event::new(exec.at_ms, exec.tenant.clone(), action, Outcome::Done)
        };
        self.audit.record_counted(event, exec.at_ms, &self.metrics).await;
    }

    fn remembered(&self, stored: bool) {
        self.metrics.memory.remembered(stored);
    }
}

impl ExecCall for Trace {
    fn record(&self, exec: &ExecId, moment: ExecMoment<'_>) {
        match moment {
            ExecMoment::Started { .. } => self.exec_began(exec),
            ExecMoment::Ended(outcome) => self.exec_ended(ending(outcome)),
        }
    }
}

/// The origin of the only exec that a call starts.
pub fn call(trace: Option<&Trace>) -> ExecOrigin {
    let kind = trace.map_or(ExecKind::Step, |trace| ExecKind::Call(Arc::new(trace.clone())));
    ExecOrigin { actor: actor(trace), kind }
}

/// The origin of one of several execs that a call starts: the call itself is a separate event.
pub fn step(trace: Option<&Trace>) -> ExecOrigin {
    ExecOrigin { actor: actor(trace), kind: ExecKind::Step }
}

/// The origin of a program that the daemon runs for a call.
pub fn internal(actor: Option<String>) -> ExecOrigin {
    ExecOrigin { actor, kind: ExecKind::Internal }
}

/// The caller, as the audit log names it.
pub fn actor(trace: Option<&Trace>) -> Option<String> {
    trace.and_then(|trace| trace.facts().actor).map(String::from)
}

fn ending(outcome: &ExecOutcome) -> Text {
    let how = match (outcome.timed_out, outcome.exit_code, outcome.signal) {
        (true, _, _) => "timed out".to_owned(),
        (false, Some(code), _) => format!("exited with {code}"),
        (false, None, Some(signal)) => format!("killed by {}", signal_name(signal)),
        (false, None, None) => "ended".to_owned(),
    };
    Text::from(how)
}
