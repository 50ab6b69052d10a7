//! Sandboxes-to-be, made ahead: a volume, a network, and a machine whose agent waits to be told whose it is.
//!
//! ```text
//!   worker: row in `stock` (durable) ─► volume ─► network ─► machine begun ─► ready
//!   create: take one ─► its agent boots ─► ONE commit: the stock row goes, the sandbox's row comes, running
//! ```
//!
//! Invariant 2 holds throughout: whatever is made ahead is named by a row that was durable first, under the id that
//! the sandbox will have. After a crash, recovery removes all stock and the worker makes it anew; so does an orderly
//! end, since a machine that nobody has named yet does not outlive its daemon.
//!
//! Stock is kept by *kind*: image, driver and limits. The kind of a default create is kept from the start, another
//! from its second use on, and the kinds used longest ago make way. It counts for nothing in quotas, and is not made
//! when the pool has no room to spare.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use burrow_catalog::StockRow;
use burrow_model::{ImageId, Limits, SandboxId, TenantId};
use burrow_network::Dial;
use burrow_runtime::{Begun, BootOptions, Runtime};
use burrow_volumes::VolumeError;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};

use crate::journal::Operation;
use crate::operations::{connect, remove};
use crate::shared::Shared;
use crate::{EngineError, StockPolicy, faults, forms};

/// Kinds kept at once. More would hold RAM and disk for sandboxes that may never come.
const KINDS_MAX: usize = 3;

/// Kinds remembered that were asked for once.
const SEEN_MAX: usize = 16;

/// Made side by side. A snapshot waits for the disk and a machine for the processor, so two go well together; more
/// would take the machine from those who use it.
const PARALLEL: usize = 2;

/// Kept of a kind whose machines are heavy.
const HEAVY_READY: usize = 2;

/// After a take, the sandbox's first commands come first: the stock is filled again when nothing was taken for this
/// long, or at once when half of it is gone.
const QUIET: Duration = Duration::from_millis(20);

/// After a failure the worker waits, twice as long each time: what hinders it is rarely gone in an instant.
const REST_FIRST: Duration = Duration::from_millis(100);
const REST_MAX: Duration = Duration::from_secs(10);

/// What a create must ask for to be served from stock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) tenant: TenantId,
    pub(crate) image: ImageId,
    pub(crate) driver: String,
    pub(crate) limits: Limits,
}

/// One in stock, and all it needs to become a sandbox.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) id: SandboxId,
    pub(crate) kind: Kind,
    pub(crate) dial: Arc<dyn Dial>,
    pub(crate) begun: Begun,
    pub(crate) runtime: Arc<dyn Runtime>,
}

#[derive(Debug)]
pub(crate) struct Stock {
    policy: StockPolicy,
    state: Mutex<State>,
    changed: Notify,
    worker: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct State {
    /// Most recently used first.
    kinds: VecDeque<Kind>,
    seen: VecDeque<Kind>,
    ready: Vec<Ready>,
    making: Vec<Kind>,
    heavy: Vec<&'static str>,
    /// Filling goes on until all kinds are full.
    filling: bool,
    closed: bool,
}

impl Stock {
    /// `heavy` names drivers whose machines take tens of megabytes each.
    pub(crate) fn new(policy: StockPolicy, heavy: Vec<&'static str>) -> Self {
        Self {
            policy,
            state: Mutex::new(State { heavy, ..State::default() }),
            changed: Notify::new(),
            worker: tokio::sync::Mutex::default(),
        }
    }

    /// Begins to fill the stock, in the background. After recovery, which removes what an earlier daemon had.
    pub(crate) async fn start(shared: &Arc<Shared>) {
        let stock = &shared.stock;
        if stock.policy.ready == 0 {
            return;
        }
        let worker = tokio::spawn(run(stock.clone(), Arc::downgrade(shared)));
        *stock.worker.lock().await = Some(worker);
    }

    /// Ends the worker and removes what is in stock. Returns when both is done.
    pub(crate) async fn shutdown(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
        if let Some(worker) = self.worker.lock().await.take()
            && worker.await.is_err()
        {
            tracing::error!("the task that makes stock had panicked");
        }
    }

