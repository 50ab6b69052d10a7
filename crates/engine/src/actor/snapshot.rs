//! Snapshots: the whole state of a sandbox at one moment.
//!
//! ```text
//!   row `making` + journal ─► dump (frozen) ─► disk ─► it resumes ─► dump sealed, changes listed ─► row `ready`
//!                             └── the pause, reported in the answer ──┘
//! ```
//!
//! Other requests of the sandbox continue as soon as it resumes; the rest of the work runs concurrently. A crash before the row is
//! ready undoes all of it.

use std::path::PathBuf;

use burrow_catalog::{CatalogError, SnapshotRow};
use burrow_disks::{DiskError, DiskId, Effort};
use burrow_model::{
    Changes, DumpId, OperationId, Request, Snapshot, SnapshotId, SnapshotKind, SnapshotMemory, State,
};
use burrow_runtime::DumpOptions;
use tokio::time::Instant;

use super::Actor;
use super::command::{ForkBase, Reply};
use super::trial::{self, UntriedDump};
use crate::operations::journal::{Detail, Operation, Trial};
use crate::shared::Shared;
use crate::snapshots::dump;
use crate::snapshots::dump_description::{DumpDescription, OpenedDump};
use crate::trees::disks;
use crate::{EngineError, SnapshotOptions, faults, memory, volumes};

/// A snapshot whose disk and processes were captured, but which is not durable yet.
#[derive(Debug)]
pub(super) struct CapturedSnapshot {
    snapshot: Snapshot,
    operation: OperationId,
    /// The processes that were dumped for this snapshot, still to be sealed.
    written: Option<SnapshotDump>,
}

#[derive(Debug)]
struct SnapshotDump {
    dump: DumpId,
    about: DumpDescription,
    images: PathBuf,
}

/// The processes in a snapshot.
enum Processes {
    None,
    /// They run or are paused: they are dumped.
    Dump(DumpId),
    /// They were dumped already.
    Shared(DumpId),
}

impl Actor {
    pub(super) async fn snapshot(&mut self, options: SnapshotOptions, reply: Reply<Snapshot>) {
        match self.take(&options, true, None).await {
            Ok(taken) => {
                let (shared, alive) = (self.shared.clone(), self.shared.actor_guard());
                // The rest does not involve the sandbox, so its other requests need not wait for it. The shutdown does: the task holds
                // a guard.
                drop(tokio::spawn(async move {
                    let finished = taken.finish(&shared).await;
                    let unmeasured = finished.as_ref().ok().filter(|snapshot| snapshot.changes.more).cloned();
                    if let Err(Err(snapshot)) = reply.send(finished) {
                        tracing::debug!(%snapshot, "a snapshot failed whose client has disconnected");
                    }
                    if let Some(snapshot) = unmeasured {
                        measure(&shared, snapshot).await;
                    }
                    drop(alive);
                }));
            }
            Err(error) => {
                let _ = reply.send(Err(error));
            }
        }
    }

    /// Captures the state that children are created from: only its disk has to survive a crash.
    pub(super) async fn fork_base(&mut self, files_only: bool) -> Result<ForkBase, EngineError> {
        self.admit(Request::Fork, "fork")?;
        let options = SnapshotOptions::automatic(SnapshotKind::Fork, files_only);
        let CapturedSnapshot { mut snapshot, operation, written } = self.take(&options, true, None).await?;
        // The row names a dump only if others use it too, so that it is not removed while the children are created from it. A dump made for
        // the children has no name outside this fork: if a crash leaves it, the next start removes it.
        let (kept, passing_dump) = match (written, &snapshot.dump) {
            (Some(SnapshotDump { dump, about, images }), _) => {
                snapshot.dump = None;
                (Ok(Some(OpenedDump { images, about })), Some(dump))
            }
            (None, Some(dump)) => (dump::open(&self.shared, dump).await.map(Some), None),
            (None, None) => (Ok(None), None),
        };
        snapshot.ram_bytes = 0;
        let finished = async {
            let kept = kept?;
            let catalog = &self.shared.seams.catalog;
            catalog.finish_snapshot(snapshot.clone(), Some(operation.clone())).await?;
            faults::hit("fork.base")?;
            Ok::<_, EngineError>(kept)
        };
        let kept = match finished.await {
            Ok(kept) => kept,
            Err(error) => {
                undo(&self.shared, &snapshot.id, passing_dump.as_ref(), operation.clone()).await;
                return Err(error);
            }
        };
        Ok(ForkBase { row: burrow_catalog::SandboxRow::clone(&self.row), snapshot, kept, passing_dump })
    }

