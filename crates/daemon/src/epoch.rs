//! Detects when the catalog and the pool are from different times.
//!
//! ```text
//!   start, every few minutes, end:   catalog n+1 (to be confirmed) ─► <pool>/epoch n+1, durable ─► catalog n+1 (confirmed)
//! ```
//!
//! If one of the two was replaced by an older copy, the next start fails: with an older catalog, everything created
//! since would be removed as unknown; with an older pool, sandboxes would silently return to an earlier state. Copies
//! of both from the same moment are accepted, and so is an empty pool or catalog.
//!
//! Not detected: a copy of the catalog from the last few minutes before a crash.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use burrow_catalog::{Catalog, CatalogError, Epoch};
use burrow_disks::{DiskError, Disks};
use burrow_http::hints;
use burrow_model::SandboxId;

/// In the pool, beside its directories.
const FILE: &str = "epoch";

/// The file contains one short line.
const FILE_BYTES_MAX: u64 = 4096;

/// Maximum number of ids that an error lists.
const NAMED_MAX: usize = 5;

/// Maximum age of a copy of the catalog that is not detected.
pub(crate) const INTERVAL: Duration = Duration::from_secs(300);

#[derive(Debug, thiserror::Error)]
pub enum EpochError {
    #[error(
        "the catalog and the pool `{}` are of different times: the catalog of epoch {catalog}, the pool of {pool}; the {} \
         is an older copy", .path.display(), older(*.catalog, *.pool)
    )]
    Differs { path: PathBuf, catalog: u64, pool: u64 },
    #[error("the pool `{}` does not belong to this catalog: {what}", .path.display())]
    Foreign { path: PathBuf, what: String },
    #[error("could not {step} `{}`", .path.display())]
    File { step: &'static str, path: PathBuf, source: io::Error },
    #[error("could not read or write the epoch of the catalog")]
    Catalog(#[from] CatalogError),
    #[error("could not list the contents of the pool")]
    Disk(#[from] DiskError),
}

fn older(catalog: u64, pool: u64) -> &'static str {
    if catalog < pool { "catalog" } else { "pool" }
}

impl EpochError {
    pub(crate) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Differs { .. } | Self::Foreign { .. } => Some(
                "restore the copy that matches the other one; or start once with `burrow serve \
                 --accept-rollback`, which removes everything from the pool that the catalog does not contain",
            ),
            Self::Catalog(error) => hints::of_catalog(error),
            Self::File { .. } | Self::Disk(_) => None,
        }
    }
}

/// The epoch in the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mark {
    identity: String,
    number: u64,
}

/// A catalog and a pool that match.
#[derive(Clone, Debug)]
pub(crate) struct Epochs {
    catalog: Catalog,
    path: PathBuf,
}

impl Epochs {
    /// Compares catalog and pool, and increments the epoch. With `accept` a difference is logged and ignored.
    pub(crate) async fn open(
        catalog: &Catalog,
        disks: &dyn Disks,
        root: &Path,
        accept: bool,
    ) -> Result<Self, EpochError> {
        let epochs = Self { catalog: catalog.clone(), path: root.join(FILE) };
        let (known, mark) = (catalog.epoch().await?, epochs.read()?);
        let compared = match (&known, &mark) {
            (Some(known), Some(mark)) if known.identity == mark.identity => epochs.compare(known, mark),
            // No epoch exists: a new host, an upgrade, a restored backup. There is nothing to compare.
            (None, None) => Ok(()),
            // The first start was interrupted, or one of the two is new: an empty side is accepted.
            (Some(_), _) | (None, Some(_)) => epochs.compare_contents(disks, root).await,
        };
        match compared {
            Err(error @ (EpochError::Differs { .. } | EpochError::Foreign { .. })) if accept => {
                tracing::warn!(%error, "accepted, because of `--accept-rollback`");
            }
            compared => compared?,
        }
        let beyond = mark.map_or(0, |mark| mark.number).max(known.as_ref().map_or(0, |known| known.number));
        let identity =
            known.map_or_else(|| SandboxId::generate().as_str()[3..].to_owned(), |known| known.identity);
        epochs.write(identity, beyond + 1).await?;
        Ok(epochs)
    }

