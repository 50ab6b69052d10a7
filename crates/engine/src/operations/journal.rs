//! Operations: changes of several steps that neither a crash nor a failure leaves half done.
//!
//! An operation's row names the *resources* it may touch. The row is durable before the first of them is touched, and every
//! resource is named by its sandbox's id and removed idempotently, so undoing needs no other record. Recovery after a crash and
//! unwinding after a failure are therefore the same: remove the resources in reverse order, then settle the sandbox's row.
//!
//! | operation | may touch                | after a crash or failure               |
//! |-----------|--------------------------|----------------------------------------|
//! | create    | disk, network, machine   | undone: as if never requested          |
//! | start     | network, machine         | undone: stopped, as before             |
//! | stop      | machine, network         | completed: stopped                     |
//! | delete    | machine, network, disk   | completed: removed                     |
//! | hibernate | a dump, a trial of it    | undone: runs, or is paused, as before  |
//! | wake      | network, machine         | undone: hibernated, its dump kept      |
//! | snapshot  | a dump, a trial of it, a disk snapshot | undone: as if never requested |
//! | trial     | a trial of a snapshot's dump | undone: as if never requested     |
//! | restore   | machine, network, disk   | completed: with the snapshot's state   |
//! | import    | its own snapshot, dump and memory space | undone: as if never requested |
//! | merge     | files on the disk        | undone: the files of the snapshot before |
//!
//! What a hibernate and a snapshot create beside the sandbox is named in the row's [`Detail`]. A restore could only be undone by
//! restoring the snapshot that it took first, so it is completed instead. A sandbox's egress listeners are part of its network: they
//! are closed before it is released.

use burrow_catalog::OperationRow;
use burrow_model::{
    DumpId, MergeId, MountMode, OperationId, SandboxId, SandboxSpec, SnapshotId, TenantId, VolumeId,
    VolumeSnapshotId,
};
use serde::{Deserialize, Serialize};

/// One kind of resource on the host that belongs to a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Resource {
    #[serde(alias = "volume")]
    Disk,
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
    Import,
    Merge,
    Trial,
}

/// The state of a sandbox after an operation was unwound or completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    Stopped,
    Gone,
    /// As before the operation: its machine runs, or is paused, if it did before.
    AsBefore,
    Hibernated,
    /// With the files of the snapshot; hibernated with its processes, or stopped.
    Restored,
    /// As before the operation, including its files.
    Unmerged,
}

/// What an operation creates or uses beside the sandbox's own resources. Durable with the row, so that it can be undone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Detail {
    /// Created by a snapshot or an import; used by a restore.
    pub snapshot: Option<SnapshotId>,
    /// Created by a hibernate, a snapshot or an import; holds the processes that a restore brings back.
    pub dump: Option<DumpId>,
    /// The merge whose files are changed; `snapshot` holds the files before it.
    pub merge: Option<MergeId>,
    /// Whether the sandbox was paused before.
    pub paused: bool,
    /// The resources of a trial of whether a dump can be restored.
    pub trial: Option<Trial>,
}

/// A sandbox that never runs, and what its files are copied from. They exist only during the operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    pub sandbox: SandboxId,
    pub snapshot: SnapshotId,
    /// Copies that take the place of the volumes that the sandbox may write to.
    #[serde(default)]
    pub volumes: Vec<VolumeCopy>,
}

/// A copy of a volume, made from a snapshot of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeCopy {
    pub of: VolumeId,
    pub snapshot: VolumeSnapshotId,
    pub copy: VolumeId,
}

impl Trial {
    /// New ids for a trial of a sandbox with these settings.
    pub fn new(spec: &SandboxSpec) -> Self {
        let writable = spec.volumes.iter().filter(|mount| mount.mode == MountMode::Rw);
        let volumes = writable.map(|mount| VolumeCopy {
            of: mount.volume.clone(),
            snapshot: VolumeSnapshotId::generate(),
            copy: VolumeId::generate(),
        });
        Self { sandbox: SandboxId::generate(), snapshot: SnapshotId::generate(), volumes: volumes.collect() }
    }
}

impl Operation {
    pub const ALL: [Self; 11] = [
        Self::Create,
        Self::Start,
        Self::Stop,
        Self::Delete,
        Self::Hibernate,
        Self::Wake,
        Self::Snapshot,
        Self::Restore,
        Self::Import,
        Self::Merge,
        Self::Trial,
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
            Self::Import => "import",
            Self::Merge => "merge",
            Self::Trial => "trial",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|operation| operation.as_str() == text)
    }

    /// The sandbox's own resources that it may touch, in the order of creation; they are removed in reverse. What a hibernate or a
    /// snapshot creates is named by its [`Detail`].
    pub fn resources(self) -> &'static [Resource] {
        match self {
            Self::Create | Self::Delete => &[Resource::Disk, Resource::Network, Resource::Machine],
            Self::Start | Self::Stop | Self::Wake | Self::Restore => &[Resource::Network, Resource::Machine],
            Self::Hibernate | Self::Snapshot | Self::Import | Self::Merge | Self::Trial => &[],
        }
    }

    pub fn settlement(self) -> Settlement {
        match self {
            Self::Create | Self::Delete => Settlement::Gone,
            Self::Start | Self::Stop => Settlement::Stopped,
            Self::Hibernate | Self::Snapshot | Self::Import | Self::Trial => Settlement::AsBefore,
            Self::Wake => Settlement::Hibernated,
            Self::Restore => Settlement::Restored,
            Self::Merge => Settlement::Unmerged,
        }
    }

    /// The row that must be durable before the first resource is touched.
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
    /// The detail of an operation's row. A row of a newer version may have more fields; this version cannot undo those.
    pub fn of(row: &OperationRow) -> Self {
        serde_json::from_value(row.detail.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_parsed_from_its_stored_name() {
        for operation in Operation::ALL {
            assert_eq!(Operation::parse(operation.as_str()), Some(operation));
        }
        assert_eq!(Operation::parse("dance"), None);
    }

    #[test]
    fn operations_that_end_without_a_row_release_the_disk_too() {
        for operation in Operation::ALL {
            let volume = operation.resources().contains(&Resource::Disk);
            assert_eq!(volume, operation.settlement() == Settlement::Gone, "{operation:?}");
        }
    }
}
