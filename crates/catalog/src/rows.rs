//! The rows, as callers receive them. Times are milliseconds since the Unix epoch.

use std::fmt;

use burrow_model::{
    DumpId, ExecId, Image, ImageId, KeyId, Label, MemoryRef, Name, OperationId, Origin, SandboxId,
    SandboxSpec, Scope, Snapshot, SnapshotKind, State, StopReason, TenantId,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A sandbox, from the intent to create it until everything of it is removed.
#[derive(Clone, PartialEq)]
pub struct SandboxRow {
    pub id: SandboxId,
    pub tenant: TenantId,
    pub name: Option<Name>,
    pub spec: SandboxSpec,
    pub state: State,
    pub stop_reason: Option<StopReason>,
    pub image: ImageId,
    /// The token that the guest agent expects from its clients. `Debug` prints `***`.
    pub token: String,
    /// The runtime's machine; opaque to the catalog.
    pub machine: Option<Value>,
    pub created_ms: u64,
    pub updated_ms: u64,
    pub started_ms: Option<u64>,
    pub stopped_ms: Option<u64>,
    pub failure: Option<String>,
    /// Counts starts.
    pub generation: u64,
    /// The dump of its processes: present exactly while it is hibernated, or being hibernated or woken.
    pub dump: Option<DumpId>,
    /// Its origin, if it was not created from an image.
    pub origin: Option<Origin>,
    /// The last known activity in it.
    pub active_ms: Option<u64>,
    /// Since when it is paused or hibernated.
    pub slept_ms: Option<u64>,
    /// When its rotation policy last restored it.
    pub rotated_ms: Option<u64>,
    /// When its snapshot policy last took a snapshot.
    pub snapshotted_ms: Option<u64>,
    /// The branch of its memory. `None`: the one it was created with; see [`SandboxRow::memory`].
    pub branch: Option<MemoryRef>,
}

impl SandboxRow {
    /// Its own memory, which is rolled back and branches with it.
    pub fn memory(&self) -> MemoryRef {
        self.branch.clone().unwrap_or_else(|| MemoryRef::own(&self.id))
    }
}

impl fmt::Debug for SandboxRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SandboxRow")
            .field("id", &self.id)
            .field("tenant", &self.tenant)
            .field("name", &self.name)
            .field("spec", &self.spec)
            .field("state", &self.state)
            .field("stop_reason", &self.stop_reason)
            .field("image", &self.image)
            .field("token", &"***")
            .field("machine", &self.machine)
            .field("created_ms", &self.created_ms)
            .field("updated_ms", &self.updated_ms)
            .field("started_ms", &self.started_ms)
            .field("stopped_ms", &self.stopped_ms)
            .field("failure", &self.failure)
            .field("generation", &self.generation)
            .field("dump", &self.dump)
            .field("origin", &self.origin)
            .field("active_ms", &self.active_ms)
            .field("slept_ms", &self.slept_ms)
            .field("rotated_ms", &self.rotated_ms)
            .field("snapshotted_ms", &self.snapshotted_ms)
            .field("branch", &self.branch)
            .finish()
    }
}

/// A change of a sandbox; `None` leaves a column unchanged. `Some(None)` empties a column that can be empty.
#[derive(Clone, PartialEq)]
pub struct SandboxChange {
    pub updated_ms: u64,
    pub state: Option<State>,
    pub stop_reason: Option<Option<StopReason>>,
    pub name: Option<Option<Name>>,
    pub spec: Option<SandboxSpec>,
    pub image: Option<ImageId>,
    pub token: Option<String>,
    pub machine: Option<Option<Value>>,
    pub started_ms: Option<Option<u64>>,
    pub stopped_ms: Option<Option<u64>>,
    pub failure: Option<Option<String>>,
    pub generation: Option<u64>,
    pub dump: Option<Option<DumpId>>,
    pub origin: Option<Option<Origin>>,
    pub active_ms: Option<Option<u64>>,
    pub slept_ms: Option<Option<u64>>,
    pub rotated_ms: Option<Option<u64>>,
    pub snapshotted_ms: Option<Option<u64>>,
    pub branch: Option<Option<MemoryRef>>,
}

