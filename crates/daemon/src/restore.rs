//! `burrow backup restore`: restores a backup on a host where no daemon is running.
//!
//! ```text
//!   config.toml                      written only if there is none
//!   catalog.db                       comes before the disks: it determines their owners
//!   volumes/<image>/00000000 …       each stream in numbered pieces, images first
//!   volumes/<snapshot>/00000000 …    parents before children
//!   volumes/<sandbox>/00000000 …
//!   volumes/<volume>/00000000 …      volumes, then their snapshots
//!   memory/<space>.db                one file per space
//!   artifacts/<2>/<hash>             the bytes of artifacts
//!   audit/audit.db, audit/key        the audit log and its signing key
//! ```
//!
//! A backup contains no processes, because a dump fits only the kernel and processor that made it: sleeping sandboxes
//! are stopped, and snapshots contain files only. A snapshot whose disk is missing is removed. Tokens of E2B's clients
//! from before the backup become invalid: an older catalog does not know which of them were revoked since.
//!
//! The catalog is moved to its final place last: until then a daemon would find nothing, and an interrupted restore can
//! be repeated.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burrow_catalog::{Catalog, CatalogError, SandboxRow};
use burrow_disks::{DiskId, Disks};
use burrow_engine::journal::Operation;
use burrow_engine::{Clock as _, SystemClock};
use burrow_model::{
    ImageId, MIB, SandboxId, Snapshot, SnapshotId, SpaceId, Volume, VolumeId, VolumeSnapshotId,
};
use tokio::sync::mpsc;

use crate::Config;
use crate::error::ServeError;
use crate::instance::Instance;
use crate::wiring::open_disk_pool;

/// Maximum number of pieces that wait for the pool.
const PIECES_MAX: usize = 4;

/// Maximum size of one piece; ours have one megabyte.
const PIECE_BYTES_MAX: u64 = 64 << 20;

/// Operations that a restored daemon can neither complete nor undo: the backup contains neither their machines nor
/// their dumps.
const GIVEN_UP: [Operation; 6] = [
    Operation::Hibernate,
    Operation::Wake,
    Operation::Snapshot,
    Operation::Restore,
    Operation::Import,
    Operation::Trial,
];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupRestoreReport {
    pub images: usize,
    pub sandboxes: usize,
    pub snapshots: usize,
    /// Volumes that outlive sandboxes.
    pub volumes: usize,
    /// Memory spaces.
    pub spaces: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error("`{}` already contains a catalog", .state_dir.display())]
    NotEmpty { state_dir: PathBuf },
    #[error("could not read the archive")]
    Archive { source: io::Error },
    #[error("the archive is not a backup: {what}")]
    Foreign { what: String },
    #[error("could not write `{}`", .path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("could not read the archive's catalog")]
    Catalog { source: burrow_catalog::CatalogError },
    #[error("could not restore volume `{name}`")]
    Volume { name: String, source: burrow_disks::DiskError },
}

impl RestoreError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Serve(error) => error.hint(),
            Self::NotEmpty { .. } => {
                Some("restore into an empty `state_dir`, or move the existing one away".to_owned())
            }
            Self::Foreign { .. } => Some("use a file written by `burrow backup`".to_owned()),
            Self::Archive { .. } | Self::Write { .. } | Self::Catalog { .. } | Self::Volume { .. } => None,
        }
    }
}

/// Reads a backup. Blocks.
pub fn restore(config: Option<&Path>, archive: impl Read) -> Result<BackupRestoreReport, RestoreError> {
    let config = Config::load(config).map_err(ServeError::from)?;
    let instance = Instance::claim(&config)?;
    let place = config.state_dir.join("catalog.db");
    if place.exists() {
        return Err(RestoreError::NotEmpty { state_dir: config.state_dir.clone() });
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|source| ServeError::Threads { source })?;
    let staging = config.state_dir.join("restoring.db");
    let disks: Arc<dyn Disks> = open_disk_pool(&config)?;
    let restored =
        Restoration { config: &config, staging: &staging, disks, runtime: &runtime }.run(archive)?;
    let written = fs::rename(&staging, &place).and_then(|()| fs::File::open(&config.state_dir)?.sync_all());
    written.map_err(|source| RestoreError::Write { path: place, source })?;
    drop(instance);
    Ok(restored)
}

struct Restoration<'a> {
    config: &'a Config,
    staging: &'a Path,
    disks: Arc<dyn Disks>,
    runtime: &'a tokio::runtime::Runtime,
}

