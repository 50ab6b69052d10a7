//! Time as an input, so that tests control it.
//!
//! A wrong date of the host must not cause deletions of sandboxes or snapshots with a limited lifetime. So the daemon's own time,
//! [`SteadyClock`], starts with the date and then follows the host's uptime, whatever happens to the date:
//!
//! ```text
//!   the date drifts (NTP)                 followed
//!   the date jumps, forward or back       ignored until the daemon is started again
//!   at the start: a little back           continues from the last time in the catalog
//!   at the start: months ahead            accepted, but nothing is deleted by date for an hour ([`Clock::in_doubt`])
//! ```

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

pub trait Clock: fmt::Debug + Send + Sync {
    /// Milliseconds since the Unix epoch.
    fn now_ms(&self) -> u64;

    /// Whether the time may be far ahead of the true time: nothing is deleted for its age while this holds.
    fn in_doubt(&self) -> bool {
        false
    }
}

/// The source of a [`SteadyClock`]'s time.
pub trait TimeSource: fmt::Debug + Send + Sync {
    /// The host's date, in milliseconds since the Unix epoch.
    fn date_ms(&self) -> u64;
    /// Milliseconds since the host was started, including time suspended.
    fn uptime_ms(&self) -> u64;
}

/// How far the date may be off between two readings without counting as a jump: clocks are corrected in small steps.
const DRIFT_MS_MAX: u64 = 2_000;

/// A date that is behind the last known time by at most this much was corrected; one further behind is accepted.
const BEHIND_MS_MAX: u64 = 24 * 3_600_000;

/// A host may be off for a long time. Beyond this, a wrong date is equally likely.
const AHEAD_MS_MAX: u64 = 30 * 24 * 3_600_000;

/// Long enough for the host to get the time from the network, or for a person to see the warning.
const DOUBT_MS: u64 = 3_600_000;

/// The host's time, without its jumps.
#[derive(Debug)]
pub struct SteadyClock<T> {
    times: T,
    frame: Mutex<ClockReading>,
    /// Until when the time is in doubt, by uptime.
    doubt_until_ms: u64,
}

#[derive(Clone, Copy, Debug)]
struct ClockReading {
    /// The time at `uptime_ms`.
    now_ms: u64,
    uptime_ms: u64,
    /// Whether the present jump was logged.
    logged: bool,
}

impl<T: TimeSource> SteadyClock<T> {
    /// `known_ms` is the last time that an earlier run stored.
    pub fn new(times: T, known_ms: Option<u64>) -> Self {
        let (date_ms, uptime_ms) = (times.date_ms(), times.uptime_ms());
        let known_ms = known_ms.unwrap_or(date_ms);
        let behind = date_ms < known_ms && known_ms - date_ms <= BEHIND_MS_MAX;
        let ahead = date_ms.saturating_sub(known_ms) > AHEAD_MS_MAX;
        if date_ms < known_ms {
            tracing::warn!(
                by_ms = known_ms - date_ms,
                "the host's date is earlier than the newest record in the catalog"
            );
        }
        if ahead {
            tracing::warn!(
                by_ms = date_ms - known_ms,
                "the host's date is long after the newest record in the catalog: nothing is deleted by date for an hour"
            );
        }
        Self {
            frame: Mutex::new(ClockReading {
                now_ms: if behind { known_ms } else { date_ms },
                uptime_ms,
                logged: false,
            }),
            doubt_until_ms: if ahead { uptime_ms + DOUBT_MS } else { 0 },
            times,
        }
    }
}

impl<T: TimeSource> Clock for SteadyClock<T> {
    fn now_ms(&self) -> u64 {
        let (date_ms, uptime_ms) = (self.times.date_ms(), self.times.uptime_ms());
        // Replaced as a whole: it stays valid if another thread panics.
        let mut frame = self.frame.lock().unwrap_or_else(PoisonError::into_inner);
        let expected_ms = frame.now_ms.saturating_add(uptime_ms.saturating_sub(frame.uptime_ms));
        let drifted = date_ms.abs_diff(expected_ms) <= DRIFT_MS_MAX;
        if !drifted && !frame.logged {
            tracing::warn!(
                date_ms,
                expected_ms,
                "the host's date has jumped: the daemon ignores the jump until it is started again"
            );
        }
        *frame =
            ClockReading { now_ms: if drifted { date_ms } else { expected_ms }, uptime_ms, logged: !drifted };
        frame.now_ms
    }

