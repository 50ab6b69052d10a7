//! Assembles the daemon from its configuration, and shuts it down.
//!
//! ```text
//!   lock ─► catalog ─► disks · network · runtime ─► engine (recovers) ─► first key ─► listen ─► serve
//!   SIGTERM: stop accepting ─► streams end, requests finish (bounded) ─► engine ─► exit; sandboxes continue to run
//! ```

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use burrow_catalog::Catalog;
use burrow_disks::btrfs::{BtrfsDisks, PoolSource};
use burrow_engine::{
    Clock as _, EgressSettings, Engine, ImagePolicy, MovingPolicy, NoExecObserver, NoOwnApi, Policy, Seams,
    SteadyClock, SystemClock, TimeSource,
};
use burrow_model::State;
use burrow_network::linux::LinuxNetwork;
use burrow_portable::ExportKey;
use burrow_runtime::container::probe_own_ids;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::epoch::Epochs;
use crate::error::ServeError;
use crate::image::DebianBuilder;
use crate::instance::{Instance, make_directory};
use crate::own_listeners::{OwnListeners, ServedListeners};
use crate::server::{Server, Tls, listen};
use crate::telemetry::LogLevel;
use crate::{admin_key, egress, epoch, guest_binary, periodic, router, runtimes, telemetry, vault};
use burrow_config::{Config, Pool};
use burrow_http::activity::ConnectionTimeouts;
use burrow_http::app::App;
use burrow_http::audit::Audit;
use burrow_http::exec_trace::ExecRecords;
use burrow_http::memory::MemoryDependencies;
use burrow_http::metrics::Metrics;

/// Time limits of the shutdown. `burrow down` waits for a minute.
const DRAIN: DrainTime = DrainTime { requests: Duration::from_secs(10), operations: Duration::from_secs(45) };

/// A sandbox that recovers slowly must not delay all others.
const START_PATIENCE: Duration = Duration::from_secs(1);

/// Blocking calls that watch machines never return by themselves.
const LAST_WAIT: Duration = Duration::from_millis(100);

/// With fewer workers, one busy request could block all others.
const WORKERS_MIN: usize = 2;

/// Concurrent image builds. Unpacking saturates a disk and two cores; more builds would not be faster.
const IMAGES_AT_ONCE: usize = 2;

/// A distribution has a handful of package sources.
const PACKAGED_URLS_MAX: usize = 16;

/// Maximum number of names in one imported file: far above real sandboxes, and creating them takes minutes.
const MOVED_ENTRIES_MAX: u64 = 5_000_000;

/// The options of `burrow serve`.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// A file other than the default one.
    pub config: Option<PathBuf>,
    /// Continue with a catalog and a pool from different times.
    pub accept_rollback: bool,
}

/// The host's clocks.
#[derive(Clone, Copy, Debug)]
struct HostTimes;

impl TimeSource for HostTimes {
    fn date_ms(&self) -> u64 {
        SystemClock.now_ms()
    }

    fn uptime_ms(&self) -> u64 {
        let since = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let part = |number: i64, factor: u64| u64::try_from(number).unwrap_or(0).saturating_mul(factor);
        part(since.tv_sec, 1000) + part(since.tv_nsec, 1) / 1_000_000
    }
}

/// Runs the daemon until it is stopped.
pub fn run(options: ServeOptions) -> Result<(), ServeError> {
    crate::ClearingAllocator::begin();
    let config = Config::load(options.config.as_deref())?;
    let level = telemetry::start(&config.log);
    let _instance = Instance::claim(&config)?;
    let workers =
        std::thread::available_parallelism().map_or(WORKERS_MIN, |cores| cores.get().max(WORKERS_MIN));
    let threads = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .thread_name("burrow")
        .enable_all()
        .build()
        .map_err(|source| ServeError::Threads { source })?;
    let result = threads.block_on(serve(config, options.config, level, options.accept_rollback));
    // After the shutdown only blocking work remains that no task waits for.
    threads.shutdown_timeout(LAST_WAIT);
    result
}

