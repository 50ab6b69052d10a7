//! Limits the growth of a space. Checked in the transaction of every write, so no code path can omit it.
//!
//! ```text
//!   adds     file + artifacts + uploads in flight ≤ quota of the sandbox       file ≤ limit of a space
//!   frees    file ≤ twice the quota: a full space can still be cleared, but not filled with what records deletions
//!   erases   always: it removes rows for good, and only keys may do it
//! ```
//!
//! The file is measured after the work was done and before it is committed; a write that made it too large is rolled back.
//! Its free pages do not count: what was erased makes room again. A transaction of writes that add reserves disk space while
//! it runs. Work that frees needs none: it must succeed on a full disk, as long as SQLite finds the few pages it needs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use burrow_model::SpaceId;
use rusqlite::Connection;

use crate::MemoryError;
use crate::artifacts::{DiskFloor, DiskLease, NoDiskSpace, SpaceUsage, UploadBudget, used};
use crate::space::load::unsigned;
use crate::space::migrate::BUSY_TIMEOUT;

/// Disk space that a transaction reserves: more than an ordinary one writes, and what a batch of an import may contain.
const COMMIT_BYTES: u64 = 4 << 20;

/// Readers that still use the journal after a failed transaction are awaited this long: other writers wait, too.
const JOURNAL_TIMEOUT: Duration = Duration::from_millis(100);

/// What a write does to the size of its space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    Adds,
    /// Forgets or deletes. It adds a row for each of the rows that it hides: the past is kept.
    Frees,
    /// Removes rows for good.
    Erases,
}

/// The limits of the files of all spaces.
#[derive(Debug)]
pub(crate) struct FileLimits {
    pub(crate) space_bytes_max: u64,
    /// The disk that the files are on.
    pub(crate) disk: Option<DiskFloor>,
    /// The uploads of artifacts, which count against the same quota.
    pub(crate) room: Arc<UploadBudget>,
}

/// What one write may do.
#[derive(Clone, Debug)]
pub(crate) struct Allowance {
    pub(crate) growth: Growth,
    pub(crate) quota_bytes: Option<u64>,
    pub(crate) space: SpaceId,
    pub(crate) limits: Arc<FileLimits>,
}

/// What a transaction knows of the size of its space, before its first write.
#[derive(Debug)]
pub(crate) struct Measure {
    /// Artifacts, and uploads in flight; measured only for writes that add and have a quota.
    artifacts: u64,
    /// The file and its journal, when the transaction began.
    file: u64,
    pages: u64,
    page_bytes: u64,
    disk: Result<Option<DiskLease>, NoDiskSpace>,
}

impl Measure {
    /// Measures for the writes of one transaction.
    pub(crate) fn new<'a>(
        connection: &Connection,
        file: Option<&PathBuf>,
        writes: impl Iterator<Item = &'a Allowance> + Clone,
    ) -> Result<Self, MemoryError> {
        let mut adds = writes.filter(|write| write.growth == Growth::Adds);
        let artifacts = match adds.clone().find(|write| write.quota_bytes.is_some()) {
            // In flight first: an upload gives its bytes back only after its row is committed.
            Some(write) => write.limits.room.in_flight(&write.space).saturating_add(used(connection)?),
            None => 0,
        };
        let floor = adds.next().and_then(|write| write.limits.disk.as_ref());
        Ok(Self {
            artifacts,
            file: file.map_or(0, |file| size(file).saturating_add(size(&journal(file)))),
            pages: pragma(connection, "page_count")?,
            page_bytes: pragma(connection, "page_size")?,
            disk: floor.map(|floor| floor.reserve(COMMIT_BYTES)).transpose(),
        })
    }

    /// The size of the file with the pages that this transaction has added, without free ones.
    fn file_bytes(&self, connection: &Connection) -> Result<u64, MemoryError> {
        let added = pragma(connection, "page_count")?.saturating_sub(self.pages);
        let file = self.file.saturating_add(added.saturating_mul(self.page_bytes));
        Ok(file.saturating_sub(free_bytes(connection)?))
    }
}

/// The size of a space's file and its journal, without the pages of the file that are free.
pub(crate) fn file_bytes(connection: &Connection, file: &Path) -> Result<u64, MemoryError> {
    Ok(size(file).saturating_add(size(&journal(file))).saturating_sub(free_bytes(connection)?))
}

/// Empties the journal of a space after a transaction failed: what it wrote would count until the journal is used again.
pub(crate) fn empty_journal(connection: &Connection, file: &Path) {
    if size(&journal(file)) == 0 {
        return;
    }
    let emptied = (|| {
        connection.busy_timeout(JOURNAL_TIMEOUT)?;
        let busy: rusqlite::Result<bool> =
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| row.get(0));
        connection.busy_timeout(BUSY_TIMEOUT)?;
        busy
    })();
    // A reader may need it, or the disk is full. Later refusals try again.
    match emptied {
        Ok(false) => {}
        Ok(true) => tracing::debug!(?file, "the journal of a space is in use and was not emptied"),
        Err(error) => tracing::debug!(?file, %error, "could not empty the journal of a space"),
    }
}

fn journal(file: &Path) -> PathBuf {
    file.with_extension("db-wal")
}

fn size(file: &Path) -> u64 {
    std::fs::metadata(file).map_or(0, |found| found.len())
}

fn free_bytes(connection: &Connection) -> Result<u64, MemoryError> {
    Ok(pragma(connection, "freelist_count")?.saturating_mul(pragma(connection, "page_size")?))
}

fn pragma(connection: &Connection, name: &str) -> Result<u64, MemoryError> {
    Ok(connection.pragma_query_value(None, name, |row| unsigned(row, 0))?)
}

impl Allowance {
    /// Whether the disk has space for it. Asked before the work.
    pub(crate) fn check_disk(&self, measure: &Measure) -> Result<(), MemoryError> {
        match self.growth {
            Growth::Adds => measure.disk.as_ref().map(|_| ()).map_err(|missing| (*missing).into()),
            Growth::Frees | Growth::Erases => Ok(()),
        }
    }

    /// Whether the space may be as large as the work has made it. Asked before the commit.
    pub(crate) fn check_size(&self, measure: &Measure, connection: &Connection) -> Result<(), MemoryError> {
        let (times, artifacts) = match self.growth {
            Growth::Adds => (1, measure.artifacts),
            // Artifacts go when they are deleted, however many there are.
            Growth::Frees => (2, 0),
            Growth::Erases => return Ok(()),
        };
        let space_max = self.limits.space_bytes_max;
        let file = measure.file_bytes(connection)?;
        if file > space_max.saturating_mul(times) {
            return Err(MemoryError::Full { what: "bytes to the space", max: space_max });
        }
        let sandbox_max = self.quota_bytes.map(|max| max.saturating_mul(times));
        SpaceUsage { artifacts, file, sandbox_max }.check_sandbox(0)
    }
}
