//! The description of an image: its platform, its layers, and its configuration for processes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{ChainId, DiffId, Digest};

/// The complete description of an image, without the bytes of its layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageSpec {
    /// The digest of the manifest; for a plain tar, of its generated configuration. The same image has the same
    /// digest.
    pub digest: Digest,
    pub config: RunConfig,
    pub platform: Platform,
    /// The time of creation, as stated in the image (RFC 3339).
    pub created: Option<String>,
    /// Lowest first; one for each of `layers`.
    pub diff_ids: Vec<DiffId>,
    /// Lowest first.
    pub layers: Vec<Layer>,
}

/// The location and format of a layer's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// As in the manifest; for `docker save`, the equivalent.
    pub media_type: String,
    /// Of the stored bytes. Absent if the format contains none (old `docker save`, plain tars).
    pub digest: Option<Digest>,
    /// The number of stored bytes.
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

/// An image's configuration for processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunConfig {
    /// In the image's order, since later variables may refer to earlier ones. Names are unique.
    pub env: Vec<(String, String)>,
    /// A name or id inside, optionally with a group after a colon.
    pub user: Option<String>,
    pub workdir: Option<String>,
    pub entrypoint: Vec<String>,
    pub cmd: Vec<String>,
    pub labels: BTreeMap<String, String>,
    /// Entries like `8080/tcp`.
    pub exposed_ports: BTreeSet<String>,
    /// A name like `SIGTERM`.
    pub stop_signal: Option<String>,
}

/// The platform that an image requires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    pub os: String,
    /// Go's names: `amd64`, `arm64`.
    pub architecture: String,
    /// The variant of ARM, like `v8`.
    pub variant: Option<String>,
}

impl ImageSpec {
    /// The chain id after each layer, lowest first. The last one identifies the whole image.
    pub fn chain_ids(&self) -> Vec<ChainId> {
        let mut below = None;
        let mut stack = |diff_id: &DiffId| {
            let chain = ChainId::stack(below, *diff_id);
            below = Some(chain);
            chain
        };
        self.diff_ids.iter().map(&mut stack).collect()
    }

    /// The stored bytes of all layers.
    pub fn size(&self) -> u64 {
        self.layers.iter().fold(0, |sum, layer| sum.saturating_add(layer.size))
    }
}

impl Compression {
    /// Detects the compression from the first bytes of a stream; 4 suffice.
    pub fn detect(start: &[u8]) -> Self {
        match start {
            [0x1f, 0x8b, ..] => Self::Gzip,
            // A frame, or a skippable frame, with which some compressors begin.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            _ => Self::None,
        }
    }
}

impl Platform {
    /// The platform of sandboxes on this host.
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

    /// Whether software for `self` runs on `host`.
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
