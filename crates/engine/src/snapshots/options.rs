//! The options of snapshots, restores and forks, and their results.

use std::collections::BTreeMap;

use burrow_catalog::{Idempotency, SandboxRow};
use burrow_model::{Lifetime, Name, Snapshot, SnapshotId, SnapshotKind};

use crate::{EngineError, UpdateOptions};

/// Children of one fork.
pub const FORK_MAX: usize = 64;

#[derive(Clone, Debug)]
pub struct SnapshotOptions {
    pub name: Option<Name>,
    pub description: String,
    pub labels: BTreeMap<String, String>,
    /// Without processes.
    pub files_only: bool,
    pub expires_ms: Option<u64>,
    pub kind: SnapshotKind,
}

impl SnapshotOptions {
    /// Options of a snapshot that no user requested.
    pub fn automatic(kind: SnapshotKind, files_only: bool) -> Self {
        Self {
            name: None,
            description: String::new(),
            labels: BTreeMap::new(),
            files_only,
            expires_ms: None,
            kind,
        }
    }
}

/// A sandbox that was restored to a snapshot.
#[derive(Clone, Debug)]
pub struct RestoreResult {
    pub row: SandboxRow,
    /// Its state before.
    pub undo: Snapshot,
}

/// How a new sandbox is created from a snapshot.
#[derive(Clone, Debug)]
pub struct FromSnapshot {
    pub name: Option<Name>,
    pub files_only: bool,
    /// Those of the snapshot's sandbox if `None`.
    pub labels: Option<BTreeMap<String, String>>,
    pub lifetime: Option<Lifetime>,
    /// Changes of the snapshot's specification, which apply before any process runs. Its name is not used.
    pub change: Option<Box<UpdateOptions>>,
    pub idempotency: Option<Idempotency>,
}

#[derive(Clone, Debug)]
pub struct ForkOptions {
    /// From 1 to [`FORK_MAX`].
    pub count: usize,
    /// Empty, or one for each.
    pub names: Vec<Name>,
    pub files_only: bool,
    pub labels: Option<BTreeMap<String, String>>,
    pub lifetime: Option<Lifetime>,
}

#[derive(Debug)]
pub struct ForkResult {
    /// In the order of their names.
    pub children: Vec<Result<SandboxRow, EngineError>>,
    /// The snapshot that they have in common.
    pub base: SnapshotId,
    /// How long the parent was paused.
    pub pause_us: u64,
}
