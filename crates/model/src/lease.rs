//! What a client of the E2B kind says about a sandbox, and expects to find again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// For how long a sandbox is let run at a stretch, what becomes of it then, and what its client wants remembered.
///
/// When its present time is up, its [`Lifetime`](crate::Lifetime) says. While it is paused there is no such moment; it begins
/// anew, `timeout_ms` long, when the sandbox runs again without one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    pub timeout_ms: u64,
    pub then: AtTimeout,
    /// Whoever knows its id may open its ports.
    pub public: bool,
    /// The client's own words: free text, unlike labels.
    pub metadata: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AtTimeout {
    /// Gone, with all it held.
    Delete,
    /// Processes to disk; where that cannot be done, stopped.
    Hibernate,
    /// Processes ended, files kept.
    Stop,
}
