//! Files with several names: one name is put, the others become links to it.

use std::collections::HashMap;

use super::{Action, Content, Outcome, Planner, Side};
use crate::TreeError;

/// Knows all names of a file of theirs, including unchanged ones.
pub trait OtherNames {
    fn names_of(&self, path: &[u8]) -> Result<Vec<Vec<u8>>, TreeError>;
}

/// For trees without such information: only changed names are known.
#[derive(Clone, Copy, Debug)]
pub struct ChangedNamesOnly;

impl OtherNames for ChangedNamesOnly {
    fn names_of(&self, _: &[u8]) -> Result<Vec<Vec<u8>>, TreeError> {
        Ok(Vec::new())
    }
}

impl Planner<'_> {
    /// The same steps, with links where theirs has them.
    pub(super) fn linked(
        &self,
        actions: Vec<Action>,
        others: &dyn OtherNames,
    ) -> Result<Vec<Action>, TreeError> {
        let mut firsts: HashMap<(u64, (i64, u32)), Vec<u8>> = HashMap::new();
        let mut linked = Vec::with_capacity(actions.len());
        for action in actions {
            let Action::Put { path, node, content: Content::Theirs { path: from } } = &action else {
                linked.push(action);
                continue;
            };
            let identity = self.names.get(path).and_then(|three| three.theirs.as_ref()?.node.identity);
            let taken = matches!(self.outcomes.get(path), Some(Outcome::Take));
            let Some(identity) = identity.filter(|identity| identity.links > 1 && taken && node.is_file())
            else {
                linked.push(action);
                continue;
            };
            let key = (identity.inode, identity.born);
            let first = match firsts.get(&key) {
                Some(first) => Some(first.clone()),
                None => self.kept_name(path, from, others)?,
            };
            match first {
                Some(first) => {
                    linked.push(Action::Link { path: path.clone(), to: first.clone() });
                    firsts.insert(key, first);
                }
                None => {
                    firsts.insert(key, path.clone());
                    linked.push(action);
                }
            }
        }
        Ok(linked)
    }

    /// An unchanged name in ours of the same file, with the same content.
    fn kept_name(
        &self,
        path: &[u8],
        from: &[u8],
        others: &dyn OtherNames,
    ) -> Result<Option<Vec<u8>>, TreeError> {
        for name in others.names_of(from)? {
            let kept = match self.names.get(&name) {
                Some(_) => matches!(self.outcomes.get(&name), Some(Outcome::Keep) | None),
                None => true,
            };
            if name != path && kept && self.contents.is_same((Side::Ours, &name), (Side::Theirs, from))? {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }
}
