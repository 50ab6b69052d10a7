//! The sandbox's clocks.

use rustix::time::{ClockId, clock_gettime};

/// Milliseconds since the Unix epoch.
pub(super) fn unix_ms() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    to_ms(now.tv_sec, now.tv_nsec)
}

/// Milliseconds of CLOCK_MONOTONIC. A machine restored from a dump has a time namespace in which this clock continues
/// from its value in the dump.
pub(super) fn awake_ms() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    to_ms(now.tv_sec, now.tv_nsec)
}

/// Milliseconds of CLOCK_BOOTTIME. It advances while the sandbox is paused, but not while it is hibernated.
pub(super) fn boot_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    to_ms(now.tv_sec, now.tv_nsec)
}

/// Microseconds of CLOCK_BOOTTIME.
pub(super) fn boot_us() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec.saturating_mul(1_000_000).saturating_add(now.tv_nsec / 1000)).unwrap_or(0)
}

fn to_ms(seconds: i64, nanoseconds: i64) -> u64 {
    u64::try_from(seconds.saturating_mul(1000).saturating_add(nanoseconds / 1_000_000)).unwrap_or(0)
}