/// Continues the races that an earlier daemon did not finish.
async fn resume_races(app: &App) {
    if let Err(error) = app.engine.resume_races().await {
        tracing::error!(error = &error as &dyn std::error::Error, "could not resume races");
    }
}

async fn serve(
    config: Config,
    named: Option<PathBuf>,
    level: LogLevel,
    accept_rollback: bool,
) -> Result<(), ServeError> {
    let tls = config.tls.as_ref().map(Tls::open).transpose()?;
    let keeper = MemoryDependencies::open(&config)?;
    let records = open_records(&config).await?;
    let listeners = OwnListeners::new();
    let (seams, egress, epochs) = open_seams(&config, accept_rollback).await?;
    let (own, execs) = (Arc::new(ServedListeners(listeners.clone())), Arc::new(records.clone()));
    let seams = Seams { own, execs, ..seams };
    let config = config.with_driver(&seams.runtimes);
    let catalog = seams.catalog.clone();
    let policy = Policy {
        images: image_policy(&config)?,
        sandboxes_max: config.bounds.sandboxes,
        pool_reserve_bytes: config.pool_reserve_bytes,
        start_patience: START_PATIENCE,
        limits_max: config.bounds.limits,
        warm_pool: config.warm_pool(),
        egress,
        idle: config.idle(),
        moving: moving_policy(&config)?,
    };
    let engine = Engine::start(seams, policy).await.map_err(|source| ServeError::Engine { source })?;
    admin_key::ensure(&catalog, &config.admin_key_file, SystemClock.now_ms()).await?;
    // Before any process can learn that the daemon runs, and send it a signal.
    let mut signals = Signals::catch()?;
    let listener = listen(config.listen)?;
    let address =
        listener.local_addr().map_err(|source| ServeError::Listen { address: config.listen, source })?;
    announce(&config, address)?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    tracing::info!(version = env!("CARGO_PKG_VERSION"), url = format!("{scheme}://{address}"), "ready");
    let run_dir = config.run_dir.clone();
    let app = App::new(engine.clone(), config, keeper, records);
    periodic::memory::spawn(&app);
    periodic::audit::spawn(&app);
    periodic::audit_feed::spawn(&app);
    open_listeners(&listeners, &app);
    resume_races(&app).await;
    let running = RunningInterfaces {
        stop: CancellationToken::new(),
        kill: CancellationToken::new(),
        connections: TaskTracker::new(),
        app: app.clone(),
    };
    let server = Server {
        listener,
        tls: tls.as_ref().map(Tls::acceptor),
        router: router::router(app.clone()),
        connections_max: app.config.bounds.connections,
        patience: ConnectionTimeouts::USUAL,
        stop: running.stop.clone(),
        kill: running.kill.clone(),
        connections: running.connections.clone(),
    };
    let shells = crate::ssh::spawn(&app, running.stop.clone())?;
    let accepting = tokio::spawn(server.run());
    let counting = tokio::spawn(count_epochs(epochs.clone()));
    signals.wait_for_the_end(named.as_deref(), &level, tls.as_ref()).await;
    let ending = Instant::now() + DRAIN.operations;
    running.drain(accepting, DRAIN).await;
    end_ssh(shells).await;
    listeners.end().await;
    // Not only requests: sandboxes may be going to sleep automatically.
    let ending = ending.max(Instant::now() + DRAIN.requests);
    if tokio::time::timeout_at(ending, engine.shutdown()).await.is_err() {
        // The journal contains unfinished operations; the next start completes or undoes them.
        tracing::warn!("operations took too long to finish; the next start completes or undoes them");
    }
    end_epochs(counting, &epochs).await;
    end_egress_if_unused(&catalog, &run_dir).await;
    tracing::info!("stopped; sandboxes continue to run");
    Ok(())
}

/// From now on sandboxes can reach their own memory.
fn open_listeners(listeners: &OwnListeners, app: &Arc<App>) {
    let app = app.clone();
    listeners.begin(move |tenant, sandbox| {
        burrow_rest::own_listener_router(app.clone(), tenant.clone(), sandbox.clone())
    });
}