    /// Increments the epoch: copies of either side made before do not match any more.
    pub(crate) async fn advance(&self) -> Result<(), EpochError> {
        match self.catalog.epoch().await? {
            Some(Epoch { identity, number, .. }) => self.write(identity, number + 1).await,
            None => Ok(()),
        }
    }

    async fn write(&self, identity: String, number: u64) -> Result<(), EpochError> {
        let epoch = Epoch { identity, number, confirmed: false };
        self.catalog.set_epoch(epoch.clone()).await?;
        self.write_mark(&Mark { identity: epoch.identity.clone(), number })?;
        Ok(self.catalog.set_epoch(Epoch { confirmed: true, ..epoch }).await?)
    }

    fn compare(&self, known: &Epoch, mark: &Mark) -> Result<(), EpochError> {
        let same = known.number == mark.number || (!known.confirmed && known.number == mark.number + 1);
        if same {
            return Ok(());
        }
        Err(EpochError::Differs { path: self.path.clone(), catalog: known.number, pool: mark.number })
    }

    /// Compares a catalog and a pool without a common epoch: each must contain everything that the other refers to.
    async fn compare_contents(&self, disks: &dyn Disks, root: &Path) -> Result<(), EpochError> {
        let known = self.catalog.all_sandboxes().await?.into_iter().map(|row| row.id.to_string());
        let snapshots = self.catalog.all_snapshots().await?;
        // Resources of unfinished operations may exist on one side only; the operations list them.
        let open: BTreeSet<String> =
            self.catalog.open_operations().await?.into_iter().map(|row| row.sandbox.to_string()).collect();
        let known: BTreeSet<String> =
            known.chain(snapshots.into_iter().map(|row| row.snapshot.id.to_string())).collect();
        let inventory = disks.inventory().await?;
        let sandboxes = inventory.sandboxes.iter().map(ToString::to_string);
        let found: BTreeSet<String> =
            sandboxes.chain(inventory.snapshots.iter().map(ToString::to_string)).collect();
        let warm_pool: BTreeSet<String> =
            self.catalog.all_warm().await?.into_iter().map(|row| row.id.to_string()).collect();
        let missing: Vec<&String> = known.difference(&found).filter(|id| !open.contains(*id)).collect();
        let unknown: Vec<&String> =
            found.difference(&known).filter(|id| !open.contains(*id) && !warm_pool.contains(*id)).collect();
        let what = match (missing.is_empty(), unknown.is_empty()) {
            (true, true) => return Ok(()),
            (false, _) => format!("it does not contain {}", named(&missing)),
            (true, false) => format!("it contains {}, which the catalog does not contain", named(&unknown)),
        };
        Err(EpochError::Foreign { path: root.to_owned(), what })
    }

    fn read(&self) -> Result<Option<Mark>, EpochError> {
        let length = match fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            found => found.map_err(self.failed("inspect"))?.len(),
        };
        if length > FILE_BYTES_MAX {
            return Err(self.failed("read")(io::ErrorKind::FileTooLarge.into()));
        }
        let text = fs::read_to_string(&self.path).map_err(self.failed("read"))?;
        let mut words = text.split_whitespace();
        let mark = words
            .next()
            .zip(words.next().and_then(|number| number.parse().ok()))
            .map(|(identity, number)| Mark { identity: identity.to_owned(), number });
        mark.map(Some).ok_or_else(|| self.failed("read")(io::ErrorKind::InvalidData.into()))
    }

    /// Durable when it returns: the file contains either the old or the new epoch.
    fn write_mark(&self, mark: &Mark) -> Result<(), EpochError> {
        let fresh = self.path.with_extension("new");
        let write = || {
            let mut file = File::create(&fresh)?;
            file.write_all(format!("{} {}\n", mark.identity, mark.number).as_bytes())?;
            file.sync_all()?;
            fs::rename(&fresh, &self.path)?;
            File::open(self.path.parent().unwrap_or(Path::new("/")))?.sync_all()
        };
        write().map_err(self.failed("write"))
    }

    fn failed(&self, step: &'static str) -> impl Fn(io::Error) -> EpochError {
        let path = self.path.clone();
        move |source| EpochError::File { step, path: path.clone(), source }
    }
}

fn named(ids: &[&String]) -> String {
    let shown: Vec<String> = ids.iter().take(NAMED_MAX).map(|id| format!("`{id}`")).collect();
    let more = ids.len().saturating_sub(NAMED_MAX);
    if more == 0 { shown.join(", ") } else { format!("{} and {more} more", shown.join(", ")) }
}

