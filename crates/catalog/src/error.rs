//! What can go wrong with the catalog, told apart as far as a caller can act on it.

use std::io;
use std::path::PathBuf;

use burrow_model::{
    Name, SHELF_SNAPSHOTS_MAX, SNAPSHOTS_MAX, SandboxId, ShelfId, ShelfSnapshotId, SnapshotId, SpaceId,
};
use rusqlite::ErrorCode;

use crate::{SECRETS_MAX, SHELVES_MAX, SPACES_MAX, SSH_KEYS_MAX, SSH_KEYS_OF_KEY_MAX};

#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    #[error("could not open the catalog `{}`", .path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("the catalog `{}` is in use by another process", .path.display())]
    InUse { path: PathBuf },
    #[error("the catalog is of version {found}, and this program knows versions up to {known}")]
    TooNew { found: u32, known: u32 },
    #[error("could not bring the catalog to version {version}")]
    Migrate { version: u32, source: rusqlite::Error },
    #[error("the name is taken by sandbox `{existing}`")]
    NameTaken { existing: SandboxId },
    #[error("the name is taken by snapshot `{existing}`")]
    SnapshotNameTaken { existing: SnapshotId },
    #[error("the name is taken by space `{existing}`")]
    SpaceNameTaken { existing: SpaceId },
    #[error("there are {SPACES_MAX} named spaces, and there may be no more")]
    TooManySpaces,
    #[error("there are {SECRETS_MAX} secrets, and there may be no more")]
    TooManySecrets,
    #[error("there are {SSH_KEYS_MAX} SSH keys, and there may be no more")]
    TooManySshKeys,
    #[error("there are {SSH_KEYS_OF_KEY_MAX} SSH keys of this API key, and there may be no more")]
    TooManySshKeysOfKey,
    #[error("this SSH key was added already, with another API key")]
    SshKeyTaken,
    #[error("the name is taken by volume `{existing}`")]
    ShelfNameTaken { existing: ShelfId },
    #[error("the name is taken by volume snapshot `{existing}`")]
    ShelfSnapshotNameTaken { existing: ShelfSnapshotId },
    #[error("there are {SHELVES_MAX} volumes, and there may be no more")]
    TooManyShelves,
    #[error("volume `{name}` has {SHELF_SNAPSHOTS_MAX} snapshots, and may have no more")]
    TooManyShelfSnapshots { name: Name },
    #[error("volume `{name}` is in use by {}", list(.by))]
    ShelfInUse { name: Name, by: Vec<SandboxId> },
    #[error("sandbox `{by}` has volume `{name}` to write to, and only one may")]
    ShelfWritten { name: Name, by: SandboxId },
    #[error("volume `{name}` has {count} snapshots, which would go with it")]
    ShelfHasSnapshots { name: Name, count: usize },
    #[error("volume `{name}` is being made, restored, copied or removed")]
    ShelfBusy { name: Name },
    #[error("sandbox `{sandbox}` has {SNAPSHOTS_MAX} snapshots, and may have no more")]
    TooManySnapshots { sandbox: SandboxId },
    #[error("the idempotency key was used before, for another request")]
    IdempotencyMismatch,
    #[error("the beginning of an id fits several sandboxes: {}", list(.candidates))]
    Ambiguous { candidates: Vec<SandboxId> },
    #[error("the beginning of an id fits several snapshots: {}", list(.candidates))]
    AmbiguousSnapshot { candidates: Vec<SnapshotId> },
    #[error("the cursor is not one this list gave out")]
    BadCursor,
    #[error("{kind} `{id}` does not exist")]
    Unknown { kind: &'static str, id: String },
    #[error("the last usable admin key cannot be revoked")]
    LastAdminKey,
    #[error("the secret of a key is `e2b_` and 40 hexadecimal digits")]
    BadSecret,
    /// The disk holds no more. What frees space can still be written for a while, from the reserve.
    #[error("could not write to the catalog: no space left on its disk")]
    Full,
    /// The disk answered with an error that is not for lack of space.
    #[error("could not read or write the catalog's files")]
    Disk { source: rusqlite::Error },
    #[error("could not use the catalog's database")]
    Sql { source: rusqlite::Error },
    #[error("could not understand a stored `{what}`")]
    Damaged { what: &'static str, source: serde_json::Error },
    #[error("the catalog's database is damaged: {}", .findings.join("; "))]
    Corrupt { findings: Vec<String> },
    #[error("could not write the backup `{}`", .path.display())]
    Backup { path: PathBuf, source: io::Error },
    /// Our own bug, contained: the change it was part of was rolled back.
    #[error("a piece of work in the catalog panicked")]
    Panicked,
    #[error("the catalog is closed")]
    Closed,
}

impl CatalogError {
    /// What a person can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::InUse { .. } => Some("stop the other daemon first (`burrow down`)"),
            Self::TooNew { .. } => {
                Some("run the newer release that wrote it, or restore a backup made before the upgrade")
            }
            Self::NameTaken { .. } => {
                Some("choose another name, or delete or rename the sandbox that has it")
            }
            Self::SnapshotNameTaken { .. } => Some("choose another name, or delete the snapshot that has it"),
            Self::SpaceNameTaken { .. } => {
                Some("choose another name, or delete or rename the space that has it")
            }
            Self::TooManySpaces => Some("delete spaces that are not needed any more"),
            Self::TooManySecrets => Some("remove secrets that are not needed any more"),
            Self::TooManySshKeys | Self::TooManySshKeysOfKey => {
                Some("remove SSH keys that are not needed any more")
            }
            Self::SshKeyTaken => Some("remove it there first, or use another SSH key"),
            Self::ShelfNameTaken { .. } => Some("choose another name, or remove the volume that has it"),
            Self::ShelfSnapshotNameTaken { .. } => Some("choose another name, or remove that snapshot first"),
            Self::TooManyShelves => Some("remove volumes that are not needed any more"),
            Self::TooManyShelfSnapshots { .. } => {
                Some("remove snapshots of this volume that are not needed any more")
            }
            Self::ShelfInUse { .. } => Some(
                "delete or stop those first; `burrow update --no-volumes` takes volumes from a stopped one",
            ),
            Self::ShelfWritten { .. } => Some("mount it read-only, or take it from that sandbox first"),
            Self::ShelfHasSnapshots { .. } => Some("`--snapshots` removes them too"),
            Self::ShelfBusy { .. } => Some("try again in a moment"),
            Self::TooManySnapshots { .. } => {
                Some("delete snapshots of this sandbox that are not needed any more")
            }
            Self::IdempotencyMismatch => Some("use a new idempotency key for a new request"),
            Self::Ambiguous { .. } | Self::AmbiguousSnapshot { .. } => Some("give more characters of the id"),
            Self::BadCursor => Some("start again without a cursor"),
            Self::LastAdminKey => Some("create another admin key first"),
            Self::Full => Some("free space on the disk that holds the state directory, or delete sandboxes"),
            Self::Corrupt { .. } => Some("restore the latest backup"),
            Self::Open { .. }
            | Self::Migrate { .. }
            | Self::Unknown { .. }
            | Self::BadSecret
            | Self::Disk { .. }
            | Self::Sql { .. }
            | Self::Damaged { .. }
            | Self::Backup { .. }
            | Self::Panicked
            | Self::Closed => None,
        }
    }

    pub(crate) fn unknown_sandbox(id: &SandboxId) -> Self {
        Self::Unknown { kind: "sandbox", id: id.to_string() }
    }

    /// Whether storage failed, rather than the request: then SQLite may have rolled back more than one request.
    pub(crate) fn is_of_storage(&self) -> bool {
        matches!(self, Self::Full | Self::Disk { .. })
    }
}

impl From<rusqlite::Error> for CatalogError {
    fn from(source: rusqlite::Error) -> Self {
        match source.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Full,
            Some(ErrorCode::SystemIoFailure) => Self::Disk { source },
            _ => Self::Sql { source },
        }
    }
}

fn list<I: ToString>(ids: &[I]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
