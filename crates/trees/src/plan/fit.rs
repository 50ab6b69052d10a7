//! Makes the decisions for single paths consistent: everything that is kept or added needs a parent directory.

use super::{ConflictKind, Outcome, Planner, Policy, Side};
use crate::{Node, split};

impl Planner<'_> {
    /// If a policy chose the side that has a directory, all of its content is taken from that side.
    pub(super) fn fit_kinds(&mut self) {
        for (path, side) in std::mem::take(&mut self.chosen) {
            let three = self.names.get(&path);
            let is_directory = |at: Option<&super::PathNode>| at.is_some_and(|at| at.node.is_directory());
            let (ours, theirs) = (
                is_directory(three.and_then(|three| three.ours.as_ref())),
                is_directory(three.and_then(|three| three.theirs.as_ref())),
            );
            if ours == theirs {
                continue;
            }
            for name in self.beneath(&path) {
                let outcome = if side == Side::Ours { Outcome::Keep } else { self.as_theirs(&name) };
                self.outcomes.insert(name, outcome);
            }
        }
    }

    fn as_theirs(&self, path: &[u8]) -> Outcome {
        let there = self.names.get(path).is_some_and(|three| three.theirs.is_some());
        if there { Outcome::Take } else { Outcome::Delete }
    }

    /// Directories of ours that theirs deleted or replaced.
    pub(super) fn fit_removed(&mut self) {
        // Deepest first: a directory that is kept keeps its parents.
        let paths: Vec<Vec<u8>> = self.names.keys().rev().cloned().collect();
        for path in paths {
            let ours = self.names.get(&path).and_then(|three| three.ours.as_ref());
            let was_directory = ours.is_some_and(|at| at.path == path && at.node.is_directory());
            let stays_directory = self.at_last(&path).is_some_and(Node::is_directory);
            if !was_directory || stays_directory {
                continue;
            }
            let beneath = self.beneath(&path);
            let lives = |name: &&Vec<u8>| self.at_last(name).is_some();
            if !beneath.iter().any(|name| lives(&name)) {
                continue;
            }
            if self.at_last(&path).is_none() {
                // New entries in it are kept, and so is the directory.
                self.outcomes.insert(path, Outcome::Keep);
                continue;
            }
            let outcome = match self.policies.of(&path) {
                Policy::Theirs => Outcome::Delete,
                Policy::Ours => {
                    self.outcomes.insert(path.clone(), Outcome::Keep);
                    Outcome::Keep
                }
                Policy::Fail | Policy::Union | Policy::Text => {
                    self.conflict(&path, ConflictKind::Directory);
                    self.outcomes.insert(path.clone(), Outcome::Keep);
                    Outcome::Keep
                }
            };
            for name in beneath {
                self.outcomes.insert(name, outcome.clone());
            }
        }
    }

    /// Entries of theirs whose directory no longer exists in ours.
    pub(super) fn fit_placed(&mut self) {
        let paths: Vec<Vec<u8>> = self.names.keys().cloned().collect();
        for path in paths {
            let comes = matches!(self.outcomes.get(&path), Some(Outcome::Take | Outcome::Mixed { .. }));
            if comes && self.at_last(&path).is_some() {
                self.make_room(&path);
            }
        }
    }

    /// Makes every parent of a path a directory in the result.
    fn make_room(&mut self, path: &[u8]) {
        let mut above: Vec<Vec<u8>> = Vec::new();
        let mut at = path;
        while let Some((folder, _)) = split(at) {
            above.push(folder.to_vec());
            at = folder;
        }
        // Topmost first: nothing can exist below a missing directory.
        for folder in above.into_iter().rev() {
            // A path that neither side changed exists, and is a directory.
            let Some(three) = self.names.get(&folder) else { continue };
            let theirs = three.theirs.as_ref().is_some_and(|at| at.node.is_directory());
            match self.at_last(&folder) {
                Some(node) if node.is_directory() => {}
                None if theirs => drop(self.outcomes.insert(folder, Outcome::Take)),
                Some(_) | None => {
                    self.settle_folder(&folder);
                    return;
                }
            }
        }
    }

    /// A non-directory is at a path that must become a directory.
    fn settle_folder(&mut self, folder: &[u8]) {
        let (policy, beneath) = (self.policies.of(folder), self.beneath(folder));
        let directory = self
            .names
            .get(folder)
            .and_then(|three| three.theirs.as_ref())
            .is_some_and(|at| at.node.is_directory());
        if policy == Policy::Theirs && directory {
            self.outcomes.insert(folder.to_vec(), Outcome::Take);
            for name in beneath {
                let outcome = self.as_theirs(&name);
                self.outcomes.insert(name, outcome);
            }
            return;
        }
        if policy != Policy::Ours {
            self.conflict(folder, ConflictKind::Directory);
        }
        for name in beneath {
            self.outcomes.insert(name, Outcome::Keep);
        }
    }
}
