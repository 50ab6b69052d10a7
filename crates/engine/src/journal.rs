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
//!
//! A sandbox's doors to the egress process are part of its network: they are closed before it is released.

use burrow_catalog::OperationRow;
use burrow_model::{OperationId, SandboxId, TenantId};
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
}

/// Where a sandbox is when an operation has been unwound or completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    Stopped,
    Gone,
}

impl Operation {
    pub const ALL: [Self; 4] = [Self::Create, Self::Start, Self::Stop, Self::Delete];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Delete => "delete",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|operation| operation.as_str() == text)
    }

    /// What it may touch, in the order it makes it; removal goes from the end.
    pub fn resources(self) -> &'static [Resource] {
        match self {
            Self::Create | Self::Delete => &[Resource::Volume, Resource::Network, Resource::Machine],
            Self::Start | Self::Stop => &[Resource::Network, Resource::Machine],
        }
    }

    pub fn settlement(self) -> Settlement {
        match self {
            Self::Create | Self::Delete => Settlement::Gone,
            Self::Start | Self::Stop => Settlement::Stopped,
        }
    }

    /// The row that must be durable before the first resource.
    pub fn row(self, tenant: &TenantId, sandbox: &SandboxId, now_ms: u64) -> OperationRow {
        OperationRow {
            id: OperationId::generate(),
            tenant: tenant.clone(),
            sandbox: sandbox.clone(),
            kind: self.as_str().to_owned(),
            steps: serde_json::to_value(self.resources()).expect("a list of unit variants is JSON"),
            started_ms: now_ms,
        }
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
