//! An image: what a sandbox starts from.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{ImageId, Name};

/// An image that exists on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    pub id: ImageId,
    pub name: Name,
    pub config: ImageConfig,
    pub size_bytes: u64,
    /// Milliseconds since the Unix epoch.
    pub created_ms: u64,
}

/// What an image says about the processes run in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageConfig {
    pub env: BTreeMap<String, String>,
    /// Who an exec runs as when it does not say: a name or id known inside.
    pub user: Option<String>,
    pub workdir: Option<String>,
}
