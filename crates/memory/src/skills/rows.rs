//! Skills as rows: the versions that a branch sees, and their outcomes.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::rank::SkillOutcomes;
use super::{Body, Outcome, PastOutcome, Skill, check_name};
use crate::newest::{Names, links, newest};
use crate::space::chain::{BranchNo, Chain};
use crate::space::load::{integer, unsigned};
use crate::{MemoryError, Page, PageRequest, View};

/// Earlier versions that a new one inherits from: the fourth version before has hardly any weight.
const VERSIONS_INHERITED_MAX: u64 = 3;

/// Versions that the list of versions returns, newest first.
const VERSIONS_SHOWN_MAX: usize = 1000;

pub(super) const NAMES: Names = Names {
    from: "SELECT name FROM skills WHERE name >= ?1 ORDER BY name LIMIT 1",
    after: "SELECT name FROM skills WHERE name > ?1 ORDER BY name LIMIT 1",
};

const COLUMNS: &str = "seq, name, version, at_ms, description, when_to_use, body, model, vector";

/// A version in its stored form.
#[derive(Clone, Debug)]
pub(super) struct StoredSkill {
    pub(super) seq: u64,
    pub(super) name: String,
    pub(super) version: u64,
    at_ms: u64,
    pub(super) description: String,
    pub(super) when_to_use: String,
    /// `None`: forgotten.
    pub(super) body: Option<String>,
    pub(super) model: Option<String>,
    pub(super) vector: Option<Vec<u8>>,
}

impl StoredSkill {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            seq: unsigned(row, 0)?,
            name: row.get(1)?,
            version: unsigned(row, 2)?,
            at_ms: unsigned(row, 3)?,
            description: row.get(4)?,
            when_to_use: row.get(5)?,
            body: row.get(6)?,
            model: row.get(7)?,
            vector: row.get(8)?,
        })
    }

    pub(super) fn skill(
        self,
        connection: &Connection,
        links: &[(BranchNo, u64)],
    ) -> Result<Skill, MemoryError> {
        let missing = || MemoryError::not_found("skill", &self.name);
        let body: Body =
            serde_json::from_str(self.body.as_deref().ok_or_else(missing)?).map_err(|error| {
                MemoryError::DamagedRow { what: "skill", id: self.name.clone(), why: error.to_string() }
            })?;
        let (learned, last) = learned(connection, links, &self.name, self.version)?;
        Ok(Skill {
            name: self.name,
            version: self.version,
            description: self.description,
            when_to_use: self.when_to_use,
            parameters: body.parameters,
            steps: body.steps,
            source: body.source,
            seq: self.seq,
            at_ms: self.at_ms,
            successes: learned.successes,
            failures: learned.failures,
            last,
            score: learned.score(),
        })
    }
}

/// The newest row of a skill: its newest version, or the mark that it was forgotten.
pub(super) fn head(
    connection: &Connection,
    links: &[(BranchNo, u64)],
    name: &str,
) -> rusqlite::Result<Option<StoredSkill>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM skills WHERE name = ?1 AND branch = ?2 AND seq <= ?3 ORDER BY seq DESC LIMIT 1"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    newest(links, |branch, bound| {
        let found = statement.query_row(params![name, branch, bound], StoredSkill::read).optional()?;
        Ok(found.map(|stored| (stored.seq, stored)))
    })
}

/// The versions since it was last forgotten, newest first.
pub(super) fn versions(
    connection: &Connection,
    links: &[(BranchNo, u64)],
    name: &str,
    versions_max: usize,
) -> Result<Vec<StoredSkill>, MemoryError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM skills WHERE name = ?1 AND branch = ?2 AND seq <= ?3 ORDER BY seq DESC"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut versions = Vec::new();
    for (branch, bound) in links {
        for stored in statement.query_map(params![name, branch, integer(*bound)], StoredSkill::read)? {
            let stored = stored?;
            if stored.body.is_none() || versions.len() == versions_max {
                return Ok(versions);
            }
            versions.push(stored);
        }
    }
    Ok(versions)
}

/// A version, or the newest one.
pub(super) fn find(
    connection: &Connection,
    links: &[(BranchNo, u64)],
    name: &str,
    version: Option<u64>,
) -> Result<StoredSkill, MemoryError> {
    let missing = || MemoryError::not_found("skill", name);
    match version {
        None => head(connection, links, name)?.filter(|stored| stored.body.is_some()).ok_or_else(missing),
        Some(version) => versions(connection, links, name, usize::MAX)?
            .into_iter()
            .find(|stored| stored.version == version)
            .ok_or_else(|| MemoryError::not_found("skill version", format!("{name}@{version}"))),
    }
}

