//! Starts execs and reads them to their end, with everything that belongs to one, so that no caller can omit a part.
//!
//! ```text
//!   snapshot ─► promise ─► start ─► audit, metrics ─► output … ─► end ─► audit ─► denials ─► rollback ─► memory
//!   └─────────────── Engine::exec ────────────────┘   └ next ┘   └────────── ExecSession::ended ───────────┘
//! ```
//!
//! If a session is dropped before that, the exec continues: it is rolled back and remembered in the background. A reader of an exec
//! that was started before has a session too ([`Engine::attach_exec`]), whose end is reported in the same way.

use std::panic::resume_unwind;

use burrow_guest::client::{Connection, GuestError, parse};
use burrow_guest::protocol::{Attach, AttachNotice, ExecInfo, ExecState, Frame, Request};
use burrow_memory::remember::{RelatedMemory, secret_values};
use burrow_model::{ExecId, SandboxId, TenantId};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::event::{ExecEvent, OutputStream};
use super::options::ExecOptions;
use super::origin::{ExecMoment, ExecOrigin};
use super::record::{ExecRecord, row_of};
use super::remember::{self, Tails};
use super::rollbacks::{OutputHold, RollbackGuard, RollbackStatus};
use crate::guest::{GuestReader, GuestWriter};
use crate::{DeniedTraffic, Engine, EngineError, Guest, GuestStream};

/// The state of an exec, as it is reported to clients.
#[derive(Clone, Debug)]
pub struct ExecReport {
    pub record: ExecRecord,
    /// Connections of its sandbox that were denied while it ran.
    pub denied: Vec<DeniedTraffic>,
    pub status: RollbackStatus,
    /// Memories of similar failures, if it failed.
    pub related: Vec<RelatedMemory>,
}

/// An exec that its caller started, or reads.
#[derive(Debug)]
pub struct ExecSession {
    engine: Engine,
    guest: Guest,
    id: ExecId,
    info: ExecInfo,
    reader: GuestReader,
    /// Kept open: the guest would take its closing for a disconnected reader.
    writer: Option<GuestWriter>,
    pub(super) tails: Tails,
    /// For an exec with a snapshot, whose rollback waits for its readers.
    hold: Option<OutputHold>,
    /// `None` for a reader that did not start it.
    origin: Option<ExecOrigin>,
    /// Its end is stored in memory, also if this is dropped before.
    follows: bool,
}

impl Engine {
    /// Starts an exec, after a snapshot if the options contain one. If they contain `attach`, the session receives its output.
    pub async fn exec(
        &self,
        tenant: &TenantId,
        sandbox: &SandboxId,
        options: ExecOptions,
        origin: ExecOrigin,
    ) -> Result<ExecSession, EngineError> {
        let (engine, tenant, sandbox) = (self.clone(), tenant.clone(), sandbox.clone());
        let begun = async move { engine.begin(&tenant, &sandbox, options, origin).await };
        // If the caller disconnects, neither an exec without records nor an unused snapshot may be left.
        match self.shared.background.tasks.spawn(begun.in_current_span()).await {
            Ok(session) => session,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                Err(_) => Err(EngineError::ShuttingDown),
            },
        }
    }

    async fn begin(
        &self,
        tenant: &TenantId,
        sandbox: &SandboxId,
        options: ExecOptions,
        origin: ExecOrigin,
    ) -> Result<ExecSession, EngineError> {
        let id = options.id.clone().unwrap_or_else(ExecId::generate);
        let named = (tenant, sandbox, &id);
        let guard = RollbackGuard::take(self, named, &options.argv, options.rollback).await?;
        let promise = guard.as_ref().and_then(|guard| guard.promise());
        let began = Instant::now();
        let launched = self.launch(named, &options, promise.as_ref(), origin.is_remembered()).await;
        let (info, guest, connection) = match (launched, &guard) {
            (Err(error), Some(guard)) => {
                guard.remove_snapshot(self).await;
                return Err(error);
            }
            (launched, _) => launched?,
        };
        let took = began.elapsed();
        if let Some(guard) = &guard {
            guard.began(self);
        }
        let mut session = self.session(guest, id, info, connection);
        session.hold = guard.filter(|_| options.attach.is_some()).map(RollbackGuard::hold);
        // If the sandbox stops after the exec, it stops once the output was read, and the daemon's own reader would count as that.
        session.follows = origin.is_remembered() && !options.then_stop;
        if origin.is_remembered() {
            self.shared.remembering.given(&session.id, secret_values(&options.env));
        }
        let program = options.argv.first().map(String::as_str).unwrap_or_default();
        let started = ExecMoment::Started { program, took };
        origin
            .record((self.exec_observer(), self.now_ms()), session.guest.sandbox(), &session.id, started)
            .await;
        session.origin = Some(origin);
        Ok(session)
    }

    /// Reads the output of an exec, and writes its input.
    pub async fn attach_exec(
        &self,
        tenant: &TenantId,
        sandbox: &SandboxId,
        attach: Attach,
    ) -> Result<ExecSession, EngineError> {
        let id = attach.exec.parse::<ExecId>();
        let missing = |_| EngineError::ExecNotFound { what: attach.exec.clone(), sandbox: sandbox.clone() };
        let id = id.map_err(missing)?;
        // First of all: a failed command is rolled back as soon as no client reads its output any more.
        let guard = if attach.follow { self.shared.rollbacks.guard(&id) } else { None };
        let hold = guard.map(RollbackGuard::hold);
        let guest = self.guest_with_processes(tenant, sandbox).await?;
        let mut session = self.attach_over(guest, id, attach).await?;
        session.hold = hold;
        Ok(session)
    }

    /// The same through this guest. Delays no rollback.
    pub(super) async fn attach_over(
        &self,
        guest: Guest,
        id: ExecId,
        attach: Attach,
    ) -> Result<ExecSession, EngineError> {
        let mut connection = guest.open(&Request::Attach(attach)).await?;
        let info: ExecInfo = guest.reply(&mut connection).await?;
        Ok(self.session(guest, id, info, connection))
    }

    fn session(
        &self,
        guest: Guest,
        id: ExecId,
        info: ExecInfo,
        connection: Connection<GuestStream>,
    ) -> ExecSession {
        let (reader, writer) = connection.split();
        ExecSession {
            engine: self.clone(),
            guest,
            id,
            info,
            reader,
            writer: Some(writer),
            tails: Tails::default(),
            hold: None,
            origin: None,
            follows: false,
        }
    }

    /// Collects what is reported to clients about an exec.
    pub async fn report_exec(&self, record: ExecRecord) -> ExecReport {
        let row = &record.row;
        let (started_ms, ended_ms) = record.times();
        let until_ms = ended_ms.unwrap_or_else(|| self.now_ms());
        // A host may have been denied, which the egress process may be about to report, so wait for its report. Programs that
        // ignore the failure exit with 0.
        let has_ended = record.outcome().is_some();
        let denied = self.denied_during(&row.tenant, &row.sandbox, started_ms, until_ms, has_ended).await;
        let status = self.shared.rollbacks.status(&row.id);
        ExecReport { record, denied, status, related: Vec::new() }
    }

    /// The same for a client that waited for the end: stores it in memory, and finds the entries related to its failure.
    pub async fn report_awaited_exec(&self, record: ExecRecord) -> ExecReport {
        let mut report = self.report_exec(record).await;
        report.related = remember::remembered_late(self, &report.record).await;
        report
    }
}

