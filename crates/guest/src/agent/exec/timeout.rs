//! How long a process may run, counted in time awake.
//!
//! A sandbox may stand still for hours: paused, its clocks go on; kept as a dump, they stand still with it. Neither is
//! time its processes had. So the time is counted in slices, and of a slice that took far longer than it should have,
//! no more than that is counted: we were asleep in it.

use std::time::Duration;

use tokio::time::Instant;

/// How often it is looked at the clock. A sandbox that sleeps in a slice is charged twice as much for it at most.
const SLICE: Duration = Duration::from_secs(2);

/// What a slice may take on a machine that is awake, but busy.
const SLICE_MAX: Duration = Duration::from_secs(4);

#[derive(Debug)]
pub(super) struct Timeout {
    left: Duration,
    looked: Instant,
}

impl Timeout {
    pub(super) fn starting_at(now: Instant, time: Duration) -> Self {
        Self { left: time, looked: now }
    }

    /// When to look again.
    pub(super) fn next_look(&self) -> Instant {
        self.looked + self.left.min(SLICE)
    }

    /// Counts what has passed since the last look; whether the time is up.
    pub(super) fn is_up(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.looked).min(SLICE_MAX);
        self.left = self.left.saturating_sub(passed);
        self.looked = now;
        self.left.is_zero()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn awake_it_takes_as_long_as_it_says() {
        let start = Instant::now();
        let mut timeout = Timeout::starting_at(start, seconds(5));
        let mut looks = Vec::new();
        loop {
            let now = timeout.next_look();
            looks.push((now - start).as_secs());
            if timeout.is_up(now) {
                break;
            }
        }
        assert_eq!(looks, [2, 4, 5]);
    }

    #[test]
    fn hours_asleep_count_as_a_moment() {
        let start = Instant::now();
        let mut timeout = Timeout::starting_at(start, seconds(60));
        let woken = start + seconds(10 * 3600);
        assert!(!timeout.is_up(woken));
        assert!(!timeout.is_up(woken + seconds(2)));
        assert_eq!(timeout.left, seconds(54));
    }

    #[test]
    fn a_time_shorter_than_a_slice_is_met_exactly() {
        let start = Instant::now();
        let mut timeout = Timeout::starting_at(start, Duration::from_millis(300));
        assert_eq!(timeout.next_look() - start, Duration::from_millis(300));
        assert!(!timeout.is_up(start + Duration::from_millis(299)));
        assert!(timeout.is_up(start + Duration::from_millis(300)));
    }
}
