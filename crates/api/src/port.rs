//! Ports on the wire: what listens in a sandbox, who may open it, and links to it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::defaults;

/// A TCP port that something listens on, or that was published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Port {
    pub port: u16,
    /// Whether anybody may open it, without a key.
    pub published: bool,
    /// Where it listens inside; empty while nothing does, or while the sandbox does not run.
    pub addresses: Vec<String>,
    /// Whose socket it is, inside.
    pub user: Option<String>,
    /// The process behind it, inside; absent where it cannot be told.
    pub pid: Option<u32>,
    /// Its name.
    pub process: Option<String>,
    /// Its command line, cut to a sane length.
    pub command: Option<String>,
    /// Where HTTP reaches it: with a key, or, if it is published, without one.
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

/// A link to a port. Whoever has it may open the port: it is as good as a key for that one port.
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

/// Text messages of `GET …/ports/{port}/connect`, both ways. Bytes travel as binary messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum PortMessage {
    /// No more bytes from this side; the other side may go on.
    End,
    /// The connection broke, and this is why. From the daemon only, last.
    Error { error: crate::ErrorDetail },
}
