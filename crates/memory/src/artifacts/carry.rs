//! Access for merges: reads the artifacts of a chain, and adds them to another chain.

use rusqlite::{Connection, OptionalExtension, params};

use super::rows::{StoredArtifact, head};
use super::write::adopt as append;
use crate::MemoryError;
use crate::newest::{bounded, links};
use crate::space::chain::{BranchNo, Chain};
use crate::space::writer::Writer;

pub(crate) use super::write::forget;

/// A version that a merge copies from one chain to another.
#[derive(Clone, Debug)]
pub(crate) struct CarriedArtifact {
    stored: StoredArtifact,
    /// The hashes of its blocks, for a space that does not have them.
    blocks: Option<Vec<u8>>,
}

impl CarriedArtifact {
    pub(crate) fn says_same(&self, other: &Self) -> bool {
        let content =
            |of: &Self| (of.stored.hash.clone(), of.stored.media_type.clone(), of.stored.metadata.clone());
        content(self) == content(other)
    }

    /// Its content was removed, so it cannot be copied.
    pub(crate) fn is_gone(&self) -> bool {
        self.stored.released
    }

    pub(crate) fn shown(&self) -> String {
        let hash = self.stored.hash.as_deref().unwrap_or_default();
        format!("{} bytes, {}", self.stored.bytes, data_encoding::HEXLOWER.encode(hash))
    }
}

/// The newest version on a chain; `None` if there is none or it was forgotten.
pub(crate) fn artifact_on(
    connection: &Connection,
    chain: &Chain,
    name: &str,
) -> Result<Option<CarriedArtifact>, MemoryError> {
    let Some(stored) = head(connection, &links(chain), name)?.filter(|stored| stored.hash.is_some()) else {
        return Ok(None);
    };
    let blocks = connection
        .prepare_cached("SELECT blocks FROM artifact_blocks WHERE hash = ?1")?
        .query_row(params![stored.hash], |row| row.get(0))
        .optional()?;
    Ok(Some(CarriedArtifact { stored, blocks }))
}

/// Artifacts that a branch changed between two sequence numbers, both included.
pub(crate) fn changed(
    connection: &Connection,
    branch: BranchNo,
    from: u64,
    upto: u64,
) -> Result<Vec<String>, MemoryError> {
    let sql = "SELECT DISTINCT name FROM artifacts WHERE branch = ?1 AND seq BETWEEN ?2 AND ?3";
    let mut statement = connection.prepare_cached(sql)?;
    let names = statement.query_map(params![branch, bounded(from), bounded(upto)], |row| row.get(0))?;
    Ok(names.collect::<Result<_, _>>()?)
}

/// Adds a version as the next one of this branch. Its content is already in the store.
pub(crate) fn adopt(writer: &mut Writer<'_>, artifact: &CarriedArtifact) -> Result<(), MemoryError> {
    if let Some(blocks) = &artifact.blocks {
        writer
            .connection()
            .prepare_cached(
                "INSERT INTO artifact_blocks (hash, blocks) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
            )?
            .execute(params![artifact.stored.hash, blocks])?;
    }
    append(writer, &artifact.stored).map(|_| ())
}
