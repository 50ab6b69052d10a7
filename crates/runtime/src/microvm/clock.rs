//! Measures the rate of this host's time stamp counter, on which an emulated machine's clock is based.

use std::time::Duration;

/// Long enough for an accuracy of one in a hundred thousand.
const MEASURED: Duration = Duration::from_millis(50);

/// In kilohertz; zero if the processor has no such counter.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "reading the counter is an instruction")]
pub(super) fn tsc_khz() -> u64 {
    use rustix::time::{ClockId, clock_gettime};

    let now = || {
        let time = clock_gettime(ClockId::MonotonicRaw);
        // SAFETY: every x86_64 processor has the instruction, and the kernel allows it in user mode.
        let count = unsafe { core::arch::x86_64::_rdtsc() };
        let nanoseconds = time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec);
        (u64::try_from(nanoseconds).unwrap_or(0), count)
    };
    let (began, first) = now();
    std::thread::sleep(MEASURED);
    let (ended, last) = now();
    let (passed, counted) = (ended.saturating_sub(began), last.saturating_sub(first));
    u64::try_from(u128::from(counted) * 1_000_000 / u128::from(passed.max(1))).unwrap_or(0)
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn tsc_khz() -> u64 {
    0
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn two_measurements_of_one_clock_agree() {
        let (one, other) = (tsc_khz(), tsc_khz());
        assert!(one > 100_000, "{one}");
        assert!(one.abs_diff(other) <= one / 100, "{one} {other}");
    }
}
