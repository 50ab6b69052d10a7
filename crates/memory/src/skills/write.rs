//! Writes skills and their outcomes.

use rusqlite::params;

use super::rows::{find, head, learned};
use super::{
    Body, NewSkill, OUTCOME_DETAIL_BYTES_MAX, Outcome, SKILL_BYTES_MAX, SKILLS_MAX, Skill, check_name,
};
use crate::newest::links;
use crate::space::growth::Growth;
use crate::space::load::integer;
use crate::space::writer::{LogKind, Writer};
use crate::{MemoryError, View};

impl View {
    /// Stores a skill: a new one, or the next version of the one with this name.
    pub async fn skill_put(&self, new: NewSkill) -> Result<Skill, MemoryError> {
        new.check()?;
        let vector = self.skill_vector(&new).await;
        self.write(move |writer| put(writer, &new, vector.as_ref())).await
    }

    /// Records the outcome of a run of one version.
    pub async fn skill_outcome(
        &self,
        name: &str,
        version: u64,
        outcome: Outcome,
    ) -> Result<Skill, MemoryError> {
        check_name(name)?;
        let name = name.to_owned();
        self.write(move |writer| record(writer, &name, version, &outcome)).await
    }

    /// Forgets a skill. The past still has it.
    pub async fn skill_forget(&self, name: &str) -> Result<(), MemoryError> {
        check_name(name)?;
        let name = name.to_owned();
        self.write_as(Growth::Frees, 1, move |writer| forget(writer, &name)).await
    }
}

/// A vector in its stored form: its model and its numbers.
#[derive(Clone, Debug)]
pub(super) struct StoredVector {
    pub(super) model: String,
    pub(super) data: Vec<u8>,
}

pub(super) fn put(
    writer: &mut Writer<'_>,
    new: &NewSkill,
    vector: Option<&StoredVector>,
) -> Result<Skill, MemoryError> {
    let links = links(writer.chain());
    let before = head(writer.connection(), &links, &new.name)?;
    if before.as_ref().is_none_or(|stored| stored.body.is_none()) {
        let known = super::rows::count(writer.connection(), writer.chain())?;
        if known >= SKILLS_MAX {
            return Err(MemoryError::Full { what: "a skill", max: SKILLS_MAX });
        }
    }
    let version = before.map_or(0, |stored| stored.version) + 1;
    let body =
        Body { parameters: new.parameters.clone(), steps: new.steps.clone(), source: new.source.clone() };
    let body = serde_json::to_string(&body)
        .map_err(|error| MemoryError::invalid("the skill", format!("it cannot be stored: {error}")))?;
    if body.len() > 2 * SKILL_BYTES_MAX {
        return Err(MemoryError::too_large("the skill", body.len(), 2 * SKILL_BYTES_MAX));
    }
    let (seq, at_ms) = writer.next(LogKind::Skill)?;
    writer
        .connection()
        .prepare_cached(
            "INSERT INTO skills (seq, branch, name, version, at_ms, description, when_to_use, body, model, vector)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )?
        .execute(params![
            integer(seq),
            writer.branch(),
            new.name,
            integer(version),
            integer(at_ms),
            new.description,
            new.when_to_use,
            body,
            vector.map(|vector| &vector.model),
            vector.map(|vector| &vector.data),
        ])?;
    find(writer.connection(), &links, &new.name, None)?.skill(writer.connection(), &links)
}

pub(super) fn record(
    writer: &mut Writer<'_>,
    name: &str,
    version: u64,
    outcome: &Outcome,
) -> Result<Skill, MemoryError> {
    let links = links(writer.chain());
    find(writer.connection(), &links, name, Some(version))?;
    let (before, _) = learned(writer.connection(), &links, name, version)?;
    let after = before.after(outcome);
    let (seq, at_ms) = writer.next(LogKind::Skill)?;
    writer
        .connection()
        .prepare_cached(
            "INSERT INTO skill_outcomes (seq, branch, name, version, at_ms, ok, exit_code, detail, took_ms,
                                         successes, failures, recent_successes, recent_failures)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        )?
        .execute(params![
            integer(seq),
            writer.branch(),
            name,
            integer(version),
            integer(at_ms),
            outcome.ok,
            outcome.exit_code,
            cut(&outcome.detail),
            integer(outcome.took_ms),
            integer(after.successes),
            integer(after.failures),
            after.recent_successes,
            after.recent_failures,
        ])?;
    find(writer.connection(), &links, name, Some(version))?.skill(writer.connection(), &links)
}

pub(crate) fn forget(writer: &mut Writer<'_>, name: &str) -> Result<(), MemoryError> {
    let links = links(writer.chain());
    let stored = find(writer.connection(), &links, name, None)?;
    let (seq, at_ms) = writer.next(LogKind::Skill)?;
    writer
        .connection()
        .prepare_cached(
            "INSERT INTO skills (seq, branch, name, version, at_ms, description, when_to_use, body, model, vector)
             VALUES (?1, ?2, ?3, ?4, ?5, '', '', NULL, NULL, NULL)",
        )?
        .execute(params![integer(seq), writer.branch(), name, integer(stored.version), integer(at_ms)])?;
    Ok(())
}

/// The end of a detail: error messages are usually last.
fn cut(detail: &str) -> &str {
    let mut from = detail.len().saturating_sub(OUTCOME_DETAIL_BYTES_MAX);
    while !detail.is_char_boundary(from) {
        from += 1;
    }
    &detail[from..]
}
