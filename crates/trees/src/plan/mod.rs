//! The three-way merge: the actions that add the changes of theirs since the base to ours.
//!
//! ```text
//!   names that either side changed ─► renames paired ─► decided one by one ─► directories made consistent ─► actions
//!                                                          │                     │
//!                                                          └── policy of its path ┴─► or a conflict
//! ```
//!
//! | base | ours    | theirs  | result                                                            |
//! |------|---------|---------|-------------------------------------------------------------------|
//! | x    | x       | y       | y: only theirs changed it (also: added, deleted)                  |
//! | x    | y       | x       | y: only ours did                                                  |
//! | x    | y       | y       | y: both did the same                                              |
//! | file | content | mode    | both: content, mode, owner and attributes are merged one by one   |
//! | x    | y       | z       | a conflict, unless the policy of its path says otherwise          |
//! | dir  | + new   | gone    | the directory with the new entries only                           |
//! | dir  | file    | + new   | a conflict at the directory; so is the other way round            |
//!
//! A file that one side moved and the other changed is changed at its new path: the pool's trees keep inode numbers, which
//! identify it. Times are copied and never compared. Pure, except that it reads the given contents.

mod fit;
mod links;
mod one;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use crate::glob::Glob;
use crate::{Identity, Node, Root, TreeError};

pub use links::{ChangedNamesOnly, OtherNames};

/// Identifies one of the trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    Base,
    Ours,
    Theirs,
}

/// The contents of files, as far as a plan needs them.
pub trait Contents {
    /// Whether two regular files have the same content.
    fn is_same(&self, one: (Side, &[u8]), other: (Side, &[u8])) -> Result<bool, TreeError>;

    /// The content of a file that is small enough to be merged by lines; `None` if it is larger or does not exist.
    fn text(&self, side: Side, path: &[u8]) -> Result<Option<Vec<u8>>, TreeError>;
}

/// The three trees, on disk.
#[derive(Debug)]
pub struct Trees {
    pub base: Root,
    pub ours: Root,
    pub theirs: Root,
}

impl Trees {
    pub fn of(&self, side: Side) -> &Root {
        match side {
            Side::Base => &self.base,
            Side::Ours => &self.ours,
            Side::Theirs => &self.theirs,
        }
    }

    /// The nodes of the three trees at the paths that either side changed.
    pub fn gather(&self, by_ours: &ChangedPaths, by_theirs: &ChangedPaths) -> Result<PlanInput, TreeError> {
        let at = |side: Side, path: &[u8], since_base| -> Result<Option<PathNode>, TreeError> {
            Ok(self.of(side).node(path)?.map(|node| PathNode { path: path.to_vec(), node, since_base }))
        };
        let paths: BTreeSet<&Vec<u8>> = by_ours.keys().chain(by_theirs.keys()).collect();
        let mut gathered = PlanInput::default();
        for path in paths {
            if by_theirs.get(path) == Some(&ChangeSinceBase::Written)
                && !by_ours.contains_key(path)
                && let Some(node) = self.theirs.node(path)?.filter(Node::is_the_only_name)
            {
                gathered.overwritten.push((path.clone(), node));
                continue;
            }
            let base = at(Side::Base, path, ChangeSinceBase::Nothing)?;
            // An unchanged side is read once.
            let by = |side: Side, changed: &ChangedPaths| match changed.get(path) {
                Some(since) => at(side, path, *since),
                None => Ok(base.clone()),
            };
            let (ours, theirs) = (by(Side::Ours, by_ours)?, by(Side::Theirs, by_theirs)?);
            gathered.names.insert(path.clone(), ThreeWay { base, ours, theirs });
        }
        Ok(gathered)
    }
}

impl Contents for Trees {
    fn is_same(&self, one: (Side, &[u8]), other: (Side, &[u8])) -> Result<bool, TreeError> {
        crate::diff::is_same_content(self.of(one.0), self.of(other.0), one.1, other.1)
    }

    fn text(&self, side: Side, path: &[u8]) -> Result<Option<Vec<u8>>, TreeError> {
        self.of(side).read(path, crate::text::TEXT_BYTES_MAX)
    }
}

/// The input of a plan.
#[derive(Clone, Debug, Default)]
pub struct PlanInput {
    pub names: BTreeMap<Vec<u8>, ThreeWay>,
    /// Files that only theirs has written to, sorted. They are taken without comparing their content: reading a thousand
    /// files of two trees would take longer than the rest of a merge.
    pub overwritten: Vec<(Vec<u8>, Node)>,
}

impl PlanInput {
    /// Sets the identities of files from another source, because these trees are copies of parts of the real ones.
    pub fn identify(&mut self, of: &dyn Fn(Side, &[u8]) -> Option<Identity>) {
        for ThreeWay { base, ours, theirs } in self.names.values_mut() {
            for (side, at) in [(Side::Base, base), (Side::Ours, ours), (Side::Theirs, theirs)] {
                if let Some(at) = at {
                    at.node.identity = of(side, &at.path);
                }
            }
        }
    }
}

