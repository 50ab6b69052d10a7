//! The errors of memory, as far as a caller can react differently to them.

use std::io;
use std::path::PathBuf;

use burrow_model::{Bytes, SpaceId};
use rusqlite::ErrorCode;

use crate::artifacts::NoDiskSpace;

#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// Also returned for objects that only another branch can see.
    #[error("{what} `{id}` does not exist on this branch")]
    NotFound { what: &'static str, id: String },
    #[error("could not write: a view of the past is read-only")]
    ReadOnly,
    #[error("{what} is too large: {bytes} bytes, the limit is {max}")]
    TooLarge { what: &'static str, bytes: u64, max: u64 },
    #[error("the value of `{key}` is too large: {bytes} bytes, the limit is {max}")]
    ValueTooLarge { key: String, bytes: u64, max: u64 },
    #[error("too many {what}: the limit is {max} per request")]
    TooMany { what: &'static str, max: u64 },
    #[error("{what} is not valid: {why}")]
    Invalid { what: &'static str, why: String },
    /// A compare-and-set found a different version.
    #[error("version conflict: {what} `{id}` is {}, expected {}", version(*.found), version(*.expected))]
    Conflict { what: &'static str, id: String, expected: u64, found: u64 },
    /// Both sides of a merge changed it, and the policy is to fail.
    #[error("could not merge: both branches changed {what} `{name}`")]
    Contested { what: &'static str, name: String },
    /// A merge of a branch into itself.
    #[error("could not merge a branch into itself")]
    SameBranch,
    /// A limit of the space is reached.
    #[error("could not add {what}: the limit is {max}")]
    Full { what: &'static str, max: u64 },
    /// The artifact quota of a space.
    #[error(
        "could not store the artifact: it exceeds the artifact quota of its space ({used} of {max} bytes are used)"
    )]
    SpaceFull { used: u64, max: u64 },
    /// A sandbox's own memory counts against its disk limit.
    #[error(
        "could not write to memory: the memory of this sandbox takes {}, and its disk limit is {}", Bytes(*.used), Bytes(*.max)
    )]
    SandboxFull { used: u64, max: u64 },
    /// The reserve of the disk must stay free.
    #[error(
        "not enough disk space: {} are free beyond what was promised to the pool and reserved by other writes, and {} must stay free",
    Bytes(*.free), Bytes(*.reserve)
    )]
    DiskReserve { free: u64, reserve: u64 },
    #[error("could not write to memory: no space left on its disk")]
    DiskFull,
    #[error("the memory file `{}` is damaged: {why}", .file.display())]
    Damaged { file: PathBuf, why: String },
    /// One row of the memory file is damaged.
    #[error("the stored {what} `{id}` is damaged: {why}")]
    DamagedRow { what: &'static str, id: String, why: String },
    #[error("the memory file `{}` has format version {found}; this program supports versions up to {known}", .file.display())]
    TooNew { file: PathBuf, found: u32, known: u32 },
    #[error("could not close space `{space}`: it is in use")]
    Busy { space: SpaceId },
    #[error("memory is closed")]
    Closed,
    /// A bug in Burrow; the change that it was part of was rolled back.
    #[error("internal error: a memory operation panicked and was rolled back")]
    Panicked,
    #[error("could not open the memory folder `{}`", .path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("could not access a memory file")]
    Storage { source: rusqlite::Error },
    #[error("could not embed texts with model `{model}`: {why}")]
    Embed { model: String, why: String },
    #[error("could not {doing} the artifact store")]
    Blob { doing: &'static str, source: object_store::Error },
    /// The content read differs from the content stored.
    #[error("the content `{hash}` of artifact `{name}` is damaged: {why}")]
    DamagedBlob { name: String, hash: String, why: String },
    /// The content was forgotten, and no snapshot kept it.
    #[error("the content of version {version} of artifact `{name}` has been removed")]
    BlobGone { name: String, version: u64 },
    #[error("the requested range is outside artifact `{name}`, which is {bytes} bytes long")]
    Range { name: String, bytes: u64 },
    /// The sender of an upload failed.
    #[error("the upload of artifact `{name}` was interrupted")]
    Upload { name: String, source: io::Error },
}

impl MemoryError {
    /// Whether the request was refused because space ran out.
    pub fn is_no_room(&self) -> bool {
        matches!(
            self,
            Self::Full { .. }
                | Self::SpaceFull { .. }
                | Self::SandboxFull { .. }
                | Self::DiskReserve { .. }
                | Self::DiskFull
        )
    }

    /// How the user can resolve the error.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::TooLarge { .. } | Self::ValueTooLarge { .. } => {
                Some("store it as an artifact and link to it, or split it into parts")
            }
            Self::TooMany { .. } => Some("split the request into smaller ones"),
            Self::Contested { .. } => {
                Some("choose the policy `ours` or `theirs`; a dry run lists all conflicts")
            }
            Self::SameBranch => Some(
                "name a fork to merge from; sandboxes that share a named space already share their memory",
            ),
            Self::Conflict { .. } => Some("read it again and repeat the change on the current version"),
            Self::Full { .. } => Some("forget or delete what is not needed, or use another space"),
            Self::SpaceFull { .. } => Some(
                "remove artifacts and the snapshots that keep them, use another space, or raise `memory.space_artifacts`",
            ),
            Self::DiskReserve { .. } => {
                Some("free space on the disk that holds the state directory, or lower `memory.disk_reserve`")
            }
            Self::DiskFull => Some("free space on the disk that holds the state directory"),
            Self::TooNew { .. } => Some("run the newer release of Burrow that wrote it"),
            Self::Busy { .. } => Some("try again in a moment"),
            Self::Embed { .. } => Some(
                "entries are stored and found by their words; vectors are added when the model answers again",
            ),
            Self::Blob { .. } => Some("check that the artifact store is reachable and has free space"),
            Self::DamagedBlob { .. } => {
                Some("store the same content again to repair it, or restore the artifact store from a backup")
            }
            Self::BlobGone { .. } => Some(
                "the content of forgotten artifacts is removed unless a snapshot keeps it; take a snapshot to keep content",
            ),
            Self::Upload { .. } => Some("upload it again"),
            Self::Range { .. } => Some("request a range that begins before the end"),
            Self::NotFound { .. }
            | Self::ReadOnly
            | Self::SandboxFull { .. }
            | Self::Damaged { .. }
            | Self::DamagedRow { .. }
            | Self::Invalid { .. }
            | Self::Closed
            | Self::Panicked
            | Self::Folder { .. }
            | Self::Storage { .. } => None,
        }
    }

    pub(crate) fn not_found(what: &'static str, id: impl ToString) -> Self {
        Self::NotFound { what, id: id.to_string() }
    }

    pub(crate) fn invalid(what: &'static str, why: impl Into<String>) -> Self {
        Self::Invalid { what, why: why.into() }
    }

    pub(crate) fn too_large(what: &'static str, bytes: usize, max: usize) -> Self {
        Self::TooLarge { what, bytes: bytes as u64, max: max as u64 }
    }

    pub(crate) fn too_many(what: &'static str, max: usize) -> Self {
        Self::TooMany { what, max: max as u64 }
    }

    /// Whether storage failed, rather than the request: then SQLite may have rolled back more than one request.
    pub(crate) fn is_of_storage(&self) -> bool {
        let Self::Storage { source } = self else { return matches!(self, Self::DiskFull) };
        matches!(
            source.sqlite_error_code(),
            Some(
                ErrorCode::SystemIoFailure
                    | ErrorCode::DatabaseBusy
                    | ErrorCode::DatabaseCorrupt
                    | ErrorCode::OutOfMemory
                    | ErrorCode::CannotOpen
                    | ErrorCode::ReadOnly
            )
        )
    }
}

impl From<NoDiskSpace> for MemoryError {
    fn from(NoDiskSpace { free, reserve }: NoDiskSpace) -> Self {
        Self::DiskReserve { free, reserve }
    }
}

impl From<rusqlite::Error> for MemoryError {
    fn from(source: rusqlite::Error) -> Self {
        match source.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::DiskFull,
            _ => Self::Storage { source },
        }
    }
}

/// Versions count from 1; a conflict uses 0 for an absent object.
fn version(number: u64) -> String {
    match number {
        0 => "absent".to_owned(),
        number => format!("at version {number}"),
    }
}
