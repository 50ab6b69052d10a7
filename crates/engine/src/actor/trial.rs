//! Trials: detect dumps that cannot be restored, before running processes are given up.
//!
//! ```text
//!   dump ─► copies of the disk and of writable volumes ─► network ─► machine restored, frozen ─► all of them removed
//! ```
//!
//! A trial runs before a hibernate ends the machine, and before a restore in place does. It is a sandbox without a row: the
//! operation's row names it, so a crash leaves nothing. No process of it runs, and without listeners no packet leaves it
//! (invariant 1). It has its own id and its own copies of all files, since locks, sockets and deleted files of the machine are still
//! in use.
//!
//! The driver decides whether a trial is needed: see `Trials::untried`. The sandbox of a hibernate is frozen during its trial, so the
//! wait for the trials of other sandboxes is bounded.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use burrow_catalog::SandboxRow;
use burrow_model::{MIB, SnapshotId};
use burrow_runtime::{Mount, RestoreOptions, Runtime, RuntimeError};
use tokio::time::timeout;

use crate::images::starting_points;
use crate::operations::journal::{Operation, Trial};
use crate::shared::Shared;
use crate::snapshots::restored_kinds;
use crate::{EngineError, ObjectKind, faults, operations};

/// How long a trial waits for others to end. A trial takes about as long as a wake; those that take longer are of large sandboxes, or
/// hang until their own limit.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// A dump whose restore may have to be tried.
#[derive(Debug)]
pub(super) struct UntriedDump<'a> {
    pub(super) images: PathBuf,
    /// The driver's description.
    pub(super) about: &'a str,
    pub(super) mounts: Vec<Mount>,
    /// The snapshot that holds its files. `None`: the sandbox's disk does.
    pub(super) files: Option<&'a SnapshotId>,
    /// Tried even if its driver has restored the same kinds before.
    pub(super) always: bool,
}

/// Restores a dump beside the machine, unless its driver has restored the same kinds before, and removes what it created.
///
/// [`RuntimeError::TrialFailed`]: it cannot be restored. [`RuntimeError::NoRoomForTrial`], [`EngineError::TrialBusy`] and
/// [`EngineError::TrialCut`]: not known.
pub(super) async fn run(
    shared: &Shared,
    row: &SandboxRow,
    runtime: &Arc<dyn Runtime>,
    trial: &Trial,
    dump: UntriedDump<'_>,
) -> Result<(), EngineError> {
    if !is_needed(row, &**runtime, &dump).await? {
        return Ok(());
    }
    // Held until the copies are removed. The semaphore is never closed.
    let Ok(_permit) = timeout(WAIT_MAX, shared.trials.acquire()).await else {
        return Err(EngineError::TrialBusy { id: row.id.clone() });
    };
    // The trials that it waited for have often restored the same kinds.
    if !is_needed(row, &**runtime, &dump).await? {
        return Ok(());
    }
    let mut restored = try_once(shared, row, &**runtime, trial, &dump).await;
    if let Err(EngineError::Runtime(error @ RuntimeError::RestoreCut { .. })) = &restored {
        tracing::warn!(
            sandbox = %row.id, error = error as &dyn std::error::Error,
            "a trial restore was interrupted; trying once more"
        );
        restored = try_once(shared, row, &**runtime, trial, &dump).await;
    }
    match restored {
        Err(EngineError::Runtime(
            RuntimeError::Restore { reason, .. } | RuntimeError::Unfit { reason, .. },
        )) => Err(RuntimeError::TrialFailed { id: row.id.clone(), reason }.into()),
        // That says nothing about the dump.
        Err(EngineError::Runtime(RuntimeError::RestoreCut { reason, .. })) => {
            Err(EngineError::TrialCut { id: row.id.clone(), reason })
        }
        // The sandbox is named, not its trial.
        Err(EngineError::Runtime(RuntimeError::NoRoomForTrial { needed_bytes, available_bytes, .. })) => {
            Err(RuntimeError::NoRoomForTrial { id: row.id.clone(), needed_bytes, available_bytes }.into())
        }
        Ok(()) => {
            restored_kinds::store(shared, &**runtime).await;
            Ok(())
        }
        restored => restored,
    }
}

/// Whether an error of [`run`] leaves open whether the dump can be restored.
pub(super) fn is_doubt(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::TrialBusy { .. }
            | EngineError::TrialCut { .. }
            | EngineError::Runtime(RuntimeError::NoRoomForTrial { .. })
    )
}