    /// One of this kind, if there is one. Also notes that the kind is in use.
    pub(crate) fn take(&self, kind: &Kind) -> Option<Ready> {
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

    /// How many are ready.
    pub(crate) fn ready(&self) -> usize {
        self.lock().ready.len()
    }

    /// Keeps none of an image any more, and removes what there is.
    pub(crate) async fn forget_image(shared: &Shared, image: &ImageId) {
        let stale = {
            let mut state = shared.stock.lock();
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

    /// Decides whether it is time to fill: it is, once it was quiet or half is gone, until all is full.
    fn note_pace(&self, quiet: bool) {
        let mut state = self.lock();
        let full = state.kinds.iter().all(|kind| state.count(kind) >= state.wanted(kind, self.policy.ready));
        state.filling = !full && (state.filling || quiet || state.is_low(self.policy.ready));
    }

    /// For that long, or until the stock is closed.
    async fn rest(&self, time: Duration) {
        let closed = async {
            while !self.lock().closed {
                self.changed.notified().await;
            }
        };
        // Time being up is what is expected.
        let _ = tokio::time::timeout(time, closed).await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StockPolicy {
    /// A kind that most creates will ask for.
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

    /// What is missing, the most recently used kind first; at most as many as may be made beside what is being made.
    fn missing(&self, wanted: usize) -> Vec<Kind> {
        let mut missing = Vec::new();
        for kind in &self.kinds {
            let wanted = self.wanted(kind, wanted);
            missing.extend(std::iter::repeat_n(kind.clone(), wanted.saturating_sub(self.count(kind))));
        }
        missing.truncate(PARALLEL.saturating_sub(self.making.len()));
        missing
    }

    /// Whether half of some kind, or more, is gone.
    fn is_low(&self, wanted: usize) -> bool {
        self.kinds.iter().any(|kind| self.count(kind) <= self.wanted(kind, wanted) / 2)
    }

    /// How many of a kind are kept where so many are asked for.
    fn wanted(&self, kind: &Kind, ready: usize) -> usize {
        if self.heavy.contains(&kind.driver.as_str()) { ready.min(HEAVY_READY) } else { ready }
    }

    /// Ready, or about to be.
    fn count(&self, kind: &Kind) -> usize {
        let ready = self.ready.iter().filter(|ready| ready.kind == *kind).count();
        ready + self.making.iter().filter(|making| *making == kind).count()
    }

    fn take_where(&mut self, unwanted: impl Fn(&Kind) -> bool) -> Vec<Ready> {
        let (stale, kept) = self.ready.drain(..).partition(|ready| unwanted(&ready.kind));
        self.ready = kept;
        stale
    }

    /// What is of a kind that is kept no more.
    fn take_stale(&mut self) -> Vec<Ready> {
        let kinds = self.kinds.clone();
        self.take_where(|kind| !kinds.contains(kind))
    }
}

// === the worker ===

/// Keeps the stock full until it is closed or the engine is gone.
async fn run(stock: Arc<Stock>, engine: Weak<Shared>) {
    let mut pause = REST_FIRST;
    let mut making = JoinSet::new();
    if let Some(shared) = engine.upgrade() {
        note_default(&shared).await;
        stock.note_pace(true);
    }
    while !stock.lock().closed {
        let Some(shared) = engine.upgrade() else { return };
        let stale = stock.lock().take_stale();
        for ready in stale {
            discard(&shared, ready).await;
        }
        let stuck = begin_missing(&shared, &mut making).await.is_err();
        // While it waits, the worker keeps nothing alive but the stock.
        drop(shared);
        let patience = if stuck || stock.is_full() { REST_MAX } else { QUIET };
        let quiet = tokio::select! {
            () = stock.changed.notified() => false,
            Some(made) = making.join_next() => {
                if matches!(made, Ok(true)) {
                    pause = REST_FIRST;
                } else {
                    // Those who want one meanwhile make their own, and hear why it fails.
                    stock.rest(pause).await;
                    pause = REST_MAX.min(pause * 2);
                }
                false
            }
            () = tokio::time::sleep(patience) => true,
        };
        stock.note_pace(quiet);
    }
    while making.join_next().await.is_some() {}
    let Some(shared) = engine.upgrade() else { return };
    let left = stock.lock().take_where(|_| true);
    for ready in left {
        discard(&shared, ready).await;
    }
}

/// The kind of a default create, if its image is there already.
async fn note_default(shared: &Shared) {
    let policy = &shared.stock.policy;
    let Ok(name) = policy.image.parse() else { return };
    let tenant = shared.seams.catalog.default_tenant();
    if let Ok(Some(row)) = shared.seams.catalog.image_by_name(&tenant, &name).await {
        let (driver, limits) = (policy.driver.clone(), policy.limits);
        let kind = Kind { tenant, image: row.image.id, driver, limits };
        shared.stock.lock().note_use(&kind, true);
    }
}

/// Nothing can be made now.
struct Stuck;

/// Starts to make what is missing, unless it is not yet the time.
async fn begin_missing(shared: &Arc<Shared>, making: &mut JoinSet<bool>) -> Result<(), Stuck> {
    let mut missing = {
        let state = shared.stock.lock();
        if state.filling { state.missing(shared.stock.policy.ready) } else { Vec::new() }
    };
    if missing.is_empty() {
        return Ok(());
    }
    missing.retain(|kind| shared.runtime(&kind.driver).is_ok_and(|runtime| runtime.begins_ahead()));
    if missing.is_empty() || !has_room(shared).await {
        return Err(Stuck);
    }
    let rows: Vec<StockRow> = missing.iter().map(|kind| new_row(shared, kind)).collect();
    if let Err(error) = shared.seams.catalog.insert_stock(rows.clone()).await {
        tracing::warn!(error = &error as &dyn std::error::Error, "could not note what is to be made ahead");
        return Err(Stuck);
    }
    for (kind, row) in missing.into_iter().zip(rows) {
        shared.stock.lock().making.push(kind.clone());
        making.spawn(make(shared.clone(), kind, row.id));
    }
    Ok(())
}

fn new_row(shared: &Shared, kind: &Kind) -> StockRow {
    StockRow {
        id: SandboxId::generate(),
        tenant: kind.tenant.clone(),
        image: kind.image.clone(),
        disk_bytes: disk_bytes(kind),
        made_ms: shared.now_ms(),
    }
}

/// Stock is a convenience: it must never take the room that a create would be refused for.
async fn has_room(shared: &Shared) -> bool {
    let space = shared.seams.volumes.space().await;
    space.is_ok_and(|space| space.free_bytes >= shared.policy.pool_reserve_bytes.saturating_mul(2))
}

/// Makes one and puts it in stock, or undoes it. Answers whether it is there.
async fn make(shared: Arc<Shared>, kind: Kind, id: SandboxId) -> bool {
    let made = try_make(&shared, &kind, &id).await;
    let put = {
        let mut state = shared.stock.lock();
        if let Some(at) = state.making.iter().position(|making| *making == kind) {
            state.making.swap_remove(at);
        }
        match made {
            // Closed, or kept no more, while it was being made: it goes again.
            Ok(ready) if !state.closed && state.kinds.contains(&kind) => {
                state.ready.push(ready);
                return true;
            }
            Ok(_) => Ok(()),
            Err(EngineError::Volume(VolumeError::ImageNotFound { .. })) => {
                // The image went while it was being made: there will never be one of this kind again.
                state.kinds.retain(|known| *known != kind);
                Ok(())
            }
            Err(error) => Err(error),
        }
    };
    if let Err(error) = &put {
        tracing::warn!(sandbox = %id, error = error as &dyn std::error::Error, "could not make one ahead");
    }
    discard_id(&shared, &id).await;
    put.is_ok()
}

async fn try_make(shared: &Shared, kind: &Kind, id: &SandboxId) -> Result<Ready, EngineError> {
    faults::hit("stock.row")?;
    let seams = &shared.seams;
    let runtime = shared.runtime(&kind.driver)?;
    let start = forms::start_of(shared, &kind.tenant, &kind.image, &runtime, &kind.limits).await?;
    let root = seams.volumes.create(id, &start.volume, forms::bytes_of(runtime.form(), &kind.limits)).await?;
    faults::hit("stock.volume")?;
    let link = connect(shared, &*runtime, id).await?;
    faults::hit("stock.network")?;
    let options = BootOptions {
        root,
        attachment: link.attachment,
        hostname: id.to_string(),
        limits: kind.limits,
        boot_document: Vec::new(),
        template: start.template.clone(),
        mounts: Vec::new(),
    };
    let begun = runtime.begin(id, options).await?;
    faults::hit("stock.machine")?;
    Ok(Ready { id: id.clone(), kind: kind.clone(), dial: link.dial, begun, runtime })
}

fn disk_bytes(kind: &Kind) -> u64 {
    u64::from(kind.limits.disk_mib) * burrow_model::MIB
}

// === removal ===

async fn discard(shared: &Shared, ready: Ready) {
    let id = ready.id.clone();
    drop(ready);
    discard_id(shared, &id).await;
}

/// Removes what an id in stock names, then its row. What fails stays named: the next start tries again.
pub(crate) async fn discard_id(shared: &Shared, id: &SandboxId) {
    let removed = async {
        remove(shared, id, &shared.seams.runtimes, Operation::Delete, &mut |_| Ok(())).await?;
        Ok::<_, EngineError>(shared.seams.catalog.delete_stock(id).await?)
    };
    if let Err(error) = removed.await {
        tracing::warn!(
            sandbox = %id, error = &error as &dyn std::error::Error,
            "could not remove what was made ahead; the next start tries again"
        );
    }
}

/// Removes all that an earlier daemon had in stock: its machines ended with it.
pub(crate) async fn clear(shared: &Shared) -> Result<(), EngineError> {
    for row in shared.seams.catalog.all_stock().await? {
        discard_id(shared, &row.id).await;
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
    fn an_unusual_kind_is_kept_from_its_second_use_on() {
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
    fn the_kind_used_longest_ago_makes_way() {
        let mut state = State::default();
        let kinds: Vec<Kind> = (1..=4).map(|n| kind(n * 64)).collect();
        kinds.iter().take(KINDS_MAX).for_each(|kind| state.note_use(kind, true));
        state.note_use(&kinds[0], true);
        state.note_use(&kinds[3], true);
        assert!(state.kinds.contains(&kinds[0]) && state.kinds.contains(&kinds[3]), "{:?}", state.kinds);
        assert_eq!(state.kinds.len(), KINDS_MAX);
    }

    #[test]
    fn what_is_being_made_is_not_made_twice() {
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
    fn of_what_is_heavy_few_are_kept() {
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
