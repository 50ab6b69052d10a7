//! Start, stop, pause, resume, delete; and the guest of a sandbox that is up.

use std::time::Duration;

use burrow_catalog::{SandboxChange, SandboxRow};
use burrow_guest::protocol::Request as GuestRequest;
use burrow_model::{
    AUTO_RESUME_MS_MIN, Admission, AtTimeout, OperationId, Refusal, Request, SandboxSpec, State, StopReason,
};

use super::command::{Reply, UseMode};
use super::live_machine::LiveMachine;
use super::{Actor, SandboxFate};
use crate::operations::journal::{Operation, Resource};
use crate::operations::{StartOptions, bring_up, forget, unwind};
use crate::snapshots::dump;
use crate::{EngineError, Guest, execs, faults};

/// How long processes may take to end by themselves when a sandbox is stopped because its lease ended.
const REST_GRACE: Duration = Duration::from_secs(5);

/// If a sandbox could not be put to sleep at the end of its lease, its lease ends again after this time.
const REST_RETRY_MS: u64 = 10_000;

impl Actor {
    pub(super) async fn start(&mut self) -> Result<(), EngineError> {
        match self.admit(Request::Start, "start")? {
            Admission::Already => Ok(()),
            Admission::Now | Admission::AfterResume | Admission::AfterWake | Admission::AfterStart => {
                if self.row.state == State::Paused {
                    self.do_resume().await
                } else if self.row.state == State::Hibernated {
                    self.do_wake().await
                } else {
                    self.do_start().await
                }
            }
        }
    }

    /// Boots from the files, and discards dumped processes.
    pub(super) async fn start_fresh(&mut self) -> Result<(), EngineError> {
        if self.row.state == State::Hibernated {
            self.stop(StopReason::Requested).await?;
        }
        self.start().await
    }

    pub(super) async fn do_start(&mut self) -> Result<(), EngineError> {
        let root = self.root().await?;
        let operation = self.begin(Operation::Start, State::Starting).await?;
        let started = async {
            faults::hit("start.begun")?;
            bring_up(&self.shared, &self.row, root, Operation::Start, StartOptions::default()).await
        };
        match started.await {
            Ok(live) => {
                self.settle_running(&operation.id, live).await?;
                faults::hit("start.settled")?;
                self.event("sandbox.started", serde_json::json!({}));
                Ok(())
            }
            Err(error) => {
                unwind(&self.shared, &self.row, Operation::Start, &mut |_| Ok(())).await?;
                let failure = Some(Some(error.to_string()));
                let change = SandboxChange { state: Some(State::Failed), failure, ..self.change() };
                self.store(change, Some(operation.id)).await?;
                Err(error)
            }
        }
    }

    pub(super) async fn settle_running(
        &mut self,
        operation: &OperationId,
        live: LiveMachine,
    ) -> Result<(), EngineError> {
        self.store(self.running(&live), Some(operation.clone())).await?;
        self.watch(live);
        Ok(())
    }

    pub(super) fn running(&self, live: &LiveMachine) -> SandboxChange {
        let machine = serde_json::to_value(&live.machine).expect("a machine is JSON");
        SandboxChange {
            state: Some(State::Running),
            stop_reason: Some(None),
            failure: Some(None),
            machine: Some(Some(machine)),
            started_ms: Some(Some(self.shared.now_ms())),
            generation: Some(self.row.generation + 1),
            dump: Some(None),
            slept_ms: Some(None),
            spec: self.renewed_lease(),
            ..self.change()
        }
    }

    /// A stopped sandbox without an end of its lease is being used again: a new lease begins.
    fn renewed_lease(&self) -> Option<SandboxSpec> {
        let spec = &self.row.spec;
        let lease = spec.lease.as_ref().filter(|_| spec.lifetime.expires_ms().is_none())?;
        let expires_ms = self.shared.now_ms().saturating_add(lease.timeout_ms.max(AUTO_RESUME_MS_MIN));
        Some(SandboxSpec { lifetime: spec.lifetime.until(Some(expires_ms)), ..spec.clone() })
    }

    pub(super) async fn stop_or_remove(&mut self, grace: Duration, reply: Reply<SandboxRow>) -> SandboxFate {
        match self.admit(Request::Stop, "stop") {
            Ok(Admission::Already) => self.answer(reply, Ok(())),
            Ok(Admission::Now | Admission::AfterResume | Admission::AfterWake | Admission::AfterStart) => {
                self.shut_down_guest(grace).await;
                if self.row.spec.lifetime.is_ephemeral() {
                    return self.delete(Some(reply), "sandbox.deleted").await;
                }
                let result = self.stop(StopReason::Requested).await;
                self.answer(reply, result)
            }
            Err(error) => self.answer(reply, Err(error)),
        }
    }

