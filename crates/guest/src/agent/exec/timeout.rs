//! How long a process may run, counted in time in which the sandbox is awake.
//!
//! A sandbox may sleep for hours. While it is paused its clocks advance; while it is hibernated they do not. Neither
//! may count as running time. The time is therefore counted in slices, and of a slice that took far longer than it
//! should, only its maximum counts: the sandbox was asleep during the rest.

use std::time::Duration;

use tokio::time::Instant;

/// How often the clock is read. A sandbox that sleeps in a slice is charged at most twice this.
const SLICE: Duration = Duration::from_secs(2);

/// How long a slice may take in a machine that is awake but busy.
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

    /// When to read the clock next.
    pub(super) fn next_check(&self) -> Instant {
        self.looked + self.left.min(SLICE)
    }

    /// Counts the time since the last call. Returns whether the time is up.
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
    fn a_timeout_is_exact_while_the_sandbox_is_awake() {
        let start = Instant::now();
        let mut timeout = Timeout::starting_at(start, seconds(5));
        let mut looks = Vec::new();
        loop {
            let now = timeout.next_check();
            looks.push((now - start).as_secs());
            if timeout.is_up(now) {
                break;
            }
        }
        assert_eq!(looks, [2, 4, 5]);
    }

    #[test]
    fn hours_asleep_count_as_one_slice() {
        let start = Instant::now();
        let mut timeout = Timeout::starting_at(start, seconds(60));
        let woken = start + seconds(10 * 3600);
        assert!(!timeout.is_up(woken));
        assert!(!timeout.is_up(woken + seconds(2)));
        assert_eq!(timeout.left, seconds(54));
    }

    #[test]
    fn a_timeout_shorter_than_a_slice_is_exact() {
        let start = Instant::now();
        let mut timeout = Timeout::starting_at(start, Duration::from_millis(300));
        assert_eq!(timeout.next_check() - start, Duration::from_millis(300));
        assert!(!timeout.is_up(start + Duration::from_millis(299)));
        assert!(timeout.is_up(start + Duration::from_millis(300)));
    }
}
