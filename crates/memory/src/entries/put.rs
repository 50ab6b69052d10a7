//! Writes one version of an entry (log, columns, text, text index, vector) in the caller's transaction.

use burrow_model::MemoryId;

use super::tags;
use super::types::NewEntry;
use crate::MemoryError;
use crate::embed::ModelId;
use crate::limits::ENTRIES_MAX;
use crate::space::arena::{ArenaRow, Row};
use crate::space::checksum::hash;
use crate::space::load::integer;
use crate::space::writer::{LogKind, Writer};
use crate::space::{WordNo, signs};

/// A version to write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VersionToWrite<'a> {
    pub(crate) id: &'a MemoryId,
    /// The entry that it is a version of; `None` for a new entry.
    pub(crate) entity: Option<u32>,
    pub(crate) version: u64,
    pub(crate) count: u64,
    pub(crate) content: &'a NewEntry,
    /// `None`: it is computed later.
    pub(crate) vector: Option<(&'a ModelId, &'a [f32])>,
}

/// The row and numbers of the written version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WrittenRow {
    pub(crate) row: Row,
    pub(crate) seq: u64,
}

pub(crate) fn put(writer: &mut Writer<'_>, put: VersionToWrite<'_>) -> Result<WrittenRow, MemoryError> {
    let content = put.content;
    let row = writer.next_row();
    if u64::from(row) > ENTRIES_MAX {
        return Err(MemoryError::Full { what: "an entry to the space", max: ENTRIES_MAX });
    }
    let seq = writer.next_seq(LogKind::Entry)?;
    let entity = put.entity.unwrap_or(row);
    if put.entity.is_none() {
        writer
            .connection()
            .prepare_cached("INSERT INTO ids (entity, id) VALUES (?, ?)")?
            .execute((entity, put.id.as_str()))?;
    }
    let words = Words::of(writer, content)?;
    let at_ms = content.at_ms.unwrap_or(writer.at_ms());
    let arena_row = ArenaRow {
        row,
        entity,
        seq,
        branch: writer.branch(),
        at_ms,
        importance: content.importance,
        kind: words.kind,
        session: words.session,
        source: words.source,
        user: words.user,
        agent: words.agent,
        bytes: u32::try_from(content.text.len()).unwrap_or(u32::MAX),
        tags: tags::of(&content.metadata),
        erased: false,
        signs: put.vector.map(|(_, vector)| signs::of(vector)),
    };
    columns(writer, &put, &arena_row)?;
    text(writer, &put, &arena_row)?;
    if let Some((model, vector)) = put.vector {
        vectors(writer, row, model, vector)?;
    }
    supersede(writer, row, content)?;
    writer.effects().rows.push(arena_row);
    Ok(WrittenRow { row: Row(row), seq })
}

struct Words {
    kind: WordNo,
    session: WordNo,
    source: WordNo,
    user: WordNo,
    agent: WordNo,
}

impl Words {
    fn of(writer: &mut Writer<'_>, content: &NewEntry) -> Result<Self, MemoryError> {
        Ok(Self {
            kind: writer.word(Some(&content.kind))?,
            session: writer.word(content.session.as_deref())?,
            source: writer.word(content.source.as_deref())?,
            user: writer.word(content.user.as_deref())?,
            agent: writer.word(content.agent.as_deref())?,
        })
    }
}

fn columns(writer: &mut Writer<'_>, put: &VersionToWrite<'_>, row: &ArenaRow) -> Result<(), MemoryError> {
    let model = match put.vector {
        Some((model, _)) => Some(writer.model(model)?),
        None => None,
    };
    writer
        .connection()
        .prepare_cached(
            "INSERT INTO entries (row, entity, seq, branch, version, at_ms, importance, kind, session, source, user,
                                  agent, count, bytes, tags, hash, erased, model, signs)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?)",
        )?
        .execute(rusqlite::params![
            row.row,
            row.entity,
            integer(row.seq),
            row.branch,
            integer(put.version),
            integer(row.at_ms),
            f64::from(row.importance),
            row.kind,
            row.session,
            row.source,
            row.user,
            row.agent,
            integer(put.count),
            row.bytes,
            row.tags.cast_signed(),
            hash(put.content.text.as_bytes()),
            model,
            row.signs.as_deref().map(signs::to_bytes),
        ])?;
    Ok(())
}

