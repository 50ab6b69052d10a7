//! Snapshots that move: out of this host as one file, and into it from one.
//!
//! ```text
//!   export   pinned snapshot ─► header ─► files │ processes │ memory ─► identity noted ─► end of the file
//!   import   header judged ─► row `making` + journal ─► staged: files │ processes │ memory ─► the end proves it all
//!                                                       ─► sealed ─► row `ready`
//! ```
//!
//! What `burrow_portable` reads is verified piece by piece, but only its end proves that nothing is missing: until then
//! everything is staged, under ids that nobody else knows. A crash at any step leaves the row and the operation, by which
//! the next start removes all of it.
//!
//! An imported snapshot is somebody else's from the start: its own id, a sandbox of its own that never was, a memory
//! space of its own. What its processes were told is told anew when they are brought back (invariant 13); what its
//! sandbox might reach was never in the file (invariant 14).

mod export;
mod header;
mod import;
mod processes;
mod remembered;
mod tree;

use std::sync::Arc;

use burrow_images::layer::unpack::Ids;
use burrow_model::{Name, Snapshot};
use burrow_portable::{ExportKey, Identity, PublicKey};
use burrow_volumes::{UID_COUNT, UID_SHIFT};
use tokio::sync::Semaphore;

pub use export::Exporting;

/// What an import is bound by, and whom it trusts.
#[derive(Clone, Debug)]
pub struct MovingPolicy {
    /// Content of one file.
    pub bytes_max: u64,
    /// Entries of one file.
    pub entries_max: u64,
    /// Exports and imports at once; others wait.
    pub at_once: usize,
    /// With which exports are signed. A host that has none takes no processes, and nobody takes them from it.
    pub key: Option<Arc<ExportKey>>,
    /// Whose processes are taken, besides this host's own.
    pub trusted: Vec<PublicKey>,
}

#[derive(Clone, Debug)]
pub struct ExportOptions {
    /// Without processes.
    pub files_only: bool,
    /// Only what differs from this snapshot, which the receiver has.
    pub since: Option<Snapshot>,
}

#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// What it is called here; as it was where it came from, if that name is free.
    pub name: Option<Name>,
    /// Without processes, although the file has some.
    pub files_only: bool,
    /// Whose processes are taken this once.
    pub trust: Option<PublicKey>,
}

/// A snapshot that came in.
#[derive(Clone, Debug)]
pub struct ImportedSnapshot {
    pub snapshot: Snapshot,
    pub identity: Identity,
    /// Its id where it came from.
    pub origin: String,
    pub entries: u64,
    pub content_bytes: u64,
    /// Of the file.
    pub bytes: u64,
}

/// Exports and imports under way.
#[derive(Clone, Debug)]
pub(crate) struct MovingWork(Arc<Semaphore>);

impl MovingWork {
    pub(crate) fn new(policy: &MovingPolicy) -> Self {
        Self(Arc::new(Semaphore::new(policy.at_once.max(1))))
    }
}

/// Ids inside sandboxes, and outside.
const IDS: Ids = Ids { shift: UID_SHIFT, count: UID_COUNT };

/// Runs work that blocks, on a thread of its own.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, crate::EngineError> + Send + 'static,
) -> Result<T, crate::EngineError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        // Only a panic ends it without a result; it goes on in the caller.
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
