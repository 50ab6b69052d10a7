//! Adds entries: in one transaction, once per key, and reporting an existing entry with the same text.

use std::sync::Arc;

use burrow_model::MemoryId;
use rusqlite::OptionalExtension;

use super::put::{VersionToWrite, put};
use super::types::{AddResult, NewEntry};
use super::valid;
use crate::embed::{self, Embedder, ModelId};
use crate::limits::BATCH_MAX;
use crate::space::checksum::hash;
use crate::space::load::{number, unsigned};
use crate::space::marks::Mark;
use crate::space::writer::Writer;
use crate::{MemoryError, View, blocking};

/// Texts up to this many bytes are embedded on the current thread: passing them to another thread would take longer.
const INLINE_BYTES_MAX: usize = 16 * 1024;

/// Newest rows with the same text hash that are compared with a new text.
const TWINS_LOOKED_AT: u32 = 64;

impl View {
    /// Adds entries, all or none. If a key was used before, the existing entry is left unchanged.
    pub async fn add(&self, new: Vec<NewEntry>) -> Result<Vec<AddResult>, MemoryError> {
        if new.len() > BATCH_MAX {
            let why = format!("it has {} entries, the limit is {BATCH_MAX}", new.len());
            return Err(MemoryError::invalid("the batch", why));
        }
        if new.is_empty() {
            return Ok(Vec::new());
        }
        new.iter().try_for_each(valid::check)?;
        if self.is_read_only() {
            return Err(MemoryError::ReadOnly);
        }
        let ids: Vec<MemoryId> = new.iter().map(|_| MemoryId::generate()).collect();
        let new = Arc::new(new);
        let texts = Arc::clone(&new);
        let embedder = Arc::clone(&self.shared.embedder);
        let bytes = new.iter().map(|entry| entry.text.len()).sum();
        let model = embedder.model().clone();
        let vectors =
            embed_now(embedder, bytes, move |each| texts.iter().for_each(|entry| each(&entry.text))).await;
        let pending = vectors.is_none();
        let added = self
            .write_weighed(new.len(), move |writer| {
                let mut added = Vec::with_capacity(new.len());
                for (at, entry) in new.iter().enumerate() {
                    let vector = vectors.as_ref().map(|vectors| (&model, vectors[at].as_slice()));
                    added.push(add(writer, &ids[at], entry, vector)?);
                }
                Ok(added)
            })
            .await?;
        if pending {
            self.shared.slots.pending.notify_one();
        }
        Ok(added)
    }
}

impl View {
    /// Adds an entry, or counts a repetition if its key was used before, in one transaction. The event `once` is recorded
    /// only once, even if the call is repeated: returns `None` if it was recorded before.
    pub(crate) async fn add_or_count(
        &self,
        entry: NewEntry,
        once: Option<String>,
    ) -> Result<Option<AddResult>, MemoryError> {
        valid::check(&entry)?;
        if self.is_read_only() {
            return Err(MemoryError::ReadOnly);
        }
        let embedder = Arc::clone(&self.shared.embedder);
        let (model, text) = (embedder.model().clone(), entry.text.clone());
        let vectors = embed_now(embedder, text.len(), move |each| each(&text)).await;
        let pending = vectors.is_none();
        let id = MemoryId::generate();
        let write = move |writer: &mut Writer<'_>| {
            if let Some(once) = &once
                && by_key(writer, once)?.is_some()
            {
                return Ok(None);
            }
            let vector = vectors.as_ref().and_then(|vectors| Some((&model, vectors.first()?.as_slice())));
            let added = add(writer, &id, &entry, vector)?;
            let Some(current) = writer.find(&added.id)? else { return Ok(Some(added)) };
            let seq = match added.existed {
                true => writer.mark(current.entity, Mark::Repeated(1))?,
                false => added.seq,
            };
            if let Some(once) = &once {
                remember_key(writer, once, seq, current.entity)?;
            }
            Ok(Some(added))
        };
        let added = self.write_weighed(1, write).await?;
        if pending {
            self.shared.slots.pending.notify_one();
        }
        Ok(added)
    }
}

