//! A filter prepared for one read: labels become numbers, ids become rows.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::filter::{Condition, Filter};
use super::tags;
use crate::MemoryError;
use crate::space::arena::Row;
use crate::space::reader::Reader;

/// Decides which rows a [`Filter`] accepts. Does not check visibility.
#[derive(Debug)]
pub struct Sieve<'a> {
    reader: &'a Reader<'a>,
    /// The filter names a label or an id that does not exist, so no row matches.
    nothing: bool,
    kinds: HashSet<u32>,
    session: Option<u32>,
    source: Option<u32>,
    user: Option<u32>,
    agent: Option<u32>,
    since_ms: u64,
    until_ms: u64,
    entities: Option<HashSet<u32>>,
    conditions: Vec<Condition>,
    tags: u64,
    include_cold: bool,
    include_superseded: bool,
}

impl<'a> Reader<'a> {
    /// Prepares a filter. Pass it to the arms as `&|row| sieve.admits(row)`.
    pub fn filter(&'a self, filter: &Filter) -> Result<Sieve<'a>, MemoryError> {
        filter.check()?;
        let words = &self.visibility.arena.words;
        let mut nothing = false;
        let mut number = |word: &Option<String>| {
            let found = word.as_ref().map(|word| words.number(word));
            nothing |= found == Some(None);
            found.flatten()
        };
        let (session, source) = (number(&filter.session), number(&filter.source));
        let (user, agent) = (number(&filter.user), number(&filter.agent));
        let kinds: HashSet<u32> = filter.kinds.iter().filter_map(|kind| words.number(kind)).collect();
        nothing |= kinds.is_empty() && !filter.kinds.is_empty();
        let mut entities = None;
        if !filter.ids.is_empty() {
            let mut found = HashSet::new();
            for id in &filter.ids {
                found.extend(self.entity(id)?);
            }
            entities = Some(found);
        }
        Ok(Sieve {
            reader: self,
            nothing,
            kinds,
            session,
            source,
            user,
            agent,
            since_ms: filter.since_ms.unwrap_or(0),
            until_ms: filter.until_ms.unwrap_or(u64::MAX),
            entities,
            tags: filter.metadata.iter().fold(0, |bits, condition| bits | tags::needed(condition)),
            conditions: filter.metadata.clone(),
            include_cold: filter.include_cold,
            include_superseded: filter.include_superseded,
        })
    }
}

impl Sieve<'_> {
    /// Whether the row matches. A row with unreadable metadata does not.
    pub fn admits(&self, row: Row) -> bool {
        self.admits_state(row) && self.admits_content(row)
    }

    /// Cold and superseded rows match only if the filter includes them.
    fn admits_state(&self, row: Row) -> bool {
        (self.include_cold || !self.reader.cold(row))
            && (self.include_superseded || self.reader.superseded_by(row).is_none())
    }

    /// The part of the filter that does not depend on the view.
    pub(crate) fn admits_content(&self, row: Row) -> bool {
        let Some((chunk, slot)) = self.reader.visibility.arena.place(row) else { return false };
        let is = |wanted: Option<u32>, found: u32| wanted.is_none_or(|wanted| wanted == found);
        let at_ms = chunk.at_ms[slot];
        !self.nothing
            && (self.kinds.is_empty() || self.kinds.contains(&chunk.kind[slot]))
            && is(self.session, chunk.session[slot])
            && is(self.source, chunk.source[slot])
            && is(self.user, chunk.user[slot])
            && is(self.agent, chunk.agent[slot])
            && (self.since_ms..self.until_ms).contains(&at_ms)
            && self.entities.as_ref().is_none_or(|entities| entities.contains(&chunk.entity[slot]))
            && chunk.tags[slot] & self.tags == self.tags
            && (self.conditions.is_empty() || self.metadata_holds(row))
    }

    fn metadata_holds(&self, row: Row) -> bool {
        let metadata = metadata(self.reader, row).unwrap_or_else(|error| {
            tracing::warn!(%error, row = row.number(), "could not read metadata for a filter");
            None
        });
        metadata.is_some_and(|metadata| self.conditions.iter().all(|condition| condition.holds(&metadata)))
    }
}

fn metadata(reader: &Reader<'_>, row: Row) -> Result<Option<Map<String, Value>>, MemoryError> {
    let mut statement = reader.connection.prepare_cached("SELECT metadata FROM texts WHERE row = ?")?;
    let mut rows = statement.query([row.number()])?;
    let Some(found) = rows.next()? else { return Ok(None) };
    let text = found.get_ref(0)?.as_str_or_null().map_err(rusqlite::Error::from)?;
    let damaged = |error: serde_json::Error| crate::space::load::damaged(error.to_string());
    text.map_or(Ok(Some(Map::new())), |text| serde_json::from_str(text).map(Some).map_err(damaged))
}
