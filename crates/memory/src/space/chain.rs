//! Visibility as a value: which rows a view sees.
//!
//! ```text
//!  branch 1   1 ─ 2 ─ 3 ─ 5          branch 2 = (parent 1, up to 2)   chain [(2, ∞), (1, 2)]
//!                 └─ 4 ─ 6
//! ```
//!
//! A row (branch, seq) is visible if and only if the chain has the branch with a bound of at least that number. A moment of the
//! past cuts every bound. Pure: no lock, no disk.

use std::collections::HashMap;

use burrow_model::{BranchId, MemoryPoint, MemoryRef};

/// A branch's number in its file; from 1.
pub type BranchNo = u32;

/// The maximum depth of forks. A file with more is damaged, and a walk over its parents must end.
const DEPTH_MAX: usize = 100_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Branch {
    pub(crate) id: BranchId,
    pub(crate) parent: Option<(BranchNo, u64)>,
}

/// The branches of a file, by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Branches {
    by_no: HashMap<BranchNo, Branch>,
    by_id: HashMap<BranchId, BranchNo>,
    last: BranchNo,
}

impl Branches {
    pub(crate) fn insert(&mut self, no: BranchNo, branch: Branch) {
        self.last = self.last.max(no);
        self.by_id.insert(branch.id.clone(), no);
        self.by_no.insert(no, branch);
    }

    pub(crate) fn number(&self, id: &BranchId) -> Option<BranchNo> {
        self.by_id.get(id).copied()
    }

    pub(crate) fn get(&self, no: BranchNo) -> Option<&Branch> {
        self.by_no.get(&no)
    }

    pub(crate) fn last(&self) -> BranchNo {
        self.last
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (BranchNo, &Branch)> {
        self.by_no.iter().map(|(no, branch)| (*no, branch))
    }
}

/// The rows that a view sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// By branch number: the first number that is *not* visible. 0 for a branch that is not on the chain.
    ends: Vec<u64>,
    /// Nothing above it is visible.
    cut: u64,
}

impl Chain {
    pub(crate) fn nothing() -> Self {
        Self { ends: Vec::new(), cut: 0 }
    }

    /// The present of a branch: all of its own rows up to `cut`.
    pub(crate) fn of(branches: &Branches, of: &MemoryRef, cut: u64) -> Self {
        match branches.number(&of.branch) {
            Some(no) => Self::walk(branches, no, u64::MAX, cut),
            None => Self::at(branches, of.from.as_ref(), cut),
        }
    }

    /// A moment of a branch.
    pub(crate) fn at(branches: &Branches, point: Option<&MemoryPoint>, cut: u64) -> Self {
        let found = point.and_then(|point| Some((branches.number(&point.branch)?, point.seq)));
        match found {
            Some((no, bound)) => Self::walk(branches, no, bound, cut),
            None => Self::nothing(),
        }
    }

    fn walk(branches: &Branches, no: BranchNo, bound: u64, cut: u64) -> Self {
        let mut ends = vec![0; branches.last() as usize + 1];
        let mut next = Some((no, bound.min(cut)));
        for _ in 0..DEPTH_MAX {
            let Some((no, bound)) = next else { break };
            let Some(end) = ends.get_mut(no as usize) else { break };
            *end = (*end).max(bound.saturating_add(1));
            let parent = branches.get(no).and_then(|branch| branch.parent);
            next = parent.map(|(parent, seq)| (parent, seq.min(bound)));
        }
        Self { ends, cut: cut.min(bound) }
    }

    pub fn sees(&self, branch: BranchNo, seq: u64) -> bool {
        seq < self.ends.get(branch as usize).copied().unwrap_or(0)
    }

    /// The rows that any of `known` sees as well. A chain is a bound per branch, so the result is one, too.
    pub(crate) fn common(&self, known: &[Self]) -> Self {
        let end = |no| known.iter().filter_map(|chain| chain.ends.get(no).copied()).max().unwrap_or(0);
        let ends = self.ends.iter().enumerate().map(|(no, own)| (*own).min(end(no))).collect();
        Self { ends, cut: self.cut }
    }

    /// The first number of a branch that is not visible.
    pub(crate) fn end(&self, branch: BranchNo) -> u64 {
        self.ends.get(branch as usize).copied().unwrap_or(0)
    }

    /// Nothing above this number is visible.
    pub fn cut(&self) -> u64 {
        self.cut
    }

    /// Branches on the chain, with the highest visible number of each.
    pub fn links(&self) -> impl Iterator<Item = (BranchNo, u64)> {
        (0u32..).zip(&self.ends).filter(|(_, end)| **end > 0).map(|(no, end)| (no, end - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burrow_model::SpaceId;

    struct Family {
        space: SpaceId,
        branches: Branches,
        ids: Vec<BranchId>,
    }

    impl Family {
        fn new(parents: &[Option<(BranchNo, u64)>]) -> Self {
            let mut branches = Branches::default();
            let mut ids = Vec::new();
            for (no, parent) in (1..).zip(parents) {
                let id = BranchId::generate();
                branches.insert(no, Branch { id: id.clone(), parent: *parent });
                ids.push(id);
            }
            Self { space: SpaceId::generate(), branches, ids }
        }

        fn present(&self, no: usize, cut: u64) -> Chain {
            let of = MemoryRef { space: self.space.clone(), branch: self.ids[no - 1].clone(), from: None };
            Chain::of(&self.branches, &of, cut)
        }
    }

    #[test]
    fn a_grandchild_sees_its_ancestors_only_up_to_the_forks() {
        let family = Family::new(&[None, Some((1, 10)), Some((2, 5)), Some((1, 3))]);
        let chain = family.present(3, u64::MAX);
        assert!(chain.sees(3, 1_000_000));
        assert!(chain.sees(2, 5) && !chain.sees(2, 6));
        assert!(chain.sees(1, 5) && !chain.sees(1, 6), "what came after the child's own past is not seen");
        assert!(!chain.sees(4, 1), "a sibling is not seen");
        assert!(!chain.sees(9, 1) && !chain.sees(0, 0));
    }

    #[test]
    fn a_moment_of_the_past_cuts_every_bound() {
        let family = Family::new(&[None, Some((1, 10))]);
        let chain = family.present(2, 4);
        assert!(chain.sees(1, 4) && !chain.sees(1, 5) && !chain.sees(2, 5));
    }

    #[test]
    fn a_branch_without_rows_sees_only_its_ancestors() {
        let family = Family::new(&[None]);
        let point = MemoryPoint { branch: family.ids[0].clone(), seq: 7 };
        let unborn = MemoryRef::branched(&family.space, Some(point));
        let chain = Chain::of(&family.branches, &unborn, u64::MAX);
        assert!(chain.sees(1, 7) && !chain.sees(1, 8));
        let nothing = MemoryRef::branched(&family.space, None);
        assert_eq!(Chain::of(&family.branches, &nothing, u64::MAX), Chain::nothing());
    }

    #[test]
    fn a_cycle_of_parents_terminates() {
        let family = Family::new(&[Some((2, 5)), Some((1, 5))]);
        assert!(family.present(1, u64::MAX).sees(1, 5));
    }
}
