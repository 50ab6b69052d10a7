//! Snapshots: all that a sandbox is, at one moment.
//!
//! ```text
//!   row `making` + journal ─► dump (it stands still) ─► disk ─► it goes on ─► dump sealed, changes listed ─► row `ready`
//!                             └──────── the pause, which the answer tells ────────┘
//! ```
//!
//! The sandbox is free again as soon as it goes on; the rest is done beside it. A crash before the row is ready undoes
//! all of it.

use std::path::PathBuf;

use burrow_catalog::{CatalogError, SnapshotRow};
use burrow_model::{
    Changes, DumpId, OperationId, Request, Snapshot, SnapshotId, SnapshotKind, SnapshotMemory, State,
};
use burrow_runtime::DumpOptions;
use burrow_volumes::Effort;
use tokio::time::Instant;

use super::{Actor, ForkBase, Reply};
use crate::dump::{self, About, Kept};
use crate::journal::{Detail, Operation};
use crate::shared::Shared;
use crate::{EngineError, SnapshotOptions, disks, faults, memory, shelves};

/// A snapshot whose moment has passed: disk and processes are there, but not yet for good.
#[derive(Debug)]
pub(super) struct Taken {
    snapshot: Snapshot,
    operation: OperationId,
    /// Processes written for this snapshot, still to be sealed.
    written: Option<Written>,
}

#[derive(Debug)]
struct Written {
    dump: DumpId,
    about: About,
    images: PathBuf,
}

/// What of its processes goes into a snapshot.
enum Processes {
    None,
    /// They run or stand still: a dump is made of them.
    Dump(DumpId),
    /// They are on disk already.
    Shared(DumpId),
}

impl Actor {
    pub(super) async fn snapshot(&mut self, options: SnapshotOptions, reply: Reply<Snapshot>) {
        match self.take(&options, true).await {
            Ok(taken) => {
                let (shared, alive) = (self.shared.clone(), self.shared.sign_of_life());
                // What is left concerns the sandbox no more, so whoever waits for it need not wait for this.
                tokio::spawn(async move {
                    let finished = taken.finish(&shared).await;
                    let unmeasured = finished.as_ref().ok().filter(|snapshot| snapshot.changes.more).cloned();
                    if let Err(Err(snapshot)) = reply.send(finished) {
                        tracing::debug!(%snapshot, "nobody waits for a snapshot that failed");
                    }
                    if let Some(snapshot) = unmeasured {
                        measure(&shared, snapshot).await;
                    }
                    drop(alive);
                });
            }
            Err(error) => {
                let _ = reply.send(Err(error));
            }
        }
    }

