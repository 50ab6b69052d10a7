//! Steps that only Dockerfiles have: commands with mounts, and copies from several sources or from other trees.

use std::collections::BTreeMap;

/// Where files are copied from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceTree {
    /// The files that are sent with the build.
    Context,
    /// An earlier stage, by its index.
    Stage(usize),
    /// The name of a local image, or a reference.
    Image(String),
}

/// A command with mounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunCommand {
    pub argv: Vec<String>,
    /// Variables of this command only.
    pub arguments: BTreeMap<String, String>,
    pub mounts: Vec<RunMount>,
    /// Without access to any host.
    pub offline: bool,
}

/// Files that exist only while a command runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunMount {
    Cache(CacheMount),
    /// A file or directory of another tree; changes of it are discarded.
    Bind {
        tree: SourceTree,
        /// Relative, without `.` and `..`; empty for the whole tree.
        source: String,
        target: String,
    },
    /// An empty directory.
    Tmpfs {
        target: String,
    },
}

/// A directory that all builds share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheMount {
    pub id: String,
    pub target: String,
    /// Of the directory when it is created.
    pub uid: u32,
    pub gid: u32,
    pub mode: u32,
}

/// Files from a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeCopy {
    pub tree: SourceTree,
    /// Relative, without `.` and `..`, perhaps with patterns; empty for the whole tree.
    pub sources: Vec<String>,
    /// Files whose content is in the build file.
    pub files: Vec<InlineFile>,
    /// Absolute; a directory if it ends with `/`.
    pub to: String,
    /// The owner in the tree when absent; root for files of the context.
    pub owner: Option<String>,
    pub mode: Option<u32>,
    /// Whether tar archives are unpacked.
    pub unpack: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlineFile {
    pub name: String,
    pub content: String,
}
