//! The warm pool: pre-created sandboxes. Each has a disk, a network, and a machine whose agent waits for its identity.
//!
//! ```text
//!   worker: row in `warm pool` (durable) ─► disk ─► network ─► machine started ─► ready
//!   create: take one ─► its agent boots ─► ONE commit: removes the `warm pool` row, adds the sandbox's row, `running`
//! ```
//!
//! Invariant 2 holds: before anything is pre-created, a durable row names it, under the id that the sandbox will have. After a
//! crash, recovery removes all pre-created sandboxes, and the worker creates new ones. So does an orderly shutdown, since a machine
//! without an identity does not outlive its daemon.
//!
//! The warm pool holds sandboxes by *kind*: image, driver and limits. The kind of a default create is kept from the start, any
//! other kind from its second use, and the least recently used kinds are dropped. Pre-created sandboxes count towards no quota, and
//! none are created when the disk pool is short of space.

pub(crate) mod pool;

use std::sync::{Arc, Weak};
use std::time::Duration;

use burrow_catalog::WarmRow;
use burrow_disks::{DiskError, DiskId};
use burrow_model::{ImageId, SandboxId};
use burrow_runtime::BootOptions;
use tokio::task::JoinSet;

use crate::images::starting_points;
use crate::operations::journal::Operation;
use crate::operations::{connect, remove};
use crate::shared::Shared;
use crate::{EngineError, faults};
use pool::{Kind, WarmPool, WarmSandbox};

/// After a take, the sandbox's first commands have priority: the warm pool is refilled when nothing was taken for this long, or at
/// once when half of it is used up.
const QUIET: Duration = Duration::from_millis(20);

/// The wait of the worker after a failure, doubled each time: the cause of a failure rarely goes away at once.
const REST_FIRST: Duration = Duration::from_millis(100);
const REST_MAX: Duration = Duration::from_secs(10);

/// Starts to fill the warm pool, in the background. Called after recovery, which removes what an earlier daemon pre-created.
pub(crate) async fn start(shared: &Arc<Shared>) {
    let warm_pool = &shared.warm_pool;
    if warm_pool.policy.ready == 0 {
        return;
    }
    let worker = tokio::spawn(run(warm_pool.clone(), Arc::downgrade(shared)));
    *warm_pool.worker.lock().await = Some(worker);
}

/// Drops all kinds of an image, and removes their pre-created sandboxes.
pub(crate) async fn forget_image(shared: &Shared, image: &ImageId) {
    let stale = shared.warm_pool.lock().forget_image(image);
    for ready in stale {
        discard(shared, ready).await;
    }
}

/// Keeps the warm pool full until it is closed or the engine is dropped.
async fn run(warm_pool: Arc<WarmPool>, engine: Weak<Shared>) {
    let mut pause = REST_FIRST;
    let mut making = JoinSet::new();
    if let Some(shared) = engine.upgrade() {
        note_default(&shared).await;
        warm_pool.note_pace(true);
    }
    while !warm_pool.lock().closed {
        let Some(shared) = engine.upgrade() else { return };
        let stale = warm_pool.lock().take_stale();
        for ready in stale {
            discard(&shared, ready).await;
        }
        let stuck = begin_missing(&shared, &mut making).await.is_err();
        // While it waits, the worker keeps only the warm pool alive, not the engine.
        drop(shared);
        let patience = if stuck || warm_pool.is_full() { REST_MAX } else { QUIET };
        let quiet = tokio::select! {
            () = warm_pool.changed.notified() => false,
            Some(made) = making.join_next() => {
                if matches!(made, Ok(true)) {
                    pause = REST_FIRST;
                } else {
                    // Creates that need one in the meantime create their own, and report the reason if that fails.
                    warm_pool.rest(pause).await;
                    pause = REST_MAX.min(pause * 2);
                }
                false
            }
            () = tokio::time::sleep(patience) => true,
        };
        warm_pool.note_pace(quiet);
    }
    while making.join_next().await.is_some() {}
    let Some(shared) = engine.upgrade() else { return };
    let left = warm_pool.lock().take_where(|_| true);
    for ready in left {
        discard(&shared, ready).await;
    }
}

/// Adds the kind of a default create, if its image exists already.
async fn note_default(shared: &Shared) {
    let policy = &shared.warm_pool.policy;
    let Ok(name) = policy.image.parse() else { return };
    let tenant = shared.seams.catalog.default_tenant();
    if let Ok(Some(row)) = shared.seams.catalog.image_by_name(&tenant, &name).await {
        let (driver, limits) = (policy.driver.clone(), policy.limits);
        let kind = Kind { tenant, image: row.image.id, driver, limits };
        shared.warm_pool.lock().note_use(&kind, true);
    }
}

/// Nothing can be pre-created now.
struct PoolStuck;

