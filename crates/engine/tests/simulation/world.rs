//! A simulated host: drivers that outlive the engine, a clock that tests advance, a guest that accepts every request.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use burrow_catalog::{Catalog, SandboxRow};
use burrow_disks::faulty::FaultyDisks;
use burrow_disks::sim::Sim as SimDisks;
use burrow_disks::{DiskError, Disks as _};
use burrow_egress::faulty::FaultyEgress;
use burrow_egress::sim::SimEgress;
use burrow_engine::{
    BuildStage, Clock, CreateOptions, EgressSettings, Engine, EngineError, IdlePolicy, ImageBuilder,
    LimitsChange, ManualClock, NoExecObserver, NoOwnApi, Policy, RatesChange, Seams, UpdateOptions,
    WarmPoolPolicy,
};
use burrow_guest::client::{FrameReader, FrameWriter, parse};
use burrow_guest::protocol::{Frame, Hello, Identity, Reply, Request};
use burrow_memory::embed::EmbedError;
use burrow_memory::kv::Expect;
use burrow_memory::{Embedder, Memory, MemoryOptions, ModelId};
use burrow_model::{
    FailMode, ImageConfig, ImageId, Lifetime, Limits, Name, NetworkPolicy, Rates, SandboxId, SleepPolicy,
    State, TenantId,
};
use burrow_network::faulty::FaultyNetwork;
use burrow_network::sim::SimNetwork;
use burrow_runtime::faulty::FaultyRuntime;
use burrow_runtime::sim::Sim as SimRuntime;
use burrow_vault::{KeyFile, Vault};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// Which call of which driver fails, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) seam: Seam,
    pub(crate) call: u64,
    pub(crate) fails: FailMode,
}

/// The two ways in which one call fails.
pub(crate) const FAILS_ONCE: [FailMode; 2] = [FailMode::BeforeActing, FailMode::AfterActing];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seam {
    Disks,
    Network,
    Egress,
    Runtime,
}

/// Longer than any start takes here.
const PATIENT: Duration = Duration::from_secs(60);

