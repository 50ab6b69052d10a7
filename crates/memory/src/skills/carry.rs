//! Access for merges: reads the skills of a chain, and adds them to another chain.

use rusqlite::{Connection, params};

use super::rows::{StoredSkill, find, head, versions};
use super::write::{StoredVector, put, record};
use super::{Body, NewSkill, Outcome};
use crate::MemoryError;
use crate::newest::{bounded, links};
use crate::space::chain::{BranchNo, Chain};
use crate::space::load::unsigned;
use crate::space::writer::Writer;

pub(crate) use super::write::forget;

/// Versions of one skill that are compared with that of an outcome.
const VERSIONS_COMPARED: usize = 100;

/// Outcomes that one merge copies from one stretch of a branch: more would not change a ranking.
const OUTCOMES_MAX: i64 = 1_000;

/// A version that a merge copies from one chain to another.
#[derive(Clone, Debug)]
pub(crate) struct CarriedSkill(StoredSkill);

impl CarriedSkill {
    /// Whether both versions have the same content, regardless of their numbers.
    pub(crate) fn says_same(&self, other: &Self) -> bool {
        let content = |stored: &StoredSkill| {
            (stored.description.clone(), stored.when_to_use.clone(), stored.body.clone())
        };
        content(&self.0) == content(&other.0)
    }

    pub(crate) fn description(&self) -> &str {
        &self.0.description
    }
}

/// An outcome, and the content of the version that was run.
#[derive(Clone, Debug)]
pub(crate) struct CarriedOutcome {
    skill: CarriedSkill,
    outcome: Outcome,
}

/// The newest version on a chain; `None` if there is none or it was forgotten.
pub(crate) fn skill_on(
    connection: &Connection,
    chain: &Chain,
    name: &str,
) -> Result<Option<CarriedSkill>, MemoryError> {
    let found = head(connection, &links(chain), name)?;
    Ok(found.filter(|stored| stored.body.is_some()).map(CarriedSkill))
}

/// Skills that a branch changed between two sequence numbers, both included.
pub(crate) fn changed(
    connection: &Connection,
    branch: BranchNo,
    from: u64,
    upto: u64,
) -> Result<Vec<String>, MemoryError> {
    let sql = "SELECT DISTINCT name FROM skills WHERE branch = ?1 AND seq BETWEEN ?2 AND ?3";
    let mut statement = connection.prepare_cached(sql)?;
    let names = statement.query_map(params![branch, bounded(from), bounded(upto)], |row| row.get(0))?;
    Ok(names.collect::<Result<_, _>>()?)
}

/// Outcomes that a branch recorded between two sequence numbers, oldest first.
pub(crate) fn outcomes(
    connection: &Connection,
    chain: &Chain,
    branch: BranchNo,
    from: u64,
    upto: u64,
) -> Result<Vec<CarriedOutcome>, MemoryError> {
    let sql = "SELECT name, version, ok, exit_code, detail, took_ms FROM skill_outcomes
               WHERE branch = ?1 AND seq BETWEEN ?2 AND ?3 ORDER BY seq LIMIT ?4";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params![branch, bounded(from), bounded(upto), OUTCOMES_MAX])?;
    let links = links(chain);
    let mut outcomes = Vec::new();
    while let Some(row) = rows.next()? {
        let (name, version): (String, u64) = (row.get(0)?, unsigned(row, 1)?);
        let outcome = Outcome {
            ok: row.get(2)?,
            exit_code: row.get(3)?,
            detail: row.get(4)?,
            took_ms: unsigned(row, 5)?,
        };
        match find(connection, &links, &name, Some(version)) {
            Ok(stored) => outcomes.push(CarriedOutcome { skill: CarriedSkill(stored), outcome }),
            // The skill was forgotten since, so its outcomes do not matter.
            Err(MemoryError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(outcomes)
}

/// Adds a version as the next one of this branch.
pub(crate) fn adopt(writer: &mut Writer<'_>, skill: &CarriedSkill) -> Result<(), MemoryError> {
    let stored = &skill.0;
    let missing = || MemoryError::not_found("skill", &stored.name);
    let body: Body = serde_json::from_str(stored.body.as_deref().ok_or_else(missing)?).map_err(|error| {
        MemoryError::DamagedRow { what: "skill", id: stored.name.clone(), why: error.to_string() }
    })?;
    let new = NewSkill {
        name: stored.name.clone(),
        description: stored.description.clone(),
        when_to_use: stored.when_to_use.clone(),
        parameters: body.parameters,
        steps: body.steps,
        source: body.source,
    };
    let vector =
        stored.model.clone().zip(stored.vector.clone()).map(|(model, data)| StoredVector { model, data });
    put(writer, &new, vector.as_ref()).map(|_| ())
}

/// Records an outcome for the version of this branch with the same content; returns whether there is one.
pub(crate) fn adopt_outcome(writer: &mut Writer<'_>, carried: &CarriedOutcome) -> Result<bool, MemoryError> {
    let name = &carried.skill.0.name;
    let versions = versions(writer.connection(), &links(writer.chain()), name, VERSIONS_COMPARED)?;
    let same = versions.into_iter().map(CarriedSkill).find(|version| version.says_same(&carried.skill));
    match same {
        Some(version) => record(writer, name, version.0.version, &carried.outcome).map(|_| true),
        None => Ok(false),
    }
}
