//! Messages about the TCP ports of a sandbox: the list of listening ones, and connections to them.

use serde::{Deserialize, Serialize};

/// A port on which a process of the sandbox listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListeningPort {
    pub port: u16,
    /// The addresses of the sockets, e.g. `0.0.0.0`, `127.0.0.1`, `::`.
    pub addresses: Vec<String>,
    /// The owner of the socket; a number if the user has no name.
    pub user: String,
    /// Unknown if the process hides its descriptors, or has ended and left the socket to a child.
    pub process: Option<PortProcess>,
}

/// The process that listens on a port; if several share the socket, the oldest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortProcess {
    /// The pid inside the sandbox.
    pub pid: u32,
    pub name: String,
    /// The command line, cut to a reasonable length.
    pub command: String,
}
