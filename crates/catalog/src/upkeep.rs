//! Maintenance of the database: backup, integrity check, checkpoints.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};

use crate::opening::private;
use crate::{Catalog, CatalogError};

/// How many findings of a check are reported: a damaged database has more than a person would read.
const FINDINGS_MAX: usize = 20;

/// The size of the catalog on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    pub database_bytes: u64,
    /// Committed data that is not yet moved into the database.
    pub log_bytes: u64,
    pub reserve_bytes: u64,
}

impl Catalog {
    /// Writes a copy that opens as a catalog, during normal operation. An older backup at `path` is replaced once the new one
    /// is complete and synced. Only its owner can read it, because it contains guest tokens.
    pub async fn backup_to(&self, path: &Path) -> Result<(), CatalogError> {
        let path = path.to_owned();
        self.read(move |connection| {
            let mut name = path.clone().into_os_string();
            name.push(".partial");
            let partial = PathBuf::from(name);
            let result = copy(connection, &partial, &path);
            if result.is_err() {
                // A partial file could be mistaken for a backup.
                let _ = fs::remove_file(&partial);
            }
            result
        })
        .await
    }

    /// Reads everything and checks its consistency.
    pub async fn integrity_check(&self) -> Result<(), CatalogError> {
        self.read(|connection| {
            let mut findings = Vec::new();
            let mut statement = connection.prepare(&format!("PRAGMA integrity_check({FINDINGS_MAX})"))?;
            for finding in statement.query_map((), |row| row.get::<_, String>(0))? {
                findings.push(finding?);
            }
            findings.retain(|finding| finding != "ok");
            let mut statement = connection.prepare("PRAGMA foreign_key_check")?;
            let orphans = statement.query_map((), |row| row.get::<_, String>(0))?;
            for table in orphans.take(FINDINGS_MAX) {
                findings.push(format!("a row of `{}` refers to nothing", table?));
            }
            if findings.is_empty() { Ok(()) } else { Err(CatalogError::Corrupt { findings }) }
        })
        .await
    }

    /// Moves the write-ahead log into the database and empties it. Returns false if a long read prevented that.
    pub async fn checkpoint(&self) -> Result<bool, CatalogError> {
        let checkpoint = |connection: &mut Connection| {
            let busy: i64 = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| row.get(0))?;
            Ok(busy == 0)
        };
        self.inner.writer.alone(checkpoint).await
    }

    /// The size on disk; zero for a catalog in RAM.
    pub fn size(&self) -> Size {
        let Some(path) = &self.inner.path else { return Size::default() };
        let mut log = path.clone().into_os_string();
        log.push("-wal");
        let bytes = |path: &Path| fs::metadata(path).map_or(0, |found| found.len());
        Size {
            database_bytes: bytes(path),
            log_bytes: bytes(Path::new(&log)),
            reserve_bytes: bytes(&path.with_extension("reserve")),
        }
    }
}

fn copy(connection: &Connection, partial: &Path, path: &Path) -> Result<(), CatalogError> {
    let cannot = |source: io::Error| CatalogError::Backup { path: path.to_owned(), source };
    // Data of an interrupted backup must not be mixed in.
    match fs::remove_file(partial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(cannot(error)),
        Err(_) | Ok(()) => {}
    }
    let file = private(partial).map_err(cannot)?;
    let mut target = Connection::open(partial)?;
    // All in one step: it reads the state at one moment, and writers do not wait for readers.
    if Backup::new(connection, &mut target)?.step(-1)? != StepResult::Done {
        return Err(cannot(io::Error::from(io::ErrorKind::ResourceBusy)));
    }
    // One file, instead of a database and its log.
    target.pragma_update(None, "journal_mode", "DELETE")?;
    target.close().map_err(|(_, source)| CatalogError::from(source))?;
    file.sync_all().map_err(cannot)?;
    fs::rename(partial, path).map_err(cannot)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(cannot)
}
