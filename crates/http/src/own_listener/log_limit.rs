//! Limits the lines in the operator's log that one sandbox can cause through its own listener.
//!
//! A program inside decides how often a request fails. Without a limit it could fill the disk that contains the log, and
//! displace lines that the operator needs.

use std::sync::{Mutex, PoisonError};

/// Lines per window.
const LINES_MAX: u32 = 5;

const WINDOW_MS: u64 = 60_000;

/// The limit of one sandbox.
#[derive(Debug, Default)]
pub struct LogLimit(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    began_ms: u64,
    lines: u32,
    /// Lines that were suppressed since the last one that was written.
    suppressed: u64,
}

impl LogLimit {
    /// Requests one line. `None` means that it must not be written. Otherwise returns how many were suppressed since the
    /// last one.
    pub fn take(&self, now_ms: u64) -> Option<u64> {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A clock that was set back also starts a new window.
        if now_ms.abs_diff(window.began_ms) >= WINDOW_MS {
            window.began_ms = now_ms;
            window.lines = 0;
        }
        if window.lines == LINES_MAX {
            window.suppressed = window.suppressed.saturating_add(1);
            return None;
        }
        window.lines += 1;
        Some(std::mem::take(&mut window.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_failures_causes_a_few_lines_per_minute_and_a_count() {
        let limit = LogLimit::default();
        let lines = |now_ms| (0..1000).filter_map(|_| limit.take(now_ms)).collect::<Vec<u64>>();
        assert_eq!(lines(1_000_000), [0; 5]);
        assert!(lines(1_059_999).is_empty());
        assert_eq!(lines(1_060_000), [1995, 0, 0, 0, 0]);
        assert_eq!(lines(5_000), [995, 0, 0, 0, 0], "a clock that was set back suppresses nothing");
    }
}
