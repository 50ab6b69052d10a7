//! The memory of agents: entries, keys and values, skills, artifacts, and spaces.
//!
//! ```no_run
//! # async fn example(client: burrow_client::Client) -> Result<(), burrow_client::ClientError> {
//! use burrow_client::MemorySelection;
//! use burrow_client::api::memory::{NewEntry, SearchMemory};
//!
//! let memory = client.memory(MemorySelection::now("web"));
//! memory.add(vec![NewEntry::note("the deploy key is on db-2".to_owned())]).await?;
//! let found = memory.search(&SearchMemory { query: "deploy key".to_owned(), ..Default::default() }).await?;
//! # Ok(()) }
//! ```

mod artifacts;
mod entries;
mod kv;
mod maintenance;
mod skills;
mod spaces;
mod transfer;
mod turns;

pub use artifacts::{ArtifactDownload, NewArtifact};
pub use kv::KvWatch;

use crate::Client;
use crate::url::Path;

/// Selects a memory, and the time for reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemorySelection {
    /// A sandbox or a space, by id or name; `sandbox:NAME` and `space:NAME` are unambiguous.
    pub of: String,
    /// For reads: a log number, a time, or a snapshot. The current state if absent.
    pub as_of: Option<String>,
    /// An attached space to use instead of the sandbox's own.
    pub space: Option<String>,
}

impl MemorySelection {
    /// The current state, in the sandbox's own space.
    pub fn now(of: &str) -> Self {
        Self { of: of.to_owned(), as_of: None, space: None }
    }
}

/// The memory of one sandbox, or of a space.
#[derive(Clone, Debug)]
pub struct Memory {
    client: Client,
    selection: MemorySelection,
}

impl Client {
    pub fn memory(&self, selection: MemorySelection) -> Memory {
        Memory { client: self.clone(), selection }
    }
}

impl Memory {
    /// A route of this memory, without parameters.
    fn route(&self, fixed: &str) -> Path {
        Path::new("/v1/memory").part(&self.selection.of).fixed(fixed)
    }

    /// For reads from one space, at the selected time.
    fn read_path(&self, path: Path) -> Path {
        path.query_if("as_of", self.selection.as_of.as_ref()).query_if("space", self.selection.space.as_ref())
    }

    /// For reads from all spaces, at the selected time.
    fn read_all_spaces(&self, path: Path) -> Path {
        path.query_if("as_of", self.selection.as_of.as_ref())
    }

    /// For writes to the selected space. The past cannot be changed, so `as_of` is not sent.
    fn write_path(&self, path: Path) -> Path {
        path.query_if("space", self.selection.space.as_ref())
    }
}
