//! A reserve on the disk: space that is given up when the disk is full, so that deletes can still be written.
//!
//! ```text
//!  held ──disk full, upkeep to write──► spent ──room again──► held
//! ```
//!
//! While it is spent, only upkeep is written (see `writer`): else the next create would eat what was freed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;

use crate::CatalogError;

/// Twice the size SQLite lets its write-ahead log grow to before it moves it into the database.
pub(crate) const RESERVE_BYTES: u64 = 8 << 20;

/// Room that must be there beside the reserve before it is taken back, so that it is not spent again at once.
const MARGIN_BYTES: u64 = 8 << 20;

/// What a test for room writes: as much as a small commit.
const PROBE_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub(crate) struct Reserve {
    path: PathBuf,
    held: bool,
}

impl Reserve {
    /// Makes the reserve beside the database, or finds it there. A disk too full for it is no reason not to start.
    pub(crate) fn beside(database: &Path) -> Self {
        let mut reserve = Self { path: database.with_extension("reserve"), held: false };
        reserve.held = fs::metadata(&reserve.path).is_ok_and(|found| found.len() == RESERVE_BYTES);
        if !reserve.held && !reserve.take_back() {
            tracing::warn!(path = %reserve.path.display(), "no room for the catalog's reserve: only deletes will be written");
        }
        reserve
    }

    pub(crate) fn is_held(&self) -> bool {
        self.held
    }

    /// Gives the space up. False if there was nothing to give.
    pub(crate) fn release(&mut self) -> bool {
        if !self.held {
            return false;
        }
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::error!(path = %self.path.display(), %error, "could not release the catalog's reserve");
            return false;
        }
        self.held = false;
        tracing::warn!("the disk is full: the catalog's reserve was released, and only deletes are written");
        true
    }

    /// Makes the reserve again if there is room. True if it is held now.
    pub(crate) fn take_back(&mut self) -> bool {
        if self.held {
            return true;
        }
        // `statvfs` first: it costs microseconds, and this is asked before each batch while the disk is full.
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        let room = statvfs(directory).map(|found| found.f_bavail.saturating_mul(found.f_frsize));
        if room.is_ok_and(|room| room < RESERVE_BYTES + MARGIN_BYTES) {
            return false;
        }
        match self.allocate() {
            Ok(()) => {
                self.held = true;
                tracing::info!("the catalog's reserve is held");
            }
            Err(error) => {
                tracing::debug!(%error, "the catalog's reserve could not be made");
                // A part of it would be found as none at the next start; the space serves better free.
                let _ = fs::remove_file(&self.path);
            }
        }
        self.held
    }

    /// Tells a disk that is full from one that is broken: SQLite reports a quota, and a lack of room for its index
    /// of the log, as a failed operation like any other.
    pub(crate) fn judge(&self, error: CatalogError) -> CatalogError {
        let may_be_full = matches!(error, CatalogError::Disk { .. });
        if may_be_full && !self.has_room() { CatalogError::Full } else { error }
    }

    /// Whether a little more can be written beside the database, quotas included, which `statvfs` does not know.
    fn has_room(&self) -> bool {
        let path = self.path.with_extension("probe");
        let written = create(&path).and_then(|mut file| {
            file.write_all(&[0; PROBE_BYTES])?;
            file.sync_all()
        });
        let _ = fs::remove_file(&path);
        !written.is_err_and(|error| {
            matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
        })
    }

    fn allocate(&self) -> io::Result<()> {
        let mut file = create(&self.path)?;
        match fallocate(&file, FallocateFlags::empty(), 0, RESERVE_BYTES) {
            Ok(()) => {}
            // A file system that cannot promise space has it written instead.
            Err(Errno::OPNOTSUPP) => {
                let block = vec![0; 1 << 20];
                for _ in 0..RESERVE_BYTES >> 20 {
                    file.write_all(&block)?;
                }
            }
            Err(error) => return Err(error.into()),
        }
        file.sync_all()
    }
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}
