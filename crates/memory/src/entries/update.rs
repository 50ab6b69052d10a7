//! Changes an entry by adding a new version; the old one stays in its history.

use std::sync::Arc;

use burrow_model::MemoryId;
use rusqlite::OptionalExtension;

use super::fetch::fetch;
use super::put::{VersionToWrite, put};
use super::types::{Entry, EntryChange, NewEntry};
use super::{embed_now, valid};
use crate::embed::ModelId;
use crate::space::arena::Row;
use crate::space::growth::Growth;
use crate::space::marks::Mark;
use crate::space::signs;
use crate::space::writer::Writer;
use crate::{MemoryError, View};

impl View {
    /// Writes a new version. With `expect`, only if the entry has that version.
    pub async fn update(
        &self,
        id: &MemoryId,
        change: EntryChange,
        expect: Option<u64>,
    ) -> Result<Entry, MemoryError> {
        if self.is_read_only() {
            return Err(MemoryError::ReadOnly);
        }
        let embedder = Arc::clone(&self.shared.embedder);
        let model = embedder.model().clone();
        let vector = match change.text.clone() {
            Some(text) => embed_now(embedder, text.len(), move |each| each(&text)).await,
            None => None,
        };
        let vector = vector.and_then(|vectors| vectors.into_iter().next());
        let wanted = id.clone();
        self.write(move |writer| update(writer, &wanted, &change, expect, &model, vector.as_deref())).await?;
        self.shared.slots.pending.notify_one();
        self.get(id).await
    }

    /// Counts `times` repetitions of each entry. Returns how many of the entries this branch sees.
    pub async fn repeat(&self, ids: &[MemoryId], times: u64) -> Result<u64, MemoryError> {
        self.mark(ids, Mark::Repeated(times)).await
    }

    /// Moves entries to the cold tier, which searches cover only on request.
    pub async fn cool(&self, ids: &[MemoryId]) -> Result<u64, MemoryError> {
        self.mark(ids, Mark::Cooled).await
    }

    /// Moves entries back from the cold tier.
    pub async fn warm(&self, ids: &[MemoryId]) -> Result<u64, MemoryError> {
        self.mark(ids, Mark::Warmed).await
    }

    pub(crate) async fn mark(&self, ids: &[MemoryId], mark: Mark) -> Result<u64, MemoryError> {
        let ids = ids.to_vec();
        let growth = match mark {
            Mark::Forgotten | Mark::Cooled => Growth::Frees,
            Mark::Version(_) | Mark::Warmed | Mark::Repeated(_) => Growth::Adds,
        };
        self.write_as(growth, ids.len(), move |writer| {
            let mut marked = 0;
            for id in &ids {
                marked += u64::from(writer.mark_current(id, mark)?);
            }
            Ok(marked)
        })
        .await
    }
}

impl Writer<'_> {
    /// Marks an entry if this branch sees it; returns whether it does.
    pub(crate) fn mark_current(&mut self, id: &MemoryId, mark: Mark) -> Result<bool, MemoryError> {
        match self.find(id)? {
            Some(current) => self.mark(current.entity, mark).map(|_| true),
            None => Ok(false),
        }
    }
}

/// Writes a new version in the caller's transaction.
pub(crate) fn update(
    writer: &mut Writer<'_>,
    id: &MemoryId,
    change: &EntryChange,
    expect: Option<u64>,
    model: &ModelId,
    vector: Option<&[f32]>,
) -> Result<(), MemoryError> {
    let current = writer.find(id)?.ok_or_else(|| MemoryError::not_found("memory", id))?;
    if let Some(expected) = expect.filter(|expected| *expected != current.version) {
        let found = current.version;
        return Err(MemoryError::Conflict { what: "memory", id: id.to_string(), expected, found });
    }
    let fetched = fetch(writer.connection(), current.row)?;
    let entry = fetched.ok_or_else(|| MemoryError::not_found("memory", id))?.entry;
    let count = entry.count;
    let content = changed(entry, change);
    valid::check(&content)?;
    for superseded in change.supersedes.iter().flatten() {
        if superseded == id {
            return Err(MemoryError::invalid(
                "the list of superseded entries",
                "an entry cannot supersede itself",
            ));
        }
        if writer.find(superseded)?.is_none() {
            return Err(MemoryError::not_found("memory", superseded));
        }
    }
    // An unchanged text keeps its vector.
    let kept = if change.text.is_none() { unpacked(writer, current.row, model)? } else { None };
    let vector = vector.or(kept.as_deref()).map(|vector| (model, vector));
    let version = current.version + 1;
    put(
        writer,
        VersionToWrite { id, entity: Some(current.entity), version, count, content: &content, vector },
    )?;
    Ok(())
}

/// The vector of a row, if it is of this model.
pub(crate) fn unpacked(
    writer: &mut Writer<'_>,
    row: Row,
    model: &ModelId,
) -> Result<Option<Vec<f32>>, MemoryError> {
    let no = writer.model(model)?;
    let mut statement =
        writer.connection().prepare_cached("SELECT scale, data FROM vectors WHERE row = ? AND model = ?")?;
    let found =
        statement.query_row((row.number(), no), |row| Ok((row.get::<_, f64>(0)?, row.get::<_, Vec<u8>>(1)?)));
    Ok(found.optional()?.map(|(scale, data)| signs::unpack(scale as f32, &data)))
}

pub(crate) fn content_of(entry: Entry) -> NewEntry {
    NewEntry {
        key: None,
        text: entry.text,
        kind: entry.kind,
        metadata: entry.metadata,
        importance: entry.importance,
        source: entry.source,
        session: entry.session,
        user: entry.user,
        agent: entry.agent,
        at_ms: Some(entry.at_ms),
        valid_from_ms: entry.valid_from_ms,
        valid_to_ms: entry.valid_to_ms,
        supersedes: entry.supersedes,
        artifacts: entry.artifacts,
        links: entry.links,
    }
}

fn changed(entry: Entry, change: &EntryChange) -> NewEntry {
    fn set<T: Clone>(at: &mut T, to: &Option<T>) {
        if let Some(to) = to {
            *at = to.clone();
        }
    }
    let mut content = content_of(entry);
    set(&mut content.text, &change.text);
    set(&mut content.kind, &change.kind);
    set(&mut content.metadata, &change.metadata);
    set(&mut content.importance, &change.importance);
    set(&mut content.source, &change.source);
    set(&mut content.session, &change.session);
    set(&mut content.user, &change.user);
    set(&mut content.agent, &change.agent);
    set(&mut content.valid_from_ms, &change.valid_from_ms);
    set(&mut content.valid_to_ms, &change.valid_to_ms);
    set(&mut content.supersedes, &change.supersedes);
    set(&mut content.artifacts, &change.artifacts);
    set(&mut content.links, &change.links);
    if change.at_ms.is_some() {
        content.at_ms = change.at_ms;
    }
    content
}
