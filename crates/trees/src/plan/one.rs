//! Decides a single path: from the three sides, and by its policy; and handles moved files.

use std::collections::{BTreeMap, HashMap};

use super::{ChangeSinceBase, ConflictKind, Content, Outcome, PathNode, Planner, Policy, Side, ThreeWay};
use crate::text::{self, Clash};
use crate::{Identity, Kind, Node, TreeError};

/// The result for a path without a policy.
enum Verdict {
    Settled(Outcome),
    Clash(ConflictKind),
}

/// The three values of one aspect of a file.
fn merge_one<T: PartialEq + Clone>(base: &T, ours: &T, theirs: &T) -> Option<T> {
    if ours == theirs || theirs == base {
        Some(ours.clone())
    } else if ours == base {
        Some(theirs.clone())
    } else {
        None
    }
}

/// Mode, owner and attributes of the three; `None`: both sides changed one of them differently.
fn merge_attributes(base: &Node, ours: &Node, theirs: &Node) -> Option<Node> {
    let owner = |node: &Node| (node.uid, node.gid);
    let (uid, gid) = merge_one(&owner(base), &owner(ours), &owner(theirs))?;
    let mut attributes = BTreeMap::new();
    for name in base.attributes.keys().chain(ours.attributes.keys()).chain(theirs.attributes.keys()) {
        let value = |node: &Node| node.attributes.get(name).cloned();
        if let Some(value) = merge_one(&value(base), &value(ours), &value(theirs))? {
            attributes.insert(name.clone(), value);
        }
    }
    let mode = merge_one(&base.mode, &ours.mode, &theirs.mode)?;
    Some(Node { mode, uid, gid, attributes, ..ours.clone() })
}