impl SandboxChange {
    /// Changes only the time: `SandboxChange { state: Some(…), ..SandboxChange::at(now_ms) }`.
    pub fn at(updated_ms: u64) -> Self {
        Self {
            updated_ms,
            state: None,
            stop_reason: None,
            name: None,
            spec: None,
            image: None,
            token: None,
            machine: None,
            started_ms: None,
            stopped_ms: None,
            failure: None,
            generation: None,
            dump: None,
            origin: None,
            active_ms: None,
            slept_ms: None,
            rotated_ms: None,
            snapshotted_ms: None,
            branch: None,
        }
    }

    /// Makes the same change of a row that was read before as the catalog makes of the stored one.
    pub fn apply(self, row: &mut SandboxRow) {
        fn set<T>(into: &mut T, value: Option<T>) {
            if let Some(value) = value {
                *into = value;
            }
        }
        let Self {
            updated_ms,
            state,
            stop_reason,
            name,
            spec,
            image,
            token,
            machine,
            started_ms,
            stopped_ms,
            failure,
            generation,
            dump,
            origin,
            active_ms,
            slept_ms,
            rotated_ms,
            snapshotted_ms,
            branch,
        } = self;
        row.updated_ms = updated_ms;
        set(&mut row.state, state);
        set(&mut row.stop_reason, stop_reason);
        set(&mut row.name, name);
        set(&mut row.spec, spec);
        set(&mut row.image, image);
        set(&mut row.token, token);
        set(&mut row.machine, machine);
        set(&mut row.started_ms, started_ms);
        set(&mut row.stopped_ms, stopped_ms);
        set(&mut row.failure, failure);
        set(&mut row.generation, generation);
        set(&mut row.dump, dump);
        set(&mut row.origin, origin);
        set(&mut row.active_ms, active_ms);
        set(&mut row.slept_ms, slept_ms);
        set(&mut row.rotated_ms, rotated_ms);
        set(&mut row.snapshotted_ms, snapshotted_ms);
        set(&mut row.branch, branch);
    }
}

impl fmt::Debug for SandboxChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SandboxChange")
            .field("updated_ms", &self.updated_ms)
            .field("state", &self.state)
            .field("stop_reason", &self.stop_reason)
            .field("name", &self.name)
            .field("spec", &self.spec)
            .field("image", &self.image)
            .field("token", &self.token.as_ref().map(|_| "***"))
            .field("machine", &self.machine)
            .field("started_ms", &self.started_ms)
            .field("stopped_ms", &self.stopped_ms)
            .field("failure", &self.failure)
            .field("generation", &self.generation)
            .field("dump", &self.dump)
            .field("origin", &self.origin)
            .field("active_ms", &self.active_ms)
            .field("slept_ms", &self.slept_ms)
            .field("rotated_ms", &self.rotated_ms)
            .field("snapshotted_ms", &self.snapshotted_ms)
            .field("branch", &self.branch)
            .finish()
    }
}

/// One run of one process, as stored in the history.
#[derive(Clone, Debug, PartialEq)]
pub struct ExecRow {
    pub id: ExecId,
    pub tenant: TenantId,
    pub sandbox: SandboxId,
    pub argv: Vec<String>,
    /// The request without the values of its environment.
    pub command: Value,
    pub started_ms: u64,
    pub ended_ms: Option<u64>,
    pub outcome: Option<Value>,
    pub state: ExecState,
    /// Which start of the sandbox it ran in.
    pub generation: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExecState {
    Running,
    Ended,
    /// Its sandbox stopped before its end was observed.
    Lost,
}

/// An API key without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRow {
    pub id: KeyId,
    pub tenant: TenantId,
    pub name: String,
    pub scope: Scope,
    /// The only sandbox that it may access, if it is limited to one.
    pub sandbox: Option<SandboxId>,
    /// Whether it may also access the forks of that sandbox, and fork it.
    pub forks: bool,
    /// The key that created it, if it ends with that key.
    pub parent: Option<KeyId>,
    pub created_ms: u64,
    pub expires_ms: Option<u64>,
    pub revoked_ms: Option<u64>,
    /// Written at most once a minute.
    pub last_used_ms: Option<u64>,
    /// The secret's first 8 characters, so that users can distinguish keys.
    pub prefix: String,
}

