//! A daemon on simulated drivers, and requests to it without a socket.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use axum::body::Body;
use axum::response::Response;
use burrow_catalog::{Catalog, NewKey};
use burrow_disks::sim::Sim as SimDisks;
use burrow_disks::{DiskError, Disks as _};
use burrow_egress::sim::SimEgress;
use burrow_engine::{BuildStage, Engine, ImageBuilder, ManualClock, Policy, Seams};
use burrow_model::{Image, ImageConfig, ImageId, SandboxId, Scope};
use burrow_network::sim::SimNetwork;
use burrow_runtime::sim::Sim as SimRuntime;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tokio::sync::mpsc;
use tower::ServiceExt as _;

use super::guest;
use crate::front::FrontService;
use crate::router::router;
use burrow_config::Config;
use burrow_http::app::App;
use burrow_http::audit::Audit;
use burrow_http::exec_trace::ExecRecords;
use burrow_http::memory::MemoryDependencies;
use burrow_http::metrics::Metrics;

pub(super) struct World {
    pub(super) app: Arc<App>,
    pub(super) runtime: Arc<SimRuntime>,
    pub(super) disks: Arc<SimDisks>,
    /// Files of the simulated disks.
    pub(super) pool: tempfile::TempDir,
    pub(super) network: SimNetwork,
    pub(super) egress: SimEgress,
    pub(super) clock: Arc<ManualClock>,
    pub(super) router: FrontService,
    /// An admin key.
    pub(super) key: String,
    /// The host, for the next daemon.
    seams: Seams,
    policy: Policy,
    _state: tempfile::TempDir,
}

/// A response, read to its end.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: http::HeaderMap,
    pub(super) body: Bytes,
}

impl Answer {
    #[track_caller]
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{self:?} is no JSON"))
    }

    pub(super) fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }

    #[track_caller]
    pub(super) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status.as_u16(), status, "{self:?}");
        self
    }

    /// Asserts an error with this status and code, and with a message.
    #[track_caller]
    pub(super) fn refused(&self, status: u16, code: &str) {
        assert_eq!((self.status.as_u16(), self.code().as_str()), (status, code), "{self:?}");
        assert!(!self.json()["error"]["message"].as_str().unwrap().is_empty());
    }
}

impl World {
    pub(super) async fn new() -> Self {
        Self::with("").await
    }

    /// Ends the daemon and starts another one on the same host.
    pub(super) async fn restart(&mut self) {
        self.app.draining.cancel();
        self.app.tasks.close();
        self.app.tasks.wait().await;
        self.app.engine.shutdown().await;
        let config = self.app.config.clone();
        let memory = burrow_http::memory::open(&config, self.clock.clone()).await.unwrap();
        let seams = Seams { memory, ..self.seams.clone() };
        self.app = start(config, seams, self.policy.clone()).await;
        self.router = router(self.app.clone());
    }

    /// `extra` is additional configuration.
    pub(super) async fn with(extra: &str) -> Self {
        let state = tempfile::tempdir().unwrap();
        let text = format!(
            "state_dir = \"{}\"\n{extra}\n[defaults]\ndriver = \"sim\"\nram = \"64M\"\n",
            state.path().display()
        );
        let config = Config::parse(Path::new("/nowhere/config.toml"), &text).unwrap();
        let catalog = Catalog::in_memory().unwrap();
        let pool = tempfile::tempdir().unwrap();
        let disks = Arc::new(SimDisks::in_folder(pool.path()));
        let runtime = Arc::new(SimRuntime::default());
        let network = SimNetwork::new();
        let egress = SimEgress::new();
        network.serve_by_default(guest::spawn().await);
        let image = image();
        disks.stage((&image.id).into(), None).await.unwrap();
        disks.seal((&image.id).into()).await.unwrap();
        catalog.insert_image(&catalog.default_tenant(), image).await.unwrap();
        let clock = Arc::new(ManualClock::at(1_000_000));
        let seams = Seams {
            catalog: catalog.clone(),
            disks: disks.clone(),
            network: Arc::new(network.clone()),
            egress: Arc::new(egress.clone()),
            runtimes: vec![runtime.clone()],
            images: Arc::new(SimBuilder),
            clock: clock.clone(),
            memory: burrow_http::memory::open(&config, clock.clone()).await.unwrap(),
            vault: crate::vault::open(&burrow_config::SecretsConfig {
                key_file: state.path().join("vault.key"),
                command: None,
            })
            .unwrap(),
            own: Arc::new(burrow_engine::NoOwnApi),
            execs: Arc::new(burrow_engine::NoExecObserver),
        };
        let policy = policy(&config);
        let app = start(config, seams.clone(), policy.clone()).await;
        let router = router(app.clone());
        let mut world = Self {
            app,
            runtime,
            disks,
            pool,
            network,
            egress,
            clock,
            router,
            key: String::new(),
            seams,
            policy,
            _state: state,
        };
        world.key = world.new_key(Scope::Admin, None).await;
        world
    }

