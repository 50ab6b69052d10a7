//! What a file says first: what it holds, where that came from, and what a host must have to use it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::PortableError;
use crate::frame::RAW_BYTES_MAX;

/// Features this version knows beyond the format itself. A file that needs another is of a newer program.
const FEATURES: [&str; 0] = [];

/// Snapshots before this one that are named.
pub(crate) const ANCESTORS_MAX: usize = 64;

/// Ways in which the snapshot an incremental file goes by was exported or imported before.
pub(crate) const IDENTITIES_MAX: usize = 64;

/// The first frame, as JSON. Fields may be added; a reader ignores those it does not know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The program that wrote it, for people.
    pub made_by: String,
    pub needs: Needs,
    pub lineage: Lineage,
    /// What the sandbox was asked to be: its specification, without network rules and without names of secrets.
    pub spec: Value,
    pub image: Image,
    /// Bytes of content to come, as far as known: for progress, and for refusing early what finds no room.
    pub content_bytes: u64,
}

/// What a host must have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Needs {
    /// What a reader must understand beyond this version of the format.
    #[serde(default)]
    pub features: Vec<String>,
    /// The driver whose files these are.
    pub driver: String,
    /// Present: processes are in the file.
    pub processes: Option<Processes>,
    /// Present: the memory branch is in the file, in this version of its rows.
    pub memory: Option<u32>,
    /// Present: the file holds only what differs from this snapshot.
    pub base: Option<Base>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processes {
    /// What the driver says of where they were written down: JSON that only the driver reads.
    pub about: String,
    /// Public key of the host that signs the file. Processes of an unsigned file are not used.
    pub signer: Option<String>,
}

/// A snapshot that the receiver must have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    /// Its id where this file was made, for people.
    pub snapshot: String,
    pub name: Option<String>,
    /// Identities of the files it travelled in, in hexadecimal. Any of them will do.
    pub identities: Vec<String>,
}

/// Where the snapshot came from. For people and trees; nothing is decided by it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lineage {
    pub snapshot: String,
    pub name: Option<String>,
    pub description: String,
    pub labels: BTreeMap<String, String>,
    pub kind: String,
    pub created_ms: u64,
    pub sandbox: String,
    pub sandbox_name: Option<String>,
    /// The snapshots before it, the nearest first.
    pub ancestors: Vec<Ancestor>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ancestor {
    pub snapshot: String,
    pub name: Option<String>,
    pub created_ms: u64,
}

/// The image the sandbox was made from. Its files are not here: the snapshot has its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Image {
    pub id: String,
    /// What it says about processes: environment, user, working directory.
    pub config: Value,
}

impl Header {
    pub(crate) fn to_json(&self) -> Result<Vec<u8>, PortableError> {
        let json = serde_json::to_vec(self)
            .map_err(|error| PortableError::refused(format!("its header is no JSON: {error}")))?;
        if json.len() > RAW_BYTES_MAX {
            return Err(PortableError::TooLarge { limit: RAW_BYTES_MAX as u64, unit: "bytes of header" });
        }
        Ok(json)
    }

    /// Refuses what a newer program wrote for newer programs only.
    pub(crate) fn read(json: &[u8]) -> Result<Self, PortableError> {
        /// The fields that say whether the others can be understood.
        #[derive(Deserialize)]
        struct First {
            needs: Features,
        }
        #[derive(Deserialize)]
        struct Features {
            #[serde(default)]
            features: Vec<String>,
        }
        let unreadable = |error| PortableError::refused(format!("its header is unreadable: {error}"));
        let First { needs } = serde_json::from_slice(json).map_err(unreadable)?;
        if let Some(feature) = needs.features.iter().find(|feature| !FEATURES.contains(&feature.as_str())) {
            return Err(PortableError::UnknownFeature { feature: crate::error::shown(feature.as_bytes()) });
        }
        let header: Self = serde_json::from_slice(json).map_err(unreadable)?;
        if header.lineage.ancestors.len() > ANCESTORS_MAX {
            return Err(PortableError::TooLarge { limit: ANCESTORS_MAX as u64, unit: "ancestors" });
        }
        if header.needs.base.as_ref().is_some_and(|base| base.identities.len() > IDENTITIES_MAX) {
            return Err(PortableError::TooLarge {
                limit: IDENTITIES_MAX as u64,
                unit: "identities of its base",
            });
        }
        Ok(header)
    }
}