    /// Takes a complete snapshot and leaves the machine paused if it was up: for operations that will end the machine. With a trial,
    /// a snapshot whose processes cannot be restored is an error, and so is one where this cannot be found out.
    pub(super) async fn snapshot_and_stay_paused(
        &mut self,
        options: &SnapshotOptions,
        trial: Option<Trial>,
    ) -> Result<Snapshot, EngineError> {
        let taken = self.take(options, false, trial).await?;
        let finished = taken.finish(&self.shared).await;
        match &finished {
            Ok(snapshot) if snapshot.changes.more => measure(&self.shared, snapshot.clone()).await,
            Ok(_) => {}
            Err(_) => self.resume_after_dump().await?,
        }
        finished
    }

    /// Everything up to the end of the pause. `resume`: resumes a machine that ran. After a failure it is resumed in any case.
    async fn take(
        &mut self,
        options: &SnapshotOptions,
        resume: bool,
        trial: Option<Trial>,
    ) -> Result<CapturedSnapshot, EngineError> {
        self.admit(Request::Snapshot, "snapshot")?;
        let processes = self.processes(options.files_only).await?;
        let snapshot = self.new_snapshot(options, &processes).await?;
        let dump = match &processes {
            Processes::Dump(dump) => Some(dump.clone()),
            Processes::None | Processes::Shared(_) => None,
        };
        let detail = Detail {
            snapshot: Some(snapshot.id.clone()),
            dump: dump.clone(),
            paused: self.row.state == State::Paused,
            trial: trial.clone(),
            ..Detail::default()
        };
        let operation =
            Operation::Snapshot.row(&self.row.tenant, &self.row.id, &detail, self.shared.now_ms());
        let row = SnapshotRow { tenant: self.row.tenant.clone(), snapshot: snapshot.clone(), ready: false };
        match self.shared.seams.catalog.begin_snapshot(row, operation.clone()).await {
            Ok(()) => {}
            Err(CatalogError::SnapshotNameTaken { existing }) => {
                let name = options.name.clone().map_or_else(String::new, String::from);
                return Err(EngineError::SnapshotNameTaken { name, existing });
            }
            Err(error) => return Err(error.into()),
        }
        let taken = match self.capture(snapshot.clone(), dump.clone(), trial.as_ref()).await {
            Ok((snapshot, written)) => {
                CapturedSnapshot { snapshot, operation: operation.id.clone(), written }
            }
            Err(error) => {
                self.resume_after_dump().await?;
                undo(&self.shared, &snapshot.id, dump.as_ref(), operation.id).await;
                return Err(error);
            }
        };
        if resume && let Err(error) = self.resume_after_dump().await {
            undo(&self.shared, &taken.snapshot.id, dump.as_ref(), operation.id).await;
            return Err(error);
        }
        Ok(taken)
    }

