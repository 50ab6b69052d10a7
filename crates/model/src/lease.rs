//! What an E2B client specifies about a sandbox and expects to read back.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The shortest lease of a sandbox that was woken by use, as in E2B: with a shorter one, a sandbox that is used now and then
/// would be paused and woken all the time.
pub const AUTO_RESUME_MS_MIN: u64 = 300_000;

/// How long a sandbox may run at a time, what happens to it then, and the metadata of its client.
///
/// Its [`Lifetime`](crate::Lifetime) says when the current lease ends. For a paused sandbox, it has no such time. When use
/// wakes the sandbox, a new lease begins: `timeout_ms` long, but at least [`AUTO_RESUME_MS_MIN`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    pub timeout_ms: u64,
    pub then: AtTimeout,
    /// Every client that knows its id may open its ports.
    pub public: bool,
    /// Set by the client: free text, unlike labels.
    pub metadata: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AtTimeout {
    /// Deleted, with all its files.
    Delete,
    /// Processes are dumped to disk; if that is impossible, the sandbox is stopped.
    Hibernate,
    /// Processes are ended, files are kept.
    Stop,
}
