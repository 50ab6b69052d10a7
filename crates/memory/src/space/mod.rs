//! One space: a file, its columns in RAM, one writer and a few readers.

mod apply;
pub(crate) mod arena;
pub(crate) mod chain;
pub(crate) mod checksum;
pub(crate) mod frequency;
pub(crate) mod growth;
pub(crate) mod load;
pub(crate) mod marks;
pub(crate) mod migrate;
pub(crate) mod queue;
pub(crate) mod reader;
mod sessions;
pub(crate) mod signs;
pub(crate) mod slots;
pub(crate) mod visibility;
mod words;
pub(crate) mod writer;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rusqlite::Connection;
use tokio::sync::broadcast;

use crate::MemoryError;
use crate::clock::Clock;
use crate::embed::Embedder;
use arena::Arena;
use chain::BranchNo;
use frequency::Frequency;
pub use migrate::FORMAT_VERSION;
pub(crate) use migrate::open_reader;
use queue::{Queue, WriteSide};
use visibility::Binding;
pub(crate) use words::WordNo;
use writer::Batch;

/// Read connections that one space keeps for later readers.
const READERS_KEPT: usize = 4;

/// An open space.
#[derive(Debug)]
pub(crate) struct Space {
    /// `None` until the first write: there is no file, and the space is empty.
    pub(crate) path: Option<PathBuf>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) embedder: Arc<dyn Embedder>,
    arena: RwLock<Arc<Arena>>,
    pub(crate) queue: Queue,
    pub(crate) write_side: Mutex<WriteSide>,
    readers: Mutex<Vec<ReadSide>>,
    /// The highest sequence number of each branch.
    heads: Mutex<HashMap<BranchNo, u64>>,
    changes: broadcast::Sender<u64>,
    /// The number of rows that have a term, counted when a query first needs it.
    pub(crate) frequencies: Mutex<HashMap<String, Frequency>>,
    /// When computing vectors may be retried, and how often it failed.
    pub(crate) retry: Mutex<Retry>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Retry {
    pub(crate) failures: u32,
    pub(crate) not_before_ms: u64,
}

/// A connection that reads, and the binding of its SQL functions.
#[derive(Debug)]
pub(crate) struct ReadSide {
    pub(crate) connection: Connection,
    pub(crate) binding: Binding,
}

/// The parameters for opening a space.
#[derive(Clone, Debug)]
pub(crate) struct SpaceOptions {
    pub(crate) path: PathBuf,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) embedder: Arc<dyn Embedder>,
    pub(crate) changes: broadcast::Sender<u64>,
}

impl Space {
    /// Blocking. Without `create`, a space without a file is vacant, and no file is created.
    pub(crate) fn open(opening: SpaceOptions, create: bool) -> Result<Self, MemoryError> {
        let SpaceOptions { path, clock, embedder, changes } = opening;
        let there = create || path.exists();
        let named = |error| at_path(error, &path);
        let connection = if there { migrate::open(&path) } else { migrate::open_vacant() }.map_err(named)?;
        let loaded = load::load(&connection, embedder.model()).map_err(named)?;
        let binding = Binding::install(&connection)?;
        let write_side = WriteSide { connection, binding, counters: loaded.counters, model: loaded.model };
        Ok(Self {
            path: there.then_some(path),
            clock,
            embedder,
            arena: RwLock::new(Arc::new(loaded.arena)),
            queue: Queue::new(),
            write_side: Mutex::new(write_side),
            readers: Mutex::default(),
            heads: Mutex::new(loaded.heads),
            changes,
            frequencies: Mutex::default(),
            retry: Mutex::default(),
        })
    }

    pub(crate) fn arena(&self) -> Arc<Arena> {
        Arc::clone(&self.arena.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The highest sequence number of a branch in the log.
    pub(crate) fn head(&self, branch: BranchNo) -> u64 {
        self.heads.lock().unwrap_or_else(PoisonError::into_inner).get(&branch).copied().unwrap_or(0)
    }

    /// Publishes a commit to readers. Cannot fail, because the commit is durable.
    fn publish(&self, before: &Arena, batch: &Batch) {
        let mut arena = before.clone();
        batch.effects.apply(&mut arena);
        (arena.head, arena.head_ms) = (batch.counters.seq, batch.counters.ms);
        {
            let mut heads = self.heads.lock().unwrap_or_else(PoisonError::into_inner);
            heads.extend(batch.effects.heads.iter().copied());
        }
        *self.arena.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(arena);
        if batch.counters.seq != before.head {
            // There may be no watcher.
            let _ = self.changes.send(batch.counters.seq);
        }
    }

    /// Lends a read connection. A vacant space has no file to connect to; its empty database is created once.
    pub(crate) fn with_reader<T>(
        &self,
        work: impl FnOnce(&ReadSide) -> Result<T, MemoryError>,
    ) -> Result<T, MemoryError> {
        let kept = self.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let side = match kept {
            Some(side) => side,
            None => {
                let connection = match &self.path {
                    Some(path) => migrate::open_reader(path).map_err(|error| at_path(error, path))?,
                    None => migrate::open_vacant()?,
                };
                let binding = Binding::install(&connection)?;
                ReadSide { connection, binding }
            }
        };
        let result = work(&side);
        side.binding.set(None);
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        // A connection that is still in a transaction sees the past, so it is not reused.
        let most = if self.path.is_some() { READERS_KEPT } else { 1 };
        if readers.len() < most && side.connection.is_autocommit() {
            readers.push(side);
        }
        result
    }

    /// Blocking: runs `work` between two commits, outside of any transaction.
    pub(crate) fn alone<T>(
        &self,
        work: impl FnOnce(&mut WriteSide) -> Result<T, MemoryError>,
    ) -> Result<T, MemoryError> {
        let mut side = self.write_side.lock().unwrap_or_else(PoisonError::into_inner);
        queue::contained(|| work(&mut side))
    }

    /// Blocking: reads the columns again, after changes by [`Space::alone`].
    pub(crate) fn reload(&self, side: &mut WriteSide) -> Result<(), MemoryError> {
        let loaded = load::load(&side.connection, self.embedder.model())?;
        (side.counters, side.model) = (loaded.counters, loaded.model);
        *self.heads.lock().unwrap_or_else(PoisonError::into_inner) = loaded.heads;
        *self.arena.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(loaded.arena);
        Ok(())
    }

    /// Blocking: writes the journal into the file and truncates it.
    pub(crate) fn truncate_journal(&self) -> Result<bool, MemoryError> {
        if self.path.is_none() {
            return Ok(true);
        }
        self.readers.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.alone(|side| {
            let busy: i64 =
                side.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| row.get(0))?;
            Ok(busy == 0)
        })
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        // The last connection to close writes the journal into the file, which a read-only one cannot.
        self.readers.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Adds the path to an error that has none.
fn at_path(error: MemoryError, path: &Path) -> MemoryError {
    if let MemoryError::Storage { source } = &error
        && is_damage(source)
    {
        return MemoryError::Damaged { file: path.to_owned(), why: source.to_string() };
    }
    if let MemoryError::Damaged { file, why } = &error
        && file.as_os_str().is_empty()
    {
        return MemoryError::Damaged { file: path.to_owned(), why: why.clone() };
    }
    error
}

fn is_damage(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
    matches!(error.sqlite_error_code(), Some(NotADatabase | DatabaseCorrupt))
}
