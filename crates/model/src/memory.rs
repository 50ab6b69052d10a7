//! Where what an agent remembers is kept, and how far a sandbox can see into it.
//!
//! A *space* holds memory in one append-only log. A *branch* is one line of it: its own entries, and those of the branch
//! it came from up to the number where it left it. A sandbox has one branch; a fork and a restore each start a new one:
//!
//! ```text
//!  branch of the parent   1 ─ 2 ─ 3 ─ 5 ─ 7          sees 1 2 3 5 7
//!  branch of the child            └─ 4 ─ 6            sees 1 2 3 4 6
//! ```
//!
//! Invariant: a [`MemoryPoint`] names a branch that has entries of its own, so it can be looked up without knowing which
//! sandboxes there are.

use serde::{Deserialize, Serialize};

use crate::{BranchId, SandboxId, SpaceId};

/// Most spaces attached to one sandbox: each is searched with every question.
pub const ATTACHED_MAX: usize = 8;

/// One branch of a space, and where it left another.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MemoryRef {
    pub space: SpaceId,
    pub branch: BranchId,
    /// What it sees of the past. `None`: nothing but its own.
    pub from: Option<MemoryPoint>,
}

impl MemoryRef {
    /// The memory a sandbox is born with. Named after it, so that it needs no row until something differs.
    pub fn own(sandbox: &SandboxId) -> Self {
        Self { space: SpaceId::of(sandbox), branch: BranchId::of(sandbox), from: None }
    }

    /// The one line of a space that does not branch.
    pub fn main(space: &SpaceId) -> Self {
        Self { space: space.clone(), branch: BranchId::main(space), from: None }
    }

    /// A new line that goes on from `point`.
    pub fn branched(space: &SpaceId, point: Option<MemoryPoint>) -> Self {
        Self { space: space.clone(), branch: BranchId::generate(), from: point }
    }
}

/// A moment in a space: everything a branch had up to a number.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MemoryPoint {
    pub branch: BranchId,
    pub seq: u64,
}

/// What a snapshot took of memory: not a copy, a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotMemory {
    pub space: SpaceId,
    /// `None`: nothing had been remembered.
    pub point: Option<MemoryPoint>,
    /// How far the space had come that the sandbox was given by name, if it was: for looking back, never for going back.
    #[serde(default)]
    pub named: Option<NamedPoint>,
}

/// How far a space that outlives sandboxes had come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedPoint {
    pub space: SpaceId,
    pub point: Option<MemoryPoint>,
}

/// What the user decided about a sandbox's memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySpec {
    /// A space that outlives the sandbox, in place of its own. It does not roll back.
    pub space: Option<SpaceId>,
    /// Searched as well.
    pub attached: Vec<AttachedSpace>,
    pub remember: Remember,
}

impl MemorySpec {
    /// Its own space, and nothing remembered unasked. For rows from before there was memory.
    pub fn quiet() -> Self {
        Self { space: None, attached: Vec::new(), remember: Remember::Off }
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

/// Which execs become memories by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Remember {
    Off,
    /// Those that fail, and those that then succeed where they had failed.
    Errors,
    All,
}

impl Remember {
    pub const ALL: [Self; 3] = [Self::Off, Self::Errors, Self::All];

    /// As it is stored and shown.
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