fn text(writer: &mut Writer<'_>, put: &VersionToWrite<'_>, row: &ArenaRow) -> Result<(), MemoryError> {
    let content = put.content;
    let stored = StoredLists::of(content)?;
    let sum = stored.sum(&ChecksumInput {
        id: put.id,
        seq: row.seq,
        version: put.version,
        count: put.count,
        at_ms: row.at_ms,
        importance: row.importance,
        labels: [
            Some(content.kind.as_str()),
            content.session.as_deref(),
            content.source.as_deref(),
            content.user.as_deref(),
            content.agent.as_deref(),
        ],
        text: &content.text,
        valid: [content.valid_from_ms, content.valid_to_ms],
    });
    let connection = writer.connection();
    connection
        .prepare_cached(
            "INSERT INTO texts (row, text, metadata, valid_from_ms, valid_to_ms, supersedes, artifacts, links, sum)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute(rusqlite::params![
            row.row,
            content.text,
            stored.metadata,
            content.valid_from_ms.map(integer),
            content.valid_to_ms.map(integer),
            stored.supersedes,
            stored.artifacts,
            stored.links,
            sum,
        ])?;
    connection
        .prepare_cached("INSERT INTO fts (rowid, text) VALUES (?, ?)")?
        .execute((row.row, &content.text))?;
    Ok(())
}

/// Stores a row's vector. Its signs are in the columns.
pub(crate) fn vectors(
    writer: &mut Writer<'_>,
    row: u32,
    model: &ModelId,
    vector: &[f32],
) -> Result<(), MemoryError> {
    let packed = signs::pack(vector);
    let no = writer.model(model)?;
    writer
        .connection()
        .prepare_cached(
            "INSERT INTO vectors (row, model, scale, data, sum) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (row) DO UPDATE SET model = ?2, scale = ?3, data = ?4, sum = ?5",
        )?
        .execute((row, no, f64::from(packed.scale), &packed.data, signs::sum(&packed)))?;
    Ok(())
}

/// Only entries that this branch sees can be superseded; the rest of the list is stored unchanged.
fn supersede(writer: &mut Writer<'_>, row: u32, content: &NewEntry) -> Result<(), MemoryError> {
    for id in &content.supersedes {
        if let Some(target) = writer.find(id)? {
            writer
                .connection()
                .prepare_cached("INSERT OR IGNORE INTO supersedes (row, target) VALUES (?, ?)")?
                .execute((row, target.entity))?;
            writer.effects().superseders.push((target.entity, Row(row)));
        }
    }
    Ok(())
}

// === the checksum ===

/// The lists of an entry in their stored form.
pub(crate) struct StoredLists {
    pub(crate) metadata: Option<String>,
    pub(crate) supersedes: Option<String>,
    pub(crate) artifacts: Option<String>,
    pub(crate) links: Option<String>,
}

/// The fields that an entry's checksum covers beside its lists.
pub(crate) struct ChecksumInput<'a> {
    pub(crate) id: &'a MemoryId,
    pub(crate) seq: u64,
    pub(crate) version: u64,
    pub(crate) count: u64,
    pub(crate) at_ms: u64,
    pub(crate) importance: f32,
    pub(crate) labels: [Option<&'a str>; 5],
    pub(crate) text: &'a str,
    pub(crate) valid: [Option<u64>; 2],
}

impl StoredLists {
    fn of(content: &NewEntry) -> Result<Self, MemoryError> {
        Ok(Self {
            metadata: json((!content.metadata.is_empty()).then_some(&content.metadata))?,
            supersedes: json((!content.supersedes.is_empty()).then_some(&content.supersedes))?,
            artifacts: json((!content.artifacts.is_empty()).then_some(&content.artifacts))?,
            links: json((!content.links.is_empty()).then_some(&content.links))?,
        })
    }

    /// Each part is preceded by its length, so that no two entries have the same input.
    pub(crate) fn sum(&self, of: &ChecksumInput<'_>) -> i64 {
        let mut bytes = Vec::with_capacity(of.text.len() + 256);
        let mut part = |text: Option<&str>| {
            bytes.extend_from_slice(&text.map_or(u64::MAX, |text| text.len() as u64).to_le_bytes());
            bytes.extend_from_slice(text.unwrap_or_default().as_bytes());
        };
        part(Some(of.id.as_str()));
        part(Some(of.text));
        of.labels.iter().for_each(|label| part(*label));
        for list in [&self.metadata, &self.supersedes, &self.artifacts, &self.links] {
            part(list.as_deref());
        }
        let numbers = [of.seq, of.version, of.count, of.at_ms, u64::from(of.importance.to_bits())];
        numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
        for time in of.valid {
            bytes.extend_from_slice(&time.unwrap_or(u64::MAX).to_le_bytes());
        }
        hash(&bytes)
    }
}

fn json<T: serde::Serialize>(value: Option<&T>) -> Result<Option<String>, MemoryError> {
    let bad = |error: serde_json::Error| MemoryError::invalid("the entry", error.to_string());
    value.map(|value| serde_json::to_string(value).map_err(bad)).transpose()
}