    pub(super) async fn new_key(&self, scope: Scope, sandbox: Option<&str>) -> String {
        let catalog = self.app.engine.catalog();
        let new = NewKey {
            tenant: catalog.default_tenant(),
            name: "test".into(),
            scope,
            sandbox: sandbox.map(|id| id.parse::<SandboxId>().unwrap()),
            forks: false,
            parent: None,
            created_ms: 1,
            expires_ms: None,
        };
        catalog.create_key(new).await.unwrap().1.expose().to_owned()
    }

    /// Sends a request unchanged.
    pub(super) async fn raw(&self, request: Request<Body>) -> Answer {
        read(self.router.clone().oneshot(request).await.unwrap()).await
    }

    pub(super) fn request(&self, key: &str, method: &str, path: &str) -> http::request::Builder {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let builder = Request::builder().method(method).uri(path);
        if key.is_empty() { builder } else { builder.header("x-api-key", key) }
    }

    pub(super) async fn send(&self, method: &str, path: &str) -> Answer {
        self.send_as(&self.key, method, path).await
    }

    pub(super) async fn send_as(&self, key: &str, method: &str, path: &str) -> Answer {
        self.raw(self.request(key, method, path).body(Body::empty()).unwrap()).await
    }

    pub(super) async fn send_json(&self, method: &str, path: &str, body: impl Into<Body>) -> Answer {
        self.send_json_as(&self.key, method, path, body).await
    }

    pub(super) async fn send_json_as(
        &self,
        key: &str,
        method: &str,
        path: &str,
        body: impl Into<Body>,
    ) -> Answer {
        let request = self.request(key, method, path).header("content-type", "application/json");
        self.raw(request.body(body.into()).unwrap()).await
    }

    /// The kinds of a sandbox's events, oldest first.
    pub(super) async fn events_of(&self, id: &str) -> Vec<String> {
        let answer = self.send("GET", &format!("/v1/events?sandbox={id}")).await.expect(200);
        let kind = |line: &str| {
            let event: Value = serde_json::from_str(line).unwrap();
            event["kind"].as_str().unwrap().to_owned()
        };
        String::from_utf8_lossy(&answer.body).lines().map(kind).collect()
    }

    /// The present state of a sandbox.
    pub(super) async fn state_of(&self, id: &str) -> String {
        let answer = self.send("GET", &format!("/v1/sandboxes/{id}")).await.expect(200);
        answer.json()["state"].as_str().unwrap().to_owned()
    }

    /// The id of a new running sandbox.
    pub(super) async fn sandbox(&self, name: &str) -> String {
        let body = format!("{{\"name\": \"{name}\"}}");
        let created = self.send_json("POST", "/v1/sandboxes", body).await.expect(201);
        created.json()["id"].as_str().unwrap().to_owned()
    }
}

fn policy(config: &Config) -> Policy {
    Policy {
        images: burrow_engine::ImagePolicy {
            scratch: std::env::temp_dir(),
            floor: None,
            archive_bytes_max: 1 << 30,
            at_once: 2,
        },
        sandboxes_max: config.bounds.sandboxes,
        pool_reserve_bytes: 0,
        start_patience: std::time::Duration::from_secs(60),
        limits_max: config.bounds.limits,
        warm_pool: config.warm_pool(),
        egress: crate::egress::settings(&config.egress, &[]),
        idle: config.idle(),
        moving: burrow_engine::MovingPolicy {
            bytes_max: 1 << 30,
            entries_max: 10_000,
            at_once: 2,
            key: burrow_portable::ExportKey::from_seed(&[1; 32]).map(Arc::new),
            trusted: Vec::new(),
        },
    }
}

/// Starts a daemon.
async fn start(config: Config, seams: Seams, policy: Policy) -> Arc<App> {
    let audit = Arc::new(Audit::open(&config).unwrap());
    let records = ExecRecords { audit, metrics: Arc::new(Metrics::new()) };
    let seams = Seams { execs: Arc::new(records.clone()), ..seams };
    let engine = Engine::start(seams, policy).await.unwrap();
    let keeper = MemoryDependencies::open(&config).unwrap();
    App::new(engine, config, keeper, records)
}

pub(super) async fn read(response: Response) -> Answer {
    let (parts, body) = response.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    Answer { status: parts.status, headers: parts.headers, body }
}

fn image() -> Image {
    Image {
        id: ImageId::generate(),
        names: vec!["debian".parse().unwrap()],
        config: ImageConfig::default(),
        origin: burrow_model::ImageOrigin::default(),
        layer: None,
        size_bytes: 1,
        created_ms: 1,
    }
}

#[derive(Debug)]
struct SimBuilder;

#[async_trait]
impl ImageBuilder for SimBuilder {
    async fn build(
        &self,
        _image: &ImageId,
        _volume: PathBuf,
        stages: mpsc::Sender<BuildStage>,
    ) -> Result<(ImageConfig, u64), DiskError> {
        stages.send(BuildStage { stage: "unpack".into(), percent: Some(50) }).await.unwrap();
        Ok((ImageConfig::default(), 7))
    }
}
