//! The log: SQLite, append-only, with one Merkle tree per tenant.
//!
//! ```text
//!  append (Power), ingest, retain ──bounded queue──► one thread: one commit for all waiting jobs ──► answers
//!  append (Process) ──► the journal, which the next commit and every read move into the log
//!  list, export, proofs ──► connections that only read
//! ```
//!
//! Invariants:
//! - Leaves, the edge of the tree, its signed checkpoint, and the positions in spool and journal change in one
//!   commit. So after a kill at any moment, each event is in the log exactly once, and the checkpoint matches the
//!   log.
//! - Checkpoints are computed from the edge, which grows only by appending, never from the stored leaves: a leaf that
//!   was changed or removed no longer matches the checkpoint, and the daemon does not sign the changed log.
//! - Checkpoints, proofs and exports are synced before they are returned: a power failure never removes events for
//!   which a client holds a proof.

mod entries;
mod journal;
mod proofs;
mod writer;

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use burrow_model::TenantId;
use rusqlite::{Connection, OpenFlags};
use tokio::sync::watch;

use crate::Event;
use crate::note::{NoteError, PublicKey, SigningKey};
use journal::{Journal, JournalPosition};
use writer::{Queue, WriterThread};

pub use entries::{Entry, Filter, Outline};
pub use proofs::{ConsistencyProof, InclusionProof};

/// Incremented by every change of the schema.
const VERSION: i64 = 2;

/// The migration from version 1, which had no journal.
const FROM_1: &str = "CREATE TABLE journal (segment INTEGER NOT NULL, place INTEGER NOT NULL) STRICT; \
                      INSERT INTO journal VALUES (0, 0);";

/// The folder of the journal, beside the log.
const JOURNAL: &str = "journal";

/// The file of the signing key, beside the log.
const KEY_FILE: &str = "key";

/// Pages per step of a copy.
const COPY_PAGES: i32 = 1024;

/// Read connections that are kept open.
const READERS_KEPT: usize = 4;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("could not {step} `{}`", .path.display())]
    File { step: &'static str, path: PathBuf, source: io::Error },
    #[error("the audit log could not be read or written")]
    Sqlite(#[source] rusqlite::Error),
    #[error("could not commit to the audit log")]
    Commit { source: Arc<StoreError> },
    #[error("the disk that holds the audit log is full")]
    Full,
    #[error("the audit log has version {found}, and this program supports {VERSION}")]
    Version { found: i64 },
    #[error(transparent)]
    Note(#[from] NoteError),
    #[error("the audit log of `{tenant}` was changed: {what}")]
    Tampered { tenant: TenantId, what: &'static str },
    #[error("the log has {size} events; event {asked} does not exist")]
    OutOfRange { asked: u64, size: u64 },
    #[error("segment {segment} of the spool was read to {known}, not to {from}")]
    Moved { segment: u64, from: u64, known: u64 },
    #[error("could not start the audit log's thread")]
    Thread { source: io::Error },
    #[error("the audit log is closed")]
    Closed,
}

impl StoreError {
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Full => Some("free space on that disk"),
            Self::Version { .. } => Some("a newer version of Burrow wrote it; use that version"),
            Self::Tampered { .. } | Self::Note(_) => Some(
                "keep a copy of the `audit` folder as evidence and compare it with a checkpoint kept elsewhere; the \
                 daemon starts a new log once the folder is moved away",
            ),
            Self::File { .. } | Self::Sqlite(_) | Self::OutOfRange { .. } | Self::Moved { .. } => None,
            Self::Commit { source } => source.hint(),
            Self::Thread { .. } | Self::Closed => None,
        }
    }

    fn of(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DiskFull) => Self::Full,
            _ => Self::Sqlite(error),
        }
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        Self::of(error)
    }
}

/// The failures that an acknowledged event survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// A crash of this process. A power failure may lose the last second.
    Process,
    /// A power failure.
    Power,
}

/// A part of a segment of the spool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub segment: u64,
    /// `None` at the start of the segment.
    pub from: Option<u64>,
    pub to: u64,
}

/// The audit log. Clones are handles of the same log.
#[derive(Clone, Debug)]
pub struct Store {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    queue: Queue,
    journal: Arc<Journal>,
    readers: Mutex<Vec<Connection>>,
    path: PathBuf,
    key: Arc<SigningKey>,
    grown: watch::Receiver<u64>,
}

