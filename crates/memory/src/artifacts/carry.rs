//! What a merge asks of artifacts: what stands on a chain, and to refer to it from another.

use rusqlite::{Connection, OptionalExtension, params};

use super::rows::{Stored, head};
use super::write::adopt as append;
use crate::MemoryError;
use crate::newest::{bounded, links};
use crate::space::chain::{BranchNo, Chain};
use crate::space::writer::Writer;

pub(crate) use super::write::forget;

/// A version on its way from one chain to another.
#[derive(Clone, Debug)]
pub(crate) struct CarriedArtifact {
    stored: Stored,
    /// The hashes of its blocks, for a space that does not know them.
    blocks: Option<Vec<u8>>,
}

impl CarriedArtifact {
    pub(crate) fn says_same(&self, other: &Self) -> bool {
        let told =
            |of: &Self| (of.stored.hash.clone(), of.stored.media_type.clone(), of.stored.metadata.clone());
        told(self) == told(other)
    }

    /// Its content is gone: there is nothing to bring.
    pub(crate) fn is_gone(&self) -> bool {
        self.stored.released
    }

    pub(crate) fn shown(&self) -> String {
        let hash = self.stored.hash.as_deref().unwrap_or_default();
        format!("{} bytes, {}", self.stored.bytes, data_encoding::HEXLOWER.encode(hash))
    }
}

/// The newest version on a chain; `None` for none or a forgotten one.
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

/// Artifacts that a branch changed between two numbers, both included.
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

/// Writes a version as the next one of this branch. Its content is in the store already.
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
