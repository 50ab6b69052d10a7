//! Operations: changes of several steps that a crash or a failure cannot leave half-done.
//!
//! An operation's row names the *resources* it may touch. The row is durable before the first of them is, and every
//! resource is named by its sandbox's id and removed idempotently, so that undoing needs no other record. Recovery
//! after a crash and unwinding after a failure are therefore one and the same: remove the resources in reverse order,
//! then settle the sandbox's row.
//!
//! | operation | may touch                | after a crash or failure               |
//! |-----------|--------------------------|----------------------------------------|
//! | create    | volume, network, machine | undone: as if it had never been asked  |
//! | start     | network, machine         | undone: stopped, as before             |
//! | stop      | machine, network         | completed: stopped                     |
//! | delete    | machine, network, volume | completed: gone                        |
//! | hibernate | a dump                   | undone: runs, or is paused, as before  |
//! | wake      | network, machine         | undone: hibernated, its dump kept      |
//! | snapshot  | a dump, a disk snapshot  | undone: as if it had never been asked  |
//! | restore   | machine, network, volume | completed: with the snapshot's state   |
//! | merge     | files in the volume      | undone: the files of the snapshot before |
//!
//! A hibernate and a snapshot name what they make beside the sandbox in the row's [`Detail`]. A restore replaces what it
//! could only undo from the snapshot it took first, so it goes on instead. A sandbox's doors to the egress process are part of its network: they are closed before it is released.

use burrow_catalog::OperationRow;
use burrow_model::{DumpId, MergeId, OperationId, SandboxId, SnapshotId, TenantId};
use serde::{Deserialize, Serialize};

/// One kind of thing on the host that belongs to a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Resource {
    Volume,
    Network,
    Machine,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Start,
    Stop,
    Delete,
    Hibernate,
    Wake,
    Snapshot,
    Restore,
    Merge,
}

/// Where a sandbox is when an operation has been unwound or completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    Stopped,
    Gone,
    /// As the operation found it: its machine runs, or is paused, if it did before.
    AsBefore,
    Hibernated,
    /// With the files of the snapshot, and asleep with its processes, or stopped.
    Restored,
    /// As the operation found it, its files too.
    Unmerged,
}

/// What an operation makes or uses beside the sandbox's own resources. Durable with the row, so that it can be undone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Detail {
    /// Made by a snapshot; gone back to by a restore.
    pub snapshot: Option<SnapshotId>,
    /// Made by a hibernate or a snapshot; the processes a restore brings back.
    pub dump: Option<DumpId>,
    /// The merge whose files are changed; `snapshot` holds them as they were.
    pub merge: Option<MergeId>,
    /// Whether the sandbox was paused before.
    pub paused: bool,
}

impl Operation {
    pub const ALL: [Self; 9] = [
        Self::Create,
        Self::Start,
        Self::Stop,
        Self::Delete,
        Self::Hibernate,
        Self::Wake,
        Self::Snapshot,
        Self::Restore,
        Self::Merge,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Delete => "delete",
            Self::Hibernate => "hibernate",
            Self::Wake => "wake",
            Self::Snapshot => "snapshot",
            Self::Restore => "restore",
            Self::Merge => "merge",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|operation| operation.as_str() == text)
    }

    /// What it may touch of the sandbox's own, in the order it makes it; removal goes from the end. What a hibernate or a
    /// snapshot makes is named by its [`Detail`].
    pub fn resources(self) -> &'static [Resource] {
        match self {
            Self::Create | Self::Delete => &[Resource::Volume, Resource::Network, Resource::Machine],
            Self::Start | Self::Stop | Self::Wake | Self::Restore => &[Resource::Network, Resource::Machine],
            Self::Hibernate | Self::Snapshot | Self::Merge => &[],
        }
    }

    pub fn settlement(self) -> Settlement {
        match self {
            Self::Create | Self::Delete => Settlement::Gone,
            Self::Start | Self::Stop => Settlement::Stopped,
            Self::Hibernate | Self::Snapshot => Settlement::AsBefore,
            Self::Wake => Settlement::Hibernated,
            Self::Restore => Settlement::Restored,
            Self::Merge => Settlement::Unmerged,
        }
    }

    /// The row that must be durable before the first resource.
    pub fn row(self, tenant: &TenantId, sandbox: &SandboxId, detail: &Detail, now_ms: u64) -> OperationRow {
        OperationRow {
            id: OperationId::generate(),
            tenant: tenant.clone(),
            sandbox: sandbox.clone(),
            kind: self.as_str().to_owned(),
            steps: serde_json::to_value(self.resources()).expect("a list of unit variants is JSON"),
            detail: serde_json::to_value(detail).expect("ids are JSON"),
            started_ms: now_ms,
        }
    }
}

impl Detail {
    /// As an operation's row holds it. One of a newer version may say more; what it says beside is not ours to undo.
    pub fn of(row: &OperationRow) -> Self {
        serde_json::from_value(row.detail.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_known_by_the_name_it_is_stored_under() {
        for operation in Operation::ALL {
            assert_eq!(Operation::parse(operation.as_str()), Some(operation));
        }
        assert_eq!(Operation::parse("dance"), None);
    }

    #[test]
    fn what_ends_without_a_row_gives_back_its_volume_too() {
        for operation in Operation::ALL {
            let volume = operation.resources().contains(&Resource::Volume);
            assert_eq!(volume, operation.settlement() == Settlement::Gone, "{operation:?}");
        }
    }
}
