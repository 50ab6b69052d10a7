//! Sessions that CRIU cannot restore.
//!
//! A process inherits its session from its parent and can only leave it by starting its own; it cannot join another. So
//! CRIU creates processes in an order in which each inherits its session: below the session's leader, or, for orphans
//! that were adopted by the first process, below a placeholder for the leader. CRIU has no such placeholder for orphans
//! that were adopted by another process (a *subreaper*), and the restore fails. If the leader has ended itself, and so
//! has the process that the placeholder should create, CRIU hangs forever.

use std::collections::BTreeMap;

use super::entries::Entry;
use super::obstacle::{Obstacle, Reason};

/// The depth of a process tree above which the data of `/proc` is assumed to contain a loop.
const DEPTH_MAX: usize = 1 << 16;

pub(super) fn check(entries: &BTreeMap<u32, Entry>) -> Vec<Obstacle> {
    let Some(first) = entries.get(&1) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries.values().filter(|entry| entry.inner != 1 && entry.session != entry.inner) {
        let reason = if entry.parent == 1 {
            let leader_is_dead =
                entries.get(&entry.session).is_some_and(|leader| leader.zombie && leader.parent == 1);
            (entry.session != first.session && entry.zombie && leader_is_dead)
                .then_some(Reason::EndedSession { leader: entry.session })
        } else {
            (!born_in_session(entries, entry)).then_some(Reason::LostSession { leader: entry.session })
        };
        found.extend(reason.map(|reason| Obstacle { pid: entry.inner, name: entry.name.clone(), reason }));
    }
    found
}

/// Whether the parent is in the same session, or an ancestor leads it.
fn born_in_session(entries: &BTreeMap<u32, Entry>, entry: &Entry) -> bool {
    if entries.get(&entry.parent).is_some_and(|parent| parent.session == entry.session) {
        return true;
    }
    let mut ancestor = entry.parent;
    for _ in 0..DEPTH_MAX {
        match entries.get(&ancestor) {
            Some(found) if found.inner == entry.session => return true,
            Some(found) => ancestor = found.parent,
            None => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each process as `pid parent session [Z]`, below a first process of session 1; expects the obstacles, and whether
    /// they pass.
    #[track_caller]
    fn check_tree(tree: &[&str], expected: &[(u32, bool)]) {
        let entries = tree.iter().chain(&["1 0 1"]).map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| words[at].parse::<u32>().unwrap();
            let (inner, parent, session) = (number(0), number(1), number(2));
            let zombie = words.get(3) == Some(&"Z");
            (
                inner,
                Entry { outer: inner, inner, parent, session, zombie, traced: false, name: String::new() },
            )
        });
        let found = check(&entries.collect());
        let found: Vec<_> = found.iter().map(|obstacle| (obstacle.pid, obstacle.reason.passes())).collect();
        assert_eq!(found, expected, "{tree:?}");
    }

    /// The results of CRIU 4.2.1 for each of these trees, tried with real processes.
    #[test]
    fn trees_that_criu_cannot_restore_are_found_and_no_others() {
        // A leader and a member of its session, both dead and not yet reaped by the first process: hangs.
        check_tree(&["4 1 4 Z", "5 1 4 Z"], &[(5, true)]);
        // The same below a subreaper, and with live members: "Can't find a session leader".
        check_tree(&["2 1 2", "4 2 4 Z", "5 2 4 Z"], &[(5, false)]);
        check_tree(&["8 1 8", "9 8 9 Z", "10 8 9"], &[(10, false)]);
        check_tree(&["13 1 13", "15 13 14 Z"], &[(15, false)]);
        check_tree(&["38 1 38", "40 38 39", "41 38 39 Z"], &[(40, false), (41, false)]);
        // Restored: a dead leader alone, a dead member of a live leader, a dead child, daemons below the first process.
        check_tree(&["23 1 23", "24 23 24 Z"], &[]);
        check_tree(&["33 1 33", "34 33 34", "35 34 34 Z"], &[]);
        check_tree(&["44 1 44", "45 44 44 Z"], &[]);
        check_tree(&["49 1 49", "51 49 51 Z", "52 1 51"], &[]);
        check_tree(&["55 1 55", "57 1 56"], &[]);
        check_tree(&["60 1 60", "62 1 61", "63 1 61"], &[]);
        check_tree(&["70 1 70 Z", "71 1 70"], &[]);
    }
}
