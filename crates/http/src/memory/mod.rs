//! Configures memory for this host: embedder, summaries, storage of artifacts, and periodic work.

mod s3;
mod store;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use burrow_memory::artifacts::{DiskFloor, DiskLeases, FreeSpace};
use burrow_memory::consolidate::{Chat, ConsolidateOptions, ConsolidateReport, Policy, Summariser};
use burrow_memory::embed::{
    BuiltIn, EmbedError, Embedder, Endpoint, EndpointError, EndpointOptions, MiniLm, Remote, RemoteOptions,
};
use burrow_memory::{Limits, Memory, MemoryError, MemoryOptions, SpaceId, View};

use burrow_disks::btrfs::Backing;

use burrow_config::{ArtifactsConfig, Config, EmbedderConfig, EndpointConfig};

/// Maximum wait for a vector; later ones are added by the next round.
const EMBED_TIMEOUT: Duration = Duration::from_secs(30);

/// Time limit for a summary: enough for a model on a slow host.
const SUMMARY_TIMEOUT: Duration = Duration::from_secs(120);

/// An unused space is closed after this time.
const IDLE_MS: u64 = 10 * 60 * 1000;

/// Keys are one line; a much larger file is the wrong file.
const KEY_BYTES_MAX: u64 = 64 << 10;

