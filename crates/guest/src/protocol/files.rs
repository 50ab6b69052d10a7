//! Messages about files. Paths are absolute inside the sandbox and resolved there, by the agent.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// The last component of the path, with bytes that are not UTF-8 replaced.
    pub name: String,
    pub path: String,
    pub kind: FileKind,
    pub size: u64,
    /// Permission bits, including setuid, setgid and sticky.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Names inside, if known.
    pub user: Option<String>,
    pub group: Option<String>,
    pub modified_ms: i64,
    /// The target of a symbolic link.
    pub target: Option<String>,
    /// The final target of a symbolic link, if it exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved: Option<String>,
    /// Its extended attributes `user.e2b.KEY`, by key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    File,
    Directory,
    Symlink,
    Other,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListFiles {
    pub path: String,
    /// 1 = the directory's own entries.
    pub depth: u32,
    /// If there are more, the request fails with `too-many`.
    pub entries_max: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReadFile {
    pub path: String,
    pub offset: u64,
    /// To the end when absent.
    pub length: Option<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WriteFile {
    pub path: String,
    /// Permission bits. If absent, those of the existing file, else 0644.
    pub mode: Option<u32>,
    /// The owner. If absent, that of the existing file, else root.
    pub user: Option<String>,
    /// Create missing parent directories.
    pub parents: bool,
    /// Write at this offset of the existing file instead of replacing it atomically.
    pub offset: Option<u64>,
    /// fsync before answering.
    pub sync: bool,
    /// Write into the existing file instead of replacing it: hard links remain, and an interrupted upload leaves a
    /// part.
    #[serde(default)]
    pub in_place: bool,
    /// Replaces the extended attributes `user.e2b.KEY`; they are unchanged if absent.
    #[serde(default)]
    pub metadata: Option<BTreeMap<String, String>>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TarOut {
    pub path: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TarIn {
    /// An existing directory, or one to create.
    pub path: String,
    /// Owner of everything unpacked. If absent, the ids in the archive.
    pub user: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WatchFiles {
    pub path: String,
    pub recursive: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchEvent {
    pub kind: WatchEventKind,
    pub path: String,
    /// For `Renamed`: the old path.
    pub from: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WatchEventKind {
    Created,
    Written,
    Removed,
    Renamed,
    Attributes,
    /// The kernel dropped events: list the files again.
    Overflow,
}
