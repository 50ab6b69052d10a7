//! What can go wrong with memory, told apart as far as a caller can act on it.

use std::io;
use std::path::PathBuf;

use burrow_model::SpaceId;
use rusqlite::ErrorCode;

#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// Also the answer for what another branch can see and this one cannot.
    #[error("{what} `{id}` does not exist here")]
    NotFound { what: &'static str, id: String },
    #[error("could not write through a view of the past")]
    ReadOnly,
    #[error("{what} is {bytes} bytes long, and may be {max} at most")]
    TooLarge { what: &'static str, bytes: u64, max: u64 },
    #[error("the value of `{key}` is {bytes} bytes long, and may be {max} at most")]
    ValueTooLarge { key: String, bytes: u64, max: u64 },
    #[error("there are more {what} than the {max} one request may have")]
    TooMany { what: &'static str, max: u64 },
    #[error("{what} is not valid: {why}")]
    Invalid { what: &'static str, why: String },
    /// A compare-and-set met another version than it expected.
    #[error("{what} `{id}` is {}, and was expected {}", version(*.found), version(*.expected))]
    Conflict { what: &'static str, id: String, expected: u64, found: u64 },
    /// Both sides of a merge changed it, and the caller wants to decide.
    #[error("could not merge: both sides changed {what} `{name}`")]
    Contested { what: &'static str, name: String },
    /// A merge of a branch into itself.
    #[error("could not merge: both sides are the same branch of the same space")]
    SameBranch,
    /// A limit of the space is reached, or the disk holds no more.
    #[error("could not add {what}: there is room for {max}")]
    Full { what: &'static str, max: u64 },
    /// The quota of a space's artifacts.
    #[error(
        "could not store the artifact: the artifacts of its space take {used} of the {max} bytes they may, and it needs more than is left"
    )]
    SpaceFull { used: u64, max: u64 },
    /// A sandbox's own memory counts against its disk limit.
    #[error(
        "could not write to memory: what this sandbox remembers takes {used} bytes, and its disk limit allows {max}"
    )]
    SandboxFull { used: u64, max: u64 },
    /// What must stay free of the disk.
    #[error(
        "could not write to memory: {free} bytes are free on its disk beyond what the pool was promised, and {reserve} must stay free"
    )]
    DiskReserve { free: u64, reserve: u64 },
    #[error("could not write to memory: no space left on its disk")]
    DiskFull,
    #[error("the memory file `{}` is damaged: {why}", .file.display())]
    Damaged { file: PathBuf, why: String },
    /// One row of it.
    #[error("what is stored of {what} `{id}` is damaged: {why}")]
    DamagedRow { what: &'static str, id: String, why: String },
    #[error("the memory file `{}` is of version {found}, and this program knows versions up to {known}", .file.display())]
    TooNew { file: PathBuf, found: u32, known: u32 },
    #[error("could not close space `{space}`: it is in use")]
    Busy { space: SpaceId },
    #[error("memory is closed")]
    Closed,
    /// Our own bug, contained: the change it was part of was rolled back.
    #[error("a piece of work in memory panicked")]
    Panicked,
    #[error("could not open the memory folder `{}`", .path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("could not use a memory file")]
    Storage { source: rusqlite::Error },
    #[error("could not embed texts with model `{model}`: {why}")]
    Embed { model: String, why: String },
    #[error("could not {doing} the artifact store")]
    Blob { doing: &'static str, source: object_store::Error },
    /// What was read is not what was stored.
    #[error("the content `{hash}` of artifact `{name}` is damaged: {why}")]
    DamagedBlob { name: String, hash: String, why: String },
    /// It was forgotten, and nothing kept it.
    #[error("the content of version {version} of artifact `{name}` has been removed")]
    BlobGone { name: String, version: u64 },
    #[error("artifact `{name}` is {bytes} bytes long, and no part of the range asked for lies in it")]
    Range { name: String, bytes: u64 },
    /// The sender's side of an upload.
    #[error("could not read the content of artifact `{name}` to its end")]
    Upload { name: String, source: io::Error },
}

impl MemoryError {
    /// Whether it was refused for want of room.
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

    /// What a person can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotFound { .. } => {
                Some("list what is there, or look into another branch or moment (`--as-of`)")
            }
            Self::ReadOnly => Some("leave out `--as-of` to write to the present"),
            Self::TooLarge { .. } | Self::ValueTooLarge { .. } => {
                Some("store it as an artifact and link to it, or cut it into parts")
            }
            Self::TooMany { .. } => Some("cut the request into smaller ones"),
            Self::Contested { .. } => {
                Some("choose a side with `ours` or `theirs`; a dry run lists all of them")
            }
            Self::SameBranch => Some(
                "name a fork of it to merge from; sandboxes that share a named space share what they remember",
            ),
            Self::Conflict { .. } => Some("read it again and repeat the change on what is there now"),
            Self::Full { .. } => Some("forget or delete what is not needed, or use another space"),
            Self::SpaceFull { .. } => Some(
                "remove artifacts and the snapshots that keep them, use another space, or raise `memory.space_artifacts`",
            ),
            Self::SandboxFull { .. } => Some(
                "forget entries, remove artifacts and the snapshots that keep them, or raise the limit: `burrow update SANDBOX --disk SIZE`",
            ),
            Self::DiskReserve { .. } => {
                Some("free space on the disk that holds memory, or lower `memory.disk_reserve`")
            }
            Self::DiskFull => Some("free space on the disk that holds the state directory"),
            Self::Damaged { .. } | Self::DamagedRow { .. } => {
                Some("run `burrow memory check`; `rebuild` renews the indices, a backup the rest")
            }
            Self::TooNew { .. } => Some("run the newer release that wrote it"),
            Self::Busy { .. } => Some("try again in a moment"),
            Self::Embed { .. } => {
                Some("entries are kept and found by their words; vectors are filled in once it answers again")
            }
            Self::Blob { .. } => Some("see whether the artifact store is reachable and has room"),
            Self::DamagedBlob { .. } => Some(
                "store the same content again, which mends it, or restore the artifact store from a backup",
            ),
            Self::BlobGone { .. } => Some(
                "content goes once it is forgotten and no snapshot keeps it; pin what must stay by a snapshot",
            ),
            Self::Upload { .. } => Some("send it again"),
            Self::Range { .. } => Some("ask for a range that begins before the end"),
            Self::Invalid { .. }
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

impl From<rusqlite::Error> for MemoryError {
    fn from(source: rusqlite::Error) -> Self {
        match source.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::DiskFull,
            _ => Self::Storage { source },
        }
    }
}

/// Versions count from 1; 0 is how a conflict says that there is none.
fn version(number: u64) -> String {
    match number {
        0 => "absent".to_owned(),
        number => format!("at version {number}"),
    }
}
