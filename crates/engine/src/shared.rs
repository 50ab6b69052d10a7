//! What every part of the engine holds in common.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use burrow_catalog::{ExecRow, NewEvent};
use burrow_model::{ExecId, ImageConfig, ImageId, SandboxId, TenantId};
use burrow_runtime::Runtime;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::egress::EgressLog;
use crate::events::Recorder;
use crate::images::ImageWork;
use crate::moving::MovingWork;
use crate::pins::Pins;
use crate::race::Races;
use crate::recovery::Recovering;
use crate::registry::Registry;
use crate::secrets::SecretChanges;
use crate::stock::Stock;
use crate::{EngineError, Policy, Seams, shelves};

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) seams: Seams,
    pub(crate) policy: Policy,
    pub(crate) registry: Registry,
    pub(crate) recovering: Recovering,
    pub(crate) stock: Arc<Stock>,
    pub(crate) egress: Arc<EgressLog>,
    /// One image build at a time: it takes the whole machine anyway.
    pub(crate) builds: tokio::sync::Mutex<()>,
    pub(crate) images: ImageWork,
    pub(crate) moving: MovingWork,
    pub(crate) pins: Arc<Pins>,
    pub(crate) secrets: SecretChanges,
    pub(crate) races: Races,
    pub(crate) shelves: shelves::Turns,
    recorder: Recorder,
    image_configs: Mutex<HashMap<ImageId, ImageConfig>>,
    actors: Actors,
}

/// Tells when the last actor has ended: each holds a clone of the sender.
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
            stock: Arc::new(Stock::new(policy.stock.clone(), heavy)),
            egress: Arc::new(EgressLog::new()),
            policy,
            registry: Registry::default(),
            recovering: Recovering::default(),
            builds: tokio::sync::Mutex::new(()),
            images,
            moving,
            pins: Arc::default(),
            secrets: SecretChanges::new(),
            races: Races::default(),
            shelves: shelves::Turns::default(),
            image_configs: Mutex::new(HashMap::new()),
            actors: Actors { alive: Mutex::new(Some(alive)), ended: tokio::sync::Mutex::new(ended) },
        })
    }

    /// How many sandboxes there are, those that are still being recovered included.
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
        found.cloned().ok_or_else(|| EngineError::DriverUnknown { what: crate::engine::shown(driver) })
    }

    /// A driver whose machines keep a tree of files, as layers of images are.
    pub(crate) fn tree_driver(&self) -> &'static str {
        let trees = |runtime: &&Arc<dyn Runtime>| runtime.form() == burrow_runtime::Form::Tree;
        self.seams.runtimes.iter().find(trees).map_or("container", |runtime| runtime.name())
    }

    /// Image configurations never change, so they are kept once read.
    pub(crate) async fn image_config(
        &self,
        tenant: &TenantId,
        id: &ImageId,
    ) -> Result<ImageConfig, EngineError> {
        if let Some(config) = self.image_configs.lock().unwrap_or_else(PoisonError::into_inner).get(id) {
            return Ok(config.clone());
        }
        // Removing an image leaves the sandboxes made from it in place, and its record with them.
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

    pub(crate) fn record_remembered(&self, exec: ExecId) {
        self.recorder.remembered(exec);
    }

    /// Of an exec whose row is there already.
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

    /// Returns when the rows of execs started so far can be read.
    pub(crate) async fn flush_records(&self) {
        self.recorder.flush().await;
    }

    /// Held by an actor for as long as it is at work; `None` when the engine is shutting down.
    pub(crate) fn sign_of_life(&self) -> Option<mpsc::Sender<()>> {
        self.actors.alive.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets what is under way finish, takes no more, and writes down what is queued.
    pub(crate) async fn shutdown(&self) {
        self.images.close();
        self.races.cancel_all();
        self.registry.close();
        self.actors.alive.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.actors.ended.lock().await.recv().await;
        self.stock.shutdown().await;
        self.egress.shutdown().await;
        self.recorder.drain().await;
        self.seams.memory.close().await;
        self.seams.egress.shutdown().await;
        self.seams.network.shutdown().await;
    }
}
