//! A file that reserves disk space: it is released when the disk is full, so that deletes can still be written.
//!
//! ```text
//!  held ──disk full, upkeep to write──► spent ──room again──► held
//! ```
//!
//! While the reserve is spent, only upkeep is written (see `writer`): otherwise the next create would use up the freed space.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;

use crate::CatalogError;

/// Twice the size at which SQLite moves its write-ahead log into the database.
pub(crate) const RESERVE_BYTES: u64 = 8 << 20;

/// Space that must be free in addition to the reserve before it is taken back, so that it is not spent again at once.
const MARGIN_BYTES: u64 = 8 << 20;

/// What a test for free space writes: as much as a small commit.
const PROBE_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub(crate) struct Reserve {
    path: PathBuf,
    held: bool,
}

impl Reserve {
    /// Creates the reserve beside the database, or finds it there. A disk too full for it does not prevent a start.
    pub(crate) fn beside(database: &Path) -> Self {
        let mut reserve = Self { path: database.with_extension("reserve"), held: false };
        reserve.held = fs::metadata(&reserve.path).is_ok_and(|found| found.len() == RESERVE_BYTES);
        if !reserve.held && !reserve.take_back() {
            tracing::warn!(path = %reserve.path.display(), "no space for the catalog's reserve: only deletes will be written");
        }
        reserve
    }

    pub(crate) fn is_held(&self) -> bool {
        self.held
    }

    /// Releases the space. Returns false if there was none to release.
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

    /// Creates the reserve again if there is room. Returns true if it exists now.
    pub(crate) fn take_back(&mut self) -> bool {
        if self.held {
            return true;
        }
        // `statvfs` first: it takes microseconds, and this check runs before each batch while the disk is full.
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        let room = statvfs(directory).map(|found| found.f_bavail.saturating_mul(found.f_frsize));
        if room.is_ok_and(|room| room < RESERVE_BYTES + MARGIN_BYTES) {
            return false;
        }
        match self.allocate() {
            Ok(()) => {
                self.held = true;
                tracing::info!("the catalog's reserve was created");
            }
            Err(error) => {
                tracing::debug!(%error, "could not create the catalog's reserve");
                // The next start would treat a part of it as missing; the space is more useful free.
                let _ = fs::remove_file(&self.path);
            }
        }
        self.held
    }

    /// Distinguishes a full disk from a broken one: SQLite reports an exceeded quota, and a lack of room for the index of
    /// its log, as an ordinary failed operation.
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
            // If the file system cannot allocate space, the space is written instead.
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