/// Its connections are closed by then; this waits for their last messages.
async fn end_ssh(shells: Option<tokio::task::JoinHandle<()>>) {
    if let Some(shells) = shells
        && tokio::time::timeout(DRAIN.requests, shells).await.is_err()
    {
        tracing::warn!("SSH connections took too long to close and were interrupted");
    }
}

/// Before anything happens that has to be recorded.
async fn open_records(config: &Config) -> Result<ExecRecords, ServeError> {
    let config = config.clone();
    let opened = tokio::task::spawn_blocking(move || Audit::open(&config)).await;
    let opened = opened.map_err(|panic| ServeError::Threads { source: io::Error::other(panic) })?;
    let audit = Arc::new(opened.map_err(|source| ServeError::Audit { source })?);
    Ok(ExecRecords { audit, metrics: Arc::new(Metrics::new()) })
}

/// Runs until it is aborted. A failure is retried with the next increment.
async fn count_epochs(epochs: Epochs) {
    loop {
        tokio::time::sleep(epoch::INTERVAL).await;
        if let Err(error) = epochs.advance().await {
            tracing::warn!(error = &error as &dyn std::error::Error, "could not increment the epoch");
        }
    }
}

/// Copies that were made while the daemon ran do not match any more.
async fn end_epochs(counting: tokio::task::JoinHandle<()>, epochs: &Epochs) {
    counting.abort();
    // Waits for a running increment, so that the two do not conflict.
    let _ = counting.await;
    if let Err(error) = epochs.advance().await {
        tracing::warn!(error = &error as &dyn std::error::Error, "could not increment the epoch");
    }
}

/// The egress process stays as long as sandboxes are running.
async fn end_egress_if_unused(catalog: &Catalog, run_dir: &Path) {
    let up = |row: &burrow_catalog::SandboxRow| matches!(row.state, State::Running | State::Paused);
    let in_use = match catalog.all_sandboxes().await {
        Ok(rows) => rows.iter().any(up),
        Err(_) => true,
    };
    if !in_use && let Err(error) = egress::end(run_dir).await {
        tracing::warn!(%error, "could not stop the egress process; it will end by itself");
    }
}

/// Time limits of the shutdown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DrainTime {
    /// For requests.
    pub(crate) requests: Duration,
    /// In total, if operations on sandboxes are running: writing RAM to disk takes time, and interrupted operations
    /// have to be undone by the next start.
    pub(crate) operations: Duration,
}

/// Everything that must stop before the engine does.
pub(crate) struct RunningInterfaces {
    pub(crate) stop: CancellationToken,
    pub(crate) kill: CancellationToken,
    pub(crate) connections: TaskTracker,
    pub(crate) app: Arc<App>,
}

impl RunningInterfaces {
    pub(crate) async fn drain(self, accepting: tokio::task::JoinHandle<()>, time: DrainTime) {
        let ending = Instant::now() + time.operations;
        tracing::info!("shutting down");
        self.stop.cancel();
        self.app.draining.cancel();
        let _ = accepting.await;
        self.connections.close();
        self.app.tasks.close();
        self.app.operations.close();
        let finished = async {
            self.connections.wait().await;
            self.app.tasks.wait().await;
        };
        let mut finished = std::pin::pin!(finished);
        let mut done = tokio::time::timeout(time.requests, finished.as_mut()).await.is_ok();
        if !done && !self.app.operations.is_empty() {
            // Clients receive the results of their operations.
            let _ = tokio::time::timeout_at(ending, self.app.operations.wait()).await;
            done = tokio::time::timeout(LAST_WAIT, finished).await.is_ok();
        }
        if !done {
            tracing::warn!(
                connections = self.connections.len(),
                "requests took too long to finish and were interrupted"
            );
            self.kill.cancel();
        }
    }
}