/// Starts to create what is missing, if it is time to fill.
async fn begin_missing(shared: &Arc<Shared>, making: &mut JoinSet<bool>) -> Result<(), PoolStuck> {
    let mut missing = {
        let state = shared.warm_pool.lock();
        if state.filling { state.missing(shared.warm_pool.policy.ready) } else { Vec::new() }
    };
    if missing.is_empty() {
        return Ok(());
    }
    missing.retain(|kind| shared.runtime(&kind.driver).is_ok_and(|runtime| runtime.precreate().is_some()));
    if missing.is_empty() || !has_room(shared).await {
        return Err(PoolStuck);
    }
    let rows: Vec<WarmRow> = missing.iter().map(|kind| new_row(shared, kind)).collect();
    if let Err(error) = shared.seams.catalog.insert_warm(rows.clone()).await {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "could not record the sandboxes to pre-create"
        );
        return Err(PoolStuck);
    }
    for (kind, row) in missing.into_iter().zip(rows) {
        shared.warm_pool.lock().making.push(kind.clone());
        making.spawn(make(shared.clone(), kind, row.id));
    }
    Ok(())
}

fn new_row(shared: &Shared, kind: &Kind) -> WarmRow {
    WarmRow {
        id: SandboxId::generate(),
        tenant: kind.tenant.clone(),
        image: kind.image.clone(),
        disk_bytes: disk_bytes(kind),
        made_ms: shared.now_ms(),
    }
}

/// The warm pool is an optimisation: it must never use space whose lack would make a create fail.
async fn has_room(shared: &Shared) -> bool {
    let space = shared.seams.disks.space().await;
    space.is_ok_and(|space| space.free_bytes >= shared.policy.pool_reserve_bytes.saturating_mul(2))
}

/// Pre-creates a sandbox and adds it to the warm pool, or undoes its creation. Returns whether that succeeded.
async fn make(shared: Arc<Shared>, kind: Kind, id: SandboxId) -> bool {
    let made = try_make(&shared, &kind, &id).await;
    let put = {
        let mut state = shared.warm_pool.lock();
        if let Some(at) = state.making.iter().position(|making| *making == kind) {
            state.making.swap_remove(at);
        }
        match made {
            // If the pool was closed, or the kind dropped, during its creation, it is removed again.
            Ok(ready) if !state.closed && state.kinds.contains(&kind) => {
                state.ready.push(ready);
                return true;
            }
            Ok(_) => Ok(()),
            Err(EngineError::Disk(DiskError::NotFound { disk: DiskId::Image(_) })) => {
                // The image was removed during its creation: no sandbox of this kind can be created again.
                state.kinds.retain(|known| *known != kind);
                Ok(())
            }
            Err(error) => Err(error),
        }
    };
    if let Err(error) = &put {
        tracing::warn!(sandbox = %id, error = error as &dyn std::error::Error, "could not pre-create a sandbox");
    }
    discard_id(&shared, &id).await;
    put.is_ok()
}

async fn try_make(shared: &Shared, kind: &Kind, id: &SandboxId) -> Result<WarmSandbox, EngineError> {
    faults::hit("warm.row")?;
    let seams = &shared.seams;
    let runtime = shared.runtime(&kind.driver)?;
    let start = starting_points::start_of(shared, &kind.tenant, &kind.image, &runtime, &kind.limits).await?;
    let root = seams
        .disks
        .create(
            id.into(),
            Some((&start.disk).into()),
            starting_points::bytes_of(runtime.form(), &kind.limits),
        )
        .await?;
    faults::hit("warm.disk")?;
    let link = connect(shared, &*runtime, id).await?;
    faults::hit("warm.network")?;
    let options = BootOptions {
        root,
        attachment: link.attachment,
        hostname: id.to_string(),
        limits: kind.limits,
        boot_document: Vec::new(),
        template: start.template.clone(),
        mounts: Vec::new(),
    };
    let begun = runtime.needs_precreate(id)?.begin(id, options).await?;
    faults::hit("warm.machine")?;
    Ok(WarmSandbox { id: id.clone(), kind: kind.clone(), dial: link.dial, begun, runtime })
}

fn disk_bytes(kind: &Kind) -> u64 {
    u64::from(kind.limits.disk_mib) * burrow_model::MIB
}

async fn discard(shared: &Shared, ready: WarmSandbox) {
    let id = ready.id.clone();
    drop(ready);
    discard_id(shared, &id).await;
}

/// Removes the resources of a pre-created sandbox, then its row. If that fails, the row remains, and the next start tries again.
pub(crate) async fn discard_id(shared: &Shared, id: &SandboxId) {
    let removed = async {
        remove(shared, id, &shared.seams.runtimes, Operation::Delete, &mut |_| Ok(())).await?;
        Ok::<_, EngineError>(shared.seams.catalog.delete_warm(id).await?)
    };
    if let Err(error) = removed.await {
        tracing::warn!(
            sandbox = %id, error = &error as &dyn std::error::Error,
            "could not remove a pre-created sandbox; the next start tries again"
        );
    }
}

/// Removes all that an earlier daemon pre-created, in tasks: its machines ended with it.
pub(crate) async fn clear(shared: &Arc<Shared>, tasks: &mut JoinSet<()>) -> Result<(), EngineError> {
    for row in shared.seams.catalog.all_warm().await? {
        let shared = shared.clone();
        tasks.spawn(async move { discard_id(&shared, &row.id).await });
    }
    Ok(())
}
