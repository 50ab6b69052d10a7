//! The rows of each session, sorted by time.

use std::collections::BTreeSet;
use std::sync::{PoisonError, RwLock};

use super::words::WordNo;

/// (session, time, entity, row): a later version has the position of the first one.
type Position = (WordNo, u64, u32, u32);

#[derive(Debug, Default)]
pub(crate) struct Sessions(RwLock<BTreeSet<Position>>);

impl Sessions {
    pub(crate) fn of(places: Vec<Position>) -> Self {
        Self(RwLock::new(places.into_iter().collect()))
    }

    pub(crate) fn insert(&self, session: WordNo, at_ms: u64, entity: u32, row: u32) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert((session, at_ms, entity, row));
    }

    pub(crate) fn remove(&self, session: WordNo, at_ms: u64, entity: u32, row: u32) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&(session, at_ms, entity, row));
    }

    /// The time of the first row of a session, on any branch.
    pub(crate) fn first_ms(&self, session: WordNo) -> Option<u64> {
        let places = self.0.read().unwrap_or_else(PoisonError::into_inner);
        places.range((session, 0, 0, 0)..).next().filter(|place| place.0 == session).map(|place| place.1)
    }

    /// Up to `wanted` admitted rows before the position, nearest first, examining at most `looked_at` rows.
    pub(crate) fn before(
        &self,
        place: Position,
        wanted: usize,
        looked_at: usize,
        admit: impl Fn(u32) -> bool,
    ) -> Vec<u32> {
        let places = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let range = places.range((place.0, 0, 0, 0)..(place.0, place.1, place.2, 0)).rev();
        range.take(looked_at).map(|place| place.3).filter(|row| admit(*row)).take(wanted).collect()
    }

    /// As [`Sessions::before`], for the rows after it.
    pub(crate) fn after(
        &self,
        place: Position,
        wanted: usize,
        looked_at: usize,
        admit: impl Fn(u32) -> bool,
    ) -> Vec<u32> {
        let places = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let from = (place.0, place.1, place.2.saturating_add(1), 0);
        let range = places.range(from..=(place.0, u64::MAX, u32::MAX, u32::MAX));
        range.take(looked_at).map(|place| place.3).filter(|row| admit(*row)).take(wanted).collect()
    }
}