/// The nodes of the three trees at one path, or, for a moved file, at two.
#[derive(Clone, Debug)]
pub struct ThreeWay {
    pub base: Option<PathNode>,
    pub ours: Option<PathNode>,
    pub theirs: Option<PathNode>,
}

#[derive(Clone, Debug)]
pub struct PathNode {
    pub path: Vec<u8>,
    pub node: Node,
    pub since_base: ChangeSinceBase,
}

/// The change of a path since the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeSinceBase {
    /// It is unchanged.
    Nothing,
    /// It may have changed.
    Something,
    /// It is the same file and was written to, perhaps with the same content.
    Written,
}

/// All paths that a side may have changed since the base.
pub type ChangedPaths = BTreeMap<Vec<u8>, ChangeSinceBase>;

/// The decision if both sides changed the same path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// A conflict.
    #[default]
    Fail,
    Ours,
    Theirs,
    /// The lines of both, if they are text; a file that one side deleted and the other changed is kept.
    Union,
    /// Merged line by line; a conflict if both changed the same lines.
    Text,
}

impl Policy {
    pub const ALL: [Self; 5] = [Self::Fail, Self::Ours, Self::Theirs, Self::Union, Self::Text];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Ours => "ours",
            Self::Theirs => "theirs",
            Self::Union => "union",
            Self::Text => "text",
        }
    }
}

/// Policies by path; the first that matches is used.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    pub rules: Vec<(Glob, Policy)>,
    pub otherwise: Policy,
}

impl Policies {
    fn of(&self, path: &[u8]) -> Policy {
        let matching = self.rules.iter().find(|(glob, _)| glob.matches(path));
        matching.map_or(self.otherwise, |(_, policy)| *policy)
    }
}

/// One path that both sides changed differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub path: Vec<u8>,
    pub kind: ConflictKind,
    pub base: Option<Node>,
    pub ours: Option<Node>,
    pub theirs: Option<Node>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConflictKind {
    /// Content, or the target of a link.
    BothChanged,
    BothAdded,
    /// Ours deleted a path that theirs changed.
    DeletedByOurs,
    /// Theirs deleted a path that ours changed.
    DeletedByTheirs,
    /// A file here, a directory there.
    Kind,
    /// Mode, owner or extended attributes.
    Attributes,
    /// One side replaced a directory in which the other added entries.
    Directory,
}

/// One step of a merge, in the order of execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Removes a file, or a directory that is empty by then.
    Remove { path: Vec<u8>, directory: bool },
    /// Creates or replaces an entry.
    Put { path: Vec<u8>, node: Node, content: Content },
    /// Changes mode, owner and attributes of an existing entry.
    Attributes { path: Vec<u8>, node: Node },
    /// Adds a hard link to a file that exists by then.
    Link { path: Vec<u8>, to: Vec<u8> },
}

impl Action {
    pub fn path(&self) -> &[u8] {
        match self {
            Self::Remove { path, .. }
            | Self::Put { path, .. }
            | Self::Attributes { path, .. }
            | Self::Link { path, .. } => path,
        }
    }
}

/// The content of a file that is put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// The node is complete without content.
    None,
    Ours {
        path: Vec<u8>,
    },
    Theirs {
        path: Vec<u8>,
    },
    Merged {
        content: Vec<u8>,
    },
}

#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub actions: Vec<Action>,
    /// If there are any, no action is to be executed.
    pub conflicts: Vec<Conflict>,
    /// Files of ours changed where theirs moved them, or vice versa: from, to.
    pub moved: Vec<(Vec<u8>, Vec<u8>)>,
    /// Files in which the lines of both sides were merged.
    pub merged: Vec<Vec<u8>>,
}

/// The result for one path.
#[derive(Clone, Debug)]
enum Outcome {
    /// The state of ours.
    Keep,
    Delete,
    /// The state of theirs.
    Take,
    Mixed {
        node: Node,
        content: Content,
    },
}

/// Computes the plan. `gathered` must contain all paths that either side changed.
pub fn plan(
    gathered: PlanInput,
    contents: &dyn Contents,
    others: &dyn OtherNames,
    policies: &Policies,
) -> Result<Plan, TreeError> {
    let (outcomes, chosen, plan) = (BTreeMap::new(), Vec::new(), Plan::default());
    let compared = RefCell::default();
    let PlanInput { names, overwritten } = gathered;
    let mut planner = Planner { names, outcomes, chosen, contents, compared, policies, plan };
    planner.pair_moved()?;
    planner.decide_each()?;
    planner.fit_kinds();
    planner.fit_removed();
    planner.fit_placed();
    planner.emit(others)?;
    // Last: all of their directories existed from the start, and are kept.
    planner.plan.actions.extend(overwritten.into_iter().map(|(path, node)| {
        let content = Content::Theirs { path: path.clone() };
        Action::Put { path, node, content }
    }));
    planner.plan.conflicts.sort_by(|one, other| one.path.cmp(&other.path));
    planner.plan.conflicts.dedup_by(|one, other| one.path == other.path);
    Ok(planner.plan)
}