impl Store {
    /// Opens the log in `folder`, or creates one. Blocks.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|source| StoreError::File { step: "make", path: folder.to_owned(), source })?;
        let key = Arc::new(SigningKey::open(&folder.join(KEY_FILE))?);
        let path = folder.join("audit.db");
        let connection = Connection::open(&path)?;
        prepare(&connection)?;
        let journal = Arc::new(Journal::open(folder.join(JOURNAL), position_in_journal(&connection)?)?);
        let (grows, grown) = watch::channel(0);
        let queue = WriterThread::start(connection, key.clone(), journal.clone(), grows)?;
        Ok(Self { inner: Arc::new(Inner { queue, journal, readers: Mutex::default(), path, key, grown }) })
    }

    pub fn public_key(&self) -> PublicKey {
        self.inner.key.public()
    }

    /// Changes whenever events were appended.
    pub fn grown(&self) -> watch::Receiver<u64> {
        self.inner.grown.clone()
    }

    /// Appends events to the trees of their tenants.
    pub async fn append(
        &self,
        events: Vec<Event>,
        seen_ms: u64,
        durability: Durability,
    ) -> Result<(), StoreError> {
        if durability == Durability::Process && self.inner.journal.record(&events, seen_ms) {
            return Ok(());
        }
        self.inner.queue.append(events, None, seen_ms, durability).await
    }

    /// Moves recorded events from the journal into the trees. Reads do this first; called periodically, it makes new
    /// events visible to clients that follow the log.
    pub async fn settle(&self) -> Result<(), StoreError> {
        if self.inner.journal.is_empty() { Ok(()) } else { self.inner.queue.settle().await }
    }

    /// Appends events from a part of the spool, and stores its position. A part that does not start where the
    /// previous one ended is refused, so no event is appended twice.
    pub async fn ingest(&self, events: Vec<Event>, span: Span, seen_ms: u64) -> Result<(), StoreError> {
        self.inner.queue.append(events, Some(span), seen_ms, Durability::Power).await
    }

    /// The position up to which a segment was read.
    pub async fn taken(&self, segment: u64) -> Result<Option<u64>, StoreError> {
        self.read(move |connection| {
            let sql = "SELECT place FROM segments WHERE number = ?";
            let mut statement = connection.prepare_cached(sql)?;
            let mut rows = statement.query([as_stored(segment)])?;
            rows.next()?.map(|row| row.get::<_, u64>(0)).transpose().map_err(StoreError::of)
        })
        .await
    }

    /// The segments with a stored position. Blocks.
    pub fn segments_known(&self) -> Result<Vec<u64>, StoreError> {
        self.inner.read(|connection| {
            let mut statement = connection.prepare_cached("SELECT number FROM segments")?;
            let rows = statement.query_map((), |row| row.get::<_, u64>(0))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    /// Deletes the stored position of a segment whose file was removed.
    pub async fn forget(&self, segment: u64) -> Result<(), StoreError> {
        self.inner.queue.forget(segment).await
    }

    /// Removes the bodies of events seen before `before_ms`, and records that in the log. Returns how many it
    /// removed.
    pub async fn retain(&self, before_ms: u64, now_ms: u64) -> Result<u64, StoreError> {
        self.inner.queue.retain(before_ms, now_ms).await
    }

    /// Ensures that a power failure loses none of the events appended so far.
    pub async fn sync(&self) -> Result<(), StoreError> {
        self.inner.queue.sync().await
    }

    /// The size of the log's database: a copy is not larger.
    pub fn database_bytes(&self) -> u64 {
        let log = self.inner.path.with_extension("db-wal");
        [&self.inner.path, &log]
            .into_iter()
            .map(|path| fs::metadata(path).map_or(0, |found| found.len()))
            .sum()
    }

    /// Copies the log to a new file, and returns the path of its key, which belongs to the copy.
    pub async fn copy_to(&self, path: &Path) -> Result<PathBuf, StoreError> {
        let path = path.to_owned();
        self.read_synced(move |connection| {
            let mut copy = Connection::open(&path)?;
            let backup = rusqlite::backup::Backup::new(connection, &mut copy)?;
            backup.run_to_completion(COPY_PAGES, std::time::Duration::ZERO, None)?;
            Ok(())
        })
        .await?;
        Ok(self.inner.path.with_file_name(KEY_FILE))
    }

    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.settle().await?;
        let inner = self.inner.clone();
        let task = tokio::task::spawn_blocking(move || inner.read(work));
        task.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Reads after a sync: for data that is given to clients as proof.
    async fn read_synced<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.sync().await?;
        self.read(work).await
    }
}

impl Inner {
    fn read<T>(&self, work: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let kept = self.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match kept {
            Some(connection) => connection,
            None => {
                let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
                let connection = Connection::open_with_flags(&self.path, flags)?;
                connection.busy_timeout(std::time::Duration::from_secs(5))?;
                connection
            }
        };
        // One transaction, so that `work` sees a consistent state.
        connection.execute_batch("BEGIN")?;
        let result = work(&connection);
        connection.execute_batch("ROLLBACK")?;
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        if readers.len() < READERS_KEPT {
            readers.push(connection);
        }
        result
    }
}

fn prepare(connection: &Connection) -> Result<(), StoreError> {
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY;",
    )?;
    let version: i64 = connection.query_row("PRAGMA user_version", (), |row| row.get(0))?;
    match version {
        VERSION => Ok(()),
        0 | 1 => {
            let change = if version == 0 { include_str!("schema.sql") } else { FROM_1 };
            connection.execute_batch(&format!("BEGIN; {change} PRAGMA user_version = {VERSION}; COMMIT"))?;
            Ok(())
        }
        found => Err(StoreError::Version { found }),
    }
}

fn position_in_journal(connection: &Connection) -> Result<JournalPosition, StoreError> {
    let place = |row: &rusqlite::Row<'_>| Ok(JournalPosition { segment: row.get(0)?, offset: row.get(1)? });
    Ok(connection.query_row("SELECT segment, place FROM journal", (), place)?)
}

/// SQLite's integers are signed; our numbers never exceed them.
fn as_stored(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
