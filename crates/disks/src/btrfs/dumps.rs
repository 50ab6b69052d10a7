//! Dumps in the pool.
//!
//! While the runtime writes the files of a dump, a thread per dump already writes them to disk, so that sealing has less to
//! wait for. This thread guarantees nothing: sealing writes whatever is not on disk by then. If the pages of a sealed dump
//! are not to stay in the page cache, another such thread drops them, so that the caller of the sealing need not wait.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use burrow_model::DumpId;

use super::Inner;
use crate::dump::RecentlyVerified;
use crate::{DiskError, Dump, dump};

/// How often a growing dump is checked: at 1 GB/s it grows by [`STEP_BYTES`] in that time.
const PACE: Duration = Duration::from_millis(4);

/// A file is written out in steps of at least this: small ones cost the disk more than they gain.
const STEP_BYTES: u64 = 4 << 20;

/// How long a dump is watched, at that pace: five minutes.
const ROUNDS_MAX: u32 = 75_000;

/// How many dumps are watched at once. Others are written out when they are sealed.
const WATCHED_MAX: usize = 64;

/// How many dumps are evicted at once; it takes milliseconds. Pages of other dumps stay until the kernel needs their room.
const EVICTING_MAX: usize = 64;

/// The state of dumps that is not on disk.
#[derive(Debug, Default)]
pub(super) struct Dumps {
    /// Those verified lately.
    recent: RecentlyVerified,
    /// Those being written. Dropping the sender ends the thread.
    watched: Mutex<WatchedDumps>,
    /// Threads that drop pages of sealed dumps.
    evicting: Mutex<Vec<JoinHandle<()>>>,
}

type WatchedDumps = HashMap<DumpId, (SyncSender<()>, JoinHandle<()>)>;

impl Inner {
    pub(super) fn stage_dump(&self, id: &DumpId) -> Result<PathBuf, DiskError> {
        self.check_room()?;
        self.dumping.unwatch(id);
        let path = dump::stage(&self.dumps.path, id).map_err(|error| self.full_or(error))?;
        self.dumping.watch(id, &path);
        Ok(path)
    }

    pub(super) fn seal_dump(&self, id: &DumpId, about: &str) -> Result<u64, DiskError> {
        self.dumping.unwatch(id);
        dump::seal(&self.dumps.path, id, about, &self.pool, &self.dumping.recent)
            .map_err(|error| self.full_or(error))
    }

    pub(super) fn open_dump(&self, id: &DumpId) -> Result<Dump, DiskError> {
        dump::open(&self.dumps.path, id, &self.dumping.recent)
    }

    pub(super) fn remove_dump(&self, id: &DumpId) -> Result<(), DiskError> {
        self.dumping.unwatch(id);
        self.dumping.recent.forget(id);
        dump::remove(&self.dumps.path, id)
    }
}

impl Dumps {
    fn watch(&self, id: &DumpId, path: &Path) {
        let mut watched = self.watched();
        if watched.len() >= WATCHED_MAX {
            return;
        }
        let (sender, receiver) = mpsc::sync_channel(0);
        let path = path.to_owned();
        let thread = std::thread::Builder::new().name("dump-writer".to_owned()).spawn(move || {
            let mut begun = HashMap::new();
            for _ in 0..ROUNDS_MAX {
                if receiver.recv_timeout(PACE) != Err(RecvTimeoutError::Timeout)
                    || write_out(&path, &mut begun).is_err()
                {
                    return;
                }
            }
        });
        match thread {
            Ok(thread) => drop(watched.insert(id.clone(), (sender, thread))),
            Err(error) => {
                tracing::debug!(dump = %id, %error, "could not start to write a dump to disk early")
            }
        }
    }

    fn unwatch(&self, id: &DumpId) {
        let watched = self.watched().remove(id);
        if let Some((sender, thread)) = watched {
            drop(sender);
            if thread.join().is_err() {
                tracing::error!(dump = %id, "the thread that writes out a dump ended by a panic");
            }
        }
    }

    /// Starts to drop the page cache of a sealed dump. Best effort; no caller waits for it.
    pub(super) fn evict(&self, folder: &Path, id: &DumpId) {
        let (folder, dump) = (folder.to_owned(), id.clone());
        let mut evicting = self.evicting.lock().unwrap_or_else(PoisonError::into_inner);
        evicting.retain(|thread| !thread.is_finished());
        if evicting.len() >= EVICTING_MAX {
            return;
        }
        let thread = std::thread::Builder::new().name("dump-evictor".to_owned()).spawn(move || {
            if let Err(error) = dump::evict(&folder, &dump) {
                tracing::debug!(%dump, error = &error as &dyn std::error::Error, "could not drop a dump from the page cache");
            }
        });
        match thread {
            Ok(thread) => evicting.push(thread),
            Err(error) => tracing::debug!(dump = %id, %error, "could not drop a dump from the page cache"),
        }
    }

    /// Waits for the threads that were started: no file of the pool is open afterwards.
    pub(super) fn finish(&self) {
        let evicting = std::mem::take(&mut *self.evicting.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in evicting {
            if thread.join().is_err() {
                tracing::error!("a thread that evicts a dump panicked");
            }
        }
    }

    #[cfg(test)]
    pub(super) fn watching(&self) -> usize {
        self.watched().len()
    }

    fn watched(&self) -> MutexGuard<'_, WatchedDumps> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts to write to disk what the large files of a directory have grown by.
fn write_out(path: &Path, begun: &mut HashMap<OsString, u64>) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let found = entry.metadata()?;
        let first = begun.get(&entry.file_name()).copied().unwrap_or(0);
        if !found.is_file() || found.len() < first.saturating_add(STEP_BYTES) {
            continue;
        }
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(entry.path())?;
        super::ioctl::start_writing(&file, first, found.len() - first)?;
        begun.insert(entry.file_name(), found.len());
    }
    Ok(())
}
