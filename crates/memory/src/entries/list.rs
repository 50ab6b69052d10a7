//! Lists entries and sessions, newest first, in pages.

use std::collections::HashMap;

use super::filter::Filter;
use super::types::{Entry, SessionInfo};
use crate::space::arena::Row;
use crate::space::reader::Reader;
use crate::{MemoryError, Page, PageRequest, View};

/// A session without new entries for this long is closed.
pub const SESSION_GAP_MS: u64 = 30 * 60 * 1000;

/// Characters that are shown of the first and last text of a session.
const EXCERPT_CHARACTERS: usize = 160;

impl View {
    pub async fn list(&self, filter: &Filter, page: PageRequest) -> Result<Page<Entry>, MemoryError> {
        let filter = filter.clone();
        self.read(move |reader| {
            let before = page.after_number()?.unwrap_or(u64::MAX);
            let sieve = reader.filter(&filter)?;
            let seq =
                |row: Row| reader.visibility.arena.place(row).map_or(0, |(chunk, slot)| chunk.seq[slot]);
            let wanted = |row: &Row| seq(*row) < before && reader.visible(*row) && sieve.admits(*row);
            let rows_max = page.rows_max();
            // Row numbers have the same order as sequence numbers.
            let rows: Vec<Row> =
                reader.visibility.arena.rows_down().filter(wanted).take(rows_max + 1).collect();
            let cut = Page::cut(rows, rows_max, |row| seq(*row).to_string());
            Ok(Page { rows: reader.entries(&cut.rows)?, next_cursor: cut.next_cursor })
        })
        .await
    }

    /// Sessions, sorted by their newest entry, newest first.
    pub async fn sessions(&self, page: PageRequest) -> Result<Page<SessionInfo>, MemoryError> {
        self.read(move |reader| {
            let after = page.after()?;
            let after = after.as_deref().and_then(|text| text.split_once('.'));
            let after = after.and_then(|(ms, session)| Some((ms.parse::<u64>().ok()?, session.to_owned())));
            if page.cursor.is_some() && after.is_none() {
                return Err(MemoryError::invalid("the cursor", "it does not belong to this list"));
            }
            let mut found = gathered(reader);
            found.sort_by(|a, b| (b.last_ms, &b.name).cmp(&(a.last_ms, &a.name)));
            let later = |gathered: &SessionRows| {
                after
                    .as_ref()
                    .is_none_or(|(ms, name)| (gathered.last_ms, &*gathered.name) < (*ms, name.as_str()))
            };
            let rows_max = page.rows_max();
            let rows: Vec<SessionRows> = found.into_iter().filter(later).take(rows_max + 1).collect();
            let cut = Page::cut(rows, rows_max, |row| format!("{}.{}", row.last_ms, row.name));
            let rows = cut.rows.iter().map(|row| row.info(reader)).collect::<Result<_, _>>()?;
            Ok(Page { rows, next_cursor: cut.next_cursor })
        })
        .await
    }
}

/// A session with recent entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecentSession {
    pub(crate) session: String,
    /// When its first entry happened, on any branch.
    pub(crate) opened_ms: u64,
    pub(crate) last_ms: u64,
}

impl View {
    /// The sessions of the newest entries, examining at most this many: cheap enough to call before each write.
    pub(crate) async fn recent_sessions(&self, rows_max: usize) -> Result<Vec<RecentSession>, MemoryError> {
        self.read(move |reader| {
            let arena = &reader.visibility.arena;
            let mut found: HashMap<u32, RecentSession> = HashMap::new();
            for row in reader.rows().take(rows_max) {
                let Some((chunk, slot)) = arena.place(row) else { continue };
                let (session, at_ms) = (chunk.session[slot], chunk.at_ms[slot]);
                let Some(name) = arena.words.word(session).filter(|_| session != 0) else { continue };
                let recent = found.entry(session).or_insert_with(|| RecentSession {
                    session: name.to_string(),
                    opened_ms: arena.sessions.first_ms(session).unwrap_or(at_ms),
                    last_ms: at_ms,
                });
                recent.last_ms = recent.last_ms.max(at_ms);
            }
            Ok(found.into_values().collect())
        })
        .await
    }
}

struct SessionRows {
    name: std::sync::Arc<str>,
    first: (u64, Row),
    last: (u64, Row),
    last_ms: u64,
    entries: u64,
}

fn gathered(reader: &Reader<'_>) -> Vec<SessionRows> {
    let arena = &reader.visibility.arena;
    let mut by_session: HashMap<u32, SessionRows> = HashMap::new();
    for row in reader.rows() {
        let Some((chunk, slot)) = arena.place(row) else { continue };
        let (session, at_ms) = (chunk.session[slot], chunk.at_ms[slot]);
        if session == 0 {
            continue;
        }
        let Some(name) = arena.words.word(session) else { continue };
        let here = (at_ms, row);
        let gathered = by_session.entry(session).or_insert_with(|| SessionRows {
            name,
            first: here,
            last: here,
            last_ms: at_ms,
            entries: 0,
        });
        gathered.first = gathered.first.min(here);
        gathered.last = gathered.last.max(here);
        gathered.last_ms = gathered.last_ms.max(at_ms);
        gathered.entries += 1;
    }
    by_session.into_values().collect()
}

impl SessionRows {
    fn info(&self, reader: &Reader<'_>) -> Result<SessionInfo, MemoryError> {
        let texts = reader.texts(&[self.first.1, self.last.1])?;
        let excerpt = |text: &String| text.chars().take(EXCERPT_CHARACTERS).collect();
        Ok(SessionInfo {
            session: self.name.to_string(),
            opened_ms: self.first.0,
            last_ms: self.last_ms,
            entries: self.entries,
            first_excerpt: texts.first().map(excerpt).unwrap_or_default(),
            last_excerpt: texts.last().map(excerpt).unwrap_or_default(),
            closed: reader.now_ms().saturating_sub(self.last_ms) > SESSION_GAP_MS,
        })
    }
}
