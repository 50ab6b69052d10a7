//! Tells when the catalog and the pool are not of one time.
//!
//! ```text
//!   start, every few minutes, end:   catalog n+1 (to be confirmed) ─► <pool>/epoch n+1, durable ─► catalog n+1 (confirmed)
//! ```
//!
//! Whoever puts an older copy of one of the two in its place is stopped at the next start: by an older catalog, all that
//! was made since would be swept away as nobody's; on an older pool, sandboxes would quietly be what they once were. A pair
//! of copies of one moment is fine, and so is a pool or a catalog that has nothing to lose.
//!
//! What is not detected: an older copy of the catalog of the last few minutes before a crash.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use burrow_catalog::{Catalog, CatalogError, Epoch};
use burrow_model::SandboxId;
use burrow_volumes::{VolumeError, Volumes};

/// Beside the volumes.
const FILE: &str = "epoch";

/// A line of a few words.
const FILE_BYTES_MAX: u64 = 4096;

/// Things that an error lists by name.
const NAMED_MAX: usize = 5;

/// So old may a copy of the catalog be at most that is taken for the catalog.
pub(crate) const INTERVAL: Duration = Duration::from_secs(300);

#[derive(Debug, thiserror::Error)]
pub enum EpochError {
    #[error(
        "the catalog and the pool `{}` are of different times: the catalog of epoch {catalog}, the pool of {pool}; the {} \
         is an older copy", .path.display(), older(*.catalog, *.pool)
    )]
    Differs { path: PathBuf, catalog: u64, pool: u64 },
    #[error("the pool `{}` is not this catalog's: {what}", .path.display())]
    Foreign { path: PathBuf, what: String },
    #[error("could not {step} `{}`", .path.display())]
    File { step: &'static str, path: PathBuf, source: io::Error },
    #[error("could not read or write the epoch of the catalog")]
    Catalog(#[from] CatalogError),
    #[error("could not list what is in the pool")]
    Volumes(#[from] VolumeError),
}

fn older(catalog: u64, pool: u64) -> &'static str {
    if catalog < pool { "catalog" } else { "pool" }
}

impl EpochError {
    pub(crate) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Differs { .. } | Self::Foreign { .. } => Some(
                "put the copy that belongs to the other back in its place; or start once with `burrow serve \
                 --accept-rollback`, which removes from the pool what the catalog does not know",
            ),
            Self::Catalog(error) => error.hint(),
            Self::File { .. } | Self::Volumes(_) => None,
        }
    }
}

/// What the pool says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mark {
    identity: String,
    number: u64,
}

/// The two of them, found to be of one time.
#[derive(Clone, Debug)]
pub(crate) struct Epochs {
    catalog: Catalog,
    path: PathBuf,
}

impl Epochs {
    /// Compares catalog and pool, and counts up. With `accept` a difference is told in the log and forgotten.
    pub(crate) async fn open(
        catalog: &Catalog,
        volumes: &dyn Volumes,
        root: &Path,
        accept: bool,
    ) -> Result<Self, EpochError> {
        let epochs = Self { catalog: catalog.clone(), path: root.join(FILE) };
        let (known, mark) = (catalog.epoch().await?, epochs.read()?);
        let compared = match (&known, &mark) {
            (Some(known), Some(mark)) if known.identity == mark.identity => epochs.compare(known, mark),
            // Neither was ever counted: a new host, an upgrade, a backup brought back. There is nothing to compare.
            (None, None) => Ok(()),
            // The very first start was cut short, or one of the two is new: nothing to lose is nothing lost.
            (Some(_), _) | (None, Some(_)) => epochs.compare_contents(volumes, root).await,
        };
        match compared {
            Err(error @ (EpochError::Differs { .. } | EpochError::Foreign { .. })) if accept => {
                tracing::warn!(%error, "accepted, as asked for");
            }
            compared => compared?,
        }
        let beyond = mark.map_or(0, |mark| mark.number).max(known.as_ref().map_or(0, |known| known.number));
        let identity =
            known.map_or_else(|| SandboxId::generate().as_str()[3..].to_owned(), |known| known.identity);
        epochs.write(identity, beyond + 1).await?;
        Ok(epochs)
    }

    /// Counts on: a copy of either that was made before does not fit from here on.
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

