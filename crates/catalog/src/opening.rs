//! Opens a catalog: its file and its lock, the migration, and what is kept in RAM.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use burrow_model::TenantId;
use data_encoding::HEXLOWER;
use rusqlite::Connection;
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;

use crate::catalog::{Catalog, Inner};
use crate::connection::{self, integer};
use crate::feed::Feed;
use crate::key_cache::KeyCache;
use crate::port_cache::PortCache;
use crate::reader::Readers;
use crate::reserve::Reserve;
use crate::tenants::settle_default_tenant;
use crate::token_cache::TokenGenerations;
use crate::writer::Writer;
use crate::{CatalogError, egress, events, keys, migrate, token_generations};

/// The maximum size of the empty write-ahead log; in use it reaches about half.
const LOG_BYTES_KEPT: u64 = 8 << 20;

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
        let mut inner = start(connection, Some(reserve), opened).map_err(cannot)?;
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
        let inner = start(connection, None, opened)
            .map_err(|source| CatalogError::Open { path: ":memory:".into(), source })?;
        Ok(Self { inner: Arc::new(inner) })
    }
}

fn start(connection: Connection, reserve: Option<Reserve>, opened: OpenedDatabase) -> io::Result<Inner> {
    let mut boot = [0; 16];
    getrandom::fill(&mut boot).expect("the kernel's random generator answers");
    Ok(Inner {
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

/// Values that are found or created in the database before its first use.
pub(crate) struct OpenedDatabase {
    pub(crate) default_tenant: TenantId,
    keys: KeyCache,
    ports: PortCache,
    tokens: TokenGenerations,
    events: Feed,
    egress: Feed,
}

/// Repeatable: each step finds what an earlier attempt created.
pub(crate) fn prepare(connection: &Connection) -> Result<OpenedDatabase, CatalogError> {
    migrate::migrate(connection)?;
    let default_tenant = settle_default_tenant(connection)?;
    let events = events::feed(connection, &default_tenant)?;
    let egress = egress::feed(connection)?;
    let keys = keys::cached(connection)?;
    let ports = PortCache::load(connection)?;
    let tokens = token_generations::cached(connection)?;
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

pub(crate) fn private(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}
