//! The state that all parts of the engine share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use burrow_catalog::{ExecRow, NewEvent};
use burrow_model::{ExecId, ImageConfig, ImageId, SandboxId, TenantId};
use burrow_runtime::Runtime;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::actor::registry::Registry;
use crate::egress::EgressLog;
use crate::egress::secret_changes::SecretChanges;
use crate::events::Recorder;
use crate::execs::ExecRecorder;
use crate::execs::rollbacks::Rollbacks;
use crate::images::ImageWork;
use crate::moving::MovingWork;
use crate::race::running::Races;
use crate::recovery::recovering::RecoveringSandboxes;
use crate::snapshots::pins::Pins;
use crate::warm_pool::pool::WarmPool;
use crate::{EngineError, Policy, Seams, volumes};

/// Trial restores at the same time. Each checks first that the host has the RAM for a second copy of its processes, but two that check at
/// the same moment see the same free RAM: so few.
const TRIALS_MAX: usize = 2;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) seams: Seams,
    pub(crate) policy: Policy,
    pub(crate) registry: Registry,
    pub(crate) recovering: RecoveringSandboxes,
    pub(crate) warm_pool: Arc<WarmPool>,
    pub(crate) egress: Arc<EgressLog>,
    /// One image build at a time: a build can use the whole host anyway.
    pub(crate) builds: tokio::sync::Mutex<()>,
    /// A permit for each trial restore.
    pub(crate) trials: tokio::sync::Semaphore,
    pub(crate) images: ImageWork,
    pub(crate) moving: MovingWork,
    pub(crate) pins: Arc<Pins>,
    pub(crate) secrets: SecretChanges,
    pub(crate) races: Races,
    pub(crate) volumes: volumes::FileLocks,
    pub(crate) background: Background,
    /// Execs with a snapshot for a rollback.
    pub(crate) rollbacks: Rollbacks,
    /// Execs that will be stored in memory.
    pub(crate) remembering: ExecRecorder,
    recorder: Recorder,
    image_configs: Mutex<HashMap<ImageId, ImageConfig>>,
    actors: Actors,
}

/// The work in the background, of the engine and of the daemon above it.
#[derive(Clone, Debug, Default)]
pub struct Background {
    /// Work that continues when its client disconnects; joined at shutdown.
    pub tasks: TaskTracker,
    /// Of these, the operations on sandboxes, which may take as long as it takes to write or read their RAM.
    pub operations: TaskTracker,
    /// Cancelled when the daemon is about to shut down: streams report that and end.
    pub draining: CancellationToken,
}

/// Signals when the last actor has ended: each holds a clone of the sender.
#[derive(Debug)]
struct Actors {
    alive: Mutex<Option<mpsc::Sender<()>>>,
    ended: tokio::sync::Mutex<mpsc::Receiver<()>>,
}

impl Shared {
    pub(crate) fn new(seams: Seams, policy: Policy) -> Arc<Self> {
        let (alive, ended) = mpsc::channel(1);
        let images = ImageWork::new(&policy.images);
        let disks = |runtime: &&Arc<dyn Runtime>| runtime.form() == burrow_runtime::Form::Disk;
        let heavy = seams.runtimes.iter().filter(disks).map(|runtime| runtime.name()).collect();
        let moving = MovingWork::new(&policy.moving);
        Arc::new(Self {
            recorder: Recorder::spawn(seams.catalog.clone()),
            seams,
            warm_pool: Arc::new(WarmPool::new(policy.warm_pool.clone(), heavy)),
            egress: Arc::new(EgressLog::new()),
            policy,
            registry: Registry::default(),
            recovering: RecoveringSandboxes::default(),
            builds: tokio::sync::Mutex::new(()),
            trials: tokio::sync::Semaphore::new(TRIALS_MAX),
            images,
            moving,
            pins: Arc::default(),
            secrets: SecretChanges::new(),
            races: Races::default(),
            volumes: volumes::FileLocks::default(),
            background: Background::default(),
            rollbacks: Rollbacks::default(),
            remembering: ExecRecorder::new(),
            image_configs: Mutex::new(HashMap::new()),
            actors: Actors { alive: Mutex::new(Some(alive)), ended: tokio::sync::Mutex::new(ended) },
        })
    }

