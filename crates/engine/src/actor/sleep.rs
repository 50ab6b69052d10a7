//! Sleep and wake: dumps processes and restores them.
//!
//! ```text
//!   hibernate   dump (frozen from here on) ─► trial restore ─► sealed, durable ─► commit `hibernated`
//!               ─► streams ended, machine and network removed
//!   wake        dump verified ─► network, machine (frozen) ─► commit `running` ─► it resumes
//! ```
//!
//! No process runs between a dump and the commit that makes it the sandbox's state, nor between a restore and the commit of its
//! row. So whenever the daemon dies, the dump and the disk match, or the machine still exists.

use std::time::Duration;

use burrow_catalog::SandboxChange;
use burrow_model::{Admission, DumpId, Request, State, StopReason};
use burrow_runtime::{Ability, DumpOptions};

use super::command::SleepDepth;
use super::trial::{self, UntriedDump};
use super::{Actor, SandboxFate};
use crate::operations::journal::{Detail, Operation, Resource, Trial};
use crate::operations::{restore_machine, unwind};
use crate::sleep::activity::CutReason;
use crate::snapshots::dump;
use crate::snapshots::dump_description::DumpDescription;
use crate::{EngineError, faults, volumes};

/// How long processes may take to end by themselves when an idle sandbox is stopped.
const IDLE_GRACE: Duration = Duration::from_secs(5);

impl Actor {
    /// `untried`: also where it cannot be tried whether the dump can be restored.
    pub(super) async fn hibernate(&mut self, untried: bool) -> Result<(), EngineError> {
        match self.admit(Request::Hibernate, "hibernate")? {
            Admission::Already => Ok(()),
            Admission::Now | Admission::AfterResume | Admission::AfterWake | Admission::AfterStart => {
                self.do_hibernate(untried).await
            }
        }
    }

    /// For a policy or the end of a lease: a sandbox that cannot be hibernated is paused, which ends no process and only costs RAM.
    pub(super) async fn hibernate_or_pause(&mut self) -> Result<(), EngineError> {
        let Err(error) = self.hibernate(false).await else { return Ok(()) };
        if !matches!(self.row.state, State::Running | State::Paused) {
            return Err(error);
        }
        tracing::info!(
            error = &error as &dyn std::error::Error,
            "paused, because it could not be hibernated"
        );
        self.event("sandbox.hibernate-refused", serde_json::json!({ "reason": error.to_string() }));
        self.pause().await
    }

    async fn do_hibernate(&mut self, untried: bool) -> Result<(), EngineError> {
        self.check_dumpable().await?;
        let detail = Detail {
            snapshot: None,
            dump: Some(DumpId::generate()),
            paused: self.row.state == State::Paused,
            trial: Some(Trial::new(&self.row.spec)),
            ..Detail::default()
        };
        let operation = self.begin_with(Operation::Hibernate, State::Hibernating, &detail).await?;
        let (dump, trial) = detail.dump.clone().zip(detail.trial.as_ref()).expect("they were just made");
        if let Err(error) = self.dump_processes(&dump, trial, untried).await {
            self.undo_hibernate(&detail, operation.id).await?;
            return Err(error);
        }
        let now = self.shared.now_ms();
        let change = SandboxChange {
            state: Some(State::Hibernated),
            machine: Some(None),
            failure: Some(None),
            dump: Some(Some(dump)),
            slept_ms: Some(Some(now)),
            active_ms: Some(Some(self.activity.last_ms())),
            ..self.change()
        };
        let live = self.live.take();
        if let Err(error) = self.store(change, Some(operation.id.clone())).await {
            self.live = live;
            self.undo_hibernate(&detail, operation.id).await?;
            return Err(error);
        }
        self.unwatch();
        if let Some(live) = live {
            live.cut.now(CutReason::Hibernated);
        }
        self.event("sandbox.hibernated", serde_json::json!({}));
        faults::hit("hibernate.settled")?;
        self.end_machine().await;
        Ok(())
    }

