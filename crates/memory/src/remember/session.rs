//! Sessions that open and close automatically.
//!
//! A session is open while its entries are less than half an hour apart and its sandbox is not stopped. Nothing is
//! written to open or close one: the open session is derived from the entries that carry its name.

use crate::context::dates::iso_second;
use crate::entries::RecentSession;
use crate::{MemoryError, View};

/// A pause of this length ends a session: longer than most builds, shorter than a lunch break.
pub const SESSION_GAP_MS: u64 = 30 * 60 * 1000;

/// Entries examined, newest first: other agents may write to the space at the same time. This may run before every write.
const ENTRIES_LOOKED_AT: usize = 1_000;

/// The owner of sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionOwner {
    /// The name of the sandbox or the agent; part of its sessions' names.
    pub name: String,
    /// When it was last started: a stop ends a session.
    pub since_ms: Option<u64>,
}

/// The session that is open now, or the name of a new one.
pub async fn current_session(view: &View, of: &SessionOwner, now_ms: u64) -> Result<String, MemoryError> {
    let sessions = view.recent_sessions(ENTRIES_LOOKED_AT).await?;
    Ok(match open_one(&sessions, of, now_ms) {
        Some(session) => session.to_owned(),
        None => format!("{}{}", prefix(of), iso_second(now_ms)),
    })
}

fn prefix(of: &SessionOwner) -> String {
    format!("{} ", super::cut(of.name.trim(), 100))
}

fn open_one<'a>(sessions: &'a [RecentSession], of: &SessionOwner, now_ms: u64) -> Option<&'a str> {
    let prefix = prefix(of);
    sessions
        .iter()
        .filter(|session| session.session.starts_with(&prefix))
        .filter(|session| session.last_ms.saturating_add(SESSION_GAP_MS) > now_ms)
        .filter(|session| of.since_ms.is_none_or(|since_ms| session.opened_ms >= since_ms))
        .max_by_key(|session| session.last_ms)
        .map(|session| session.session.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(name: &str, opened_ms: u64, last_ms: u64) -> RecentSession {
        RecentSession { session: name.to_owned(), opened_ms, last_ms }
    }

    #[test]
    fn a_session_stays_open_until_a_pause_or_a_stop() {
        let minute = 60_000;
        let sessions = [
            session("web a", 10 * minute, 50 * minute),
            session("api b", 0, 55 * minute),
            session("webb c", 0, 59 * minute),
        ];
        let of = |since_ms| SessionOwner { name: "web".to_owned(), since_ms };
        assert_eq!(open_one(&sessions, &of(None), 60 * minute), Some("web a"));
        assert_eq!(open_one(&sessions, &of(None), 80 * minute), None, "half an hour has passed");
        assert_eq!(open_one(&sessions, &of(Some(5 * minute)), 60 * minute), Some("web a"));
        assert_eq!(open_one(&sessions, &of(Some(55 * minute)), 60 * minute), None, "it was stopped since");
        assert_eq!(open_one(&[], &of(None), 0), None);
    }
}