    /// The number of sandboxes, including those that are still being recovered.
    pub(crate) fn sandboxes(&self) -> usize {
        let recovering = self.recovering.ids();
        let without_actor = recovering.iter().filter(|id| self.registry.get(id).is_none()).count();
        self.registry.len() + without_actor
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.seams.clock.now_ms()
    }

    pub(crate) fn runtime(&self, driver: &str) -> Result<Arc<dyn Runtime>, EngineError> {
        let found = self.seams.runtimes.iter().find(|runtime| runtime.name() == driver);
        found.cloned().ok_or_else(|| EngineError::DriverUnknown { what: crate::shown::shown(driver) })
    }

    /// A driver that stores files as a tree, as image layers are.
    pub(crate) fn tree_driver(&self) -> &'static str {
        let trees = |runtime: &&Arc<dyn Runtime>| runtime.form() == burrow_runtime::Form::Tree;
        self.seams.runtimes.iter().find(trees).map_or("container", |runtime| runtime.name())
    }

    /// Image configurations never change, so they are cached.
    pub(crate) async fn image_config(
        &self,
        tenant: &TenantId,
        id: &ImageId,
    ) -> Result<ImageConfig, EngineError> {
        if let Some(config) = self.image_configs.lock().unwrap_or_else(PoisonError::into_inner).get(id) {
            return Ok(config.clone());
        }
        // Removing an image keeps the sandboxes created from it, and its record for them.
        let row = self.seams.catalog.image_record(tenant, id).await?;
        let config = row.map(|row| row.image.config).unwrap_or_default();
        self.image_configs.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), config.clone());
        Ok(config)
    }

    pub(crate) fn event(&self, tenant: &TenantId, kind: &str, sandbox: Option<&SandboxId>, detail: Value) {
        self.recorder.event(NewEvent {
            tenant: tenant.clone(),
            at_ms: self.now_ms(),
            kind: kind.to_owned(),
            sandbox: sandbox.cloned(),
            exec: None,
            detail,
        });
    }

    pub(crate) fn record_exec(&self, row: ExecRow) {
        let event = self.started(&row);
        self.recorder.exec(row);
        self.recorder.event(event);
    }

    /// Marks that an exec needs no more remembering, after its row is stored.
    pub(crate) fn record_remembered(&self, exec: ExecId) {
        self.recorder.remembered(exec);
    }

    /// Records the start of an exec whose row is stored already.
    pub(crate) fn record_start(&self, row: &ExecRow) {
        self.recorder.event(self.started(row));
    }

    fn started(&self, row: &ExecRow) -> NewEvent {
        NewEvent {
            tenant: row.tenant.clone(),
            at_ms: self.now_ms(),
            kind: "exec.started".to_owned(),
            sandbox: Some(row.sandbox.clone()),
            exec: Some(row.id.clone()),
            detail: serde_json::json!({ "argv": row.argv }),
        }
    }

    /// Returns when the rows of all execs started so far can be read.
    pub(crate) async fn flush_records(&self) {
        self.recorder.flush().await;
    }

    /// Held by an actor while it exists; `None` when the engine is shutting down.
    pub(crate) fn actor_guard(&self) -> Option<mpsc::Sender<()>> {
        self.actors.alive.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Completes the work in progress, accepts no more, and stores the queued records.
    pub(crate) async fn shutdown(&self) {
        self.background.draining.cancel();
        self.images.close();
        self.races.cancel_all();
        self.registry.close();
        self.actors.alive.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.actors.ended.lock().await.recv().await;
        self.warm_pool.shutdown().await;
        self.egress.shutdown().await;
        self.recorder.drain().await;
        self.seams.memory.close().await;
        self.seams.egress.shutdown().await;
        self.seams.network.shutdown().await;
    }
}
