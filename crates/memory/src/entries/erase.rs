//! Erases entries for legal reasons: every version on every branch, from every index and from the file.
//!
//! Unlike everything else, this covers the whole file, not only what a branch sees: a text that a restore abandoned is
//! still in the file, and the user who must erase it does not know its branch. A row without content
//! remains, so that numbers, branches and points stay valid.

use std::collections::{BTreeSet, HashMap, HashSet};

use burrow_model::MemoryId;
use rusqlite::OptionalExtension;

use super::forget::{check_count, older};
use super::types::{EntrySelection, EraseReport};
use crate::consolidate::KIND_SUMMARY;
use crate::limits::FORGOTTEN_SHOWN_MAX;
use crate::space::arena::{Arena, ERASED, Row};
use crate::space::growth::Growth;
use crate::space::load::{damaged, integer, number};
use crate::space::reader::Reader;
use crate::space::slots::Access;
use crate::space::writer::{LogKind, Writer};
use crate::{MemoryError, View, blocking};

/// Entries erased in one commit.
const ERASED_AT_ONCE: usize = 500;

/// How often truncating the journal is tried while readers use it, and the pause between attempts: ten seconds in all.
const TRUNCATIONS_MAX: u32 = 100;
const TRUNCATION_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

impl View {
    /// Erases entries everywhere, and the summaries of them, which repeat their words. Returns when no content
    /// is left in the file and its journal.
    pub async fn erase(&self, what: &EntrySelection, dry_run: bool) -> Result<EraseReport, MemoryError> {
        if self.is_read_only() {
            return Err(MemoryError::ReadOnly);
        }
        let which = what.clone();
        let (found, erased) = self.read(move |reader| entries_to_erase(reader, &which)).await?;
        if dry_run || found.is_empty() {
            return Ok(erased);
        }
        for part in found.chunks(ERASED_AT_ONCE) {
            let entities: Vec<u32> = part.to_vec();
            let work = move |writer: &mut Writer<'_>| {
                let mut words = BTreeSet::new();
                entities.iter().try_for_each(|entity| erase(writer, *entity, &mut words))?;
                erase_words(writer, &words)
            };
            self.write_as(Growth::Erases, part.len(), work).await?;
        }
        self.leave_no_trace().await?;
        Ok(erased)
    }

    /// The journal still has old pages, and a reader may still need them.
    async fn leave_no_trace(&self) -> Result<(), MemoryError> {
        for _ in 0..TRUNCATIONS_MAX {
            let space = self.space(Access::Write).await?;
            if blocking(move || space.truncate_journal()).await? {
                return Ok(());
            }
            tokio::time::sleep(TRUNCATION_PAUSE).await;
        }
        Err(MemoryError::Busy { space: self.of.space.clone() })
    }
}

/// Everything to erase, and the report about it.
fn entries_to_erase(
    reader: &Reader<'_>,
    which: &EntrySelection,
) -> Result<(Vec<u32>, EraseReport), MemoryError> {
    let selected = selected(reader, which)?;
    let mut entities: BTreeSet<u32> = selected.iter().map(|(entity, _)| *entity).collect();
    let summaries = summaries_of(reader, &mut entities)?;
    let all: Vec<u32> = entities.iter().copied().collect();
    let shown = |ids: Vec<MemoryId>| ids.into_iter().take(FORGOTTEN_SHOWN_MAX).collect();
    let erased = EraseReport {
        count: all.len() as u64,
        ids: shown(selected.into_iter().map(|(_, id)| id).collect()),
        summaries: shown(summaries),
        copies: copies_of(reader, &entities)?,
        branches: branches_of(reader, &entities),
    };
    Ok((all, erased))
}

/// Adds the summaries that cite one of the entities, and summaries of those summaries. Returns their ids.
fn summaries_of(reader: &Reader<'_>, entities: &mut BTreeSet<u32>) -> Result<Vec<MemoryId>, MemoryError> {
    let arena = &reader.visibility.arena;
    let Some(kind) = arena.words.number(KIND_SUMMARY).filter(|_| !entities.is_empty()) else {
        return Ok(Vec::new());
    };
    let mut cited: HashMap<u32, HashSet<String>> = HashMap::new();
    for row in arena.rows_up() {
        let Some((chunk, slot)) = arena.place(row) else { continue };
        if chunk.kind[slot] == kind && chunk.flags(slot) & ERASED == 0 {
            cited.entry(chunk.entity[slot]).or_default().extend(links_of(reader, row)?);
        }
    }
    let mut names: HashSet<String> =
        entities.iter().map(|entity| id_of(reader, *entity)).collect::<Result<_, _>>()?;
    let mut summaries = Vec::new();
    loop {
        let next: Vec<u32> = cited
            .iter()
            .filter(|(entity, links)| !entities.contains(*entity) && !links.is_disjoint(&names))
            .map(|(entity, _)| *entity)
            .collect();
        if next.is_empty() {
            summaries.sort();
            return Ok(summaries);
        }
        for entity in next {
            let id = id_of(reader, entity)?;
            summaries.extend(id.parse().ok());
            names.insert(id);
            entities.insert(entity);
        }
    }
}

