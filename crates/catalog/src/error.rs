//! The errors of the catalog, distinguished as far as a caller can act on them.

use std::io;
use std::path::PathBuf;

use burrow_model::{
    Name, SNAPSHOTS_MAX, SandboxId, SnapshotId, SpaceId, VOLUME_SNAPSHOTS_MAX, VolumeId, VolumeSnapshotId,
};
use rusqlite::ErrorCode;

use crate::limits::{SECRETS_MAX, SPACES_MAX, SSH_KEYS_MAX, SSH_KEYS_OF_KEY_MAX, VOLUMES_MAX};

#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    #[error("could not open the catalog `{}`", .path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("the catalog `{}` is in use by another process", .path.display())]
    InUse { path: PathBuf },
    #[error("the catalog has schema version {found}, and this program supports versions up to {known}")]
    TooNew { found: u32, known: u32 },
    #[error("could not migrate the catalog to version {version}")]
    Migrate { version: u32, source: rusqlite::Error },
    #[error("the name is taken by sandbox `{existing}`")]
    NameTaken { existing: SandboxId },
    #[error("the name is taken by snapshot `{existing}`")]
    SnapshotNameTaken { existing: SnapshotId },
    #[error("the name is taken by space `{existing}`")]
    SpaceNameTaken { existing: SpaceId },
    #[error("the limit of {SPACES_MAX} named spaces is reached")]
    TooManySpaces,
    #[error("the limit of {SECRETS_MAX} secrets is reached")]
    TooManySecrets,
    #[error("the limit of {SSH_KEYS_MAX} SSH keys is reached")]
    TooManySshKeys,
    #[error("the limit of {SSH_KEYS_OF_KEY_MAX} SSH keys of one API key is reached")]
    TooManySshKeysOfKey,
    #[error("this SSH key is already registered with another API key")]
    SshKeyTaken,
    #[error("the name is taken by volume `{existing}`")]
    VolumeNameTaken { existing: VolumeId },
    #[error("the name is taken by volume snapshot `{existing}`")]
    VolumeSnapshotNameTaken { existing: VolumeSnapshotId },
    #[error("the limit of {VOLUMES_MAX} volumes is reached")]
    TooManyVolumes,
    #[error("the limit of {VOLUME_SNAPSHOTS_MAX} snapshots of volume `{name}` is reached")]
    TooManyVolumeSnapshots { name: Name },
    #[error("volume `{name}` is in use by {}", list(.by))]
    VolumeInUse { name: Name, by: Vec<SandboxId> },
    #[error("volume `{name}` is already mounted for writing by sandbox `{by}`")]
    VolumeWritten { name: Name, by: SandboxId },
    #[error("volume `{name}` has {count} snapshots, which would be removed with it")]
    VolumeHasSnapshots { name: Name, count: usize },
    #[error("volume `{name}` is being created, restored, copied or removed")]
    VolumeBusy { name: Name },
    #[error("the limit of {SNAPSHOTS_MAX} snapshots of sandbox `{sandbox}` is reached")]
    TooManySnapshots { sandbox: SandboxId },
    #[error("the idempotency key was already used for another request")]
    IdempotencyMismatch,
    #[error("ambiguous id prefix, matches several sandboxes: {}", list(.candidates))]
    Ambiguous { candidates: Vec<SandboxId> },
    #[error("ambiguous id prefix, matches several snapshots: {}", list(.candidates))]
    AmbiguousSnapshot { candidates: Vec<SnapshotId> },
    #[error("the cursor is not valid for this list")]
    BadCursor,
    #[error("{kind} `{id}` does not exist")]
    Unknown { kind: &'static str, id: String },
    #[error("the last usable admin key cannot be revoked")]
    LastAdminKey,
    #[error("a key's secret must be `e2b_` and 40 hexadecimal digits")]
    BadSecret,
    /// The disk is full. Operations that free space can still be written for a while, from the reserve.
    #[error("could not write to the catalog: no space left on its disk")]
    Full,
    /// The disk returned an error other than a lack of space.
    #[error("could not read or write the catalog's files")]
    Disk { source: rusqlite::Error },
    #[error("could not use the catalog's database")]
    Sql { source: rusqlite::Error },
    #[error("could not parse a stored `{what}`")]
    Damaged { what: &'static str, source: serde_json::Error },
    #[error("the catalog's database is damaged: {}", .findings.join("; "))]
    Corrupt { findings: Vec<String> },
    #[error("could not write the backup `{}`", .path.display())]
    Backup { path: PathBuf, source: io::Error },
    /// A bug in Burrow, contained: its change was rolled back.
    #[error("a task of the catalog panicked")]
    Panicked,
    #[error("the catalog is closed")]
    Closed,
}

impl CatalogError {
    /// What the user can do about the error.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
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
            Self::VolumeNameTaken { .. } => Some("choose another name, or remove the volume that has it"),
            Self::VolumeSnapshotNameTaken { .. } => {
                Some("choose another name, or remove that snapshot first")
            }
            Self::TooManyVolumes => Some("remove volumes that are not needed any more"),
            Self::TooManyVolumeSnapshots { .. } => {
                Some("remove snapshots of this volume that are not needed any more")
            }
            Self::VolumeWritten { .. } => Some("mount it read-only, or detach it from that sandbox first"),
            Self::VolumeBusy { .. } => Some("try again in a moment"),
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
            | Self::InUse { .. }
            | Self::VolumeInUse { .. }
            | Self::VolumeHasSnapshots { .. }
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

    /// Whether storage failed, not the request: then SQLite may have rolled back more than one request.
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