struct Planner<'a> {
    names: BTreeMap<Vec<u8>, ThreeWay>,
    outcomes: BTreeMap<Vec<u8>, Outcome>,
    /// Paths at which a policy chose between a directory and another kind, and the chosen side.
    chosen: Vec<(Vec<u8>, Side)>,
    contents: &'a dyn Contents,
    /// Files that were compared, and whether they are equal: the same pair is needed several times.
    compared: RefCell<BTreeMap<Pair, bool>>,
    policies: &'a Policies,
    plan: Plan,
}

/// Two files, each by side and path.
type Pair = [(Side, Vec<u8>); 2];

impl Planner<'_> {
    fn decide_each(&mut self) -> Result<(), TreeError> {
        let paths: Vec<Vec<u8>> = self.names.keys().cloned().collect();
        for path in paths {
            if !self.outcomes.contains_key(&path) {
                let outcome = self.decide(&path)?;
                self.outcomes.insert(path, outcome);
            }
        }
        Ok(())
    }

    fn conflict(&mut self, path: &[u8], kind: ConflictKind) {
        let three = self.names.get(path);
        let node = |at: fn(&ThreeWay) -> &Option<PathNode>| {
            three.and_then(|three| at(three).as_ref()).map(|at| at.node.clone())
        };
        self.plan.conflicts.push(Conflict {
            path: path.to_vec(),
            kind,
            base: node(|three| &three.base),
            ours: node(|three| &three.ours),
            theirs: node(|three| &three.theirs),
        });
    }

    /// The final node at a path; `None` if there is none.
    fn at_last(&self, path: &[u8]) -> Option<&Node> {
        let three = self.names.get(path)?;
        match self.outcomes.get(path) {
            Some(Outcome::Delete) => None,
            Some(Outcome::Take) => three.theirs.as_ref().map(|at| &at.node),
            Some(Outcome::Mixed { node, .. }) => Some(node),
            Some(Outcome::Keep) | None => three.ours.as_ref().map(|at| &at.node),
        }
    }

    /// The names below a directory.
    fn beneath(&self, path: &[u8]) -> Vec<Vec<u8>> {
        let start = [path, b"/"].concat();
        // Some names sort between a directory and its content; those with only a common prefix are skipped.
        self.names
            .range(start.clone()..)
            .take_while(|(name, _)| name.starts_with(&start))
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// The steps from the current state to the result.
    fn emit(&mut self, others: &dyn OtherNames) -> Result<(), TreeError> {
        let mut removals = Vec::new();
        let mut rest = Vec::new();
        for (path, three) in &self.names {
            let in_place = three.ours.as_ref().filter(|at| at.path == *path);
            let ours = in_place.map(|at| &at.node);
            let outcome = self.outcomes.get(path).unwrap_or(&Outcome::Keep);
            let (node, content) = match outcome {
                Outcome::Keep => continue,
                Outcome::Delete => (None, Content::None),
                Outcome::Take => {
                    let Some(theirs) = &three.theirs else { continue };
                    (Some(&theirs.node), taken(theirs))
                }
                Outcome::Mixed { node, content } => (Some(node), content.clone()),
            };
            let directory = ours.is_some_and(Node::is_directory);
            let in_the_way = ours.is_some() && node.is_none_or(|node| node.is_directory() != directory);
            if in_the_way {
                removals.push(Action::Remove { path: path.clone(), directory });
            }
            let Some(node) = node else { continue };
            let stays = !in_the_way && self.holds_already(three, in_place, node, &content)?;
            rest.push(match stays {
                true => Action::Attributes { path: path.clone(), node: node.clone() },
                false => Action::Put { path: path.clone(), node: node.clone(), content },
            });
        }
        removals.reverse();
        self.plan.actions = removals;
        self.plan.actions.extend(self.linked(rest, others)?);
        Ok(())
    }

    /// Whether the existing entry differs only in mode, owner and attributes.
    fn holds_already(
        &self,
        three: &ThreeWay,
        ours: Option<&PathNode>,
        node: &Node,
        content: &Content,
    ) -> Result<bool, TreeError> {
        let Some(ours) = ours.filter(|ours| ours.node.kind == node.kind) else { return Ok(false) };
        // A link has no mode, so it is created again.
        match (ours.node.is_directory(), ours.node.is_file(), content) {
            (true, _, _) => Ok(true),
            (_, true, Content::Ours { path: from }) => Ok(*from == ours.path),
            (_, true, Content::Theirs { path: from }) => {
                // The entry of theirs, at this path or at the path that it was moved from.
                let Some(theirs) = three.theirs.as_ref().filter(|at| at.path == *from) else {
                    return Ok(false);
                };
                let linked = theirs.node.identity.is_some_and(|id| id.links > 1);
                Ok(!linked && self.is_same_content((Side::Ours, ours), (Side::Theirs, theirs))?)
            }
            _ => Ok(false),
        }
    }
}

fn taken(at: &PathNode) -> Content {
    match at.node.is_file() {
        true => Content::Theirs { path: at.path.clone() },
        false => Content::None,
    }
}
