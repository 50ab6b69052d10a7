//! Time, given and never taken, so that tests own it.
//!
//! What is deleted when its time is up must not be deleted because somebody set the host's clock. So the daemon's own
//! time, [`SteadyClock`], begins with the date and then goes on with the host's uptime, whatever becomes of the date:
//!
//! ```text
//!   the date drifts (NTP)                 followed
//!   the date jumps, either way            not followed until the daemon is started again
//!   at the start: a little back           goes on from the last moment the catalog knows of
//!   at the start: months ahead            taken, but nothing is deleted by date for an hour ([`Clock::in_doubt`])
//! ```

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

pub trait Clock: fmt::Debug + Send + Sync {
    /// Milliseconds since the Unix epoch.
    fn now_ms(&self) -> u64;

    /// Whether it may be far ahead of the truth: nothing is deleted for being old meanwhile.
    fn in_doubt(&self) -> bool {
        false
    }
}

/// Where a [`SteadyClock`] looks.
pub trait Times: fmt::Debug + Send + Sync {
    /// Milliseconds since the Unix epoch, as the host has it.
    fn date_ms(&self) -> u64;
    /// Milliseconds since the host was started, its sleep included.
    fn uptime_ms(&self) -> u64;
}

/// What the date may be off by between two looks without having jumped: clocks are put right in small steps.
const DRIFT_MS_MAX: u64 = 2_000;

/// A date that is behind the last known moment by no more than this was put right; one further behind is believed.
const BEHIND_MS_MAX: u64 = 24 * 3_600_000;

/// A host may be off for long. Beyond this, a wrong date is as likely.
const AHEAD_MS_MAX: u64 = 30 * 24 * 3_600_000;

/// Long enough for the network to tell the host the time, or a person to see the warning.
const DOUBT_MS: u64 = 3_600_000;

/// The host's time, without its jumps.
#[derive(Debug)]
pub struct SteadyClock<T> {
    times: T,
    frame: Mutex<Frame>,
    /// Until when, by uptime.
    doubt_until_ms: u64,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    /// Our time at an uptime.
    now_ms: u64,
    uptime_ms: u64,
    /// A jump that was told of.
    told: bool,
}

impl<T: Times> SteadyClock<T> {
    /// `known_ms` is the last moment that an earlier run knew of.
    pub fn new(times: T, known_ms: Option<u64>) -> Self {
        let (date_ms, uptime_ms) = (times.date_ms(), times.uptime_ms());
        let known_ms = known_ms.unwrap_or(date_ms);
        let behind = date_ms < known_ms && known_ms - date_ms <= BEHIND_MS_MAX;
        let ahead = date_ms.saturating_sub(known_ms) > AHEAD_MS_MAX;
        if date_ms < known_ms {
            tracing::warn!(by_ms = known_ms - date_ms, "the host's date is before what the catalog tells of");
        }
        if ahead {
            tracing::warn!(
                by_ms = date_ms - known_ms,
                "the host's date is long after anything the catalog tells of: nothing is deleted by date for an hour"
            );
        }
        Self {
            frame: Mutex::new(Frame {
                now_ms: if behind { known_ms } else { date_ms },
                uptime_ms,
                told: false,
            }),
            doubt_until_ms: if ahead { uptime_ms + DOUBT_MS } else { 0 },
            times,
        }
    }
}

impl<T: Times> Clock for SteadyClock<T> {
    fn now_ms(&self) -> u64 {
        let (date_ms, uptime_ms) = (self.times.date_ms(), self.times.uptime_ms());
        // Replaced as a whole: a panic elsewhere leaves it true.
        let mut frame = self.frame.lock().unwrap_or_else(PoisonError::into_inner);
        let expected_ms = frame.now_ms.saturating_add(uptime_ms.saturating_sub(frame.uptime_ms));
        let drifted = date_ms.abs_diff(expected_ms) <= DRIFT_MS_MAX;
        if !drifted && !frame.told {
            tracing::warn!(
                date_ms,
                expected_ms,
                "the host's date has jumped: times go on as they were until the daemon is started again"
            );
        }
        *frame = Frame { now_ms: if drifted { date_ms } else { expected_ms }, uptime_ms, told: !drifted };
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

/// A clock that tests move.
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
    /// Some day.
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

    impl Times for Arc<Host> {
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
    fn a_date_that_jumps_is_not_followed_and_one_that_drifts_is() {
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
            // Put right again, and a little off.
            host.set_date(DAY_MS + 6_500);
            assert_eq!(clock.now_ms(), DAY_MS + 6_500);
        }
    }

    #[test]
    fn the_sleep_of_the_host_is_time() {
        let host = host();
        let clock = SteadyClock::new(host.clone(), None);
        host.pass(8 * HOUR_MS);
        assert_eq!(clock.now_ms(), DAY_MS + 8 * HOUR_MS);
    }

    #[test]
    fn at_the_start_a_date_a_little_behind_is_caught_up_and_one_far_ahead_is_doubted_for_a_while() {
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
