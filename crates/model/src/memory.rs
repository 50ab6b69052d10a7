//! Where an agent's memories are stored, and which of them a sandbox can see.
//!
//! A *space* stores memories in one append-only log. A *branch* is one line of it: its own entries, and those of its parent
//! branch up to the number at which it branched off. A sandbox has one branch; a fork and a restore each start a new one:
//!
//! ```text
//!  branch of the parent   1 ─ 2 ─ 3 ─ 5 ─ 7          sees 1 2 3 5 7
//!  branch of the child            └─ 4 ─ 6            sees 1 2 3 4 6
//! ```
//!
//! Invariant: a [`MemoryPoint`] names a branch that has its own entries, so it can be resolved without knowing which
//! sandboxes exist.

use serde::{Deserialize, Serialize};

use crate::{BranchId, SandboxId, SpaceId};

/// The maximum number of spaces attached to one sandbox: each is searched with every question.
pub const ATTACHED_MAX: usize = 8;

/// One branch of a space, and the point at which it branched off.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MemoryRef {
    pub space: SpaceId,
    pub branch: BranchId,
    /// The past that it sees. `None`: only its own entries.
    pub from: Option<MemoryPoint>,
}

impl MemoryRef {
    /// The memory that a sandbox is created with. Named after it, so that it needs no row until something differs.
    pub fn own(sandbox: &SandboxId) -> Self {
        Self { space: SpaceId::of(sandbox), branch: BranchId::of(sandbox), from: None }
    }

    /// The only branch of a space that does not branch.
    pub fn main(space: &SpaceId) -> Self {
        Self { space: space.clone(), branch: BranchId::main(space), from: None }
    }

    /// A new branch that continues from `point`.
    pub fn branched(space: &SpaceId, point: Option<MemoryPoint>) -> Self {
        Self { space: space.clone(), branch: BranchId::generate(), from: point }
    }
}

/// A point in a space: everything that a branch contained up to a number.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MemoryPoint {
    pub branch: BranchId,
    pub seq: u64,
}

/// A snapshot's record of memory: not a copy, but a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotMemory {
    pub space: SpaceId,
    /// `None`: there were no memories yet.
    pub point: Option<MemoryPoint>,
    /// The last number in the sandbox's named space, if it had one: for reading earlier states, never for restoring.
    #[serde(default)]
    pub named: Option<NamedPoint>,
}

/// The last number in a space that outlives sandboxes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedPoint {
    pub space: SpaceId,
    pub point: Option<MemoryPoint>,
}

/// The user's settings for a sandbox's memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySpec {
    /// A space that outlives the sandbox, used instead of its own. It is not rolled back.
    pub space: Option<SpaceId>,
    /// Additional spaces that are searched.
    pub attached: Vec<AttachedSpace>,
    pub remember: RememberMode,
}

impl MemorySpec {
    /// Its own space, without automatic memories. For rows from before memory existed.
    pub fn quiet() -> Self {
        Self { space: None, attached: Vec::new(), remember: RememberMode::Off }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachedSpace {
    pub space: SpaceId,
    pub access: SpaceAccess,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpaceAccess {
    Read,
    ReadWrite,
}

/// Which execs become memories automatically.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RememberMode {
    Off,
    /// Failed execs, and later ones that succeed at the same task.
    Errors,
    All,
}

impl RememberMode {
    pub const ALL: [Self; 3] = [Self::Off, Self::Errors, Self::All];

    /// The stored and displayed form.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Errors => "errors",
            Self::All => "all",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_is_born_with_memory_of_its_own_that_is_the_same_each_time() {
        let sandbox = SandboxId::generate();
        let own = MemoryRef::own(&sandbox);
        assert_eq!(own, MemoryRef::own(&sandbox));
        assert_eq!(own.space.as_str().parse::<SpaceId>().unwrap(), own.space);
        assert_ne!(own.space, MemoryRef::own(&SandboxId::generate()).space);
    }

    #[test]
    fn a_branch_of_a_space_is_never_its_first_one() {
        let own = MemoryRef::own(&SandboxId::generate());
        let point = MemoryPoint { branch: own.branch.clone(), seq: 7 };
        let child = MemoryRef::branched(&own.space, Some(point.clone()));
        assert_eq!((&child.space, child.from.as_ref()), (&own.space, Some(&point)));
        assert_ne!(child.branch, own.branch);
    }
}