    /// Captures the state.
    async fn capture(
        &mut self,
        mut snapshot: Snapshot,
        dump: Option<DumpId>,
        trial: Option<&Trial>,
    ) -> Result<(Snapshot, Option<SnapshotDump>), EngineError> {
        faults::hit("snapshot.begun")?;
        let disks = self.shared.seams.disks.clone();
        let mut written = None;
        let mut stood_still = None;
        if let Some(dump) = dump {
            let root = self.root().await?;
            let images = disks.stage_dump(&dump).await?;
            let live = self.live()?;
            let mounts = volumes::mounts_of(&self.shared, &self.row).await?;
            let options = DumpOptions {
                machine: live.machine.clone(),
                root,
                images: images.clone(),
                mounts: mounts.clone(),
            };
            let dumped = live.runtime.dump(&self.row.id, options).await?;
            stood_still = Some((Instant::now(), dumped.paused_us));
            if let Some(trial) = trial {
                let (images, about) = (images.clone(), dumped.about.as_str());
                let attempt = UntriedDump { images, about, mounts, files: None, always: false };
                trial::run(&self.shared, &self.row, &live.runtime, trial, attempt).await?;
            }
            let about = DumpDescription::of(&self.row, dumped.about);
            written = Some(SnapshotDump { dump, about, images });
            faults::hit("snapshot.dumped")?;
        } else if let (Some(live), State::Running) = (&self.live, self.row.state) {
            // Files alone must be of one moment too: no process writes during the pause.
            live.runtime.pause(&self.row.id).await?;
            stood_still = Some((Instant::now(), 0));
        }
        snapshot.memory = Some(memory::point_of(&self.shared, &self.row).await?);
        disks.snapshot((&snapshot.id).into(), (&self.row.id).into()).await?;
        faults::hit("snapshot.disk")?;
        if let Some((since, before_us)) = stood_still {
            let after_us = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
            snapshot.pause_us = before_us.saturating_add(after_us);
        }
        Ok((snapshot, written))
    }

    /// Resumes a machine that a dump left paused, if the sandbox's state is `running`.
    pub(super) async fn resume_after_dump(&self) -> Result<(), EngineError> {
        match (&self.live, self.row.state) {
            (Some(live), State::Running) => Ok(live.runtime.resume(&self.row.id).await?),
            _ => Ok(()),
        }
    }

    async fn processes(&self, files_only: bool) -> Result<Processes, EngineError> {
        if files_only {
            return Ok(Processes::None);
        }
        if matches!(self.row.state, State::Running | State::Paused) {
            self.check_dumpable().await?;
            return Ok(Processes::Dump(DumpId::generate()));
        }
        // The processes of a hibernated sandbox are dumped already; others have none.
        let kept = self.row.dump.clone().filter(|_| self.row.state == State::Hibernated);
        Ok(kept.map_or(Processes::None, Processes::Shared))
    }

    async fn new_snapshot(
        &self,
        options: &SnapshotOptions,
        processes: &Processes,
    ) -> Result<Snapshot, EngineError> {
        let catalog = &self.shared.seams.catalog;
        let parent = match catalog.latest_snapshot_of(&self.row.id).await? {
            Some(latest) => Some(latest.id),
            None => self.row.origin.as_ref().map(|origin| origin.snapshot.clone()),
        };
        let dump = match processes {
            Processes::None => None,
            Processes::Dump(dump) | Processes::Shared(dump) => Some(dump.clone()),
        };
        Ok(Snapshot {
            id: SnapshotId::generate(),
            sandbox: self.row.id.clone(),
            sandbox_name: self.row.name.clone(),
            name: options.name.clone(),
            description: options.description.clone(),
            labels: options.labels.clone(),
            kind: options.kind,
            changes: Changes::none(parent.clone()),
            parent,
            image: self.row.image.clone(),
            spec: self.row.spec.clone(),
            dump,
            ram_bytes: 0,
            disk_bytes: 0,
            pause_us: 0,
            created_ms: self.shared.now_ms(),
            expires_ms: options.expires_ms,
            // The space is known, and the snapshot keeps it; the point in its log is set when the state is captured.
            memory: Some(SnapshotMemory { space: self.row.memory().space, point: None, named: None }),
        })
    }
}

