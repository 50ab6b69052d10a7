//! The header of a file: what it contains, where it comes from, and what a host needs to import it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::PortableError;
use crate::frame::RAW_BYTES_MAX;

/// Features beyond the format itself that this version supports. A file that requires others was written by a newer version.
const FEATURES: [&str; 0] = [];

/// Ancestors of the snapshot that are listed.
pub(crate) const ANCESTORS_MAX: usize = 64;

/// Identities of the base snapshot of an incremental file: one per earlier export or import.
pub(crate) const IDENTITIES_MAX: usize = 64;

/// The first frame, as JSON. Fields may be added; a reader ignores unknown fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The program that wrote it, for users.
    pub made_by: String,
    pub needs: HostRequirements,
    pub lineage: Lineage,
    /// The specification of the sandbox, without network rules and names of secrets.
    pub spec: Value,
    pub image: Image,
    /// Bytes of content that follow, as far as known: to show progress, and to refuse early if there is not enough space.
    pub content_bytes: u64,
}

/// The requirements for a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRequirements {
    /// Features beyond this version of the format that a reader must support.
    #[serde(default)]
    pub features: Vec<String>,
    /// The driver of the sandbox.
    pub driver: String,
    /// Present if the file contains processes.
    pub processes: Option<Processes>,
    /// Present if the file contains the memory branch: the version of its rows.
    pub memory: Option<u32>,
    /// Present if the file only contains the differences from this snapshot.
    pub base: Option<Base>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processes {
    /// The driver's description of the host that dumped them: JSON that only the driver reads.
    pub about: String,
    /// The public key of the host that signs the file. Processes of an unsigned file are not used.
    pub signer: Option<String>,
}

/// A snapshot that the receiver must have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    /// Its id on the exporting host, for users.
    pub snapshot: String,
    pub name: Option<String>,
    /// The identities of the files that it was exported to, in hexadecimal. Any of them suffices.
    pub identities: Vec<String>,
}

/// The origin of the snapshot. Only for display; no decision depends on it.
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
    /// Its ancestors, nearest first.
    pub ancestors: Vec<Ancestor>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ancestor {
    pub snapshot: String,
    pub name: Option<String>,
    pub created_ms: u64,
}

/// The image that the sandbox was created from. Its files are not included: the snapshot contains its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Image {
    pub id: String,
    /// The image's configuration of processes: environment, user, working directory.
    pub config: Value,
}

impl Header {
    pub(crate) fn to_json(&self) -> Result<Vec<u8>, PortableError> {
        let json = serde_json::to_vec(self)
            .map_err(|error| PortableError::refused(format!("its header is not JSON: {error}")))?;
        if json.len() > RAW_BYTES_MAX {
            return Err(PortableError::TooLarge { limit: RAW_BYTES_MAX as u64, unit: "bytes of header" });
        }
        Ok(json)
    }

    /// Refuses headers that require a newer version.
    pub(crate) fn read(json: &[u8]) -> Result<Self, PortableError> {
        /// The fields that show whether the others can be understood.
        #[derive(Deserialize)]
        struct RequiredFeatures {
            needs: Features,
        }
        #[derive(Deserialize)]
        struct Features {
            #[serde(default)]
            features: Vec<String>,
        }
        let unreadable = |error| PortableError::refused(format!("its header is unreadable: {error}"));
        let RequiredFeatures { needs } = serde_json::from_slice(json).map_err(unreadable)?;
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
