//! Limits the rate of requests of a sandbox through its own listener.
//!
//! A token bucket: a burst is admitted, a flood is not. Without a limit one sandbox could keep all readers of memory busy,
//! and others would have to wait.

use std::sync::{Mutex, PoisonError};

/// Sustained requests per second per sandbox: ten times what a busy agent sends, and less than a tenth of what the host
/// can process.
const PER_SECOND: u64 = 500;

/// Requests admitted at once after a pause.
const BURST: u64 = 1_000;

/// Units per request, so that each millisecond adds a whole number of them.
const PARTS: u64 = 1_000;

/// The token bucket of one listener.
#[derive(Debug)]
pub struct Rate(Mutex<Level>);

#[derive(Debug)]
struct Level {
    /// The content of the bucket, in units.
    parts: u64,
    at_ms: u64,
}

impl Rate {
    pub fn full(now_ms: u64) -> Self {
        Self(Mutex::new(Level { parts: BURST * PARTS, at_ms: now_ms }))
    }

    /// Takes one request, or returns the number of seconds until one is available.
    pub fn take(&self, now_ms: u64) -> Result<(), u64> {
        let mut level = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A clock that was set back adds nothing.
        let passed_ms = now_ms.saturating_sub(level.at_ms);
        level.at_ms = now_ms;
        level.parts = passed_ms.saturating_mul(PER_SECOND).saturating_add(level.parts).min(BURST * PARTS);
        match level.parts.checked_sub(PARTS) {
            Some(left) => {
                level.parts = left;
                Ok(())
            }
            None => Err((PARTS - level.parts).div_ceil(PER_SECOND * PARTS).max(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(rate: &Rate, now_ms: u64) -> u64 {
        (0..2 * BURST).take_while(|_| rate.take(now_ms).is_ok()).count() as u64
    }

    #[test]
    fn a_burst_is_admitted_and_a_flood_is_limited_to_the_rate() {
        let rate = Rate::full(5_000);
        assert_eq!(taken(&rate, 5_000), BURST);
        assert_eq!(rate.take(5_000), Err(1));
        assert_eq!(taken(&rate, 5_100), PER_SECOND / 10);
        assert_eq!(taken(&rate, 6_100), PER_SECOND);
        assert_eq!(taken(&rate, 1_000), 0, "a clock that was set back adds nothing");
        assert_eq!(taken(&rate, 3_600_000), BURST, "a long pause adds no more than a burst");
    }
}