/// No test makes this many calls.
const NEVER: u64 = u64::MAX - 1;

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) catalog: Catalog,
    pub(crate) disks: Arc<FaultyDisks<SimDisks>>,
    pub(crate) network: Arc<FaultyNetwork<SimNetwork>>,
    pub(crate) egress: Arc<FaultyEgress<SimEgress>>,
    pub(crate) runtime: Arc<FaultyRuntime<SimRuntime>>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) tenant: TenantId,
    /// How long a start waits; what is not recovered by then is recovered in the background.
    pub(crate) start_patience: Duration,
    /// The memory of agents: real files, as on a host.
    pub(crate) memory: tempfile::TempDir,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(None).await
    }

    pub(crate) async fn with(fault: Option<Fault>) -> Self {
        Self::on(SimDisks::default(), fault).await
    }

    /// On the caller's disks, which may have files.
    pub(crate) async fn on(sim: SimDisks, fault: Option<Fault>) -> Self {
        let at = |seam| fault.filter(|fault| fault.seam == seam).map_or(NEVER, |fault| fault.call);
        let network = SimNetwork::new();
        network.serve_by_default(obliging_guest().await);
        let fails = fault.map_or(FailMode::BeforeActing, |fault| fault.fails);
        let catalog = Catalog::in_memory().unwrap();
        let tenant = catalog.default_tenant();
        let world = Self {
            catalog,
            disks: Arc::new(FaultyDisks::new(sim, at(Seam::Disks), fails)),
            network: Arc::new(FaultyNetwork::new(network, at(Seam::Network), fails)),
            egress: Arc::new(FaultyEgress::new(SimEgress::new(), at(Seam::Egress), fails)),
            runtime: Arc::new(FaultyRuntime::new(SimRuntime::default(), at(Seam::Runtime), fails)),
            clock: Arc::new(ManualClock::at(1_000_000)),
            tenant,
            // Tests both kinds of start.
            start_patience: match fault {
                Some(fault) if fault.call % 2 == 1 => Duration::ZERO,
                Some(_) | None => PATIENT,
            },
            memory: tempfile::tempdir().unwrap(),
        };
        world.make_image().await;
        world
    }

    /// Whether the fault occurred.
    pub(crate) fn has_failed(&self, seam: Seam) -> bool {
        match seam {
            Seam::Disks => self.disks.has_failed(),
            Seam::Network => self.network.has_failed(),
            Seam::Egress => self.egress.has_failed(),
            Seam::Runtime => self.runtime.has_failed(),
        }
    }

    /// Ends a fault that persists.
    pub(crate) fn repair(&self) {
        self.disks.repair();
        self.network.repair();
        self.egress.repair();
        self.runtime.repair();
    }

    /// Directly in the simulated pool, without the armed fault.
    async fn make_image(&self) {
        let id = ImageId::generate();
        self.disks.inner.stage((&id).into(), None).await.unwrap();
        self.disks.inner.seal((&id).into()).await.unwrap();
        let image = burrow_model::Image {
            id,
            names: vec![name("debian").into()],
            config: ImageConfig::default(),
            origin: burrow_model::ImageOrigin::default(),
            layer: None,
            size_bytes: 1,
            created_ms: 1,
        };
        self.catalog.insert_image(&self.tenant, image).await.unwrap();
    }

    /// Starts a daemon on this host, as if an earlier one had died.
    pub(crate) async fn engine(&self) -> Engine {
        self.try_engine().await.unwrap()
    }

    pub(crate) async fn try_engine(&self) -> Result<Engine, EngineError> {
        self.try_engine_with(0).await
    }

    /// With this many pre-created sandboxes of each kind.
    pub(crate) async fn try_engine_with(&self, ready: usize) -> Result<Engine, EngineError> {
        let engine = self.start(ready, self.clock.clone()).await?;
        engine.started().await;
        Ok(engine)
    }

    /// An engine that may still be recovering in the background.
    pub(crate) async fn hasty_engine(&self, ready: usize) -> Engine {
        self.start(ready, self.clock.clone()).await.unwrap()
    }

    /// An engine with another clock.
    pub(crate) async fn engine_by(&self, clock: Arc<dyn Clock>) -> Engine {
        let engine = self.start(0, clock).await.unwrap();
        engine.started().await;
        engine
    }

    async fn start(&self, ready: usize, clock: Arc<dyn Clock>) -> Result<Engine, EngineError> {
        let seams = Seams {
            catalog: self.catalog.clone(),
            disks: self.disks.clone(),
            network: self.network.clone(),
            egress: self.egress.clone(),
            runtimes: vec![self.runtime.clone()],
            images: Arc::new(NoBuilder),
            memory: self.memory(clock.clone()).await,
            vault: self.vault(),
            own: Arc::new(NoOwnApi),
            execs: Arc::new(NoExecObserver),
            clock,
        };
        let policy = Policy { warm_pool: warm_pool(ready), start_patience: self.start_patience, ..policy() };
        Engine::start(seams, policy).await
    }

    /// Its key outlives the daemon, as a file does.
    fn vault(&self) -> Vault {
        let file = KeyFile::open_or_create(&self.memory.path().join("vault.key")).unwrap();
        Vault::new(Arc::new(file), Vec::new())
    }

    async fn memory(&self, clock: Arc<dyn Clock>) -> Memory {
        let artifacts = burrow_memory::artifacts::local_store(&self.memory.path().join("artifacts")).unwrap();
        let options = MemoryOptions {
            folder: self.memory.path().to_owned(),
            artifacts,
            artifact_disk: None,
            disk: None,
            embedder: Arc::new(ConstantEmbedder(ModelId { name: "flat".to_owned(), dims: 8 })),
            clock: Arc::new(SameClock(clock)),
            limits: burrow_memory::Limits::usual(),
        };
        Memory::open(options).await.unwrap()
    }

    /// Stores a value in the memory of a sandbox.
    pub(crate) async fn remember(&self, engine: &Engine, id: &SandboxId, value: &str) {
        let scope = engine.memory_of(&self.tenant, id.as_str()).await.unwrap();
        let set = scope.primary.view.kv_set("value", value.into(), None, Expect::Any);
        set.await.unwrap();
    }

    /// The value that was stored last, as far as this sandbox can see.
    pub(crate) async fn remembered(&self, engine: &Engine, id: &SandboxId) -> Option<String> {
        let scope = engine.memory_of(&self.tenant, id.as_str()).await.unwrap();
        let item = scope.primary.view.kv_get("value").await.unwrap();
        item.and_then(|item| item.value.as_str().map(str::to_owned))
    }

    /// Memory that no sandbox or snapshot can see uses no space.
    pub(crate) async fn check_spaces(&self, engine: &Engine, context: &str) {
        let used = self.catalog.spaces_in_use().await.unwrap();
        let found = engine.memory().spaces().await.unwrap();
        assert!(
            found.iter().all(|space| used.contains(space)),
            "{found:?} of which only {used:?} are in use, {context}"
        );
    }

    /// The ids that are pre-created.
    pub(crate) async fn warm(&self) -> BTreeSet<SandboxId> {
        self.catalog.all_warm().await.unwrap().into_iter().map(|row| row.id).collect()
    }

    pub(crate) async fn rows(&self) -> BTreeMap<SandboxId, SandboxRow> {
        self.catalog.all_sandboxes().await.unwrap().into_iter().map(|row| (row.id.clone(), row)).collect()
    }

    /// Invariant 2, for snapshots and dumps: the pool contains exactly those that rows name.
    pub(crate) async fn check_kept(&self, context: &str) {
        let known = self.catalog.all_snapshots().await.unwrap();
        let rows = self.catalog.all_sandboxes().await.unwrap();
        let found = self.disks.inner.inventory().await.unwrap();
        let snapshots: BTreeSet<_> = known.iter().map(|row| row.snapshot.id.clone()).collect();
        assert_eq!(found.snapshots.into_iter().collect::<BTreeSet<_>>(), snapshots, "snapshots, {context}");
        let of_snapshots = known.iter().filter_map(|row| row.snapshot.dump.clone());
        let dumps: BTreeSet<_> = rows.iter().filter_map(|row| row.dump.clone()).chain(of_snapshots).collect();
        assert_eq!(found.dumps.into_iter().collect::<BTreeSet<_>>(), dumps, "dumps, {context}");
        assert!(known.iter().all(|row| row.ready), "an unfinished snapshot is left, {context}");
        for row in rows.iter().filter(|row| row.state == State::Stopped) {
            assert_eq!(row.dump, None, "the dump of a stopped sandbox, {context}");
        }
    }

    /// Invariant 2: the host contains exactly what the catalog lists.
    #[track_caller]
    pub(crate) fn check(&self, rows: &BTreeMap<SandboxId, SandboxRow>, context: &str) {
        let all: BTreeSet<_> = rows.keys().cloned().collect();
        let up = |row: &SandboxRow| matches!(row.state, State::Running | State::Paused);
        let running: BTreeSet<_> = rows.values().filter(|row| up(row)).map(|row| row.id.clone()).collect();
        let disks: BTreeSet<_> = self.volumes_now().into_iter().collect();
        let networks: BTreeSet<_> = self.network.inner.live().into_iter().collect();
        let listeners: BTreeSet<_> = self.egress.inner.live().into_iter().collect();
        let machines: BTreeSet<_> = self.runtime.inner.live().into_iter().collect();
        assert_eq!(disks, all, "disks, {context}");
        assert_eq!(networks, running, "networks, {context}");
        assert_eq!(listeners, running, "open listeners, {context}");
        assert_eq!(machines, running, "machines, {context}");
        for row in rows.values() {
            let settled = matches!(
                row.state,
                State::Running | State::Paused | State::Hibernated | State::Stopped | State::Failed
            );
            assert!(settled, "{:?} is in state {:?}, {context}", row.id, row.state);
        }
        for row in rows.values().filter(|row| up(row)) {
            let network = self.network.inner.rate(&row.id).map(|rate| rate.bytes_per_second);
            let disk = self.runtime.inner.machine(&row.id).and_then(|machine| machine.disk_rate);
            assert_eq!(network, row.spec.rates.network_bytes_per_second(), "rate of the network, {context}");
            assert_eq!(disk, row.spec.rates.disk_bytes_per_second(), "rate of the disk, {context}");
        }
    }

    fn volumes_now(&self) -> Vec<SandboxId> {
        let disks = self.disks.clone();
        // The simulated pool answers at once.
        let answer = futures_util::FutureExt::now_or_never(async move { disks.inner.inventory().await });
        answer.expect("a simulated pool never waits").unwrap().sandboxes
    }
}

