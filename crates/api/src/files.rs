//! Files on the wire. Paths are absolute inside the sandbox.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileEntry {
    pub name: String,
    pub path: String,
    pub kind: FileKind,
    pub size: u64,
    /// Octal permission bits, e.g. `0644`.
    pub mode: String,
    pub uid: u32,
    pub gid: u32,
    pub user: Option<String>,
    pub group: Option<String>,
    pub modified_ms: i64,
    pub target: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    File,
    Directory,
    Symlink,
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileList {
    pub entries: Vec<FileEntry>,
}

/// `POST …/files/mkdir`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MakeDirectory {
    pub path: String,
    /// Create missing parents; an existing directory is not an error.
    #[serde(default)]
    pub parents: bool,
    /// Octal, e.g. `0755`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// `POST …/files/move`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveFile {
    pub from: String,
    pub to: String,
}

/// `POST …/files/chmod`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeMode {
    pub path: String,
    /// Octal, e.g. `0644`.
    pub mode: String,
}

/// Response of `PUT …/files/tar`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TarSummary {
    pub entries: u64,
    pub bytes: u64,
}

/// One line of `GET …/files/watch` as NDJSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WatchEvent {
    pub kind: WatchEventKind,
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum WatchEventKind {
    /// First line: the watch is active.
    Ready,
    Created,
    Written,
    Removed,
    Renamed,
    Attributes,
    /// The kernel dropped events: read the directory again.
    Overflow,
}