impl KeyRow {
    /// Whether it is valid at `now_ms`.
    pub fn is_usable(&self, now_ms: u64) -> bool {
        self.revoked_ms.is_none() && self.expires_ms.is_none_or(|expires_ms| now_ms < expires_ms)
    }
}

/// A key to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewKey {
    pub tenant: TenantId,
    pub name: String,
    pub scope: Scope,
    pub sandbox: Option<SandboxId>,
    /// Requires a sandbox.
    pub forks: bool,
    /// A usable key of the tenant. The new key expires with it at the latest, and is revoked with it.
    pub parent: Option<KeyId>,
    pub created_ms: u64,
    pub expires_ms: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRow {
    pub tenant: TenantId,
    pub image: Image,
    /// When it was removed, if its row is kept only for the sandboxes created from it.
    pub removed_ms: Option<u64>,
}

/// A layer of images: a disk, identified by a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerRow {
    pub tenant: TenantId,
    /// A chain id, or the key of a build's step.
    pub key: String,
    pub disk: ImageId,
    /// The disk of the layer below.
    pub parent: Option<ImageId>,
    /// The step that created it, for users to read.
    pub what: String,
    /// Bytes of files it added.
    pub size_bytes: u64,
    pub created_ms: u64,
    pub used_ms: u64,
}

/// An operation in progress: a row of the journal.
#[derive(Clone, Debug, PartialEq)]
pub struct OperationRow {
    pub id: OperationId,
    pub tenant: TenantId,
    pub sandbox: SandboxId,
    pub kind: String,
    pub steps: Value,
    pub started_ms: u64,
    /// Further data for undoing or completing it: ids of resources that it creates and the sandbox's row does not name yet.
    pub detail: Value,
}

/// A stored event.
#[derive(Clone, Debug, PartialEq)]
pub struct EventRow {
    /// Grows over time, across all tenants, with gaps.
    pub seq: u64,
    pub tenant: TenantId,
    pub at_ms: u64,
    pub kind: String,
    pub sandbox: Option<SandboxId>,
    pub exec: Option<ExecId>,
    pub detail: Value,
}

/// An event to be stored, which assigns its number.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEvent {
    pub tenant: TenantId,
    pub at_ms: u64,
    pub kind: String,
    pub sandbox: Option<SandboxId>,
    pub exec: Option<ExecId>,
    pub detail: Value,
}

/// A filter for a list of sandboxes: all given conditions must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxFilter {
    /// All of these labels.
    pub labels: Vec<Label>,
    /// Any of these states; empty for all.
    pub states: Vec<State>,
    pub name_prefix: Option<String>,
}

/// A snapshot as it is stored: from the intent to take it until everything of it is removed.
#[derive(Clone, Debug, PartialEq)]
pub struct SnapshotRow {
    pub tenant: TenantId,
    pub snapshot: Snapshot,
    /// Whether it is complete. Until then, only recovery finds it.
    pub ready: bool,
}

/// A filter for a list of snapshots: all given conditions must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotFilter {
    /// Of this sandbox only, which may no longer exist.
    pub sandbox: Option<SandboxId>,
    /// All of these labels.
    pub labels: Vec<Label>,
    /// Any of these kinds; empty for all.
    pub kinds: Vec<SnapshotKind>,
}

/// A tenant's sandboxes and snapshots with their origins, oldest first.
#[derive(Clone, Debug, PartialEq)]
pub struct Lineage {
    pub sandboxes: Vec<SandboxRow>,
    /// Without the paths of their changes.
    pub snapshots: Vec<Snapshot>,
    /// Whether there are more than were read; then the oldest sandboxes or snapshots are left out.
    pub cut: bool,
}

/// The result of `insert_sandbox_with_operation`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InsertResult {
    New,
    /// The same request, with the same idempotency key, created this sandbox before; it may have been deleted since.
    Existing(SandboxId),
}
