//! What an image is: its platform, its layers, and what it says about the processes run in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{ChainId, DiffId, Digest};

/// Everything about one image but the bytes of its layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageSpec {
    /// Of the manifest; of a plain tar, of the configuration made up for it. The same image has the same digest.
    pub digest: Digest,
    pub config: RunConfig,
    pub platform: Platform,
    /// When it was made, as the image says it (RFC 3339).
    pub created: Option<String>,
    /// Lowest first; one for each of `layers`.
    pub diff_ids: Vec<DiffId>,
    /// Lowest first.
    pub layers: Vec<Layer>,
}

/// Where the bytes of a layer are, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// As the manifest has it; of `docker save`, what it comes to.
    pub media_type: String,
    /// Of the bytes as they are stored. Absent where the format has none (old `docker save`, plain tars).
    pub digest: Option<Digest>,
    /// Bytes as they are stored.
    pub size: u64,
    pub compression: Compression,
}

/// How a layer's tar is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    None,
    Gzip,
    Zstd,
}

/// What an image says about the processes run in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunConfig {
    /// In the image's order, which is the order later ones refer to earlier ones by. Names are unique.
    pub env: Vec<(String, String)>,
    /// A name or id known inside, with a group after a colon if it likes.
    pub user: Option<String>,
    pub workdir: Option<String>,
    pub entrypoint: Vec<String>,
    pub cmd: Vec<String>,
    pub labels: BTreeMap<String, String>,
    /// Like `8080/tcp`.
    pub exposed_ports: BTreeSet<String>,
    /// Like `SIGTERM`.
    pub stop_signal: Option<String>,
}

/// What an image runs on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    pub os: String,
    /// Go's names: `amd64`, `arm64`.
    pub architecture: String,
    /// Of ARM, like `v8`.
    pub variant: Option<String>,
}

impl ImageSpec {
    /// The name of the directory after each layer, lowest first. The last one names the whole image.
    pub fn chain_ids(&self) -> Vec<ChainId> {
        let mut below = None;
        let mut stack = |diff_id: &DiffId| {
            let chain = ChainId::stack(below, *diff_id);
            below = Some(chain);
            chain
        };
        self.diff_ids.iter().map(&mut stack).collect()
    }

    /// Bytes of all layers as they are stored.
    pub fn size(&self) -> u64 {
        self.layers.iter().fold(0, |sum, layer| sum.saturating_add(layer.size))
    }
}

impl Compression {
    /// By the first bytes of a stream; 4 suffice.
    pub fn detect(start: &[u8]) -> Self {
        match start {
            [0x1f, 0x8b, ..] => Self::Gzip,
            // A frame, or a frame to be skipped, which some compressors begin with.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            _ => Self::None,
        }
    }
}

impl Platform {
    /// What sandboxes on this host run.
    pub fn host() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "x86" => "386",
            "aarch64" => "arm64",
            "powerpc64" => "ppc64le",
            other => other,
        };
        Self { os: "linux".to_owned(), architecture: architecture.to_owned(), variant: None }
    }

    /// Whether what is made for `self` runs on `host`.
    pub fn runs_on(&self, host: &Self) -> bool {
        self.os == host.os
            && self.architecture == host.architecture
            && (self.variant == host.variant || self.variant.is_none() || host.variant.is_none())
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        match &self.variant {
            Some(variant) => write!(f, "/{variant}"),
            None => Ok(()),
        }
    }
}
