//! What agents remember: entries, keys and values, skills, artifacts, and the spaces that hold them.
//!
//! ```no_run
//! # async fn example(client: burrow_client::Client) -> Result<(), burrow_client::ClientError> {
//! use burrow_client::MemoryOf;
//! use burrow_client::api::memory::{NewEntry, SearchMemory};
//!
//! let memory = client.memory(MemoryOf::now("web"));
//! memory.add(vec![NewEntry::note("the deploy key is on db-2".to_owned())]).await?;
//! let found = memory.search(&SearchMemory { query: "deploy key".to_owned(), ..Default::default() }).await?;
//! # Ok(()) }
//! ```

mod artifacts;
mod entries;
mod kv;
mod lines;
mod skills;
mod spaces;
mod turns;
mod upkeep;

pub use artifacts::{ArtifactDownload, NewArtifact};
pub use kv::KvWatch;

use crate::Client;
use crate::url::Path;

/// Whose memory, and of when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryOf {
    /// A sandbox or a space, by id or name; `sandbox:NAME` and `space:NAME` say which.
    pub of: String,
    /// For reads: a number of the log, a time, or a snapshot. Now when absent.
    pub as_of: Option<String>,
    /// An attached space to use instead of the one the sandbox remembers in.
    pub space: Option<String>,
}

impl MemoryOf {
    /// As it is now, in the space it remembers in.
    pub fn now(of: &str) -> Self {
        Self { of: of.to_owned(), as_of: None, space: None }
    }
}

/// The memory of one sandbox, or of a space.
#[derive(Clone, Debug)]
pub struct Memory {
    client: Client,
    whose: MemoryOf,
}

impl Client {
    pub fn memory(&self, whose: MemoryOf) -> Memory {
        Memory { client: self.clone(), whose }
    }
}

impl Memory {
    /// A route below it, without parameters.
    fn route(&self, fixed: &str) -> Path {
        Path::new("/v1/memory").part(&self.whose.of).fixed(fixed)
    }

    /// As of the moment asked for.
    fn reading(&self, path: Path) -> Path {
        path.query_if("as_of", self.whose.as_of.as_ref()).query_if("space", self.whose.space.as_ref())
    }

    /// In all spaces at once, as of the moment asked for.
    fn looking(&self, path: Path) -> Path {
        path.query_if("as_of", self.whose.as_of.as_ref())
    }

    /// Into the space asked for. A moment of the past cannot be written to, so it is not sent.
    fn writing(&self, path: Path) -> Path {
        path.query_if("space", self.whose.space.as_ref())
    }
}
