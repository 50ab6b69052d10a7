//! Sleep and wake: processes to disk and back.
//!
//! ```text
//!   hibernate   dump (it stands still) ─► sealed, durable ─► commit `hibernated` ─► streams cut, machine and network gone
//!   wake        dump checked ─► network, machine (it stands still) ─► commit `running` ─► it goes on
//! ```
//!
//! Nothing runs between a dump and the commit that makes it the sandbox's state, nor between a restore and the commit
//! that says it runs: so whenever the daemon dies, the dump and the disk belong together, or the machine lives.

use std::time::Duration;

use burrow_catalog::SandboxChange;
use burrow_model::{Admission, DumpId, Request, State, StopReason};
use burrow_runtime::{Ability, DumpOptions};

use super::{Actor, Depth, Fate};
use crate::activity::CutReason;
use crate::dump::{self, About};
use crate::journal::{Detail, Operation, Resource};
use crate::operations::{bring_back, unwind};
use crate::{EngineError, faults, shelves};

/// What processes are given to end by themselves when an idle sandbox is stopped.
const IDLE_GRACE: Duration = Duration::from_secs(5);

impl Actor {
    pub(super) async fn hibernate(&mut self) -> Result<(), EngineError> {
        match self.admit(Request::Hibernate, "hibernate")? {
            Admission::Already => Ok(()),
            Admission::Now | Admission::AfterResume | Admission::AfterWake => self.do_hibernate().await,
        }
    }

    async fn do_hibernate(&mut self) -> Result<(), EngineError> {
        self.check_dumpable().await?;
        let detail = Detail {
            snapshot: None,
            dump: Some(DumpId::generate()),
            paused: self.row.state == State::Paused,
            ..Detail::default()
        };
        let operation = self.begin_with(Operation::Hibernate, State::Hibernating, &detail).await?;
        let dump = detail.dump.clone().expect("it was just made");
        if let Err(error) = self.write_down(&dump).await {
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

    /// Writes its processes to disk, for good. It stands still from here on.
    async fn write_down(&mut self, dump: &DumpId) -> Result<(), EngineError> {
        faults::hit("hibernate.begun")?;
        let (volumes, root) = (self.shared.seams.volumes.clone(), self.root().await?);
        let mounts = shelves::mounts_of(&self.shared, &self.row).await?;
        let live = self.live()?;
        let images = volumes.stage_dump(dump).await?;
        let options = DumpOptions { machine: live.machine.clone(), root, images, mounts };
        let dumped = live.runtime.dump(&self.row.id, options).await?;
        faults::hit("hibernate.dumped")?;
        let about = About::of(&self.row, dumped.about).to_text();
        volumes.seal_dump(dump, &about, true).await?;
        faults::hit("hibernate.sealed")
    }

    /// It goes on as if nothing had been asked.
    async fn undo_hibernate(
        &mut self,
        detail: &Detail,
        operation: burrow_model::OperationId,
    ) -> Result<(), EngineError> {
        let live = self.live()?;
        live.runtime.mend(&self.row.id, &live.machine, detail.paused).await?;
        if let Some(dump) = &detail.dump {
            self.shared.seams.volumes.remove_dump(dump).await?;
        }
        let state = if detail.paused { State::Paused } else { State::Running };
        self.store(SandboxChange { state: Some(state), ..self.change() }, Some(operation)).await
    }

    /// What is refused beforehand, nothing touched.
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

    /// Ends a machine that no row names any more. What fails is repeated before the next machine, and at a start.
    pub(super) async fn end_machine(&mut self) {
        let mut after = |resource| match resource {
            Resource::Machine => faults::hit("hibernate.machine"),
            Resource::Network => faults::hit("hibernate.network"),
            Resource::Volume => Ok(()),
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
            return Err(EngineError::DumpMissing { id: self.row.id.clone() });
        };
        let root = self.root().await?;
        let operation = self.begin(Operation::Wake, State::Waking).await?;
        let woken = async {
            faults::hit("wake.begun")?;
            // Whatever a crash or a failure left of the machine it was.
            unwind(&self.shared, &self.row, Operation::Wake, &mut |_| Ok(())).await?;
            let kept = dump::open(&self.shared, &dump).await?;
            let live = bring_back(&self.shared, &self.row, root, &kept, &self.activity).await?;
            Ok::<_, EngineError>((kept, live))
        };
        let (kept, live) = match woken.await {
            Ok(woken) => woken,
            Err(error) => {
                unwind(&self.shared, &self.row, Operation::Wake, &mut |_| Ok(())).await?;
                let failure = Some(Some(error.to_string()));
                let change = SandboxChange { state: Some(State::Hibernated), failure, ..self.change() };
                self.store(change, Some(operation.id)).await?;
                return Err(error);
            }
        };
        let started_ms = self.row.started_ms;
        let change = SandboxChange { started_ms: Some(started_ms), ..self.running(&live) };
        self.store(change, Some(operation.id)).await?;
        self.watch(live);
        faults::hit("wake.settled")?;
        self.activity.touch();
        self.go_on(&kept.about).await?;
        self.event("sandbox.woken", serde_json::json!({}));
        dump::let_go(&self.shared, &dump).await;
        Ok(())
    }

    /// Lets a machine that was brought back run, and tells its agent what changed while it slept.
    pub(super) async fn go_on(&mut self, about: &About) -> Result<(), EngineError> {
        let live = self.live()?;
        live.runtime.resume(&self.row.id).await?;
        if about.is_stale(&self.row) {
            let guest = self.guest_of(self.live()?);
            self.tell_ram(&guest, &self.row).await?;
            self.tell_trust(&guest, &self.row).await?;
            self.tell_services(&guest, &self.row).await?;
        }
        Ok(())
    }

    /// Its sleep policy found it idle. Somebody may have come since, and then it stays awake.
    pub(super) async fn fall_asleep(&mut self, depth: Depth, idle_since_ms: u64) -> Fate {
        if self.activity.in_use() || self.activity.last_ms() > idle_since_ms {
            return Fate::Stays;
        }
        let slept = match (depth, self.row.state) {
            (Depth::Pause, State::Running) => self.pause().await,
            (Depth::Hibernate, State::Running | State::Paused) => match self.hibernate().await {
                // It cannot keep its processes: it keeps standing still, which costs RAM only, until it is to be stopped.
                Err(error) if self.row.state == State::Running => {
                    tracing::info!(
                        error = &error as &dyn std::error::Error,
                        "an idle sandbox is paused, not hibernated"
                    );
                    let detail = serde_json::json!({ "reason": error.to_string() });
                    self.event("sandbox.hibernate-refused", detail);
                    self.pause().await
                }
                slept => slept,
            },
            (Depth::Stop, State::Running | State::Paused | State::Hibernated) => {
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
        Fate::Stays
    }
}
