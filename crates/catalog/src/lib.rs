//! The durable state: sandboxes, execs, keys, images, the operation journal and events, in SQLite.
//!
//! ```text
//!            ┌─ write ─► one thread, one connection: batches of jobs, one commit each (writer)
//!  Catalog ──┤
//!            └─ read ──► a few threads with read-only connections (reader)
//! ```
//!
//! Acknowledged means durable: a method that changes something returns after the commit is synced. (For records of execs
//! and for events: when they would survive the death of this process; a power failure ends the processes anyway.)
//! Dropping the future of a queued change does not cancel the change.
//!
//! Every row has a tenant, and lookups for a caller include the tenant: the id of another tenant gives the same answer as
//! an unknown one. This crate contains no decisions and no clock. It stores and answers.

mod connection;
mod egress;
mod epoch;
mod error;
mod events;
mod execs;
mod former_secrets;
mod idempotency;
mod images;
mod keys;
mod layers;
mod merges;
mod migrate;
mod moving;
mod operations;
mod page;
mod ports;
mod races;
mod reader;
mod reserve;
mod rows;
mod sandboxes;
mod search;
mod secrets;
mod settings;
mod snapshots;
mod spaces;
mod ssh_keys;
mod token_generations;
mod transforms;
mod upkeep;
mod volumes;
mod warm_pool;
mod writer;

use std::fmt;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burrow_model::TenantId;
use data_encoding::HEXLOWER;
use rusqlite::{Connection, OptionalExtension, params};
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;

use connection::{Columns, integer};
use egress::EgressFeed;
use events::EventFeed;
use keys::KeyCache;
use ports::PortCache;
use reader::Readers;
use reserve::Reserve;
use token_generations::TokenGenerations;
use writer::{Manner, Writer};

pub use egress::{EGRESS_KEPT, EGRESS_KEPT_MS, EgressFilter, EgressKind, EgressRow, EgressVerdict};
pub use epoch::Epoch;
pub use error::CatalogError;
pub use execs::{EXECS_KEPT, PROMISE, UNREMEMBERED};
pub use former_secrets::{FORMER_KEPT_MS, FORMER_MAX, FormerSecretRow};
pub use idempotency::{Begun, IDEMPOTENCY_KEPT_MS, Idempotency};
pub use keys::KeySecret;
pub use merges::{MergeRow, MergeState};
pub use migrate::VERSION;
pub use page::{PAGE_LIMIT_MAX, Page, PageRequest};
pub use ports::{PUBLISHED_MAX, Published};
pub use races::{RACES_KEPT, RaceRow};
pub use rows::{
    EventRow, ExecRow, ExecState, ImageRow, Inserted, KeyRow, LayerRow, Lineage, NewEvent, NewKey,
    OperationRow, SandboxChange, SandboxFilter, SandboxRow, SnapshotFilter, SnapshotRow,
};
pub use secrets::{AuthorityRow, PlaceholderRow, SECRETS_MAX, SealedValue, SecretRow, SecretStored};
pub use snapshots::{LINEAGE_MAX, SnapshotTotals};
pub use spaces::{SPACES_MAX, SpaceChange, SpaceRow, SpaceUsers};
pub use ssh_keys::{SSH_KEYS_MAX, SSH_KEYS_OF_KEY_MAX, SshKeyRow};
pub use transforms::TransformsRow;
pub use upkeep::Size;
pub use volumes::{VOLUMES_MAX, VolumeRow, VolumeSnapshotRow, VolumeUser};
pub use warm_pool::WarmRow;

/// The maximum size of the empty write-ahead log; in use it reaches about half.
const LOG_BYTES_KEPT: u64 = 8 << 20;

/// The catalog. Cheap to clone; dropping the last clone closes it and waits for queued changes.
#[derive(Clone)]
pub struct Catalog {
    inner: Arc<Inner>,
}

struct Inner {
    // Dropped in this order: readers close before the writer, so that the writer can truncate the log; the lock is released
    // last.
    readers: Option<Readers>,
    writer: Writer,
    keys: Arc<KeyCache>,
    ports: Arc<PortCache>,
    tokens: Arc<TokenGenerations>,
    events: Arc<EventFeed>,
    egress: Arc<EgressFeed>,
    default_tenant: TenantId,
    /// Identifies this run of the daemon, to recognise entries of earlier runs.
    boot: String,
    path: Option<PathBuf>,
    _lock: Option<File>,
}

impl Catalog {
    /// Opens or creates the catalog at `path`, and migrates it to the current version.
    ///
    /// Beside it are `<stem>.lock`, which excludes a second daemon, and `<stem>.reserve`. Blocks for a few milliseconds:
    /// call it at start-up.
    pub fn open(path: &Path) -> Result<Self, CatalogError> {
        let cannot = |source| CatalogError::Open { path: path.to_owned(), source };
        let lock = lock(path)?;
        make_private(path).map_err(cannot)?;
        let connection = Connection::open(path)?;
        connection::prepare(&connection)?;
        let mut reserve = Reserve::beside(path);
        let opened = match open_file(path, &connection) {
            // A daemon must be able to start on a full disk, or nothing could be deleted.
            Err(error) if error.is_of_storage() && reserve.release() => open_file(path, &connection),
            opened => opened,
        };
        let (opened, readers) = opened.map_err(|error| reserve.judge(error))?;
        let mut inner = Inner::start(connection, Some(reserve), opened).map_err(cannot)?;
        inner.readers = Some(readers);
        inner.path = Some(path.to_owned());
        inner._lock = Some(lock);
        Ok(Self { inner: Arc::new(inner) })
    }