#[cfg(test)]
mod tests {
    use burrow_disks::sim::Sim;

    use super::*;

    struct Host {
        folder: tempfile::TempDir,
        disks: Sim,
    }

    impl Host {
        fn new() -> Self {
            Self { folder: tempfile::tempdir().unwrap(), disks: Sim::default() }
        }

        fn catalog(&self, name: &str) -> Catalog {
            Catalog::open(&self.folder.path().join(name)).unwrap()
        }

        async fn start(&self, catalog: &Catalog) -> Result<Epochs, EpochError> {
            Epochs::open(catalog, &self.disks, self.folder.path(), false).await
        }

        fn mark(&self) -> PathBuf {
            self.folder.path().join(FILE)
        }
    }

    /// A copy of the catalog in its current state on disk.
    async fn copy(host: &Host, catalog: Catalog, to: &str) {
        let path = host.folder.path();
        drop(catalog);
        fs::copy(path.join("catalog.db"), path.join(to)).unwrap();
    }

    #[tokio::test]
    async fn an_older_catalog_or_pool_is_rejected_and_the_error_names_the_older_one() {
        let host = Host::new();
        let catalog = host.catalog("catalog.db");
        host.start(&catalog).await.unwrap();
        let mark = fs::read_to_string(host.mark()).unwrap();
        copy(&host, catalog, "older.db").await;
        let catalog = host.catalog("catalog.db");
        host.start(&catalog).await.unwrap().advance().await.unwrap();
        drop(catalog);

        let older = host.catalog("older.db");
        let error = host.start(&older).await.unwrap_err();
        assert!(matches!(&error, EpochError::Differs { catalog: 1, pool: 3, .. }), "{error}");
        assert!(error.to_string().contains("the catalog is an older copy"), "{error}");
        assert!(error.hint().is_some());

        let catalog = host.catalog("catalog.db");
        let newer = fs::read_to_string(host.mark()).unwrap();
        fs::write(host.mark(), mark).unwrap();
        let error = host.start(&catalog).await.unwrap_err();
        assert!(matches!(&error, EpochError::Differs { catalog: 3, pool: 1, .. }), "{error}");
        assert!(error.to_string().contains("the pool is an older copy"), "{error}");
        // With the matching pool restored, both are accepted.
        fs::write(host.mark(), newer).unwrap();
        host.start(&catalog).await.unwrap();
    }

    #[tokio::test]
    async fn a_start_that_was_interrupted_between_the_two_writes_succeeds() {
        let host = Host::new();
        let catalog = host.catalog("catalog.db");
        host.start(&catalog).await.unwrap();
        let Epoch { identity, number, .. } = catalog.epoch().await.unwrap().unwrap();
        let before = Epoch { identity, number: number + 1, confirmed: false };
        catalog.set_epoch(before.clone()).await.unwrap();
        host.start(&catalog).await.unwrap();
        // If the pool has confirmed the epoch, a catalog that is one behind is an older copy.
        catalog.set_epoch(Epoch { number: before.number + 2, confirmed: true, ..before }).await.unwrap();
        host.start(&catalog).await.unwrap_err();
    }

    #[tokio::test]
    async fn a_pair_without_a_common_epoch_is_accepted_if_nothing_would_be_lost() {
        let host = Host::new();
        host.start(&host.catalog("catalog.db")).await.unwrap();
        // A new, empty catalog, and an empty pool.
        let other = host.catalog("other.db");
        host.start(&other).await.unwrap();
        drop(other);
        // A pool with a disk of another catalog, which a start would remove.
        let image = burrow_model::ImageId::generate();
        host.disks.stage((&image).into(), None).await.unwrap();
        host.disks.seal((&image).into()).await.unwrap();
        let id = SandboxId::generate();
        host.disks.create((&id).into(), Some((&image).into()), 1 << 20).await.unwrap();
        let third = host.catalog("third.db");
        let error = host.start(&third).await.unwrap_err();
        assert!(error.to_string().contains(id.as_str()), "{error}");
        Epochs::open(&third, &host.disks, host.folder.path(), true).await.unwrap();
        host.start(&third).await.unwrap();
    }
}