    /// A moment that children can be made of: nothing of it needs to survive a crash but its disk.
    pub(super) async fn fork_base(&mut self, files_only: bool) -> Result<ForkBase, EngineError> {
        self.admit(Request::Fork, "fork")?;
        let options = SnapshotOptions::automatic(SnapshotKind::Fork, files_only);
        let Taken { mut snapshot, operation, written } = self.take(&options, true).await?;
        // The row names a dump that others have too, so that nobody removes it under the children. One made for them has no
        // name beyond this fork: what a crash leaves of it, a start removes.
        let (kept, passing_dump) = match (written, &snapshot.dump) {
            (Some(Written { dump, about, images }), _) => {
                snapshot.dump = None;
                (Ok(Some(Kept { images, about })), Some(dump))
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

    /// A snapshot to the end, the machine left standing still if it was up: for what is going to end it.
    pub(super) async fn snapshot_standing_still(
        &mut self,
        options: &SnapshotOptions,
    ) -> Result<Snapshot, EngineError> {
        let taken = self.take(options, false).await?;
        let finished = taken.finish(&self.shared).await;
        match &finished {
            Ok(snapshot) if snapshot.changes.more => measure(&self.shared, snapshot.clone()).await,
            Ok(_) => {}
            Err(_) => self.go_on_after_dump().await?,
        }
        finished
    }

    /// Everything up to the end of the pause. `go_on`: lets a machine that ran go on. After a failure it does in any case.
    async fn take(&mut self, options: &SnapshotOptions, go_on: bool) -> Result<Taken, EngineError> {
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
        let taken = match self.hold_still(snapshot.clone(), dump.clone()).await {
            Ok((snapshot, written)) => Taken { snapshot, operation: operation.id.clone(), written },
            Err(error) => {
                self.go_on_after_dump().await?;
                undo(&self.shared, &snapshot.id, dump.as_ref(), operation.id).await;
                return Err(error);
            }
        };
        if go_on && let Err(error) = self.go_on_after_dump().await {
            undo(&self.shared, &taken.snapshot.id, dump.as_ref(), operation.id).await;
            return Err(error);
        }
        Ok(taken)
    }

    /// The moment itself.
    async fn hold_still(
        &mut self,
        mut snapshot: Snapshot,
        dump: Option<DumpId>,
    ) -> Result<(Snapshot, Option<Written>), EngineError> {
        faults::hit("snapshot.begun")?;
        let volumes = self.shared.seams.volumes.clone();
        let mut written = None;
        let mut stood_still = None;
        if let Some(dump) = dump {
            let root = self.root().await?;
            let images = volumes.stage_dump(&dump).await?;
            let live = self.live()?;
            let mounts = shelves::mounts_of(&self.shared, &self.row).await?;
            let options = DumpOptions { machine: live.machine.clone(), root, images: images.clone(), mounts };
            let dumped = live.runtime.dump(&self.row.id, options).await?;
            stood_still = Some((Instant::now(), dumped.paused_us));
            let about = About::of(&self.row, dumped.about);
            written = Some(Written { dump, about, images });
            faults::hit("snapshot.dumped")?;
        } else if let (Some(live), State::Running) = (&self.live, self.row.state) {
            // Files alone are of one moment too: nobody writes meanwhile.
            live.runtime.pause(&self.row.id).await?;
            stood_still = Some((Instant::now(), 0));
        }
        snapshot.memory = Some(memory::point_of(&self.shared, &self.row).await?);
        volumes.snapshot(&snapshot.id, &self.row.id).await?;
        faults::hit("snapshot.disk")?;
        if let Some((since, before_us)) = stood_still {
            let after_us = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
            snapshot.pause_us = before_us.saturating_add(after_us);
        }
        Ok((snapshot, written))
    }

    /// Whatever a dump left standing still goes on, if it is one that runs.
    pub(super) async fn go_on_after_dump(&self) -> Result<(), EngineError> {
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
        // One that sleeps has them on disk already; others have none.
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
            // Which space it is of is known, and keeps that space; how far it has come, the moment itself says.
            memory: Some(SnapshotMemory { space: self.row.memory().space, point: None, named: None }),
        })
    }
}

impl Taken {
    /// Makes it last, and says what it holds.
    async fn finish(self, shared: &Shared) -> Result<Snapshot, EngineError> {
        let Self { mut snapshot, operation, written } = self;
        let dump = written.as_ref().map(|written| written.dump.clone());
        let finished = async {
            let volumes = &shared.seams.volumes;
            if let Some(Written { dump, about, .. }) = &written {
                snapshot.ram_bytes = volumes.seal_dump(dump, &about.to_text(), true).await?;
                faults::hit("snapshot.sealed")?;
            } else if let Some(dump) = &snapshot.dump {
                snapshot.ram_bytes = volumes.open_dump(dump).await?.bytes;
            }
            snapshot.changes = changes(shared, &snapshot).await;
            // What is too much to be listed at a glance is too much to be measured at one; see `measure`.
            if !snapshot.changes.more {
                snapshot.disk_bytes = volumes.snapshot_bytes(&snapshot.id).await.unwrap_or(0);
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

/// Notes in its row what a snapshot holds that is ready and was too large to be measured before. What fails leaves a row
/// that says nothing of it.
async fn measure(shared: &Shared, mut snapshot: Snapshot) {
    let measured = async {
        snapshot.disk_bytes = shared.seams.volumes.snapshot_bytes(&snapshot.id).await?;
        Ok::<_, EngineError>(shared.seams.catalog.finish_snapshot(snapshot.clone(), None).await?)
    };
    if let Err(error) = measured.await {
        // It may be gone by now.
        tracing::debug!(snapshot = %snapshot.id, error = &error as &dyn std::error::Error, "a snapshot is not measured");
    }
}

/// What changed since the snapshot before, as far as a glance tells. A list that cannot be made is no reason to lose the snapshot.
async fn changes(shared: &Shared, snapshot: &Snapshot) -> Changes {
    if matches!(disks::with_disks(shared, &snapshot.spec.driver), Ok(Some(_))) {
        // To read a disk takes a machine, and longer than the snapshot itself: `diff` does, when it is asked.
        return Changes { more: true, ..Changes::none(snapshot.parent.clone()) };
    }
    let volumes = &shared.seams.volumes;
    let max = burrow_model::CHANGES_MAX;
    let parent = snapshot.parent.as_ref();
    let mut found = volumes.changes(parent, &snapshot.id, &snapshot.image, max, Effort::Glance).await;
    if let (Err(burrow_volumes::VolumeError::SnapshotNotFound { .. }), Some(_)) = (&found, parent) {
        // The one before was removed meanwhile.
        found = volumes.changes(None, &snapshot.id, &snapshot.image, max, Effort::Glance).await;
    }
    let mut found = found.unwrap_or_else(|error| {
        tracing::warn!(
            snapshot = %snapshot.id, error = &error as &dyn std::error::Error,
            "could not tell what changed since the last snapshot"
        );
        Changes::none(parent.cloned())
    });
    let listed = found.paths.len();
    found.paths.retain(|change| !is_ours(&change.path));
    found.total = found.total.saturating_sub((listed - found.paths.len()) as u64);
    found
}

/// What the host itself keeps in a sandbox's files is nobody's change.
fn is_ours(path: &str) -> bool {
    path == "/.burrow" || path.starts_with("/.burrow/") || path == "/usr/local/bin/burrow-memory"
}

/// Removes what a snapshot made that is not to be. What fails stays in the journal, for the next start.
pub(super) async fn undo(
    shared: &Shared,
    snapshot: &SnapshotId,
    dump: Option<&DumpId>,
    operation: OperationId,
) {
    let undone = async {
        if let Some(dump) = dump {
            shared.seams.volumes.remove_dump(dump).await?;
        }
        shared.seams.volumes.remove_snapshot(snapshot).await?;
        Ok::<_, EngineError>(shared.seams.catalog.delete_snapshot(snapshot, Some(operation)).await?)
    };
    if let Err(error) = undone.await {
        tracing::error!(%snapshot, error = &error as &dyn std::error::Error, "could not undo a snapshot");
    }
}