/// The branch's outcomes of a version, and the newest of them.
///
/// A version without outcomes starts from those of the previous versions.
pub(super) fn learned(
    connection: &Connection,
    links: &[(BranchNo, u64)],
    name: &str,
    version: u64,
) -> Result<(SkillOutcomes, Option<PastOutcome>), MemoryError> {
    if let Some((learned, past)) = newest_outcome(connection, links, name, version)? {
        return Ok((learned, Some(past)));
    }
    for back in 1..=VERSIONS_INHERITED_MAX.min(version.saturating_sub(1)) {
        if let Some((learned, _)) = newest_outcome(connection, links, name, version - back)? {
            return Ok(((0..back).fold(learned, |learned, _| learned.inherited()), None));
        }
    }
    Ok((SkillOutcomes::NOTHING, None))
}

fn newest_outcome(
    connection: &Connection,
    links: &[(BranchNo, u64)],
    name: &str,
    version: u64,
) -> rusqlite::Result<Option<(SkillOutcomes, PastOutcome)>> {
    let mut statement = connection.prepare_cached(
        "SELECT seq, at_ms, ok, exit_code, detail, took_ms, successes, failures, recent_successes, recent_failures
         FROM skill_outcomes WHERE name = ?1 AND version = ?2 AND branch = ?3 AND seq <= ?4 ORDER BY seq DESC LIMIT 1",
    )?;
    newest(links, |branch, bound| {
        let found = statement.query_row(params![name, integer(version), branch, bound], |row| {
            let outcome = Outcome {
                ok: row.get(2)?,
                exit_code: row.get(3)?,
                detail: row.get(4)?,
                took_ms: unsigned(row, 5)?,
            };
            let learned = SkillOutcomes {
                successes: unsigned(row, 6)?,
                failures: unsigned(row, 7)?,
                recent_successes: row.get(8)?,
                recent_failures: row.get(9)?,
            };
            let seq = unsigned(row, 0)?;
            Ok((seq, (learned, PastOutcome { seq, at_ms: unsigned(row, 1)?, outcome })))
        });
        found.optional()
    })
}

/// The number of skills of a chain.
pub(crate) fn count(connection: &Connection, chain: &Chain) -> Result<u64, MemoryError> {
    let links = links(chain);
    let mut count = 0;
    NAMES.walk(connection, "", None, |name| {
        count += u64::from(head(connection, &links, name)?.is_some_and(|stored| stored.body.is_some()));
        Ok::<_, MemoryError>(true)
    })?;
    Ok(count)
}

impl View {
    /// A skill: this version of it, or the newest.
    pub async fn skill_get(&self, name: &str, version: Option<u64>) -> Result<Skill, MemoryError> {
        check_name(name)?;
        let name = name.to_owned();
        self.read(move |reader| {
            let links = links(reader.chain());
            find(reader.connection(), &links, &name, version)?.skill(reader.connection(), &links)
        })
        .await
    }

    /// All skills, sorted by name, the newest version of each.
    pub async fn skill_list(&self, page: PageRequest) -> Result<Page<Skill>, MemoryError> {
        self.read(move |reader| {
            let (connection, links) = (reader.connection(), links(reader.chain()));
            let after = page.after()?;
            let mut rows = Vec::new();
            NAMES.walk(connection, "", after.as_deref(), |name| {
                let stored = head(connection, &links, name)?.filter(|stored| stored.body.is_some());
                if let Some(stored) = stored {
                    rows.push(stored.skill(connection, &links)?);
                }
                Ok::<_, MemoryError>(rows.len() <= page.rows_max())
            })?;
            Ok(Page::cut(rows, page.rows_max(), |skill: &Skill| skill.name.clone()))
        })
        .await
    }

    /// The versions of a skill, newest first.
    pub async fn skill_versions(&self, name: &str) -> Result<Vec<Skill>, MemoryError> {
        check_name(name)?;
        let name = name.to_owned();
        self.read(move |reader| {
            let (connection, links) = (reader.connection(), links(reader.chain()));
            let versions = versions(connection, &links, &name, VERSIONS_SHOWN_MAX)?;
            if versions.is_empty() {
                return Err(MemoryError::not_found("skill", &name));
            }
            versions.into_iter().map(|stored| stored.skill(connection, &links)).collect()
        })
        .await
    }
}
