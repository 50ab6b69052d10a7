//! Counts the rows that a view sees.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::types::{Stats, VectorStats};
use crate::space::reader::Reader;
use crate::{MemoryError, View, artifacts, kv, skills};

impl View {
    pub async fn stats(&self) -> Result<Stats, MemoryError> {
        self.read(count).await
    }
}

fn count(reader: &Reader<'_>) -> Result<Stats, MemoryError> {
    let (connection, chain) = (reader.connection(), reader.chain());
    let (artifacts, artifact_bytes) = artifacts::count(connection, chain)?;
    let arena = &reader.visibility.arena;
    let mut kinds: HashMap<u32, u64> = HashMap::new();
    let mut sessions = HashSet::new();
    let mut stats = Stats {
        entries: 0,
        by_kind: BTreeMap::new(),
        cold: 0,
        superseded: 0,
        sessions: 0,
        kv_keys: kv::count(connection, chain, reader.now_ms())?,
        skills: skills::count(connection, chain)?,
        artifacts,
        artifact_bytes,
        text_bytes: 0,
        seq: reader.seq(),
        vectors: VectorStats { model: reader.space.embedder.model().to_string(), covered: 0, pending: 0 },
    };
    for row in reader.rows() {
        let Some((chunk, slot)) = arena.place(row) else { continue };
        stats.entries += 1;
        stats.text_bytes += u64::from(chunk.bytes[slot]);
        stats.cold += u64::from(reader.cold(row));
        stats.superseded += u64::from(reader.superseded_by(row).is_some());
        *kinds.entry(chunk.kind[slot]).or_default() += 1;
        if chunk.session[slot] != 0 {
            sessions.insert(chunk.session[slot]);
        }
        match chunk.covered[slot] {
            true => stats.vectors.covered += 1,
            false => stats.vectors.pending += 1,
        }
    }
    stats.sessions = sessions.len() as u64;
    for (kind, count) in kinds {
        stats.by_kind.extend(arena.words.word(kind).map(|kind| (kind.to_string(), count)));
    }
    Ok(stats)
}