impl Planner<'_> {
    pub(super) fn decide(&mut self, path: &[u8]) -> Result<Outcome, TreeError> {
        let Some(three) = self.names.get(path).cloned() else { return Ok(Outcome::Keep) };
        match self.verdict(&three)? {
            Verdict::Settled(outcome) => Ok(outcome),
            Verdict::Clash(kind) => self.by_policy(path, &three, kind),
        }
    }

    fn verdict(&self, three: &ThreeWay) -> Result<Verdict, TreeError> {
        let (base, ours, theirs) = (three.base.as_ref(), three.ours.as_ref(), three.theirs.as_ref());
        let (in_base, in_ours, in_theirs) = (
            base.map(|at| (Side::Base, at)),
            ours.map(|at| (Side::Ours, at)),
            theirs.map(|at| (Side::Theirs, at)),
        );
        let settled = |outcome| Ok(Verdict::Settled(outcome));
        let take = || if theirs.is_some() { Outcome::Take } else { Outcome::Delete };
        // Both unmoved and equal: the most common case.
        if self.is_equal(in_base, in_theirs)? && !is_moved(theirs, base) {
            return settled(Outcome::Keep);
        }
        if self.is_equal(in_ours, in_theirs)? {
            return settled(Outcome::Keep);
        }
        if self.is_equal(in_base, in_ours)? {
            return settled(take());
        }
        let same_kinds = |one: &PathNode, other: &PathNode| {
            std::mem::discriminant(&one.node.kind) == std::mem::discriminant(&other.node.kind)
        };
        Ok(match (base, ours, theirs) {
            (Some(base), Some(ours), Some(theirs)) if same_kinds(base, ours) && same_kinds(ours, theirs) => {
                self.aspects(base, ours, theirs)?
            }
            (None, Some(ours), Some(theirs)) if ours.node.is_directory() && theirs.node.is_directory() => {
                Verdict::Clash(ConflictKind::Attributes)
            }
            (None, Some(ours), Some(theirs)) if same_kinds(ours, theirs) => {
                Verdict::Clash(ConflictKind::BothAdded)
            }
            (_, Some(_), Some(_)) => Verdict::Clash(ConflictKind::Kind),
            (_, None, Some(_)) => Verdict::Clash(ConflictKind::DeletedByOurs),
            (_, Some(_), None) => Verdict::Clash(ConflictKind::DeletedByTheirs),
            (_, None, None) => Verdict::Settled(Outcome::Keep),
        })
    }

    /// Merges content, mode, owner and attributes separately.
    fn aspects(&self, base: &PathNode, ours: &PathNode, theirs: &PathNode) -> Result<Verdict, TreeError> {
        let Some(attributes) = merge_attributes(&base.node, &ours.node, &theirs.node) else {
            return Ok(Verdict::Clash(ConflictKind::Attributes));
        };
        let (in_ours, in_theirs) = ((Side::Ours, ours), (Side::Theirs, theirs));
        let same = |one, other| self.is_same_content(one, other);
        let from_theirs = if same((Side::Base, base), in_theirs)? || same(in_ours, in_theirs)? {
            false
        } else if same((Side::Base, base), in_ours)? {
            true
        } else {
            return Ok(Verdict::Clash(ConflictKind::BothChanged));
        };
        // Ours has all of it already: a repeated merge has nothing to do.
        if !from_theirs && is_kept(ours, theirs) && attributes.has_same_attributes(&ours.node) {
            return Ok(Verdict::Settled(Outcome::Keep));
        }
        let node = match from_theirs {
            true => Node {
                kind: theirs.node.kind.clone(),
                modified: theirs.node.modified,
                identity: None,
                ..attributes
            },
            false => Node { identity: None, ..attributes },
        };
        let content = match (node.is_file(), from_theirs) {
            (false, _) => Content::None,
            (true, true) => Content::Theirs { path: theirs.path.clone() },
            (true, false) => Content::Ours { path: ours.path.clone() },
        };
        Ok(Verdict::Settled(Outcome::Mixed { node, content }))
    }

    fn by_policy(&mut self, path: &[u8], three: &ThreeWay, kind: ConflictKind) -> Result<Outcome, TreeError> {
        let take = || if three.theirs.is_some() { Outcome::Take } else { Outcome::Delete };
        let policy = self.policies.of(path);
        if kind == ConflictKind::Kind {
            match policy {
                Policy::Ours => self.chosen.push((path.to_vec(), Side::Ours)),
                Policy::Theirs => self.chosen.push((path.to_vec(), Side::Theirs)),
                Policy::Fail | Policy::Union | Policy::Text => {}
            }
        }
        let resolved = match policy {
            Policy::Fail => None,
            Policy::Ours => Some(Outcome::Keep),
            Policy::Theirs => Some(take()),
            Policy::Union if kind == ConflictKind::DeletedByOurs => Some(Outcome::Take),
            Policy::Union if kind == ConflictKind::DeletedByTheirs => Some(Outcome::Keep),
            Policy::Union | Policy::Text
                if matches!(kind, ConflictKind::BothChanged | ConflictKind::BothAdded) =>
            {
                let clash = if policy == Policy::Union { Clash::Both } else { Clash::Refuse };
                self.merge_lines(path, three, clash)?
            }
            Policy::Union | Policy::Text => None,
        };
        Ok(resolved.unwrap_or_else(|| {
            self.conflict(path, kind);
            Outcome::Keep
        }))
    }

    fn merge_lines(
        &mut self,
        path: &[u8],
        three: &ThreeWay,
        clash: Clash,
    ) -> Result<Option<Outcome>, TreeError> {
        let (Some(ours), Some(theirs)) = (&three.ours, &three.theirs) else { return Ok(None) };
        if !ours.node.is_file() || !theirs.node.is_file() {
            return Ok(None);
        }
        let read = |side, at: Option<&PathNode>| match at {
            Some(at) => self.contents.text(side, &at.path),
            None => Ok(Some(Vec::new())),
        };
        let texts = (
            read(Side::Base, three.base.as_ref())?,
            read(Side::Ours, Some(ours))?,
            read(Side::Theirs, Some(theirs))?,
        );
        let (Some(base), Some(mine), Some(others)) = texts else { return Ok(None) };
        if ![&base, &mine, &others].into_iter().all(|content| text::is_text(content)) {
            return Ok(None);
        }
        let attributes = match &three.base {
            Some(base) => merge_attributes(&base.node, &ours.node, &theirs.node),
            // If both sides added it with different permissions, neither can be preferred.
            None => ours.node.has_same_attributes(&theirs.node).then(|| ours.node.clone()),
        };
        let (Some(attributes), Some(content)) = (attributes, text::merge(&base, &mine, &others, clash))
        else {
            return Ok(None);
        };
        if content == mine && is_kept(ours, theirs) && attributes.has_same_attributes(&ours.node) {
            return Ok(Some(Outcome::Keep));
        }
        let kind = Kind::File { bytes: content.len() as u64 };
        let modified = ours.node.modified.max(theirs.node.modified);
        self.plan.merged.push(path.to_vec());
        let node = Node { kind, modified, identity: None, ..attributes };
        Ok(Some(Outcome::Mixed { node, content: Content::Merged { content } }))
    }

    fn is_equal(
        &self,
        one: Option<(Side, &PathNode)>,
        other: Option<(Side, &PathNode)>,
    ) -> Result<bool, TreeError> {
        match (one, other) {
            (None, None) => Ok(true),
            (Some(one), Some(other)) => {
                Ok(one.1.node.is_alike(&other.1.node) && self.is_same_content(one, other)?)
            }
            (None, Some(_)) | (Some(_), None) => Ok(false),
        }
    }

    pub(super) fn is_same_content(
        &self,
        one: (Side, &PathNode),
        other: (Side, &PathNode),
    ) -> Result<bool, TreeError> {
        let (left, right) = (&one.1.node, &other.1.node);
        if left.kind != right.kind {
            return Ok(false);
        }
        if !left.is_file() {
            return Ok(true);
        }
        let whose = |(side, at): (Side, &PathNode)| {
            (if at.since_base == ChangeSinceBase::Nothing { Side::Base } else { side }, at.path.clone())
        };
        let mut pair = [whose(one), whose(other)];
        pair.sort();
        if pair[0] == pair[1] {
            return Ok(true);
        }
        if let Some(known) = self.compared.borrow().get(&pair) {
            return Ok(*known);
        }
        let same = self.contents.is_same((pair[0].0, &pair[0].1), (pair[1].0, &pair[1].1))?;
        self.compared.borrow_mut().insert(pair, same);
        Ok(same)
    }

    // === Moved files ===

    /// A file that one side moved and the other changed is decided at its new path.
    pub(super) fn pair_moved(&mut self) -> Result<(), TreeError> {
        for (from, to) in self.moved_by(|three| &three.theirs) {
            let (Some(old), Some(new)) = (self.names.get(&from), self.names.get(&to)) else { continue };
            // Both sides moved it there, or an earlier merge did.
            if old.ours.is_none() && new.ours.as_ref().is_some_and(|at| at.node.is_file()) {
                let three =
                    ThreeWay { base: old.base.clone(), ours: new.ours.clone(), theirs: new.theirs.clone() };
                self.names.insert(to, three);
                continue;
            }
            // Ours still has it at its old path, changed, and has nothing at the new path.
            let changed = !self.is_equal(
                old.base.as_ref().map(|at| (Side::Base, at)),
                old.ours.as_ref().map(|at| (Side::Ours, at)),
            )?;
            if old.ours.is_some() && new.ours.is_none() && changed {
                let three =
                    ThreeWay { base: old.base.clone(), ours: old.ours.clone(), theirs: new.theirs.clone() };
                self.outcomes.insert(from.clone(), Outcome::Delete);
                self.settle_moved(from, to, three)?;
            }
        }
        for (from, to) in self.moved_by(|three| &three.ours) {
            let (Some(old), Some(new)) = (self.names.get(&from), self.names.get(&to)) else { continue };
            let changed = !self.is_equal(
                old.base.as_ref().map(|at| (Side::Base, at)),
                old.theirs.as_ref().map(|at| (Side::Theirs, at)),
            )?;
            if old.theirs.is_some() && new.theirs.is_none() && changed {
                let three =
                    ThreeWay { base: old.base.clone(), ours: new.ours.clone(), theirs: old.theirs.clone() };
                self.outcomes.insert(from.clone(), Outcome::Keep);
                self.settle_moved(from, to, three)?;
            }
        }
        Ok(())
    }

    fn settle_moved(&mut self, from: Vec<u8>, to: Vec<u8>, three: ThreeWay) -> Result<(), TreeError> {
        // An existing entry at the new path must still be seen.
        self.names.insert(to.clone(), three.clone());
        let outcome = self.decide(&to)?;
        // Taken or kept, it must be at its new path, whichever side has its content.
        let outcome = match outcome {
            Outcome::Keep => match three.ours.as_ref().filter(|at| at.path != to) {
                Some(ours) => {
                    let content = Content::Ours { path: ours.path.clone() };
                    Outcome::Mixed { node: ours.node.clone(), content }
                }
                None => Outcome::Keep,
            },
            other @ (Outcome::Delete | Outcome::Take | Outcome::Mixed { .. }) => other,
        };
        self.outcomes.insert(to.clone(), outcome);
        self.plan.moved.push((from, to));
        Ok(())
    }

    /// Files of the base that one side has under another name, and no longer under the old one: from, to.
    fn moved_by(&self, side: fn(&ThreeWay) -> &Option<PathNode>) -> Vec<(Vec<u8>, Vec<u8>)> {
        let single = |at: &PathNode| -> Option<(u64, (i64, u32))> {
            let Identity { inode, born, links } = at.node.identity?;
            (at.node.is_file() && links == 1).then_some((inode, born))
        };
        let mut gone = HashMap::new();
        for (path, three) in &self.names {
            if let (Some(base), None) = (&three.base, side(three))
                && let Some(identity) = single(base)
            {
                gone.insert(identity, path.clone());
            }
        }
        let mut found = Vec::new();
        for (path, three) in &self.names {
            if let (None, Some(now)) = (&three.base, side(three))
                && let Some(from) = single(now).and_then(|identity| gone.get(&identity))
            {
                found.push((from.clone(), path.clone()));
            }
        }
        found
    }
}

/// Whether ours already has the resulting path.
fn is_kept(ours: &PathNode, theirs: &PathNode) -> bool {
    ours.path == theirs.path
}

fn is_moved(one: Option<&PathNode>, other: Option<&PathNode>) -> bool {
    matches!((one, other), (Some(one), Some(other)) if one.path != other.path)
}
