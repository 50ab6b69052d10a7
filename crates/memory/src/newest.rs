//! The value of a name on a branch: the newest row of the name that the branch sees.
//!
//! A chain is walked from the branch to its ancestors, with one index lookup each. So finding a value costs the
//! depth of the forks, and neither the age of the space nor the number of its other branches.

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::space::chain::{BranchNo, Chain};
use crate::space::load::integer;
pub(crate) use crate::space::load::integer as bounded;

/// The branches of a chain with the highest visible sequence number of each, the branch itself first.
///
/// A branch has a higher number than its parent, because the parent had rows before the fork.
pub(crate) fn links(chain: &Chain) -> Vec<(BranchNo, u64)> {
    let mut links: Vec<_> = chain.links().collect();
    links.reverse();
    links
}

/// The newest row over all links. `look` returns the newest row of a branch up to a number, and that row's number.
pub(crate) fn newest<T>(
    links: &[(BranchNo, u64)],
    mut look: impl FnMut(BranchNo, i64) -> rusqlite::Result<Option<(u64, T)>>,
) -> rusqlite::Result<Option<T>> {
    let mut best: Option<(u64, T)> = None;
    for (branch, bound) in links {
        // Ancestors are seen up to the fork, so the first row found is nearly always the newest.
        if best.as_ref().is_some_and(|(seq, _)| seq > bound) {
            continue;
        }
        if let Some(found) = look(*branch, integer(*bound))?
            && best.as_ref().is_none_or(|(seq, _)| *seq < found.0)
        {
            best = Some(found);
        }
    }
    Ok(best.map(|(_, row)| row))
}

/// Queries that list the names in a table, one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names {
    /// `SELECT name FROM … WHERE name >= ?1 …`: the first name from a given text on.
    pub(crate) from: &'static str,
    /// The same with `>`.
    pub(crate) after: &'static str,
}

impl Names {
    /// Passes every name with this prefix to `each`, in order, until it returns false.
    ///
    /// Names of other branches are included: `each` must check whether a name is visible.
    pub(crate) fn walk<E: From<rusqlite::Error>>(
        self,
        connection: &Connection,
        prefix: &str,
        after: Option<&str>,
        mut each: impl FnMut(&str) -> Result<bool, E>,
    ) -> Result<(), E> {
        let first = match after.filter(|after| *after >= prefix) {
            Some(after) => self.one(connection, self.after, after)?,
            None => self.one(connection, self.from, prefix)?,
        };
        let mut next = first;
        while let Some(name) = next {
            if !name.starts_with(prefix) || !each(&name)? {
                break;
            }
            next = self.one(connection, self.after, &name)?;
        }
        Ok(())
    }

    fn one(self, connection: &Connection, sql: &str, text: &str) -> rusqlite::Result<Option<String>> {
        connection.prepare_cached(sql)?.query_row(params![text], |row: &Row<'_>| row.get(0)).optional()
    }
}