/// The archive's catalog, and the owners of the disks in it.
struct BackupCatalog {
    catalog: Catalog,
    sandboxes: HashMap<SandboxId, SandboxRow>,
    snapshots: HashMap<SnapshotId, Snapshot>,
    volumes: HashMap<VolumeId, Volume>,
}

/// A disk whose pieces are being read.
struct IncomingDisk {
    name: String,
    pieces: mpsc::Sender<io::Result<Vec<u8>>>,
    work: tokio::task::JoinHandle<Result<(), burrow_disks::DiskError>>,
}

impl Restoration<'_> {
    fn run(&self, archive: impl Read) -> Result<BackupRestoreReport, RestoreError> {
        let mut archive = tar::Archive::new(archive);
        let mut known: Option<BackupCatalog> = None;
        let mut incoming: Option<IncomingDisk> = None;
        let mut current = String::new();
        let mut restored = BackupRestoreReport::default();
        let mut snapshots = BTreeSet::new();
        let (mut volumes, mut volume_snapshots) = (BTreeSet::new(), BTreeSet::new());
        for entry in archive.entries().map_err(|source| RestoreError::Archive { source })? {
            let mut entry = entry.map_err(|source| RestoreError::Archive { source })?;
            let path = entry
                .path()
                .map_err(|source| RestoreError::Archive { source })?
                .to_string_lossy()
                .into_owned();
            let parts: Vec<&str> = path.split('/').collect();
            match parts.as_slice() {
                ["config.toml"] => self.configuration(&mut entry)?,
                ["catalog.db"] => known = Some(self.catalog(&mut entry)?),
                ["volumes", name, _number] => {
                    if current != *name {
                        self.finish(incoming.take())?;
                        let known = known.as_ref().ok_or_else(|| foreign("a disk precedes the catalog"))?;
                        incoming = self.begin(known, name, &mut restored)?;
                        if incoming.is_some() {
                            snapshots.extend(name.parse::<SnapshotId>());
                            volumes.extend(name.parse::<VolumeId>());
                            volume_snapshots.extend(name.parse::<VolumeSnapshotId>());
                        }
                        (*name).clone_into(&mut current);
                    }
                    if let Some(incoming) = &incoming {
                        feed(incoming, &mut entry)?;
                    }
                }
                ["memory", name] if is_space_file(name) => {
                    self.copy(&mut entry, &burrow_http::memory::folder(self.config).join(name))?;
                    restored.spaces += 1;
                }
                ["artifacts", folder, hash] if is_hex(folder, 2) && is_hex(hash, 64) => {
                    self.copy(
                        &mut entry,
                        &burrow_http::memory::artifacts_folder(self.config).join(folder).join(hash),
                    )?;
                }
                ["audit", name @ ("audit.db" | "key")] => {
                    self.copy_private(&mut entry, &burrow_http::audit::folder(self.config), name)?;
                }
                _ => return Err(foreign(&format!("unexpected entry `{}`", path.escape_debug()))),
            }
        }
        self.finish(incoming)?;
        let catalog = known.ok_or_else(|| foreign("it contains no catalog"))?.catalog;
        let given_up = GIVEN_UP.map(Operation::as_str).to_vec();
        let settled = self.runtime.block_on(catalog.settle_backup(snapshots, given_up));
        settled.map_err(|source| RestoreError::Catalog { source })?;
        let settled = self.runtime.block_on(catalog.settle_volumes_of_backup(volumes, volume_snapshots));
        settled.map_err(|source| RestoreError::Catalog { source })?;
        // Tokens that were revoked after the backup was made must stay revoked.
        let now_ms = SystemClock.now_ms();
        let revoked = self.runtime.block_on(catalog.revoke_all_tokens(now_ms));
        revoked.map_err(|source| RestoreError::Catalog { source })?;
        Ok(restored)
    }

    fn configuration(&self, entry: &mut impl Read) -> Result<(), RestoreError> {
        let path = &self.config.path;
        if path.exists() {
            return Ok(());
        }
        self.copy(entry, path)
    }

    fn catalog(&self, entry: &mut impl Read) -> Result<BackupCatalog, RestoreError> {
        self.copy(entry, self.staging)?;
        let read = || -> Result<BackupCatalog, CatalogError> {
            let catalog = Catalog::open(self.staging)?;
            let sandboxes = self.runtime.block_on(catalog.all_sandboxes())?;
            let snapshots = self.runtime.block_on(catalog.all_snapshots())?;
            let volumes = self.runtime.block_on(catalog.all_volumes())?;
            Ok(BackupCatalog {
                catalog,
                sandboxes: sandboxes.into_iter().map(|row| (row.id.clone(), row)).collect(),
                snapshots: snapshots.into_iter().map(|row| (row.snapshot.id.clone(), row.snapshot)).collect(),
                volumes: volumes.into_iter().map(|row| (row.volume.id.clone(), row.volume)).collect(),
            })
        };
        read().map_err(|source| RestoreError::Catalog { source })
    }

    fn copy(&self, entry: &mut impl Read, path: &Path) -> Result<(), RestoreError> {
        let written = (|| {
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            let mut file = fs::File::create(path)?;
            io::copy(entry, &mut file)?;
            file.sync_all()
        })();
        written.map_err(|source| RestoreError::Write { path: path.to_owned(), source })
    }

    /// Readable by root only, from the first byte on.
    fn copy_private(&self, entry: &mut impl Read, folder: &Path, name: &str) -> Result<(), RestoreError> {
        let path = folder.join(name);
        let written = (|| {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            let mut options = fs::OpenOptions::new();
            let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&path)?;
            io::copy(entry, &mut file)?;
            file.sync_all()
        })();
        written.map_err(|source| RestoreError::Write { path, source })
    }

    /// Starts to receive a disk that the catalog contains; `None` for one that it does not contain, which is skipped.
    fn begin(
        &self,
        known: &BackupCatalog,
        name: &str,
        restored: &mut BackupRestoreReport,
    ) -> Result<Option<IncomingDisk>, RestoreError> {
        let (disk, disk_bytes) = if let Ok(id) = name.parse::<ImageId>() {
            restored.images += 1;
            (DiskId::Image(id), 0)
        } else if let Ok(id) = name.parse::<SandboxId>() {
            // Created while the backup was made: its row is not in the catalog, so it has no owner.
            let Some(row) = known.sandboxes.get(&id) else { return Ok(None) };
            restored.sandboxes += 1;
            let disk_bytes = u64::from(row.spec.limits.disk_mib) * MIB;
            (DiskId::Sandbox(id), disk_bytes)
        } else if let Ok(id) = name.parse::<SnapshotId>() {
            if !known.snapshots.contains_key(&id) {
                return Ok(None);
            }
            restored.snapshots += 1;
            (DiskId::Snapshot(id), 0)
        } else if let Ok(id) = name.parse::<VolumeId>() {
            let Some(volume) = known.volumes.get(&id) else { return Ok(None) };
            restored.volumes += 1;
            (DiskId::Volume(id), u64::from(volume.disk_mib) * MIB)
        } else if let Ok(id) = name.parse::<VolumeSnapshotId>() {
            (DiskId::VolumeSnapshot(id), 0)
        } else {
            return Err(foreign(&format!("`{}` is not an id", name.escape_debug())));
        };
        let (pieces, chunks) = mpsc::channel(PIECES_MAX);
        let disks = self.disks.clone();
        let work = self.runtime.spawn(async move { disks.receive(disk, disk_bytes, chunks).await });
        Ok(Some(IncomingDisk { name: name.to_owned(), pieces, work }))
    }

    fn finish(&self, incoming: Option<IncomingDisk>) -> Result<(), RestoreError> {
        let Some(IncomingDisk { name, pieces, work }) = incoming else { return Ok(()) };
        drop(pieces);
        let done =
            self.runtime.block_on(work).unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
        done.map_err(|source| RestoreError::Volume { name, source })
    }
}

fn feed(incoming: &IncomingDisk, entry: &mut impl Read) -> Result<(), RestoreError> {
    let mut piece = Vec::new();
    let read = entry.take(PIECE_BYTES_MAX).read_to_end(&mut piece);
    read.map_err(|source| RestoreError::Archive { source })?;
    // A receiver that has ended has failed; its error is returned by `finish`.
    let _ = incoming.pieces.blocking_send(Ok(piece));
    Ok(())
}

/// A file name like `<space>.db` without path components.
fn is_space_file(name: &str) -> bool {
    name.strip_suffix(".db").is_some_and(|id| id.parse::<SpaceId>().is_ok())
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

fn foreign(what: &str) -> RestoreError {
    RestoreError::Foreign { what: what.to_owned() }
}