pub(crate) fn policy() -> Policy {
    Policy {
        images: burrow_engine::ImagePolicy {
            scratch: std::env::temp_dir(),
            floor: None,
            archive_bytes_max: 1 << 30,
            at_once: 2,
        },
        sandboxes_max: 1000,
        pool_reserve_bytes: 1 << 20,
        start_patience: PATIENT,
        limits_max: limits(),
        warm_pool: warm_pool(0),
        egress: egress(),
        idle: IdlePolicy { cpu_millis: 20, gc_sandboxes: false },
        moving: burrow_engine::MovingPolicy {
            bytes_max: 1 << 30,
            entries_max: 10_000,
            at_once: 2,
            key: burrow_portable::ExportKey::from_seed(&[1; 32]).map(Arc::new),
            trusted: Vec::new(),
        },
    }
}

/// A closed default, and one set of hosts.
pub(crate) fn egress() -> EgressSettings {
    let sets = [(name("ours"), vec!["*.example.com".parse().unwrap()])];
    EgressSettings { default: NetworkPolicy::closed(), sets: sets.into(), allow_ranges: Vec::new() }
}

/// This many of the sandboxes that [`create`] requests are pre-created.
pub(crate) fn warm_pool(ready: usize) -> WarmPoolPolicy {
    WarmPoolPolicy { ready, image: "debian".to_owned(), driver: "sim".to_owned(), limits: limits() }
}

