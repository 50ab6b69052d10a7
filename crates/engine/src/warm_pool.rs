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

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use burrow_catalog::WarmRow;
use burrow_disks::{DiskError, DiskId};
use burrow_model::{ImageId, Limits, SandboxId, TenantId};
use burrow_network::Dial;
use burrow_runtime::{Begun, BootOptions, Runtime};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};

use crate::images::starting_points;
use crate::operations::journal::Operation;
use crate::operations::{connect, remove};
use crate::shared::Shared;
use crate::{EngineError, WarmPoolPolicy, faults};

/// Kinds kept at once. More would use RAM and disk for sandboxes that may never be requested.
const KINDS_MAX: usize = 3;

/// Kinds remembered that were requested once.
const SEEN_MAX: usize = 16;

/// Created concurrently. A snapshot waits for the disk and a machine for the processor, so two overlap well; more would take the
/// host's processors from running sandboxes.
const PARALLEL: usize = 2;

/// The most kept of a kind whose machines use much RAM.
const HEAVY_READY: usize = 2;

/// After a take, the sandbox's first commands have priority: the warm pool is refilled when nothing was taken for this long, or at
/// once when half of it is used up.
const QUIET: Duration = Duration::from_millis(20);

/// The wait of the worker after a failure, doubled each time: the cause of a failure rarely goes away at once.
const REST_FIRST: Duration = Duration::from_millis(100);
const REST_MAX: Duration = Duration::from_secs(10);

/// The properties a create must request to be served from the warm pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) tenant: TenantId,
    pub(crate) image: ImageId,
    pub(crate) driver: String,
    pub(crate) limits: Limits,
}

/// A pre-created sandbox, and all it needs to become a sandbox.
#[derive(Debug)]
pub(crate) struct WarmSandbox {
    pub(crate) id: SandboxId,
    pub(crate) kind: Kind,
    pub(crate) dial: Arc<dyn Dial>,
    pub(crate) begun: Begun,
    pub(crate) runtime: Arc<dyn Runtime>,
}

#[derive(Debug)]
pub(crate) struct WarmPool {
    policy: WarmPoolPolicy,
    state: Mutex<State>,
    changed: Notify,
    worker: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct State {
    /// Most recently used first.
    kinds: VecDeque<Kind>,
    seen: VecDeque<Kind>,
    ready: Vec<WarmSandbox>,
    making: Vec<Kind>,
    heavy: Vec<&'static str>,
    /// Filling continues until all kinds are full.
    filling: bool,
    closed: bool,
}

impl WarmPool {
    /// `heavy` names the drivers whose machines take tens of megabytes of RAM each.
    pub(crate) fn new(policy: WarmPoolPolicy, heavy: Vec<&'static str>) -> Self {
        Self {
            policy,
            state: Mutex::new(State { heavy, ..State::default() }),
            changed: Notify::new(),
            worker: tokio::sync::Mutex::default(),
        }
    }

    /// Starts to fill the warm pool, in the background. Called after recovery, which removes what an earlier daemon pre-created.
    pub(crate) async fn start(shared: &Arc<Shared>) {
        let warm_pool = &shared.warm_pool;
        if warm_pool.policy.ready == 0 {
            return;
        }
        let worker = tokio::spawn(run(warm_pool.clone(), Arc::downgrade(shared)));
        *warm_pool.worker.lock().await = Some(worker);
    }

    /// Ends the worker and removes all pre-created sandboxes. Returns when both is done.
    pub(crate) async fn shutdown(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
        if let Some(worker) = self.worker.lock().await.take()
            && worker.await.is_err()
        {
            tracing::error!("the task that fills the warm pool panicked");
        }
    }

    /// Takes a pre-created sandbox of this kind, if there is one. Also records that the kind is in use.
    pub(crate) fn take(&self, kind: &Kind) -> Option<WarmSandbox> {
        if self.policy.ready == 0 {
            return None;
        }
        let mut state = self.lock();
        if state.closed {
            return None;
        }
        state.note_use(kind, self.policy.is_usual(kind));
        let found = state.ready.iter().position(|ready| ready.kind == *kind);
        let taken = found.map(|at| state.ready.remove(at));
        drop(state);
        self.changed.notify_one();
        taken
    }

