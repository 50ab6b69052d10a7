//! Artifacts: named blobs with versions, stored beside the entries of a space.
//!
//! ```text
//!  upload ─► incoming/… ─► <2>/<hash> ─► row in the space's log            visible after its commit
//!            (hashed while it streams)  (one object per content)
//! ```
//!
//! A name's newest visible row is the artifact; earlier rows are its versions. Forgetting adds a row, too. Content is removed when
//! no branch and no snapshot refers to it: `collect` releases the rows, [`crate::Memory::sweep`] removes the objects.

pub(crate) mod carry;
mod content;
mod disk_floor;
mod hash;
mod moving;
mod room;
mod rows;
mod store;
mod sweep;
#[cfg(test)]
mod tests;
mod write;

use std::ops::Range;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::MemoryError;
use crate::limits::METADATA_BYTES_MAX;
use crate::shown::shown;

pub use content::Content;
pub use disk_floor::{DiskFloor, DiskLease, DiskLeases, FreeSpace, NoDiskSpace, UploadLease};
pub use hash::BlobHash;
pub(crate) use room::{SpaceUsage, UploadBudget, used};
pub(crate) use rows::{count, release};
pub(crate) use store::Blobs;
pub(crate) use store::is_content;
pub use store::{ARTIFACT_BYTES_MAX, Body, local_store};
pub use sweep::SweepReport;

/// Longest name. It is part of a URL.
pub const ARTIFACT_NAME_BYTES_MAX: usize = 512;
/// Longest media type.
pub const MEDIA_TYPE_BYTES_MAX: usize = 128;
/// Most artifacts a branch may have at a time.
pub const ARTIFACTS_MAX: u64 = 100_000;

/// The metadata of an upload.
#[derive(Clone, Debug, PartialEq)]
pub struct NewArtifact {
    /// Like a path: segments separated by `/`, none of them empty, `.` or `..`.
    pub name: String,
    /// `application/octet-stream` if unknown.
    pub media_type: String,
    pub metadata: Map<String, Value>,
}

/// One version of an artifact.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Artifact {
    pub name: String,
    /// From 1; one more with each upload.
    pub version: u64,
    /// BLAKE3, as 64 hexadecimal digits.
    pub hash: String,
    pub bytes: u64,
    pub media_type: String,
    pub metadata: Map<String, Value>,
    pub seq: u64,
    pub at_ms: u64,
}

/// A requested range of content, as in HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    All,
    /// From a byte to the end.
    From(u64),
    /// From the first byte to the second, both included.
    Through(u64, u64),
    /// The last bytes, this many.
    Last(u64),
}

/// Content that is being read.
pub struct ArtifactRead {
    pub artifact: Artifact,
    /// The bytes that the stream returns: `start..end`.
    pub range: Range<u64>,
    /// Verified block by block; an error ends the stream.
    pub content: Content,
}

impl std::fmt::Debug for ArtifactRead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArtifactRead").field("artifact", &self.artifact).field("range", &self.range).finish()
    }
}

impl Part {
    /// The byte range for content of this length; `None` if it is outside the content.
    fn of(self, bytes: u64) -> Option<Range<u64>> {
        let range = match self {
            Self::All => return Some(0..bytes),
            Self::From(start) => start..bytes,
            Self::Through(start, last) => start..last.saturating_add(1).min(bytes),
            Self::Last(length) => bytes.saturating_sub(length)..bytes,
        };
        (!range.is_empty()).then_some(range)
    }
}

impl NewArtifact {
    fn check(&self) -> Result<(), MemoryError> {
        check_name(&self.name)?;
        if self.media_type.len() > MEDIA_TYPE_BYTES_MAX {
            return Err(MemoryError::too_large(
                "the media type",
                self.media_type.len(),
                MEDIA_TYPE_BYTES_MAX,
            ));
        }
        // It is sent as a response header.
        let printable = self.media_type.bytes().all(|b| b.is_ascii_graphic() || b == b' ');
        if !printable || !self.media_type.contains('/') {
            let why = format!("`{}` does not have the form `text/plain`", shown(&self.media_type));
            return Err(MemoryError::invalid("the media type", why));
        }
        let bytes =
            if self.metadata.is_empty() { 0 } else { Value::Object(self.metadata.clone()).to_string().len() };
        if bytes > METADATA_BYTES_MAX {
            return Err(MemoryError::too_large("the metadata", bytes, METADATA_BYTES_MAX));
        }
        Ok(())
    }
}

pub(crate) fn check_name(name: &str) -> Result<(), MemoryError> {
    if name.len() > ARTIFACT_NAME_BYTES_MAX {
        return Err(MemoryError::too_large("the artifact's name", name.len(), ARTIFACT_NAME_BYTES_MAX));
    }
    let refuse =
        |why: &str| Err(MemoryError::invalid("the artifact's name", format!("`{}` {why}", shown(name))));
    if name.chars().any(char::is_control) {
        return refuse("contains a control character");
    }
    // Clients may use the name as a file name.
    if name.split('/').any(|segment| matches!(segment, "" | "." | "..")) {
        return refuse("has a part that is empty, `.` or `..`");
    }
    Ok(())
}