pub(crate) fn limits() -> Limits {
    Limits { ram_mib: 512, cpu_millis: 1000, pids: 256, disk_mib: 1024 }
}

/// Every sandbox has rates, so that every test covers them.
pub(crate) fn rates() -> Rates {
    Rates { disk_mib_per_second: Some(50), network_mib_per_second: Some(10) }
}

pub(crate) fn name(text: &str) -> Name {
    text.parse().unwrap()
}

pub(crate) fn create(sandbox: Option<&str>) -> CreateOptions {
    CreateOptions {
        name: sandbox.map(name),
        if_not_exists: false,
        image: "debian".to_owned(),
        driver: "sim".to_owned(),
        limits: limits(),
        rates: rates(),
        env: BTreeMap::new(),
        labels: BTreeMap::new(),
        workdir: None,
        user: None,
        lifetime: Lifetime::Persistent { expires_ms: None },
        services: BTreeMap::new(),
        network: None,
        sleep: SleepPolicy::never(),
        snapshots: None,
        rotate: None,
        memory: burrow_model::MemorySpec::quiet(),
        lease: None,
        volumes: Vec::new(),
        idempotency: None,
    }
}

pub(crate) fn no_change() -> UpdateOptions {
    UpdateOptions {
        name: None,
        limits: LimitsChange { ram_mib: None, cpu_millis: None, pids: None, disk_mib: None },
        rates: RatesChange::none(),
        labels: BTreeMap::new(),
        env: BTreeMap::new(),
        services: BTreeMap::new(),
        network: None,
        sleep: None,
        snapshots: None,
        rotate: None,
        memory: None,
        lease: None,
        volumes: None,
    }
}

pub(crate) const GRACE: Duration = Duration::from_millis(10);

#[derive(Debug)]
struct NoBuilder;

#[async_trait]
impl ImageBuilder for NoBuilder {
    async fn build(
        &self,
        _image: &ImageId,
        _volume: std::path::PathBuf,
        _stages: mpsc::Sender<BuildStage>,
    ) -> Result<(ImageConfig, u64), DiskError> {
        Err(DiskError::Injected)
    }
}

/// A guest that accepts every request of the engine.
async fn obliging_guest() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream));
        }
    });
    address
}

async fn answer(stream: TcpStream) -> Option<()> {
    let (read, write) = stream.into_split();
    let (mut reader, mut writer) = (FrameReader::new(read), FrameWriter::new(write));
    let Some(Frame::Control(hello)) = reader.next().await.ok()? else { return None };
    parse::<Hello>(&hello).ok()?;
    let Some(Frame::Control(request)) = reader.next().await.ok()? else { return None };
    let request = parse::<Request>(&request).ok()?;
    if matches!(request, Request::Ping) {
        let identity = Identity { generation: 1, version: "sim".to_owned(), uptime_ms: 1 };
        writer.send_control(&Reply::Ok(identity)).await.ok()
    } else if matches!(request, Request::ExecList) {
        writer.send_control(&Reply::Ok(Vec::<()>::new())).await.ok()
    } else {
        writer.send_control(&Reply::Ok(())).await.ok()
    }
}

/// Returns the same vector for every text: these tests do not search by meaning.
#[derive(Debug)]
struct ConstantEmbedder(ModelId);

impl Embedder for ConstantEmbedder {
    fn model(&self) -> &ModelId {
        &self.0
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        Ok(texts.iter().map(|_| vec![0.353_553_4; self.0.dims]).collect())
    }

    fn is_immediate(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct SameClock(Arc<dyn Clock>);

impl burrow_memory::Clock for SameClock {
    fn now_ms(&self) -> u64 {
        self.0.now_ms()
    }
}