    /// Lets processes end by themselves. If this fails, the machine is ended next anyway.
    pub(super) async fn shut_down_guest(&mut self, grace: Duration) {
        if self.row.state == State::Paused
            && let Err(error) = self.do_resume().await
        {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "could not resume the sandbox to stop it"
            );
            return;
        }
        let Some(live) = &self.live else { return };
        let guest = self.guest_of(live);
        execs::settle(&self.shared, &guest).await;
        self.unwatch();
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        let bound = grace + Duration::from_secs(5);
        if let Err(error) = guest.call_within::<()>(bound, &GuestRequest::Shutdown { grace_ms }).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "the guest did not shut down by itself");
        }
    }

    pub(super) async fn stop(&mut self, reason: StopReason) -> Result<(), EngineError> {
        let operation = self.begin(Operation::Stop, State::Stopping).await?;
        faults::hit("stop.begun")?;
        self.unwatch();
        unwind(&self.shared, &self.row, Operation::Stop, &mut |resource| match resource {
            Resource::Machine => faults::hit("stop.machine"),
            Resource::Network => faults::hit("stop.network"),
            Resource::Disk => Ok(()),
        })
        .await?;
        // A stopped sandbox has no machine: an update must not look for one to enforce its limits on.
        self.live = None;
        let dump = self.row.dump.clone();
        let change = SandboxChange {
            state: Some(State::Stopped),
            stop_reason: Some(Some(reason)),
            machine: Some(None),
            stopped_ms: Some(Some(self.shared.now_ms())),
            dump: Some(None),
            slept_ms: Some(None),
            ..self.change()
        };
        self.store(change, Some(operation.id)).await?;
        if let Some(dump) = dump {
            dump::remove_if_unused(&self.shared, &dump).await;
        }
        self.shared
            .seams
            .catalog
            .mark_execs_lost(&self.row.id, self.row.generation, self.shared.now_ms())
            .await?;
        faults::hit("stop.settled")?;
        self.event("sandbox.stopped", serde_json::json!({ "reason": reason }));
        Ok(())
    }

    pub(super) async fn delete(
        &mut self,
        reply: Option<Reply<SandboxRow>>,
        event: &'static str,
    ) -> SandboxFate {
        let result = self.try_delete().await;
        let fate = if result.is_ok() { SandboxFate::Gone } else { SandboxFate::Stays };
        match &result {
            Ok(()) => self.event(event, serde_json::json!({ "name": self.row.name })),
            Err(error) => {
                tracing::error!(error = error as &dyn std::error::Error, "could not delete the sandbox");
            }
        }
        if let Some(reply) = reply {
            let _ = reply.send(result.map(|()| SandboxRow::clone(&self.row)));
        }
        fate
    }

    pub(super) async fn try_delete(&mut self) -> Result<(), EngineError> {
        self.admit(Request::Delete, "delete")?;
        let operation = self.begin(Operation::Delete, State::Deleting).await?;
        faults::hit("delete.begun")?;
        self.unwatch();
        unwind(&self.shared, &self.row, Operation::Delete, &mut |resource| match resource {
            Resource::Machine => faults::hit("delete.machine"),
            Resource::Network => faults::hit("delete.network"),
            Resource::Disk => faults::hit("delete.disk"),
        })
        .await?;
        self.shared
            .seams
            .catalog
            .delete_sandbox(&self.row.id, Some(operation.id), self.shared.now_ms())
            .await?;
        forget(&self.shared, &self.row).await;
        faults::hit("delete.settled")
    }

    pub(super) async fn machine_ended(&mut self, generation: u64) -> SandboxFate {
        if self.row.generation != generation || self.live.is_none() {
            return SandboxFate::Stays;
        }
        tracing::info!("the sandbox's machine ended by itself");
        if self.row.spec.lifetime.is_ephemeral() {
            return self.delete(None, "sandbox.deleted").await;
        }
        if let Err(error) = self.stop(StopReason::GuestExited).await {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "could not record the end of a machine"
            );
        }
        SandboxFate::Stays
    }

    pub(super) async fn expire(&mut self) -> SandboxFate {
        let due =
            self.row.spec.lifetime.expires_ms().is_some_and(|expires_ms| expires_ms <= self.shared.now_ms());
        let then = self.row.spec.lease.as_ref().map_or(AtTimeout::Delete, |lease| lease.then);
        match then {
            _ if !due => SandboxFate::Stays,
            AtTimeout::Delete => self.delete(None, "sandbox.expired").await,
            AtTimeout::Hibernate | AtTimeout::Stop => {
                if let Err(error) = self.rest(then).await {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "could not put a sandbox to sleep at the end of its lease"
                    );
                    let retry_ms = self.shared.now_ms().saturating_add(REST_RETRY_MS);
                    if let Err(error) = self.set_end(Some(retry_ms), None).await {
                        tracing::warn!(
                            error = &error as &dyn std::error::Error,
                            "could not postpone the end of a lease"
                        );
                    }
                }
                SandboxFate::Stays
            }
        }
    }

    /// Puts the sandbox to sleep because its lease ended. While it sleeps, its lease has no end. Its processes are ended only if the
    /// client asked for that; one that cannot be hibernated is paused, and its hibernate is tried again (see `idle`).
    async fn rest(&mut self, then: AtTimeout) -> Result<(), EngineError> {
        if matches!(self.row.state, State::Running | State::Paused) {
            if then == AtTimeout::Hibernate {
                self.hibernate_or_pause().await?;
            } else {
                self.shut_down_guest(REST_GRACE).await;
                self.stop(StopReason::Idle).await?;
            }
        }
        // Its hibernate is tried again a while from now, even if it was paused long before its lease ended.
        let slept_ms = (self.row.state == State::Paused).then(|| Some(self.shared.now_ms()));
        self.set_end(None, slept_ms).await
    }

    async fn set_end(
        &mut self,
        expires_ms: Option<u64>,
        slept_ms: Option<Option<u64>>,
    ) -> Result<(), EngineError> {
        let lifetime = self.row.spec.lifetime.until(expires_ms);
        let spec = SandboxSpec { lifetime, ..self.row.spec.clone() };
        self.store(SandboxChange { spec: Some(spec), slept_ms, ..self.change() }, None).await
    }

    pub(super) async fn pause(&mut self) -> Result<(), EngineError> {
        match self.admit(Request::Pause, "pause")? {
            Admission::Already => Ok(()),
            Admission::Now | Admission::AfterResume | Admission::AfterWake | Admission::AfterStart => {
                self.live()?.runtime.pause(&self.row.id).await?;
                let now = self.shared.now_ms();
                let (state, slept_ms) = (Some(State::Paused), Some(Some(now)));
                let change = SandboxChange { state, slept_ms, ..self.change() };
                if let Err(error) = self.store(change, None).await {
                    // If the pause is not stored, it is undone: after a crash, the state would differ from the answer.
                    self.live()?.runtime.resume(&self.row.id).await?;
                    return Err(error);
                }
                self.event("sandbox.paused", serde_json::json!({}));
                Ok(())
            }
        }
    }

    pub(super) async fn resume(&mut self) -> Result<(), EngineError> {
        match self.admit(Request::Resume, "resume")? {
            Admission::Already => Ok(()),
            Admission::Now | Admission::AfterResume | Admission::AfterWake | Admission::AfterStart => {
                if self.row.state == State::Hibernated {
                    self.do_wake().await
                } else {
                    self.do_resume().await
                }
            }
        }
    }

    pub(super) async fn do_resume(&mut self) -> Result<(), EngineError> {
        let spec = self.renewed_lease();
        let change =
            SandboxChange { state: Some(State::Running), slept_ms: Some(None), spec, ..self.change() };
        self.store(change, None).await?;
        if let Err(error) = self.live()?.runtime.resume(&self.row.id).await {
            self.store(SandboxChange { state: Some(State::Paused), ..self.change() }, None).await?;
            return Err(error.into());
        }
        self.event("sandbox.resumed", serde_json::json!({}));
        Ok(())
    }

    pub(super) async fn guest(&mut self, mode: UseMode) -> Result<Guest, EngineError> {
        match (self.admit(Request::Use, "use")?, mode) {
            (Admission::Now | Admission::Already, _) => {}
            (Admission::AfterResume | Admission::AfterWake, UseMode::Observe) => {
                return Err(EngineError::Asleep { id: self.row.id.clone() });
            }
            (Admission::AfterResume, _) => self.do_resume().await?,
            (Admission::AfterWake, _) => self.do_wake().await?,
            (Admission::AfterStart, UseMode::Start) if self.row.spec.sleep.start_on_use => {
                self.do_start().await?;
            }
            (Admission::AfterStart, _) => {
                let refusal =
                    if self.row.state == State::Failed { Refusal::Failed } else { Refusal::Stopped };
                return Err(EngineError::Refused { id: self.row.id.clone(), request: "use", refusal });
            }
        }
        Ok(self.guest_of(self.live()?))
    }
}