    /// Dumps its processes, durably. It is frozen from here on.
    async fn dump_processes(
        &mut self,
        dump: &DumpId,
        trial: &Trial,
        untried: bool,
    ) -> Result<(), EngineError> {
        faults::hit("hibernate.begun")?;
        let (volumes, root) = (self.shared.seams.disks.clone(), self.root().await?);
        let mounts = volumes::mounts_of(&self.shared, &self.row).await?;
        let live = self.live()?;
        let images = volumes.stage_dump(dump).await?;
        let options = DumpOptions {
            machine: live.machine.clone(),
            root,
            images: images.clone(),
            mounts: mounts.clone(),
        };
        let dumped = live.runtime.dump(&self.row.id, options).await?;
        faults::hit("hibernate.dumped")?;
        let attempt = UntriedDump { images, about: &dumped.about, mounts, files: None, always: false };
        match trial::run(&self.shared, &self.row, &live.runtime, trial, attempt).await {
            Err(error) if untried && trial::is_doubt(&error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "hibernating without a trial restore, as requested"
                );
                self.event("sandbox.hibernate-untried", serde_json::json!({ "reason": error.to_string() }));
            }
            tried => tried?,
        }
        faults::hit("hibernate.tried")?;
        let about = DumpDescription::of(&self.row, dumped.about).to_text();
        volumes.seal_dump(dump, &about, true).await?;
        faults::hit("hibernate.sealed")
    }

    /// It resumes as before the request.
    async fn undo_hibernate(
        &mut self,
        detail: &Detail,
        operation: burrow_model::OperationId,
    ) -> Result<(), EngineError> {
        let live = self.live()?;
        live.runtime.recover(&self.row.id, &live.machine, detail.paused).await?;
        if let Some(dump) = &detail.dump {
            self.shared.seams.disks.remove_dump(dump).await?;
        }
        let state = if detail.paused { State::Paused } else { State::Running };
        self.store(SandboxChange { state: Some(state), ..self.change() }, Some(operation)).await
    }

    /// Refuses a hibernate that cannot succeed, before anything is changed.
    pub(super) async fn check_dumpable(&self) -> Result<(), EngineError> {
        let live = self.live()?;
        if let Ability::No { reason, .. } = live.runtime.capabilities().hibernate {
            return Err(EngineError::NoHibernate { id: self.row.id.clone(), reason });
        }
        let obstacles = live.runtime.obstacles(&self.row.id).await?;
        if obstacles.iter().any(|obstacle| !obstacle.passes) {
            let id = self.row.id.clone();
            return Err(burrow_runtime::RuntimeError::Obstacles { id, obstacles }.into());
        }
        dump::check_room(&self.shared, live.runtime.dump_bytes(&self.row.id).await?).await
    }

    /// Ends a machine that no row names any more. If this fails, it is repeated before the next machine is created, and at a start.
    pub(super) async fn end_machine(&mut self) {
        let mut after = |resource| match resource {
            Resource::Machine => faults::hit("hibernate.machine"),
            Resource::Network => faults::hit("hibernate.network"),
            Resource::Disk => Ok(()),
        };
        if let Err(error) = unwind(&self.shared, &self.row, Operation::Stop, &mut after).await {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "could not remove the machine of a sandbox that sleeps"
            );
        }
    }

    pub(super) async fn do_wake(&mut self) -> Result<(), EngineError> {
        let Some(dump) = self.row.dump.clone() else {
            return Err(self.wake_error(EngineError::DumpMissing { id: self.row.id.clone() }));
        };
        let root = self.root().await?;
        let operation = self.begin(Operation::Wake, State::Waking).await?;
        let woken = async {
            faults::hit("wake.begun")?;
            // Removes what a crash or a failure left of the previous machine.
            unwind(&self.shared, &self.row, Operation::Wake, &mut |_| Ok(())).await?;
            let kept = dump::open(&self.shared, &dump).await?;
            let live = restore_machine(&self.shared, &self.row, root, &kept, &self.activity).await?;
            Ok::<_, EngineError>((kept, live))
        };
        let (kept, live) = match woken.await {
            Ok(woken) => woken,
            Err(error) => {
                unwind(&self.shared, &self.row, Operation::Wake, &mut |_| Ok(())).await?;
                let failure = Some(Some(error.to_string()));
                let change = SandboxChange { state: Some(State::Hibernated), failure, ..self.change() };
                self.store(change, Some(operation.id)).await?;
                return Err(self.wake_error(error));
            }
        };
        let started_ms = self.row.started_ms;
        let change = SandboxChange { started_ms: Some(started_ms), ..self.running(&live) };
        self.store(change, Some(operation.id)).await?;
        self.watch(live);
        faults::hit("wake.settled")?;
        self.activity.touch();
        self.resume_machine(&kept.about).await?;
        self.event("sandbox.woken", serde_json::json!({}));
        dump::remove_if_unused(&self.shared, &dump).await;
        Ok(())
    }

    fn wake_error(&self, error: EngineError) -> EngineError {
        if error.leaves_files_usable() {
            EngineError::Wake { id: self.row.id.clone(), reason: Box::new(error) }
        } else {
            error
        }
    }

    /// Lets a restored machine run, and informs its agent of what changed while it slept.
    pub(super) async fn resume_machine(&mut self, about: &DumpDescription) -> Result<(), EngineError> {
        let live = self.live()?;
        live.runtime.resume(&self.row.id).await?;
        if about.is_stale(&self.row) {
            let guest = self.guest_of(self.live()?);
            self.send_ram(&guest, &self.row).await?;
            self.send_trust(&guest, &self.row).await?;
            self.send_services(&guest, &self.row).await?;
        }
        Ok(())
    }

    /// Its sleep policy found it idle. If it has been used since, it stays awake.
    pub(super) async fn fall_asleep(&mut self, depth: SleepDepth, idle_since_ms: u64) -> SandboxFate {
        if self.activity.in_use() || self.activity.last_ms() > idle_since_ms {
            return SandboxFate::Stays;
        }
        let slept = match (depth, self.row.state) {
            (SleepDepth::Pause, State::Running) => self.pause().await,
            // It was resumed since the policy found it asleep in RAM, and no policy puts it to sleep.
            (SleepDepth::Hibernate, State::Running) if self.row.spec.sleep.hibernate_after_ms.is_none() => {
                Ok(())
            }
            (SleepDepth::Hibernate, State::Running | State::Paused) => self.hibernate_or_pause().await,
            (SleepDepth::Stop, State::Running | State::Paused | State::Hibernated) => {
                self.shut_down_guest(IDLE_GRACE).await;
                if self.row.spec.lifetime.is_ephemeral() {
                    return self.delete(None, "sandbox.expired").await;
                }
                self.stop(StopReason::Idle).await
            }
            _ => Ok(()),
        };
        if let Err(error) = slept {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "could not put an idle sandbox to sleep"
            );
        }
        SandboxFate::Stays
    }
}