#[derive(Debug, thiserror::Error)]
pub enum MemorySetupError {
    #[error("could not read the key in `{}`", .path.display())]
    Key { path: PathBuf, source: io::Error },
    #[error("could not open the embedder")]
    Embedder(#[from] EmbedError),
    #[error("could not use the endpoint for summaries")]
    Summaries(#[source] EndpointError),
    #[error("could not use the bucket `{bucket}`")]
    Bucket { bucket: String, source: object_store::Error },
    #[error("could not prepare TLS for the bucket")]
    Tls(#[source] io::Error),
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

impl MemorySetupError {
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Key { .. } => Some("the file must contain only the key and be readable by root"),
            Self::Embedder(error) => error.hint(),
            Self::Summaries(error) => error.hint(),
            Self::Bucket { .. } => Some("check the `memory.s3_…` keys of the configuration"),
            Self::Tls(_) => Some("install the `ca-certificates` package"),
            Self::Memory(error) => crate::hints::of_memory(error),
        }
    }
}

/// The dependencies of memory.
#[derive(Clone, Debug)]
pub struct MemoryDependencies {
    /// Writes summaries; `None`: summaries are extracts of the texts.
    pub summariser: Option<Arc<dyn Summariser>>,
    folder: PathBuf,
    floor: DiskFloor,
    space_bytes_max: u64,
}

impl MemoryDependencies {
    pub fn open(config: &Config) -> Result<Self, MemorySetupError> {
        let summariser = match &config.memory.summaries {
            None => None,
            Some(wanted) => {
                let endpoint = Endpoint::new(&endpoint(wanted, SUMMARY_TIMEOUT)?)
                    .map_err(MemorySetupError::Summaries)?;
                let chat: Arc<dyn Summariser> = Arc::new(Chat::new(endpoint, wanted.model.clone()));
                Some(chat)
            }
        };
        let folder = folder(config);
        let floor = floor(config, folder.clone());
        Ok(Self { summariser, folder, floor, space_bytes_max: config.memory.space_bytes })
    }

    /// Rejects writes that would fill the disk: the catalog and all other spaces are on the same disk.
    pub fn room(&self) -> Result<(), MemoryError> {
        Ok(self.floor.check(0)?)
    }

    /// Rejects writes that would make a space exceed its limit. Forgetting, deleting and erasing are allowed.
    pub fn room_in(&self, space: &SpaceId) -> Result<(), MemoryError> {
        let size = |suffix: &str| {
            fs::metadata(self.folder.join(format!("{space}.db{suffix}"))).map_or(0, |file| file.len())
        };
        if size("") + size("-wal") > self.space_bytes_max {
            return Err(MemoryError::Full { what: "to the space in bytes", max: self.space_bytes_max });
        }
        Ok(())
    }

    /// Consolidates one branch once.
    pub async fn consolidate(&self, view: &View, plan: &Plan) -> Result<ConsolidateReport, MemoryError> {
        let options = ConsolidateOptions {
            dry_run: plan.dry_run,
            policy: &plan.policy,
            entries_max: plan.entries_max,
            time_max: plan.time_max,
            summariser: self.summariser.as_deref(),
        };
        view.consolidate(options).await
    }
}

/// The parameters of one consolidation.
#[derive(Clone, Debug)]
pub struct Plan {
    pub dry_run: bool,
    pub policy: Policy,
    pub entries_max: usize,
    pub time_max: Duration,
}

/// Adapts the engine's clock for the memory crate.
#[derive(Debug)]
struct SameClock(Arc<dyn burrow_engine::Clock>);

impl burrow_memory::Clock for SameClock {
    fn now_ms(&self) -> u64 {
        self.0.now_ms()
    }
}

/// The disk space that this process has reserved and not written yet. One for all writers, since they share the disks.
static LEASES: LazyLock<Arc<DiskLeases>> = LazyLock::new(Arc::default);

/// The free space that must remain on the disk of a directory.
pub fn floor(config: &Config, folder: PathBuf) -> DiskFloor {
    let free = Arc::new(BesidePool { pool: config.pool_file() });
    DiskFloor { folder, reserve_bytes: config.memory.disk_reserve_bytes, free, leases: Arc::clone(&LEASES) }
}

/// Free space without the space promised to the pool: its sparse file may still grow.
#[derive(Debug)]
struct BesidePool {
    /// The file of a loop-backed pool.
    pool: Option<PathBuf>,
}

impl FreeSpace for BesidePool {
    fn free_bytes(&self, folder: &Path) -> Option<u64> {
        let disk = rustix::fs::statvfs(folder).ok()?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let device = |path: &Path| fs::metadata(path).ok().map(|found| found.dev());
        let pool =
            self.pool.as_deref().filter(|pool| device(pool).is_some() && device(pool) == device(folder));
        let promised = pool.and_then(|pool| Backing::of(pool).ok()).map_or(0, |found| found.promised_bytes());
        Some(free.saturating_sub(promised))
    }
}

/// The directory of the spaces.
pub fn folder(config: &Config) -> PathBuf {
    config.state_dir.join("memory")
}

/// The directory of artifacts, if they are stored on this host.
pub fn artifacts_folder(config: &Config) -> PathBuf {
    match &config.memory.artifacts {
        ArtifactsConfig::Folder(Some(folder)) => folder.clone(),
        ArtifactsConfig::Folder(None) | ArtifactsConfig::S3 { .. } => folder(config).join("artifacts"),
    }
}

/// Opens memory. Loading a model is slow and blocks.
pub async fn open(config: &Config, clock: Arc<dyn burrow_engine::Clock>) -> Result<Memory, MemorySetupError> {
    let clock = Arc::new(SameClock(clock));
    let folder = folder(config);
    let (artifacts, embedder) = {
        let (config, folder) = (config.clone(), folder.clone());
        let runtime = tokio::runtime::Handle::current();
        let opened = tokio::task::spawn_blocking(move || {
            Ok::<_, MemorySetupError>((
                store::open(&config.memory.artifacts, &folder)?,
                embedder(&config.memory.embedder, runtime)?,
            ))
        });
        opened.await.map_err(|_| MemorySetupError::Memory(MemoryError::Panicked))??
    };
    let limits = Limits {
        open_spaces_max: config.memory.open_spaces,
        arena_bytes_max: config.memory.index_ram_bytes,
        idle_ms: IDLE_MS,
        space_artifact_bytes_max: config.memory.space_artifact_bytes,
        space_bytes_max: config.memory.space_bytes,
        ..Limits::usual()
    };
    let artifact_disk = match &config.memory.artifacts {
        ArtifactsConfig::Folder(_) => Some(floor(config, artifacts_folder(config))),
        ArtifactsConfig::S3 { .. } => None,
    };
    let disk = Some(floor(config, folder.clone()));
    Ok(Memory::open(MemoryOptions { folder, artifacts, artifact_disk, disk, embedder, clock, limits })
        .await?)
}

fn embedder(
    config: &EmbedderConfig,
    runtime: tokio::runtime::Handle,
) -> Result<Arc<dyn Embedder>, MemorySetupError> {
    Ok(match config {
        EmbedderConfig::BuiltIn => Arc::new(BuiltIn::new()),
        EmbedderConfig::MiniLm { folder } => Arc::new(MiniLm::open(folder)?),
        EmbedderConfig::Remote { endpoint: wanted, dimensions } => {
            let endpoint = endpoint(wanted, EMBED_TIMEOUT)?;
            let options = RemoteOptions { endpoint, model: wanted.model.clone(), dims: *dimensions };
            Arc::new(Remote::new(options, runtime)?)
        }
    })
}

fn endpoint(config: &EndpointConfig, timeout: Duration) -> Result<EndpointOptions, MemorySetupError> {
    let key = config.key_file.as_deref().map(read_key).transpose()?;
    Ok(EndpointOptions { url: config.url.clone(), key, timeout })
}

fn read_key(path: &Path) -> Result<String, MemorySetupError> {
    let failed = |source| MemorySetupError::Key { path: path.to_owned(), source };
    if fs::metadata(path).map_err(failed)?.len() > KEY_BYTES_MAX {
        return Err(failed(io::ErrorKind::FileTooLarge.into()));
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    match text.trim() {
        "" => Err(failed(io::ErrorKind::InvalidData.into())),
        key => Ok(key.to_owned()),
    }
}