    /// The number of pre-created sandboxes that are ready.
    pub(crate) fn ready(&self) -> usize {
        self.lock().ready.len()
    }

    /// Drops all kinds of an image, and removes their pre-created sandboxes.
    pub(crate) async fn forget_image(shared: &Shared, image: &ImageId) {
        let stale = {
            let mut state = shared.warm_pool.lock();
            state.kinds.retain(|kind| kind.image != *image);
            state.seen.retain(|kind| kind.image != *image);
            state.take_where(|kind| kind.image == *image)
        };
        for ready in stale {
            discard(shared, ready).await;
        }
    }

    fn is_full(&self) -> bool {
        let state = self.lock();
        state.missing(self.policy.ready).is_empty() && state.making.is_empty()
    }

    /// Decides whether to fill: starts after a quiet period or when half is used up, and continues until all kinds are full.
    fn note_pace(&self, quiet: bool) {
        let mut state = self.lock();
        let full = state.kinds.iter().all(|kind| state.count(kind) >= state.wanted(kind, self.policy.ready));
        state.filling = !full && (state.filling || quiet || state.is_low(self.policy.ready));
    }

    /// Waits for this time, or until the warm pool is closed.
    async fn rest(&self, time: Duration) {
        let closed = async {
            while !self.lock().closed {
                self.changed.notified().await;
            }
        };
        // A timeout is the expected result.
        let _ = tokio::time::timeout(time, closed).await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WarmPoolPolicy {
    /// Whether most creates will request this kind.
    fn is_usual(&self, kind: &Kind) -> bool {
        kind.driver == self.driver && kind.limits == self.limits
    }
}

impl State {
    fn note_use(&mut self, kind: &Kind, usual: bool) {
        let known = self.kinds.contains(kind);
        if known || usual || self.seen.contains(kind) {
            self.kinds.retain(|known| known != kind);
            self.seen.retain(|seen| seen != kind);
            self.kinds.push_front(kind.clone());
            self.kinds.truncate(KINDS_MAX);
        } else {
            self.seen.push_front(kind.clone());
            self.seen.truncate(SEEN_MAX);
        }
    }

    /// The kinds of which some are missing, most recently used first; at most as many entries as may still be created concurrently.
    fn missing(&self, wanted: usize) -> Vec<Kind> {
        let mut missing = Vec::new();
        for kind in &self.kinds {
            let wanted = self.wanted(kind, wanted);
            missing.extend(std::iter::repeat_n(kind.clone(), wanted.saturating_sub(self.count(kind))));
        }
        missing.truncate(PARALLEL.saturating_sub(self.making.len()));
        missing
    }

    /// Whether half or more of some kind is used up.
    fn is_low(&self, wanted: usize) -> bool {
        self.kinds.iter().any(|kind| self.count(kind) <= self.wanted(kind, wanted) / 2)
    }

    /// How many of a kind are kept if `ready` are configured.
    fn wanted(&self, kind: &Kind, ready: usize) -> usize {
        if self.heavy.contains(&kind.driver.as_str()) { ready.min(HEAVY_READY) } else { ready }
    }

    /// How many are ready or being created.
    fn count(&self, kind: &Kind) -> usize {
        let ready = self.ready.iter().filter(|ready| ready.kind == *kind).count();
        ready + self.making.iter().filter(|making| *making == kind).count()
    }

    fn take_where(&mut self, unwanted: impl Fn(&Kind) -> bool) -> Vec<WarmSandbox> {
        let (stale, kept) = self.ready.drain(..).partition(|ready| unwanted(&ready.kind));
        self.ready = kept;
        stale
    }

    /// Takes out the pre-created sandboxes whose kind is no longer kept.
    fn take_stale(&mut self) -> Vec<WarmSandbox> {
        let kinds = self.kinds.clone();
        self.take_where(|kind| !kinds.contains(kind))
    }
}

// === the worker ===

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
struct Stuck;

/// Starts to create what is missing, if it is time to fill.
async fn begin_missing(shared: &Arc<Shared>, making: &mut JoinSet<bool>) -> Result<(), Stuck> {
    let mut missing = {
        let state = shared.warm_pool.lock();
        if state.filling { state.missing(shared.warm_pool.policy.ready) } else { Vec::new() }
    };
    if missing.is_empty() {
        return Ok(());
    }
    missing.retain(|kind| shared.runtime(&kind.driver).is_ok_and(|runtime| runtime.boot_ahead().is_some()));
    if missing.is_empty() || !has_room(shared).await {
        return Err(Stuck);
    }
    let rows: Vec<WarmRow> = missing.iter().map(|kind| new_row(shared, kind)).collect();
    if let Err(error) = shared.seams.catalog.insert_warm(rows.clone()).await {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "could not record the sandboxes to pre-create"
        );
        return Err(Stuck);
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
    let begun = runtime.needs_boot_ahead(id)?.begin(id, options).await?;
    faults::hit("warm.machine")?;
    Ok(WarmSandbox { id: id.clone(), kind: kind.clone(), dial: link.dial, begun, runtime })
}

fn disk_bytes(kind: &Kind) -> u64 {
    u64::from(kind.limits.disk_mib) * burrow_model::MIB
}

// === removal ===

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

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(ram_mib: u32) -> Kind {
        Kind {
            tenant: TenantId::generate(),
            image: ImageId::generate(),
            driver: "sim".to_owned(),
            limits: Limits { ram_mib, cpu_millis: 1000, pids: 64, disk_mib: 64 },
        }
    }

    #[test]
    fn a_non_default_kind_is_kept_from_its_second_use() {
        let mut state = State::default();
        let (usual, odd) = (kind(64), kind(128));
        state.note_use(&usual, true);
        assert_eq!(state.kinds, std::slice::from_ref(&usual));
        state.note_use(&odd, false);
        assert_eq!(state.kinds, std::slice::from_ref(&usual));
        state.note_use(&odd, false);
        assert_eq!(state.kinds, [odd, usual]);
        assert!(state.seen.is_empty());
    }

    #[test]
    fn the_least_recently_used_kind_is_dropped() {
        let mut state = State::default();
        let kinds: Vec<Kind> = (1..=4).map(|n| kind(n * 64)).collect();
        kinds.iter().take(KINDS_MAX).for_each(|kind| state.note_use(kind, true));
        state.note_use(&kinds[0], true);
        state.note_use(&kinds[3], true);
        assert!(state.kinds.contains(&kinds[0]) && state.kinds.contains(&kinds[3]), "{:?}", state.kinds);
        assert_eq!(state.kinds.len(), KINDS_MAX);
    }

    #[test]
    fn sandboxes_in_creation_count_as_present() {
        let mut state = State::default();
        let kind = kind(64);
        state.note_use(&kind, true);
        assert_eq!(state.missing(3).len(), PARALLEL);
        state.making.push(kind.clone());
        assert_eq!(state.missing(1).len(), 0);
        assert_eq!(state.missing(100).len(), PARALLEL - 1);
        state.making.push(kind);
        assert_eq!(state.missing(3).len(), 0);
    }

    #[test]
    fn few_sandboxes_of_heavy_kinds_are_kept() {
        let mut state = State { heavy: vec!["sim"], ..State::default() };
        let kind = kind(64);
        state.note_use(&kind, true);
        assert_eq!(
            (state.wanted(&kind, 8), state.wanted(&kind, 1), state.wanted(&kind, 0)),
            (HEAVY_READY, 1, 0)
        );
        state.making.extend([kind.clone(), kind]);
        assert_eq!(state.missing(8).len(), 0);
    }
}