    fn in_doubt(&self) -> bool {
        self.times.uptime_ms() < self.doubt_until_ms
    }
}

/// The host's clock.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

/// A clock that tests advance.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    pub fn at(now_ms: u64) -> Self {
        Self(AtomicU64::new(now_ms))
    }

    pub fn advance(&self, by_ms: u64) {
        self.0.fetch_add(by_ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const HOUR_MS: u64 = 3_600_000;
    const YEAR_MS: u64 = 365 * 24 * HOUR_MS;
    /// An arbitrary day.
    const DAY_MS: u64 = 1_700_000_000_000;

    #[derive(Debug, Default)]
    struct Host {
        date_ms: AtomicU64,
        uptime_ms: AtomicU64,
    }

    impl Host {
        fn pass(&self, ms: u64) {
            self.date_ms.fetch_add(ms, Ordering::SeqCst);
            self.uptime_ms.fetch_add(ms, Ordering::SeqCst);
        }

        fn set_date(&self, ms: u64) {
            self.date_ms.store(ms, Ordering::SeqCst);
        }
    }

    impl TimeSource for Arc<Host> {
        fn date_ms(&self) -> u64 {
            self.date_ms.load(Ordering::SeqCst)
        }

        fn uptime_ms(&self) -> u64 {
            self.uptime_ms.load(Ordering::SeqCst)
        }
    }

    fn host() -> Arc<Host> {
        let host = Arc::new(Host::default());
        host.set_date(DAY_MS);
        host
    }

    #[test]
    fn the_clock_follows_drift_of_the_date_but_not_jumps() {
        for jumped in [DAY_MS + 10 * YEAR_MS, DAY_MS + HOUR_MS, DAY_MS - HOUR_MS, 0] {
            let host = host();
            let clock = SteadyClock::new(host.clone(), Some(DAY_MS - 1));
            host.pass(1_000);
            assert_eq!(clock.now_ms(), DAY_MS + 1_000);
            host.set_date(jumped);
            assert_eq!(clock.now_ms(), DAY_MS + 1_000);
            host.pass(5_000);
            assert_eq!(clock.now_ms(), DAY_MS + 6_000, "to {jumped}");
            assert!(!clock.in_doubt());
            // Corrected again, and slightly off.
            host.set_date(DAY_MS + 6_500);
            assert_eq!(clock.now_ms(), DAY_MS + 6_500);
        }
    }

    #[test]
    fn time_passes_while_the_host_is_suspended() {
        let host = host();
        let clock = SteadyClock::new(host.clone(), None);
        host.pass(8 * HOUR_MS);
        assert_eq!(clock.now_ms(), DAY_MS + 8 * HOUR_MS);
    }

    #[test]
    fn a_start_with_a_date_behind_continues_from_the_last_time_and_one_far_ahead_is_in_doubt() {
        let host = host();
        let clock = SteadyClock::new(host.clone(), Some(DAY_MS + HOUR_MS));
        host.pass(10);
        assert_eq!(clock.now_ms(), DAY_MS + HOUR_MS + 10, "time does not go back");
        let clock = SteadyClock::new(host.clone(), Some(DAY_MS + YEAR_MS));
        assert_eq!(clock.now_ms(), DAY_MS + 10, "a last moment from the future was the mistake");
        let clock = SteadyClock::new(host.clone(), Some(DAY_MS - YEAR_MS));
        assert!(clock.in_doubt());
        host.pass(HOUR_MS + 1);
        assert!(!clock.in_doubt());
        let clock = SteadyClock::new(host.clone(), Some(DAY_MS - 10 * HOUR_MS));
        assert!(!clock.in_doubt(), "it was off overnight");
    }
}
