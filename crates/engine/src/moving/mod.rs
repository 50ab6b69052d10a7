//! Export of snapshots from this host to one file, and import from such a file.
//!
//! ```text
//!   export   pinned snapshot ─► header ─► files │ processes │ memory ─► identity stored ─► end of the file
//!   import   header checked ─► row `making` + journal ─► staged: files │ processes │ memory ─► the end verifies the whole
//!                                                        ─► sealed ─► row `ready`
//! ```
//!
//! What `burrow_portable` reads is verified chunk by chunk, but only the end of the file proves that nothing is missing. Until then
//! everything is staged, under ids that no other task knows. A crash at any step leaves the row and the operation, by which the next
//! start removes all of it.
//!
//! An imported snapshot belongs to the importing tenant: it has a new id, a new sandbox id without a sandbox, and its own memory
//! space. Its processes receive their identity and settings again when they are restored (invariant 13); the network policy of its
//! sandbox was never in the file (invariant 14).

mod export;
mod header;
mod import;
mod memory;
mod processes;
mod tree;

use std::sync::Arc;

use burrow_disks::{UID_COUNT, UID_SHIFT};
use burrow_images::layer::unpack::Ids;
use burrow_model::{Name, Snapshot};
use burrow_portable::{ExportKey, Identity, PublicKey};
use tokio::sync::Semaphore;

pub use export::ExportStream;

/// The limits of imports, and the trusted keys.
#[derive(Clone, Debug)]
pub struct MovingPolicy {
    /// Bytes of content in one file.
    pub bytes_max: u64,
    /// Entries of one file.
    pub entries_max: u64,
    /// Exports and imports at once; others wait.
    pub at_once: usize,
    /// The key that signs exports. A host without one imports no processes, and no other host accepts its processes.
    pub key: Option<Arc<ExportKey>>,
    /// The keys whose processes are accepted, besides this host's own.
    pub trusted: Vec<PublicKey>,
}

#[derive(Clone, Debug)]
pub struct ExportOptions {
    /// Without processes.
    pub files_only: bool,
    /// Only the differences from this snapshot, which the receiver has.
    pub since: Option<Snapshot>,
}

#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// The name here; `None`: the name in the file, if it is free.
    pub name: Option<Name>,
    /// Without processes, even if the file contains them.
    pub files_only: bool,
    /// An additional trusted key, for this import only.
    pub trust: Option<PublicKey>,
}

/// An imported snapshot.
#[derive(Clone, Debug)]
pub struct ImportedSnapshot {
    pub snapshot: Snapshot,
    pub identity: Identity,
    /// Its id on the exporting host.
    pub origin: String,
    pub entries: u64,
    pub content_bytes: u64,
    /// Size of the file.
    pub bytes: u64,
}

/// The number of exports and imports in progress.
#[derive(Clone, Debug)]
pub(crate) struct MovingWork(Arc<Semaphore>);

impl MovingWork {
    pub(crate) fn new(policy: &MovingPolicy) -> Self {
        Self(Arc::new(Semaphore::new(policy.at_once.max(1))))
    }
}

/// Ids inside sandboxes, and on the host.
const IDS: Ids = Ids { shift: UID_SHIFT, count: UID_COUNT };

/// Runs blocking work on its own thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, crate::EngineError> + Send + 'static,
) -> Result<T, crate::EngineError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        // The task only ends without a result by a panic, which continues in the caller.
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
