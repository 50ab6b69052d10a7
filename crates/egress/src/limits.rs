//! Limits per sandbox, so that a flood from one sandbox does not affect the others.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The limits of one sandbox that the daemon's configuration can change. Other limits are constants where they are
/// used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Concurrent connections.
    pub connections_max: u32,
    /// New connections per second, on average; a burst may contain a tenth of a minute's worth.
    pub connections_per_second: u32,
    /// Bytes per second, both directions together; `None` means unlimited.
    pub bytes_per_second: Option<u64>,
    /// DNS questions per second.
    pub dns_per_second: u32,
    /// Names asked for the first time, per minute, where a wildcard or the mode `open` allows any name. It limits
    /// what remains of DNS tunnels, as questions are never forwarded.
    pub dns_new_names_per_minute: u32,
    /// How long a request waits for approval.
    #[serde(default = "approval_seconds")]
    pub approval_seconds: u32,
}

/// Long enough for a person to notice and review a request; most programs wait longer for a response.
fn approval_seconds() -> u32 {
    60
}

impl Limits {
    /// The defaults. Package managers open some dozen concurrent connections; a crawler some hundred.
    pub const STANDARD: Self = Self {
        connections_max: 1_000,
        connections_per_second: 200,
        bytes_per_second: None,
        dns_per_second: 200,
        dns_new_names_per_minute: 600,
        approval_seconds: 60,
    };
}

/// How many seconds' worth of tokens a bucket holds: the size of a burst after an idle time.
const BURST_SECONDS: i64 = 6;

/// A token bucket. The caller passes the time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    /// In thousandths, so that slow rates do not round to zero. A negative level is a debt.
    level_milli: i64,
    full_milli: i64,
    per_second: i64,
    at_ms: u64,
}

impl Bucket {
    /// A full bucket of `per_second`.
    pub(crate) fn new(per_second: u64, now_ms: u64) -> Self {
        // Higher rates would overflow the thousandths, and no machine reaches them.
        let per_second = i64::try_from(per_second.clamp(1, 1 << 40)).unwrap_or(1 << 40);
        let full_milli = per_second * BURST_SECONDS * 1_000;
        Self { level_milli: full_milli, full_milli, per_second, at_ms: now_ms }
    }

    /// Takes one token if there is one.
    pub(crate) fn take(&mut self, now_ms: u64) -> bool {
        self.refill(now_ms);
        let enough = self.level_milli >= 1_000;
        if enough {
            self.level_milli -= 1_000;
        }
        enough
    }

    /// Takes `amount` tokens, going into debt if necessary, and returns how long it takes until the debt is paid.
    pub(crate) fn owe(&mut self, amount: u64, now_ms: u64) -> Duration {
        self.refill(now_ms);
        let cost = i64::try_from(amount).unwrap_or(i64::MAX).saturating_mul(1_000);
        self.level_milli = self.level_milli.saturating_sub(cost);
        let debt = self.level_milli.min(0).unsigned_abs();
        Duration::from_millis(debt / self.per_second.unsigned_abs())
    }

    fn refill(&mut self, now_ms: u64) {
        let passed = i64::try_from(now_ms.saturating_sub(self.at_ms)).unwrap_or(i64::MAX);
        self.at_ms = self.at_ms.max(now_ms);
        let gained = passed.saturating_mul(self.per_second);
        self.level_milli = self.level_milli.saturating_add(gained).min(self.full_milli);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_allows_a_burst_and_then_its_rate() {
        let mut bucket = Bucket::new(10, 0);
        assert_eq!((0..100).filter(|_| bucket.take(0)).count(), 60);
        assert_eq!((0..100).filter(|_| bucket.take(1_000)).count(), 10);
        assert_eq!((0..100).filter(|_| bucket.take(1_050)).count(), 0);
        assert!(bucket.take(1_100));
        // A clock that goes back adds no tokens.
        assert!(!bucket.take(500));
    }

    #[test]
    fn a_debt_is_paid_by_waiting() {
        let mut bucket = Bucket::new(1_000, 0);
        assert_eq!(bucket.owe(6_000, 0), Duration::ZERO);
        assert_eq!(bucket.owe(500, 0), Duration::from_millis(500));
        assert_eq!(bucket.owe(500, 0), Duration::from_millis(1_000));
        assert_eq!(bucket.owe(500, 1_000), Duration::from_millis(500));
        assert_eq!(bucket.owe(500, 10_000), Duration::ZERO);
    }
}
