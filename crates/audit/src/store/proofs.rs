//! Creates proofs from the stored hashes.

use burrow_model::TenantId;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::entries::size_of;
use super::writer::KEPT_LEVELS;
use super::{Store, StoreError, as_stored};
use crate::tree::{self, Edge, Hash, Hashes};

/// Proves that an event is in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InclusionProof {
    pub index: u64,
    /// The size of the tree that the proof is for.
    pub size: u64,
    pub leaf: Hash,
    pub path: Vec<Hash>,
    pub root: Hash,
}

/// Proves that a log is an extension of an older one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsistencyProof {
    pub from: u64,
    pub from_root: Hash,
    pub to: u64,
    pub to_root: Hash,
    pub path: Vec<Hash>,
}

impl Store {
    /// Proves inclusion in the tree of `size` events, or of all.
    pub async fn prove_inclusion(
        &self,
        tenant: &TenantId,
        index: u64,
        size: Option<u64>,
    ) -> Result<InclusionProof, StoreError> {
        let tenant = tenant.clone();
        self.read_synced(move |connection| {
            let all = size_of(connection, &tenant)?;
            let size = size.unwrap_or(all);
            if size > all || index >= size {
                return Err(StoreError::OutOfRange {
                    asked: if size > all { size } else { index },
                    size: all,
                });
            }
            let stored = StoredHashes::open(connection, &tenant)?;
            Ok(InclusionProof {
                index,
                size,
                leaf: stored.full(0, index)?,
                path: tree::inclusion(&stored, index, size)?,
                root: tree::root(&stored, size)?,
            })
        })
        .await
    }

    /// Proves that the tree of `to` events, or of all, extends the tree of `from` events.
    pub async fn prove_consistency(
        &self,
        tenant: &TenantId,
        from: u64,
        to: Option<u64>,
    ) -> Result<ConsistencyProof, StoreError> {
        let tenant = tenant.clone();
        self.read_synced(move |connection| {
            let all = size_of(connection, &tenant)?;
            let to = to.unwrap_or(all);
            if to > all || from > to {
                return Err(StoreError::OutOfRange { asked: from.max(to), size: all });
            }
            let stored = StoredHashes::open(connection, &tenant)?;
            Ok(ConsistencyProof {
                from,
                from_root: tree::root(&stored, from)?,
                to,
                to_root: tree::root(&stored, to)?,
                path: tree::consistency(&stored, from, to)?,
            })
        })
        .await
    }
}

struct StoredHashes<'a> {
    connection: &'a Connection,
    tenant: &'a TenantId,
    tree: i64,
}

impl<'a> StoredHashes<'a> {
    fn open(connection: &'a Connection, tenant: &'a TenantId) -> Result<Self, StoreError> {
        let sql = "SELECT number FROM trees WHERE tenant = ?";
        let tree = connection.query_row(sql, [tenant.as_str()], |row| row.get(0)).optional()?;
        // If there is no tree, nothing is read.
        Ok(Self { connection, tenant, tree: tree.unwrap_or(-1) })
    }

    /// The hashes `from..to` of a level that is stored.
    fn kept(&self, level: u32, from: u64, to: u64) -> Result<Vec<Hash>, StoreError> {
        let (sql, level) = match level {
            0 => (
                "SELECT hash FROM leaves WHERE tree = ?1 AND place >= ?3 AND place < ?4 AND ?2 = 0 ORDER BY place",
                0,
            ),
            _ => (
                "SELECT hash FROM nodes WHERE tree = ?1 AND level = ?2 AND place >= ?3 AND place < ?4 ORDER BY place",
                level,
            ),
        };
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(params![self.tree, level, as_stored(from), as_stored(to)])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.extend(Hash::from_slice(&row.get::<_, Vec<u8>>(0)?));
        }
        if found.len() as u64 != to - from {
            let what = "it lacks hashes";
            return Err(StoreError::Tampered { tenant: self.tenant.clone(), what });
        }
        Ok(found)
    }
}

impl Hashes for StoredHashes<'_> {
    type Error = StoreError;

    fn full(&self, level: u32, index: u64) -> Result<Hash, StoreError> {
        let above = level % KEPT_LEVELS;
        let kept = self.kept(level - above, index << above, (index + 1) << above)?;
        let mut edge = Edge::default();
        for hash in kept {
            edge.append(hash, |_| ());
        }
        Ok(edge.root())
    }
}
