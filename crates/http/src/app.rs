//! The state that all interfaces share, and a place for the state of each.

use std::any::{Any, TypeId};
use std::fmt;
use std::sync::{Arc, OnceLock};

use burrow_config::Config;
use burrow_engine::{Background, Engine};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::audit::Audit;
use crate::error::ApiError;
use crate::exec_trace::ExecRecords;
use crate::idempotency;
use crate::memory::MemoryDependencies;
use crate::metrics::Metrics;

/// Maximum number of parts. There is a fixed number of interfaces.
const PARTS_MAX: usize = 16;

/// The state of one interface, which this crate does not know.
pub trait Part: Send + Sync + 'static {
    /// Creates the state. Must not use another part.
    fn new(app: &App) -> Self;
}

/// One slot for each part, in the order in which they are first used. A slot is never emptied, so references stay valid.
#[derive(Default)]
struct Parts([OnceLock<(TypeId, Box<dyn Any + Send + Sync>)>; PARTS_MAX]);

impl Parts {
    fn get<P: Part>(&self, app: &App) -> &P {
        let wanted = TypeId::of::<P>();
        let mut filled = self.0.iter().map(|slot| slot.get_or_init(|| (wanted, Box::new(P::new(app)))));
        let (_, part) = filled.find(|(id, _)| *id == wanted).expect("there are fewer parts than slots");
        part.downcast_ref().expect("the id is that of the type")
    }
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let filled = self.0.iter().filter(|slot| slot.get().is_some()).count();
        f.debug_tuple("Parts").field(&filled).finish()
    }
}

/// The state that all handlers share.
#[derive(Debug)]
pub struct App {
    pub engine: Engine,
    pub config: Config,
    pub metrics: Arc<Metrics>,
    /// The verifiable audit log.
    pub audit: Arc<Audit>,
    /// Limits concurrent requests.
    pub requests: Arc<Semaphore>,
    /// Those of [`Engine::background`].
    pub tasks: TaskTracker,
    pub operations: TaskTracker,
    pub draining: CancellationToken,
    /// Requests with an `Idempotency-Key` that are in progress.
    pub idempotent_requests: idempotency::IdempotentRequests,
    /// Quotas, disk reserve and consolidation of memory.
    pub memory: MemoryDependencies,
    /// The state of the interfaces above this crate.
    parts: Parts,
}

impl App {
    pub fn new(
        engine: Engine,
        config: Config,
        memory: MemoryDependencies,
        ExecRecords { audit, metrics }: ExecRecords,
    ) -> Arc<Self> {
        let Background { tasks, operations, draining } = engine.background().clone();
        Arc::new(Self {
            metrics,
            requests: Arc::new(Semaphore::new(config.bounds.requests)),
            tasks,
            operations,
            idempotent_requests: idempotency::IdempotentRequests::default(),
            memory,
            audit,
            parts: Parts::default(),
            draining,
            config,
            engine,
        })
    }

    /// The state of one interface, created when it is first used.
    pub fn part<P: Part>(&self) -> &P {
        self.parts.get(self)
    }

    /// Completes work even if the client disconnects in the meantime: operations are then completed or undone.
    pub async fn run_to_completion<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, ApiError>> + Send + 'static,
    ) -> Result<T, ApiError> {
        use tracing::Instrument as _;
        let task = self.tasks.spawn(work.in_current_span());
        task.await.map_err(|error| ApiError::internal("could not complete the request", error))?
    }

    /// The same for an operation on a sandbox, for which shutdown waits longer.
    pub async fn carry_out<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, ApiError>> + Send + 'static,
    ) -> Result<T, ApiError> {
        self.run_to_completion(self.operations.track_future(work)).await
    }
}
