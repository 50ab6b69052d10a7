//! Contradictions that a merge listed and that are not decided yet.
//!
//! They are rows that belong to the merge that listed them, and so are the decisions: on a branch that is restored to before a
//! decision, the contradiction is open again; one that is restored to before the merge has neither.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::params;

use crate::space::load::{damaged, integer, unsigned};
use crate::space::writer::Writer;
use crate::{MemoryError, MemoryPoint, Reader, SpaceId};

/// The kind of object that a contradiction is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ContradictedKind {
    Entry,
    Key,
    Skill,
    Artifact,
    /// Two entries with the same subject.
    Subject,
    /// An entry that supersedes one that was changed here.
    Superseding,
}

impl ContradictedKind {
    const ALL: [Self; 6] =
        [Self::Entry, Self::Key, Self::Skill, Self::Artifact, Self::Subject, Self::Superseding];

    fn stored(self) -> i64 {
        match self {
            Self::Entry => 1,
            Self::Key => 2,
            Self::Skill => 3,
            Self::Artifact => 4,
            Self::Subject => 5,
            Self::Superseding => 6,
        }
    }
}

/// The kind of an object and its id or name on the other side; for two entries, both ids.
pub(super) type ContradictedObject = (ContradictedKind, String);

/// A contradiction that an earlier merge listed.
#[derive(Clone, Debug)]
pub(super) struct OpenContradiction {
    pub(super) about: ContradictedObject,
    /// The sequence number of the merge that listed it.
    pub(super) seq: u64,
    /// The point up to which the other side had been merged: only a branch that descends from it can decide it.
    pub(super) point: MemoryPoint,
}

/// The effects of a merge on contradictions.
#[derive(Clone, Debug, Default)]
pub(super) struct Decisions {
    /// Listed and left open.
    open: BTreeSet<ContradictedObject>,
    /// Decided, by the policy or because both sides agree now.
    settled: BTreeSet<ContradictedObject>,
}

impl Decisions {
    pub(super) fn note(&mut self, thing: ContradictedKind, what: &str, decided: bool) {
        let about = (thing, what.to_owned());
        if decided {
            self.settled.insert(about);
        } else {
            self.open.insert(about);
        }
    }

    /// Whether it mentions this object, decided or not.
    pub(super) fn has(&self, thing: ContradictedKind, what: &str) -> bool {
        let about = (thing, what.to_owned());
        self.open.contains(&about) || self.settled.contains(&about)
    }

    /// Whether it decides any of those that were open.
    pub(super) fn settle_any(&self, known: &BTreeMap<ContradictedObject, Vec<u64>>) -> bool {
        self.settled.iter().any(|about| known.contains_key(about))
    }
}

/// The contradictions from a space that the reader's branch sees and that are not decided.
pub(super) fn listed(reader: &Reader<'_>, space: &SpaceId) -> Result<Vec<OpenContradiction>, MemoryError> {
    let mut statement = reader.connection().prepare_cached(
        "SELECT c.thing, c.what, c.seq, m.from_branch, m.upto FROM contradictions c JOIN merges m ON m.seq = c.seq
         WHERE m.from_space = ?1 AND c.settles IS NULL AND sees(c.branch, c.seq) AND NOT EXISTS
             (SELECT 1 FROM contradictions d
              WHERE d.settles = c.seq AND d.thing = c.thing AND d.what = c.what AND sees(d.branch, d.seq))
         ORDER BY c.seq",
    )?;
    let mut rows = statement.query([space.as_str()])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let number: i64 = row.get(0)?;
        let branch: String = row.get(3)?;
        let thing = ContradictedKind::ALL.into_iter().find(|thing| thing.stored() == number);
        let (Some(thing), Ok(branch)) = (thing, branch.parse()) else {
            return Err(damaged(format!(
                "a stored contradiction refers to the unknown row {number} of `{branch}`"
            )));
        };
        let point = MemoryPoint { branch, seq: unsigned(row, 4)? };
        found.push(OpenContradiction { about: (thing, row.get(1)?), seq: unsigned(row, 2)?, point });
    }
    Ok(found)
}

/// Records what the merge with this number left open and what it decided.
pub(super) fn remember(
    writer: &Writer<'_>,
    seq: u64,
    decisions: &Decisions,
    known: &BTreeMap<ContradictedObject, Vec<u64>>,
) -> Result<(), MemoryError> {
    let mut statement = writer.connection().prepare_cached(
        "INSERT INTO contradictions (seq, branch, thing, what, settles) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    let mut write = |(thing, what): &ContradictedObject, settles: Option<u64>| {
        let settles = settles.map(integer);
        statement.execute(params![integer(seq), writer.branch(), thing.stored(), what, settles])
    };
    // A contradiction that is open already is not listed twice.
    for about in decisions.open.iter().filter(|about| !known.contains_key(*about)) {
        write(about, None)?;
    }
    for about in &decisions.settled {
        for earlier in known.get(about).into_iter().flatten() {
            write(about, Some(*earlier))?;
        }
    }
    Ok(())
}
