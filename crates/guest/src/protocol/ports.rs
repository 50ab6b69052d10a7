//! Messages about the TCP ports of a sandbox: what listens, and a way to it.

use serde::{Deserialize, Serialize};

/// A port that some process of the sandbox listens on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListeningPort {
    pub port: u16,
    /// Where it listens, e.g. `0.0.0.0`, `127.0.0.1`, `::`.
    pub addresses: Vec<String>,
    /// Whose socket it is; a number where the user has no name.
    pub user: String,
    /// Unknown when the process hides its descriptors, or has ended and left the socket to a child.
    pub process: Option<PortProcess>,
}

/// The process behind a port; of several that share the socket, the oldest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortProcess {
    /// Inside the sandbox.
    pub pid: u32,
    pub name: String,
    /// The command line, cut to a sane length.
    pub command: String,
}