impl ExecSession {
    pub fn id(&self) -> &ExecId {
        &self.id
    }

    /// Its state when this began.
    pub fn info(&self) -> &ExecInfo {
        &self.info
    }

    pub fn guest(&self) -> &Guest {
        &self.guest
    }

    /// The other direction of the connection. Must be called at most once.
    pub fn take_input(&mut self) -> GuestWriter {
        self.writer.take().expect("the input is taken once")
    }

    /// The report for a client that started it and does not wait for its end.
    pub fn report(&self) -> ExecReport {
        let status = self.engine.shared.rollbacks.status(&self.id);
        ExecReport { record: self.record(self.info.clone()), denied: Vec::new(), status, related: Vec::new() }
    }

    fn record(&self, info: ExecInfo) -> ExecRecord {
        ExecRecord { row: row_of(self.guest.sandbox(), &self.id, &info), info: Some(info) }
    }

    /// The next event. May be cancelled.
    pub async fn next(&mut self) -> Result<ExecEvent, EngineError> {
        let guest = &self.guest;
        let fail = |error| Err(guest.error(error));
        let (stream, offset, bytes) = match self.reader.next().await.map_err(|error| guest.error(error))? {
            Some(Frame::Stdout { offset, bytes }) => (OutputStream::Stdout, offset, bytes),
            Some(Frame::Stderr { offset, bytes }) => (OutputStream::Stderr, offset, bytes),
            Some(Frame::Control(json)) => {
                return match parse(&json).map_err(|error| guest.error(error))? {
                    AttachNotice::Gap { from, to } => Ok(ExecEvent::Gap { from, to }),
                    AttachNotice::Drained { offset } => Ok(ExecEvent::Drained { offset }),
                    AttachNotice::Exit(info) if info.state == ExecState::Running => {
                        fail(GuestError::OutOfTurn)
                    }
                    AttachNotice::Exit(info) => Ok(ExecEvent::Exit(info)),
                };
            }
            Some(Frame::Bytes(_) | Frame::End) => return fail(GuestError::OutOfTurn),
            None => return fail(GuestError::HungUp),
        };
        self.tails.push(stream, &bytes);
        Ok(ExecEvent::Output { stream, offset, bytes })
    }

    /// Passes everything before the end to `each`, and reports the end.
    pub async fn read_to_end(
        &mut self,
        mut each: impl FnMut(&ExecEvent) + Send,
    ) -> Result<ExecReport, EngineError> {
        loop {
            match self.next().await? {
                ExecEvent::Exit(info) => return Ok(self.ended(info).await),
                ExecEvent::Drained { .. } => return Err(self.guest.error(GuestError::OutOfTurn)),
                event @ (ExecEvent::Output { .. } | ExecEvent::Gap { .. }) => each(&event),
            }
        }
    }

    /// What follows the end. Returns after the rollback, if there is one: the exec is then remembered in the restored branch.
    pub async fn ended(&mut self, info: ExecInfo) -> ExecReport {
        if let (Some(origin), ExecState::Ended(outcome)) = (&self.origin, &info.state) {
            let ended = ExecMoment::Ended(outcome);
            origin
                .record(
                    (self.engine.exec_observer(), self.engine.now_ms()),
                    self.guest.sandbox(),
                    &self.id,
                    ended,
                )
                .await;
        }
        let mut report = self.engine.report_exec(self.record(info.clone())).await;
        if let Some(hold) = self.hold.take() {
            report.status = hold.settled(&self.engine.background().draining).await;
        }
        self.follows = false;
        if self.origin.as_ref().is_none_or(ExecOrigin::is_remembered) {
            report.related = remember::remembered(&self.engine, &self.guest, &info, &self.tails).await;
        }
        report
    }
}

impl Drop for ExecSession {
    fn drop(&mut self) {
        if self.follows {
            remember::remember_at_end(&self.engine, &self.guest, &self.id);
        }
    }
}