    /// Of a pair that never was one: whether each has all that the other speaks of.
    async fn compare_contents(&self, volumes: &dyn Volumes, root: &Path) -> Result<(), EpochError> {
        let known = self.catalog.all_sandboxes().await?.into_iter().map(|row| row.id.to_string());
        let snapshots = self.catalog.all_snapshots().await?;
        // What was under way may be on one side only, and its operation says so.
        let open: BTreeSet<String> =
            self.catalog.open_operations().await?.into_iter().map(|row| row.sandbox.to_string()).collect();
        let known: BTreeSet<String> =
            known.chain(snapshots.into_iter().map(|row| row.snapshot.id.to_string())).collect();
        let inventory = volumes.inventory().await?;
        let sandboxes = inventory.sandboxes.iter().map(ToString::to_string);
        let found: BTreeSet<String> =
            sandboxes.chain(inventory.snapshots.iter().map(ToString::to_string)).collect();
        let stock: BTreeSet<String> =
            self.catalog.all_stock().await?.into_iter().map(|row| row.id.to_string()).collect();
        let missing: Vec<&String> = known.difference(&found).filter(|id| !open.contains(*id)).collect();
        let unknown: Vec<&String> =
            found.difference(&known).filter(|id| !open.contains(*id) && !stock.contains(*id)).collect();
        let what = match (missing.is_empty(), unknown.is_empty()) {
            (true, true) => return Ok(()),
            (false, _) => format!("it does not hold {}", named(&missing)),
            (true, false) => format!("it holds {}, of which the catalog knows nothing", named(&unknown)),
        };
        Err(EpochError::Foreign { path: root.to_owned(), what })
    }

    fn read(&self) -> Result<Option<Mark>, EpochError> {
        let length = match fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            found => found.map_err(self.failed("look at"))?.len(),
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

    /// Durable when it returns: under its name there is the old one or the new.
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
    use burrow_volumes::sim::Sim;

    use super::*;

    struct Host {
        folder: tempfile::TempDir,
        volumes: Sim,
    }

    impl Host {
        fn new() -> Self {
            Self { folder: tempfile::tempdir().unwrap(), volumes: Sim::default() }
        }

        fn catalog(&self, name: &str) -> Catalog {
            Catalog::open(&self.folder.path().join(name)).unwrap()
        }

        async fn start(&self, catalog: &Catalog) -> Result<Epochs, EpochError> {
            Epochs::open(catalog, &self.volumes, self.folder.path(), false).await
        }

        fn mark(&self) -> PathBuf {
            self.folder.path().join(FILE)
        }
    }

    /// The catalog as it is on disk now, under another name.
    async fn copy(host: &Host, catalog: Catalog, to: &str) {
        let path = host.folder.path();
        drop(catalog);
        fs::copy(path.join("catalog.db"), path.join(to)).unwrap();
    }

    #[tokio::test]
    async fn an_older_catalog_or_pool_is_refused_by_its_epoch_and_the_older_one_named() {
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
        // The one that belongs to it is taken, and both go on.
        fs::write(host.mark(), newer).unwrap();
        host.start(&catalog).await.unwrap();
    }

    #[tokio::test]
    async fn a_start_that_is_cut_short_between_the_two_goes_on() {
        let host = Host::new();
        let catalog = host.catalog("catalog.db");
        host.start(&catalog).await.unwrap();
        let Epoch { identity, number, .. } = catalog.epoch().await.unwrap().unwrap();
        let before = Epoch { identity, number: number + 1, confirmed: false };
        catalog.set_epoch(before.clone()).await.unwrap();
        host.start(&catalog).await.unwrap();
        // With the pool's word for it, one behind is an older copy.
        catalog.set_epoch(Epoch { number: before.number + 2, confirmed: true, ..before }).await.unwrap();
        host.start(&catalog).await.unwrap_err();
    }

    #[tokio::test]
    async fn a_pair_that_never_was_one_is_taken_if_neither_loses_anything() {
        let host = Host::new();
        host.start(&host.catalog("catalog.db")).await.unwrap();
        // Another catalog, new and empty, and a pool in which there is nothing.
        let other = host.catalog("other.db");
        host.start(&other).await.unwrap();
        drop(other);
        // And one with a volume of somebody else's, which a start would sweep away.
        let image = burrow_model::ImageId::generate();
        host.volumes.stage_image(&image).await.unwrap();
        host.volumes.seal_image(&image).await.unwrap();
        let id = SandboxId::generate();
        host.volumes.create(&id, &image, 1 << 20).await.unwrap();
        let third = host.catalog("third.db");
        let error = host.start(&third).await.unwrap_err();
        assert!(error.to_string().contains(id.as_str()), "{error}");
        Epochs::open(&third, &host.volumes, host.folder.path(), true).await.unwrap();
        host.start(&third).await.unwrap();
    }
}