/// Opens the dependencies of the engine. Blocking work runs on a blocking thread.
async fn open_seams(
    config: &Config,
    accept_rollback: bool,
) -> Result<(Seams, EgressSettings, Epochs), ServeError> {
    let config = config.clone();
    let opened = tokio::task::spawn_blocking(move || open_seams_blocking(&config, accept_rollback));
    opened.await.unwrap_or_else(|panic| Err(ServeError::Threads { source: io::Error::other(panic) }))
}

fn open_seams_blocking(
    config: &Config,
    accept_rollback: bool,
) -> Result<(Seams, EgressSettings, Epochs), ServeError> {
    if config.runtime.raise_sysctls {
        raise_bounds();
    }
    let path = config.state_dir.join("catalog.db");
    let catalog = Catalog::open(&path).map_err(|source| ServeError::Catalog { source })?;
    let disks = open_disk_pool(config)?;
    let opened = tokio::runtime::Handle::current().block_on(async {
        let epochs = Epochs::open(&catalog, &*disks, disks.root(), accept_rollback).await;
        Ok::<_, ServeError>((
            epochs?,
            catalog.newest_ms().await.map_err(|source| ServeError::Catalog { source })?,
        ))
    });
    let (epochs, known_ms) = opened?;
    let clock = Arc::new(SteadyClock::new(HostTimes, known_ms));
    make_directory(&burrow_http::memory::folder(config))?;
    let memory =
        tokio::runtime::Handle::current().block_on(burrow_http::memory::open(config, clock.clone()))?;
    let options = burrow_network::linux::Options {
        run_dir: config.run_dir.join("network"),
        pool_size: config.network_slots,
        own_ids: probe_own_ids(disks.root()).is_ok(),
    };
    let network = LinuxNetwork::open(options).map_err(|source| ServeError::Network { source })?;
    let program = std::env::current_exe().map_err(|source| ServeError::Threads { source })?;
    let opened = egress::open(config, &program, network.clone());
    let listeners = tokio::runtime::Handle::current().block_on(opened);
    let listeners = listeners.map_err(|source| ServeError::Egress { source })?;
    let path = guest_source(config, &program);
    let guest =
        guest_binary::install(&path, disks.root()).map_err(|source| ServeError::Guest { path, source })?;
    let runtimes = runtimes::open(config, &program, &guest)?;
    let seams = Seams {
        catalog,
        disks,
        network,
        egress: listeners,
        runtimes,
        images: Arc::new(builder(config)),
        clock,
        memory,
        vault: vault::open(&config.secrets).map_err(|source| ServeError::Vault { source })?,
        own: Arc::new(NoOwnApi),
        execs: Arc::new(NoExecObserver),
    };
    let mut package_urls = burrow_disks::debian::source_urls(mirror(config).as_ref());
    package_urls.extend(packaged_image_urls(&program));
    Ok((seams, egress::settings(&config.egress, &package_urls), epochs))
}

/// The keys of trusted hosts, and the key that identifies this host.
fn moving_policy(config: &Config) -> Result<MovingPolicy, ServeError> {
    let key = ExportKey::open(&config.state_dir.join("moving.key"))
        .map_err(|source| ServeError::ExportKey { source })?;
    Ok(MovingPolicy {
        bytes_max: config.moving.import_bytes,
        entries_max: MOVED_ENTRIES_MAX,
        at_once: config.moving.at_once,
        key: Some(Arc::new(key)),
        trusted: config.moving.trusted.clone(),
    })
}

/// The settings of image builds. Partial imports and exports of an earlier daemon are removed.
fn image_policy(config: &Config) -> Result<ImagePolicy, ServeError> {
    let scratch = config.state_dir.join("scratch");
    match fs::remove_dir_all(&scratch) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            return Err(ServeError::Directory { step: "empty", path: scratch, source });
        }
        Ok(()) | Err(_) => make_directory(&scratch)?,
    }
    let floor = Some(burrow_http::memory::floor(config, scratch.clone()));
    let archive_bytes_max = config.bounds.image_upload_bytes;
    Ok(ImagePolicy { scratch, floor, archive_bytes_max, at_once: IMAGES_AT_ONCE })
}

