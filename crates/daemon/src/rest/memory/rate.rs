//! How often a sandbox may ask through its own door.
//!
//! A bucket of requests that fills at a steady rate: a burst is let through, a flood is not. Without a bound one sandbox
//! could keep all readers of memory busy, and others would wait for theirs.

use std::sync::{Mutex, PoisonError};

/// Requests per second that a door answers in the long run: ten times what a busy agent asks, and less than a tenth of what
/// the host can answer.
const PER_SECOND: u64 = 500;

/// Requests it answers at once after a pause.
const BURST: u64 = 1_000;

/// Parts of a request, so that a millisecond fills a whole number of them.
const PARTS: u64 = 1_000;

/// The bucket of one door.
#[derive(Debug)]
pub(crate) struct Rate(Mutex<Level>);

#[derive(Debug)]
struct Level {
    /// What is in it, in parts of a request.
    parts: u64,
    at_ms: u64,
}

impl Rate {
    pub(crate) fn full(now_ms: u64) -> Self {
        Self(Mutex::new(Level { parts: BURST * PARTS, at_ms: now_ms }))
    }

    /// Takes one request; or says in how many seconds there will be one to take.
    pub(crate) fn take(&self, now_ms: u64) -> Result<(), u64> {
        let mut level = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A clock that was set back fills nothing.
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
    fn a_burst_is_let_through_and_a_flood_is_slowed_to_the_rate() {
        let rate = Rate::full(5_000);
        assert_eq!(taken(&rate, 5_000), BURST);
        assert_eq!(rate.take(5_000), Err(1));
        assert_eq!(taken(&rate, 5_100), PER_SECOND / 10);
        assert_eq!(taken(&rate, 6_100), PER_SECOND);
        assert_eq!(taken(&rate, 1_000), 0, "a clock that was set back fills nothing");
        assert_eq!(taken(&rate, 3_600_000), BURST, "and a long pause no more than a burst");
    }
}
