//! Ports on the wire: ports that processes listen on, who may connect to them, and links to them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::defaults;

/// A TCP port that a process listens on, or that was published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Port {
    pub port: u16,
    /// Whether it can be opened without a key.
    pub published: bool,
    /// The addresses inside on which a process listens; empty if there is no such process, or while the sandbox is not
    /// running.
    pub addresses: Vec<String>,
    /// The user inside that owns the socket.
    pub user: Option<String>,
    /// The process id inside; absent if it is unknown.
    pub pid: Option<u32>,
    /// The name of the process.
    pub process: Option<String>,
    /// The command line of the process, truncated.
    pub command: Option<String>,
    /// The URL for HTTP: with a key, or without one if it is published.
    pub url: String,
}

/// `POST /v1/sandboxes/{sandbox}/ports/{port}/url`: a link that a browser can open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreatePortUrl {
    /// How long the link opens the port.
    #[serde(default = "expires_seconds")]
    #[schema(minimum = 1, maximum = 2_592_000, default = 3600)]
    pub expires_seconds: u32,
}

fn expires_seconds() -> u32 {
    defaults::PORT_URL_SECONDS
}

impl Default for CreatePortUrl {
    fn default() -> Self {
        Self { expires_seconds: defaults::PORT_URL_SECONDS }
    }
}

/// A link to a port. It grants access to that one port, without a key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PortUrl {
    pub url: String,
    pub expires_ms: u64,
}

impl std::fmt::Debug for PortUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PortUrl").field("url", &"***").field("expires_ms", &self.expires_ms).finish()
    }
}

/// Text messages of `GET …/ports/{port}/connect`, in both directions. Bytes are sent as binary messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum PortMessage {
    /// This side sends no more bytes; the other side may continue.
    End,
    /// Why the connection failed. Sent by the daemon only, as the last message.
    Error { error: crate::ErrorDetail },
}
