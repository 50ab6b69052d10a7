//! Export and import: one JSON line per entry. Ids are kept, so an import can be repeated.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::filter::Filter;
use super::put::{VersionToWrite, put};
use super::types::Entry;
use super::update::content_of;
use super::{embed_now, valid};
use crate::embed::ModelId;
use crate::limits::BATCH_MAX;
use crate::space::marks::Mark;
use crate::space::writer::Writer;
use crate::{AsOf, MemoryError, PageRequest, View};

/// Entries read in one transaction: a read must not last as long as a slow reader of the export.
const PAGE_ROWS: u32 = 500;

/// The format of a line. Lines of an unknown kind come from a newer version.
pub const EXPORT_VERSION: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "kebab-case")]
pub enum ExportLine {
    /// The first line.
    Header {
        version: u32,
        space: String,
        branch: String,
        seq: u64,
        exported_ms: u64,
    },
    Entry(Box<Entry>),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportReport {
    pub added: u64,
    /// Newer versions of existing entries.
    pub updated: u64,
    /// Lines with the same version as the existing entry, or an older one.
    pub existed: u64,
    /// Entries that were erased here, and stay erased.
    pub erased: u64,
}

impl View {
    /// Sends every visible entry to `into`, oldest first, including cold and superseded ones, all from the same moment.
    /// Ends early without an error if the receiver is dropped.
    pub async fn export(&self, into: mpsc::Sender<String>) -> Result<u64, MemoryError> {
        let (seq, now_ms) = self.read(|reader| Ok((reader.chain().cut(), reader.now_ms()))).await?;
        let pinned = if self.is_read_only() { self.clone() } else { self.at(&AsOf::Seq(seq)).await? };
        let header = ExportLine::Header {
            version: EXPORT_VERSION,
            space: self.of.space.to_string(),
            branch: self.of.branch.to_string(),
            seq,
            exported_ms: now_ms,
        };
        if into.send(json(&header)?).await.is_err() {
            return Ok(0);
        }
        let (mut from, mut count) = (0, 0);
        loop {
            let (entries, next) = pinned.read(move |reader| page_up(reader, from)).await?;
            for entry in entries {
                if into.send(json(&ExportLine::Entry(Box::new(entry)))?).await.is_err() {
                    return Ok(count);
                }
                count += 1;
            }
            match next {
                Some(next) => from = next,
                None => return Ok(count),
            }
        }
    }

    /// Imports exported lines, at most 1000 at a time. An existing entry is changed only if the line is newer.
    pub async fn import(&self, lines: Vec<ExportLine>) -> Result<ImportReport, MemoryError> {
        if lines.len() > BATCH_MAX {
            let why = format!("it has {} lines, the limit is {BATCH_MAX}", lines.len());
            return Err(MemoryError::invalid("the batch", why));
        }
        let mut entries = Vec::with_capacity(lines.len());
        for line in lines {
            match line {
                ExportLine::Header { version, .. } if version > EXPORT_VERSION => {
                    let why = format!(
                        "it has format version {version}, and this program supports {EXPORT_VERSION}"
                    );
                    return Err(MemoryError::invalid("the export", why));
                }
                ExportLine::Header { .. } => {}
                ExportLine::Entry(entry) => {
                    valid::check(&content_of((*entry).clone()))?;
                    entries.push(*entry);
                }
            }
        }
        let entries = Arc::new(entries);
        let texts = Arc::clone(&entries);
        let embedder = Arc::clone(&self.shared.embedder);
        let model = embedder.model().clone();
        let bytes = entries.iter().map(|entry| entry.text.len()).sum();
        let vectors =
            embed_now(embedder, bytes, move |each| texts.iter().for_each(|entry| each(&entry.text))).await;
        let imported = self
            .write_weighed(entries.len(), move |writer| {
                let mut imported = ImportReport::default();
                for (at, entry) in entries.iter().enumerate() {
                    let vector = vectors.as_ref().map(|vectors| (&model, vectors[at].as_slice()));
                    import(writer, entry, vector, &mut imported)?;
                }
                Ok(imported)
            })
            .await?;
        self.shared.slots.pending.notify_one();
        Ok(imported)
    }
}

/// Visible entries from a row on, and the row to continue with.
fn page_up(reader: &crate::Reader<'_>, from: u32) -> Result<(Vec<Entry>, Option<u32>), MemoryError> {
    let filter = Filter::everything();
    let sieve = reader.filter(&filter)?;
    let rows = reader.visibility.arena.rows_from(from + 1);
    let rows: Vec<_> = rows
        .filter(|row| reader.visible(*row) && sieve.admits(*row))
        .take(PageRequest::first(PAGE_ROWS).rows_max())
        .collect();
    let next = rows.last().filter(|_| rows.len() == PAGE_ROWS as usize).map(|row| row.number());
    Ok((reader.entries(&rows)?, next))
}

fn import(
    writer: &mut Writer<'_>,
    entry: &Entry,
    vector: Option<(&ModelId, &[f32])>,
    imported: &mut ImportReport,
) -> Result<(), MemoryError> {
    let entity = writer.entity(&entry.id)?;
    if let Some(entity) = entity
        && writer.connection().prepare_cached("SELECT 1 FROM erased WHERE entity = ?")?.exists([entity])?
    {
        imported.erased += 1;
        return Ok(());
    }
    let current = match entity {
        Some(entity) => writer.current(entity)?,
        None => None,
    };
    match current {
        Some(current) if current.version >= entry.version => {
            imported.existed += 1;
            return Ok(());
        }
        Some(_) => imported.updated += 1,
        None => imported.added += 1,
    }
    let content = content_of(entry.clone());
    let placed = put(
        writer,
        VersionToWrite {
            id: &entry.id,
            entity,
            version: entry.version.max(1),
            count: entry.count.max(1),
            content: &content,
            vector,
        },
    )?;
    if entry.cold {
        writer.mark(entity.unwrap_or(placed.row.number()), Mark::Cooled)?;
    }
    Ok(())
}

fn json(line: &ExportLine) -> Result<String, MemoryError> {
    serde_json::to_string(line).map_err(|error| MemoryError::invalid("the entry", error.to_string()))
}