/// Whether the dump has to be tried: its driver has not restored all of its kinds before, or it is tried in any case.
pub(super) async fn is_needed(
    row: &SandboxRow,
    runtime: &dyn Runtime,
    dump: &UntriedDump<'_>,
) -> Result<bool, EngineError> {
    let untried = match runtime.trials() {
        Some(trials) => trials.untried(&row.id, &dump.images).await?,
        None => Vec::new(),
    };
    if !untried.is_empty() {
        tracing::debug!(sandbox = %row.id, ?untried, "a dump holds kinds that were not restored before");
    }
    Ok(dump.always || !untried.is_empty())
}

async fn try_once(
    shared: &Shared,
    row: &SandboxRow,
    runtime: &dyn Runtime,
    trial: &Trial,
    dump: &UntriedDump<'_>,
) -> Result<(), EngineError> {
    tracing::debug!(sandbox = %row.id, trial = %trial.sandbox, "trying to restore a dump");
    let restored = restore(shared, row, runtime, trial, dump).await;
    remove(shared, trial).await;
    restored
}

async fn restore(
    shared: &Shared,
    row: &SandboxRow,
    runtime: &dyn Runtime,
    trial: &Trial,
    dump: &UntriedDump<'_>,
) -> Result<(), EngineError> {
    let disks = &shared.seams.disks;
    let files = match dump.files {
        Some(snapshot) => snapshot,
        None => {
            disks.snapshot((&trial.snapshot).into(), (&row.id).into()).await?;
            &trial.snapshot
        }
    };
    let disk_bytes = starting_points::disk_bytes(shared, &row.spec);
    let root = disks.create((&trial.sandbox).into(), Some(files.into()), disk_bytes).await?;
    let mounts = copy_volumes(shared, row, trial, &dump.mounts).await?;
    faults::hit("hibernate.trial-disk")?;
    let link = shared.seams.network.connect_later(&trial.sandbox).await?;
    faults::hit("hibernate.trial-network")?;
    let options = RestoreOptions {
        root,
        images: dump.images.clone(),
        about: dump.about.to_owned(),
        attachment: link.attachment,
        limits: row.spec.limits,
        hostname: None,
        mounts,
        introduce: None,
        trial: true,
    };
    runtime.restore(&trial.sandbox, options).await?;
    faults::hit("hibernate.trial-machine")
}

/// The mounts with copies in place of the volumes that the sandbox may write to: a restore changes files there, for example it binds
/// sockets again.
async fn copy_volumes(
    shared: &Shared,
    row: &SandboxRow,
    trial: &Trial,
    mounts: &[Mount],
) -> Result<Vec<Mount>, EngineError> {
    let disks = &shared.seams.disks;
    let mut mounts = mounts.to_vec();
    for copy in &trial.volumes {
        let Some(mounted) = row.spec.volumes.iter().find(|mount| mount.volume == copy.of) else { continue };
        let unknown = || EngineError::NotFound { kind: ObjectKind::Volume, what: mounted.name.to_string() };
        let found = shared.seams.catalog.volume(&row.tenant, &copy.of).await?.ok_or_else(unknown)?;
        disks.snapshot((&copy.snapshot).into(), (&copy.of).into()).await?;
        let disk_bytes = u64::from(found.volume.disk_mib) * MIB;
        let source = disks.create((&copy.copy).into(), Some((&copy.snapshot).into()), disk_bytes).await?;
        if let Some(mount) = mounts.iter_mut().find(|mount| mount.target == mounted.path) {
            mount.source = source;
        }
    }
    Ok(mounts)
}

/// Removes everything that a trial may have created. What cannot be removed is named by no row, so the next start removes it.
pub(crate) async fn remove(shared: &Shared, trial: &Trial) {
    let disks = &shared.seams.disks;
    let removed = async {
        operations::remove(
            shared,
            &trial.sandbox,
            &shared.seams.runtimes,
            Operation::Create,
            &mut |_| Ok(()),
        )
        .await?;
        for volume in &trial.volumes {
            disks.remove((&volume.copy).into()).await?;
            disks.remove((&volume.snapshot).into()).await?;
        }
        Ok::<_, EngineError>(disks.remove((&trial.snapshot).into()).await?)
    };
    if let Err(error) = removed.await {
        tracing::warn!(
            trial = %trial.sandbox, error = &error as &dyn std::error::Error, "could not remove a trial restore"
        );
    }
}