impl CapturedSnapshot {
    /// Makes it durable, and determines its contents.
    async fn finish(self, shared: &Shared) -> Result<Snapshot, EngineError> {
        let Self { mut snapshot, operation, written } = self;
        let dump = written.as_ref().map(|written| written.dump.clone());
        let finished = async {
            let disks = &shared.seams.disks;
            if let Some(SnapshotDump { dump, about, .. }) = &written {
                snapshot.ram_bytes = disks.seal_dump(dump, &about.to_text(), true).await?;
                faults::hit("snapshot.sealed")?;
            } else if let Some(dump) = &snapshot.dump {
                snapshot.ram_bytes = disks.open_dump(dump).await?.bytes;
            }
            snapshot.changes = changes(shared, &snapshot).await;
            // A snapshot with too many changes to list quickly is not measured here either; see `measure`.
            if !snapshot.changes.more {
                snapshot.disk_bytes = disks.used((&snapshot.id).into()).await.unwrap_or(0);
            }
            shared.seams.catalog.finish_snapshot(snapshot.clone(), Some(operation.clone())).await?;
            Ok::<_, EngineError>(())
        };
        if let Err(error) = finished.await {
            undo(shared, &snapshot.id, dump.as_ref(), operation).await;
            return Err(error);
        }
        faults::hit("snapshot.settled")?;
        Ok(snapshot)
    }
}

/// Measures a ready snapshot that was too large to be measured before, and stores the result in its row. If this fails, the row has
/// no size.
async fn measure(shared: &Shared, mut snapshot: Snapshot) {
    let measured = async {
        snapshot.disk_bytes = shared.seams.disks.used((&snapshot.id).into()).await?;
        Ok::<_, EngineError>(shared.seams.catalog.finish_snapshot(snapshot.clone(), None).await?)
    };
    if let Err(error) = measured.await {
        // It may have been removed by now.
        tracing::debug!(snapshot = %snapshot.id, error = &error as &dyn std::error::Error, "a snapshot is not measured");
    }
}

/// The changes since the previous snapshot, as far as they can be found quickly. A failure is no reason to lose the snapshot.
async fn changes(shared: &Shared, snapshot: &Snapshot) -> Changes {
    if matches!(disks::with_disks(shared, &snapshot.spec.driver), Ok(Some(_))) {
        // Reading a disk requires a machine, and takes longer than the snapshot itself: `diff` does it on request.
        return Changes { more: true, ..Changes::none(snapshot.parent.clone()) };
    }
    let disks = &shared.seams.disks;
    let max = burrow_model::CHANGES_MAX;
    let parent = snapshot.parent.as_ref();
    let mut found = disks.changes(parent, &snapshot.id, &snapshot.image, max, Effort::Glance).await;
    if let (Err(DiskError::NotFound { disk: DiskId::Snapshot(_) }), Some(_)) = (&found, parent) {
        // The previous snapshot was removed in the meantime.
        found = disks.changes(None, &snapshot.id, &snapshot.image, max, Effort::Glance).await;
    }
    let mut found = found.unwrap_or_else(|error| {
        tracing::warn!(
            snapshot = %snapshot.id, error = &error as &dyn std::error::Error,
            "could not determine the changes since the last snapshot"
        );
        Changes::none(parent.cloned())
    });
    let listed = found.paths.len();
    found.paths.retain(|change| !is_hosts(&change.path));
    found.total = found.total.saturating_sub((listed - found.paths.len()) as u64);
    found
}

/// Files that the host itself keeps in a sandbox, which count as no change.
fn is_hosts(path: &str) -> bool {
    path == "/.burrow" || path.starts_with("/.burrow/") || path == "/usr/local/bin/burrow-memory"
}

/// Removes what a failed snapshot created. If this fails, it stays in the journal, for the next start.
pub(super) async fn undo(
    shared: &Shared,
    snapshot: &SnapshotId,
    dump: Option<&DumpId>,
    operation: OperationId,
) {
    let undone = async {
        if let Some(dump) = dump {
            shared.seams.disks.remove_dump(dump).await?;
        }
        shared.seams.disks.remove(snapshot.into()).await?;
        Ok::<_, EngineError>(shared.seams.catalog.delete_snapshot(snapshot, Some(operation)).await?)
    };
    if let Err(error) = undone.await {
        tracing::error!(%snapshot, error = &error as &dyn std::error::Error, "could not undo a snapshot");
    }
}