/// The links of a version in their stored form.
fn links_of(reader: &Reader<'_>, row: Row) -> Result<Vec<String>, MemoryError> {
    let mut statement = reader.connection.prepare_cached("SELECT links FROM texts WHERE row = ?")?;
    let links: Option<Option<String>> = statement.query_row([row.number()], |row| row.get(0)).optional()?;
    let parsed = links.flatten().map(|links| serde_json::from_str(&links));
    parsed.transpose().map(Option::unwrap_or_default).map_err(|error| damaged(error.to_string()))
}

fn id_of(reader: &Reader<'_>, entity: u32) -> Result<String, MemoryError> {
    let mut statement = reader.connection.prepare_cached("SELECT id FROM ids WHERE entity = ?")?;
    Ok(statement.query_row([entity], |row| row.get(0))?)
}

/// Other entries that have exactly the same text in some version, or that a merge joined with one of them.
fn copies_of(reader: &Reader<'_>, entities: &BTreeSet<u32>) -> Result<Vec<MemoryId>, MemoryError> {
    let mut found: BTreeSet<MemoryId> = BTreeSet::new();
    let mut twins = reader.connection.prepare_cached(
        "SELECT DISTINCT other.entity FROM entries mine
         JOIN entries other ON other.hash = mine.hash AND other.entity <> mine.entity AND other.erased = 0
         JOIN texts here ON here.row = mine.row JOIN texts there ON there.row = other.row
         WHERE mine.row = ?1 AND mine.erased = 0 AND here.text = there.text LIMIT ?2",
    )?;
    let mut joined = reader.connection.prepare_cached(
        "SELECT ours FROM merge_joins WHERE theirs = ?1 UNION SELECT theirs FROM merge_joins WHERE ours = ?1 LIMIT ?2",
    )?;
    let limit = FORGOTTEN_SHOWN_MAX as i64;
    let arena = &reader.visibility.arena;
    let mut others: Vec<MemoryId> = Vec::new();
    for entity in entities {
        for row in std::iter::once(Row(*entity)).chain(arena.marks.versions(*entity)) {
            let entities: Vec<u32> =
                twins.query_map((row.number(), limit), |row| number(row, 0))?.collect::<Result<_, _>>()?;
            for other in entities {
                others.extend(id_of(reader, other)?.parse().ok());
            }
        }
        let ids: Vec<String> = joined
            .query_map((id_of(reader, *entity)?, limit), |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        others.extend(ids.iter().filter_map(|id| id.parse().ok()));
        for id in others.drain(..) {
            let there = reader.entity(&id)?.filter(|entity| !is_erased(arena, *entity));
            if there.is_some_and(|entity| !entities.contains(&entity)) {
                found.insert(id);
            }
        }
        if found.len() >= FORGOTTEN_SHOWN_MAX {
            break;
        }
    }
    Ok(found.into_iter().take(FORGOTTEN_SHOWN_MAX).collect())
}

fn branches_of(reader: &Reader<'_>, entities: &BTreeSet<u32>) -> u64 {
    let arena = &reader.visibility.arena;
    let rows = |entity: &u32| std::iter::once(Row(*entity)).chain(arena.marks.versions(*entity));
    let branches = entities.iter().flat_map(rows).filter_map(|row| arena.place(row));
    branches.map(|(chunk, slot)| chunk.branch[slot]).collect::<HashSet<_>>().len() as u64
}

/// The selected entities, in any version, on any branch, forgotten or not.
fn selected(reader: &Reader<'_>, which: &EntrySelection) -> Result<Vec<(u32, MemoryId)>, MemoryError> {
    let arena = &reader.visibility.arena;
    let mut entities: Vec<u32> = match which {
        EntrySelection::Ids(ids) => {
            check_count(ids)?;
            let mut entities = Vec::new();
            for id in ids {
                entities.extend(reader.entity(id)?.filter(|entity| !is_erased(arena, *entity)));
            }
            entities
        }
        EntrySelection::Filter(filter) => matching(reader, filter)?,
        EntrySelection::OlderThanMs(age_ms) => matching(reader, &older(reader, *age_ms))?,
    };
    entities.sort_unstable();
    entities.dedup();
    let mut found = Vec::with_capacity(entities.len());
    for entity in entities {
        let mut statement = reader.connection.prepare_cached("SELECT id FROM ids WHERE entity = ?")?;
        let id: String = statement.query_row([entity], |row| row.get(0))?;
        found.extend(id.parse().ok().map(|id| (entity, id)));
    }
    Ok(found)
}

fn matching(reader: &Reader<'_>, filter: &super::Filter) -> Result<Vec<u32>, MemoryError> {
    let arena = &reader.visibility.arena;
    let sieve = reader.filter(filter)?;
    let there = |row: &Row| arena.place(*row).is_some_and(|(chunk, slot)| chunk.flags(slot) & ERASED == 0);
    let rows = arena.rows_up().filter(there).filter(|row| sieve.admits_content(*row));
    Ok(rows.filter_map(|row| arena.place(row)).map(|(chunk, slot)| chunk.entity[slot]).collect())
}

fn is_erased(arena: &Arena, entity: u32) -> bool {
    arena.place(Row(entity)).is_some_and(|(chunk, slot)| chunk.flags(slot) & ERASED != 0)
}

fn erase(writer: &mut Writer<'_>, entity: u32, words: &mut BTreeSet<u32>) -> Result<(), MemoryError> {
    let connection = writer.connection();
    if connection.prepare_cached("SELECT 1 FROM erased WHERE entity = ?")?.exists([entity])? {
        return Ok(());
    }
    let seq = writer.next_seq(LogKind::Erase)?;
    let rows: Vec<u32> = connection
        .prepare_cached(
            "SELECT row FROM entries WHERE row = ?1 AND entity = ?1
             UNION SELECT row FROM entries WHERE entity = ?1 AND (version > 1 OR row <> entity)",
        )?
        .query_map([entity], |row| number(row, 0))?
        .collect::<Result<_, _>>()?;
    for row in rows {
        erase_row(writer, row, words)?;
    }
    for sql in [
        "DELETE FROM keys WHERE entity = ?",
        "DELETE FROM marks WHERE entity = ?",
        "DELETE FROM supersedes WHERE target = ?",
    ] {
        connection.prepare_cached(sql)?.execute([entity])?;
    }
    connection
        .prepare_cached("INSERT INTO erased (entity, seq) VALUES (?, ?)")?
        .execute((entity, integer(seq)))?;
    writer.effects().erased_entities.push(entity);
    Ok(())
}

fn erase_row(writer: &mut Writer<'_>, row: u32, words: &mut BTreeSet<u32>) -> Result<(), MemoryError> {
    let connection = writer.connection();
    words.extend(words_of(writer, row)?);
    // A deletion must pass the old text to the index; with `secure-delete` it removes the words at once.
    connection
        .prepare_cached(
            "INSERT INTO fts (fts, rowid, text) SELECT 'delete', row, text FROM texts WHERE row = ?",
        )?
        .execute([row])?;
    for sql in [
        "DELETE FROM texts WHERE row = ?",
        "DELETE FROM vectors WHERE row = ?",
        "DELETE FROM supersedes WHERE row = ?",
        "UPDATE entries SET at_ms = 0, importance = 0, kind = 0, session = 0, source = 0, user = 0, agent = 0, count = 0,
             bytes = 0, tags = 0, hash = NULL, erased = 1, model = NULL, signs = NULL WHERE row = ?",
    ] {
        connection.prepare_cached(sql)?.execute([row])?;
    }
    writer.effects().erased_rows.push(row);
    Ok(())
}

/// Labels that no row uses any more: a session, a user, an agent, a source.
fn erase_words(writer: &mut Writer<'_>, words: &BTreeSet<u32>) -> Result<(), MemoryError> {
    let connection = writer.connection();
    for word in words {
        let mut statement = connection.prepare_cached(
            "SELECT 1 FROM entries WHERE kind = ?1 OR session = ?1 OR source = ?1 OR user = ?1 OR agent = ?1",
        )?;
        if !statement.exists([word])? {
            connection.prepare_cached("DELETE FROM words WHERE no = ?")?.execute([word])?;
            writer.effects().removed_words.push(*word);
        }
    }
    Ok(())
}

/// The labels of a row that may identify it; not its kind, which is one of a few words and no secret.
fn words_of(writer: &Writer<'_>, row: u32) -> Result<Vec<u32>, MemoryError> {
    let mut statement = writer
        .connection()
        .prepare_cached("SELECT session, source, user, agent FROM entries WHERE row = ?")?;
    let mut words = statement.query_row([row], |row| {
        Ok(vec![number(row, 0)?, number(row, 1)?, number(row, 2)?, number(row, 3)?])
    })?;
    words.retain(|word| *word != 0);
    Ok(words)
}