    /// A catalog in RAM, for tests. Reads and writes are executed one at a time.
    pub fn in_memory() -> Result<Self, CatalogError> {
        let connection = Connection::open_in_memory()?;
        connection::prepare(&connection)?;
        let opened = prepare(&connection)?;
        let inner = Inner::start(connection, None, opened)
            .map_err(|source| CatalogError::Open { path: ":memory:".into(), source })?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The tenant that was created with the catalog.
    pub fn default_tenant(&self) -> TenantId {
        self.inner.default_tenant.clone()
    }

    /// Adds a tenant. The name is free text, unique.
    pub async fn create_tenant(&self, name: &str, created_ms: u64) -> Result<TenantId, CatalogError> {
        let name = name.to_owned();
        let tenant = TenantId::generate();
        self.write(Manner::GROWTH, move |connection| {
            insert_tenant(connection, &tenant, &name, created_ms)?;
            Ok(tenant.clone())
        })
        .await
    }

    async fn write<T, F>(&self, manner: Manner, work: F) -> Result<T, CatalogError>
    where
        T: Send + 'static,
        F: Fn(&Connection) -> Result<T, CatalogError> + Send + 'static,
    {
        self.inner.writer.write(manner, work).await
    }

    async fn read<T, F>(&self, work: F) -> Result<T, CatalogError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, CatalogError> + Send + 'static,
    {
        match &self.inner.readers {
            Some(readers) => readers.read(work).await,
            None => self.inner.writer.alone(move |connection| work(connection)).await,
        }
    }
}

impl Inner {
    fn start(connection: Connection, reserve: Option<Reserve>, opened: OpenedDatabase) -> io::Result<Self> {
        let mut boot = [0; 16];
        getrandom::fill(&mut boot).expect("the kernel's random generator answers");
        Ok(Self {
            readers: None,
            writer: Writer::start(connection, reserve)?,
            keys: Arc::new(opened.keys),
            ports: Arc::new(opened.ports),
            tokens: Arc::new(opened.tokens),
            events: Arc::new(opened.events),
            egress: Arc::new(opened.egress),
            default_tenant: opened.default_tenant,
            boot: HEXLOWER.encode(&boot),
            path: None,
            _lock: None,
        })
    }
}

impl fmt::Debug for Catalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Catalog").field("path", &self.inner.path).finish_non_exhaustive()
    }
}

/// Values that are found or created in the database before its first use.
struct OpenedDatabase {
    default_tenant: TenantId,
    keys: KeyCache,
    ports: PortCache,
    tokens: TokenGenerations,
    events: EventFeed,
    egress: EgressFeed,
}

/// Repeatable: each step finds what an earlier attempt created.
fn prepare(connection: &Connection) -> Result<OpenedDatabase, CatalogError> {
    migrate::migrate(connection)?;
    let default_tenant = settle_default_tenant(connection)?;
    let events = EventFeed::prepare(connection, &default_tenant)?;
    let egress = EgressFeed::prepare(connection)?;
    let keys = KeyCache::load(connection)?;
    let ports = PortCache::load(connection)?;
    let tokens = TokenGenerations::load(connection)?;
    Ok(OpenedDatabase { default_tenant, keys, ports, tokens, events, egress })
}

fn open_file(path: &Path, connection: &Connection) -> Result<(OpenedDatabase, Readers), CatalogError> {
    connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;")?;
    // A log that grew during a long read is truncated to this size once it is empty.
    connection.pragma_update(None, "journal_size_limit", integer(LOG_BYTES_KEPT))?;
    Ok((prepare(connection)?, Readers::start(path)?))
}

/// Excludes a second daemon. A POSIX lock, because a child that is forked during its lifetime does not inherit it.
fn lock(path: &Path) -> Result<File, CatalogError> {
    let cannot = |source| CatalogError::Open { path: path.to_owned(), source };
    let file = private(&path.with_extension("lock")).map_err(cannot)?;
    match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::AGAIN | Errno::ACCESS) => Err(CatalogError::InUse { path: path.to_owned() }),
        Err(error) => Err(cannot(error.into())),
    }
}

/// Creates the database file if it is missing, readable only by its owner, as are then the files that SQLite creates beside
/// it with the same mode. An existing file is not opened: closing it again would release locks of SQLite on it.
fn make_private(path: &Path) -> io::Result<()> {
    let private = Permissions::from_mode(0o600);
    match OpenOptions::new().write(true).create_new(true).mode(private.mode()).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => fs::set_permissions(path, private),
        made => made.map(drop),
    }
}

fn private(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

fn settle_default_tenant(connection: &Connection) -> Result<TenantId, CatalogError> {
    let found = connection
        .query_row("SELECT id FROM tenants WHERE name = 'default'", (), |row| Ok(row.parsed("id")))
        .optional()?;
    match found {
        Some(tenant) => tenant,
        None => {
            let tenant = TenantId::generate();
            insert_tenant(connection, &tenant, "default", 0)?;
            Ok(tenant)
        }
    }
}

fn insert_tenant(
    connection: &Connection,
    tenant: &TenantId,
    name: &str,
    at_ms: u64,
) -> Result<(), CatalogError> {
    connection.execute(
        "INSERT INTO tenants (id, name, created_ms) VALUES (?, ?, ?)",
        params![tenant.as_str(), name, integer(at_ms)],
    )?;
    Ok(())
}