/// Vectors for texts that are about to be written, if the embedder is immediate.
pub(crate) async fn embed_now(
    embedder: Arc<dyn Embedder>,
    bytes: usize,
    texts: impl FnOnce(&mut dyn FnMut(&str)) + Send + 'static,
) -> Option<Vec<Vec<f32>>> {
    if !embedder.is_immediate() {
        return None;
    }
    let work = move || {
        let mut all = Vec::new();
        texts(&mut |text| all.push(text.to_owned()));
        let mut vectors = Vec::with_capacity(all.len());
        for batch in all.chunks(embed::BATCH_MAX) {
            let batch: Vec<&str> = batch.iter().map(String::as_str).collect();
            match embedder.embed(&batch) {
                Ok(made) if made.len() == batch.len() => vectors.extend(made),
                // Computed later, as if the embedder were not immediate.
                Ok(_) | Err(_) => return Ok(None),
            }
        }
        let dims = embedder.model().dims;
        Ok(vectors.iter().all(|vector: &Vec<f32>| vector.len() == dims).then_some(vectors))
    };
    let made = if bytes <= INLINE_BYTES_MAX { work() } else { blocking(work).await };
    made.unwrap_or(None)
}

/// Adds one entry in the caller's transaction, unless its key was used.
pub(crate) fn add(
    writer: &mut Writer<'_>,
    id: &MemoryId,
    entry: &NewEntry,
    vector: Option<(&ModelId, &[f32])>,
) -> Result<AddResult, MemoryError> {
    if let Some(key) = &entry.key
        && let Some(existing) = by_key(writer, key)?
    {
        return Ok(existing);
    }
    for superseded in &entry.supersedes {
        if writer.find(superseded)?.is_none() {
            return Err(MemoryError::not_found("memory", superseded));
        }
    }
    let duplicate_of = twin(writer, &entry.text)?;
    let placed =
        put(writer, VersionToWrite { id, entity: None, version: 1, count: 1, content: entry, vector })?;
    if let Some(key) = &entry.key {
        let entity = placed.row.number();
        remember_key(writer, key, placed.seq, entity)?;
    }
    Ok(AddResult { id: id.clone(), seq: placed.seq, duplicate_of, existed: false })
}

pub(crate) fn remember_key(writer: &Writer<'_>, key: &str, seq: u64, entity: u32) -> Result<(), MemoryError> {
    let seq = crate::space::load::integer(seq);
    writer
        .connection()
        .prepare_cached("INSERT INTO keys (key, seq, branch, entity) VALUES (?, ?, ?, ?)")?
        .execute((key, seq, writer.branch(), entity))?;
    Ok(())
}

/// The entry that a key refers to on this branch. Sibling branches have separate keys.
pub(crate) fn by_key(writer: &Writer<'_>, key: &str) -> Result<Option<AddResult>, MemoryError> {
    let mut statement = writer.connection().prepare_cached(
        "SELECT i.id, k.seq FROM keys k JOIN ids i ON i.entity = k.entity
         WHERE k.key = ? AND sees(k.branch, k.seq) ORDER BY k.seq DESC LIMIT 1",
    )?;
    let found =
        statement.query_row([key], |row| Ok((row.get::<_, String>(0)?, unsigned(row, 1)?))).optional()?;
    let damaged = |error: burrow_model::IdError| crate::space::load::damaged(error.to_string());
    found
        .map(|(id, seq)| {
            Ok(AddResult { id: id.parse().map_err(damaged)?, seq, duplicate_of: None, existed: true })
        })
        .transpose()
}

/// A visible entry with exactly this text.
pub(crate) fn twin(writer: &Writer<'_>, text: &str) -> Result<Option<MemoryId>, MemoryError> {
    let connection = writer.connection();
    let mut statement = connection.prepare_cached(
        "SELECT row, entity FROM (SELECT row, entity, seq, branch FROM entries WHERE hash = ?1 ORDER BY row DESC LIMIT ?2)
         WHERE sees(branch, seq)",
    )?;
    let mut rows = statement.query((hash(text.as_bytes()), TWINS_LOOKED_AT))?;
    while let Some(row) = rows.next()? {
        let (number, entity) = (number(row, 0)?, number(row, 1)?);
        let same: bool = connection
            .prepare_cached("SELECT text = ?2 FROM texts WHERE row = ?1")?
            .query_row((number, text), |row| row.get(0))
            .optional()?
            .unwrap_or(false);
        if same && writer.current(entity)?.is_some_and(|current| current.row.number() == number) {
            let id: String = connection
                .prepare_cached("SELECT id FROM ids WHERE entity = ?")?
                .query_row([entity], |row| row.get(0))?;
            return Ok(id.parse().ok());
        }
    }
    Ok(None)
}