/// Opens the pool. Blocks.
pub(crate) fn open_disk_pool(config: &Config) -> Result<Arc<BtrfsDisks>, ServeError> {
    let pool = match &config.pool {
        Pool::Directory(path) => PoolSource::Directory(path.clone()),
        Pool::File { size_bytes } => PoolSource::LoopFile {
            file: config.state_dir.join(burrow_config::POOL_FILE),
            size_bytes: *size_bytes,
        },
    };
    let options = burrow_disks::btrfs::Options { pool, mount: config.run_dir.join("pool") };
    BtrfsDisks::open(options).map_err(|source| ServeError::Disks { source })
}

fn builder(config: &Config) -> DebianBuilder {
    DebianBuilder { cache: config.state_dir.join("packages"), mirror: mirror(config) }
}

/// The URLs that the packages of the default image come from, if the image is a part of this installation: not
/// necessarily those of this host. One per line.
fn packaged_image_urls(program: &Path) -> Vec<String> {
    let file = program.with_file_name("image").join("sources");
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().take(PACKAGED_URLS_MAX).map(str::to_owned).collect()
}

/// The configured mirror, if there is one.
fn mirror(config: &Config) -> Option<burrow_disks::debian::Mirror> {
    config.mirror.as_ref().map(|mirror| burrow_disks::debian::Mirror {
        url: mirror.url.clone(),
        suite: mirror.suite.clone(),
        components: vec!["main".to_owned()],
        keyring: None,
    })
}

fn guest_source(config: &Config, program: &Path) -> PathBuf {
    let beside = || program.parent().unwrap_or(Path::new("/")).join("burrow-guest");
    config.runtime.guest.clone().unwrap_or_else(beside)
}

/// Writes the daemon's address to a file, for clients that configured port 0.
fn announce(config: &Config, address: SocketAddr) -> Result<(), ServeError> {
    let path = config.run_dir.join("address");
    let partial = config.run_dir.join("address.partial");
    let written = fs::write(&partial, format!("{address}\n")).and_then(|()| fs::rename(&partial, &path));
    written.map_err(|source| ServeError::Directory { step: "write", path, source })
}

/// SIGTERM and SIGINT stop the daemon; SIGHUP makes it reload its log level and its certificate.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// From here on the signals have no default action.
    fn catch() -> Result<Self, ServeError> {
        let catch = |kind| signal(kind).map_err(|source| ServeError::Threads { source });
        Ok(Self {
            terminate: catch(SignalKind::terminate())?,
            interrupt: catch(SignalKind::interrupt())?,
            hangup: catch(SignalKind::hangup())?,
        })
    }

    async fn wait_for_the_end(&mut self, named: Option<&Path>, level: &LogLevel, tls: Option<&Tls>) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hangup.recv() => match Config::load(named) {
                    Ok(config) => {
                        level.set(&config.log.level);
                        reload(tls, &config);
                    }
                    Err(error) => tracing::warn!(%error, "could not reload the configuration"),
                },
            }
        }
    }
}

/// If the files cannot be read, the old certificate stays in use, and the failure is logged, because the certificate
/// will expire.
fn reload(tls: Option<&Tls>, config: &Config) {
    if let (Some(tls), Some(files)) = (tls, &config.tls) {
        match tls.reload(files) {
            Ok(()) => tracing::info!(path = %files.cert.display(), "reloaded the certificate"),
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "could not reload the certificate; the old one stays in use"
            ),
        }
    }
}

/// Raises limits that all sandboxes share; see the module for the reasons.
fn raise_bounds() {
    for raised in burrow_runtime::container::bounds::raise() {
        let (name, before, now) = (raised.bound.name, raised.before, raised.bound.value());
        match raised.result {
            Ok(()) => tracing::info!(name, before, now, "raised a kernel limit that all sandboxes share"),
            // If the host does not permit it, for example in a container, nothing gets worse; `burrow doctor` reports
            // it.
            Err(error) => {
                tracing::info!(name, before, %error, "could not raise a kernel limit that all sandboxes share")
            }
        }
    }
}
