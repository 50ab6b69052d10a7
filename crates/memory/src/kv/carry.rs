//! Access for merges: reads the keys of a chain.

use rusqlite::{Connection, params};

use super::KvItem;
use super::read::find;
use crate::MemoryError;
use crate::newest::{bounded, links};
use crate::space::chain::{BranchNo, Chain};

/// The item of a key on a chain.
pub(crate) fn held_on(
    connection: &Connection,
    chain: &Chain,
    key: &str,
    now_ms: u64,
) -> Result<Option<KvItem>, MemoryError> {
    find(connection, &links(chain), key)?.map_or(Ok(None), |change| change.item(now_ms))
}

/// Keys that a branch changed between two sequence numbers, both included.
pub(crate) fn changed(
    connection: &Connection,
    branch: BranchNo,
    from: u64,
    upto: u64,
) -> Result<Vec<String>, MemoryError> {
    let sql = "SELECT DISTINCT key FROM kv WHERE branch = ?1 AND seq BETWEEN ?2 AND ?3";
    let mut statement = connection.prepare_cached(sql)?;
    let keys = statement.query_map(params![branch, bounded(from), bounded(upto)], |row| row.get(0))?;
    Ok(keys.collect::<Result<_, _>>()?)
}
