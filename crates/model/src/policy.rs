//! Automatic actions on a sandbox: sleep, snapshots, rotation to a snapshot.

use serde::{Deserialize, Serialize};

use crate::SnapshotId;
use crate::snapshot::SNAPSHOTS_MAX;

/// The shortest idle time of a policy: with a shorter one, a sandbox would fall asleep between two keystrokes.
pub const SLEEP_MS_MIN: u64 = 1_000;

/// The longest idle time, a bit more than ten years: a longer one means `never`, and sums of times cannot overflow.
pub const SLEEP_MS_MAX: u64 = 366 * 10 * 24 * 60 * 60 * 1_000;

/// The shortest period of snapshots and of rotation: each pauses the sandbox for a moment.
pub const PERIOD_MS_MIN: u64 = 10_000;

/// Longest period, as [`SLEEP_MS_MAX`].
pub const PERIOD_MS_MAX: u64 = SLEEP_MS_MAX;

/// What happens to an idle sandbox, by the time since its last activity, and to a stopped one that is used. `None` is never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SleepPolicy {
    /// Its processes are paused, RAM is kept.
    pub pause_after_ms: Option<u64>,
    /// Its processes are dumped to disk, RAM is freed.
    pub hibernate_after_ms: Option<u64>,
    /// Its processes are ended, files are kept.
    pub stop_after_ms: Option<u64>,
    /// A use of the stopped sandbox starts it; otherwise the use is refused.
    #[serde(default = "yes")]
    pub start_on_use: bool,
}

/// Automatic snapshots of an active sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotPolicy {
    pub every_ms: u64,
    /// How many of them are kept; the oldest are removed first.
    pub keep: u32,
    /// Without processes.
    pub files_only: bool,
}

/// Restores a sandbox to a snapshot periodically, so that nothing in it lives for longer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RotatePolicy {
    pub every_ms: u64,
    pub snapshot: SnapshotId,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error("`{field}` must be from {min_s} to {max_s} seconds")]
    Time { field: &'static str, min_s: u64, max_s: u64 },
    #[error("`{later}` must be longer than `{earlier}`")]
    Order { earlier: &'static str, later: &'static str },
    #[error("`keep` must be from 1 to {max}, not {given}")]
    Keep { given: u32, max: u32 },
}

impl SleepPolicy {
    /// Never sleeps automatically.
    pub fn never() -> Self {
        Self { pause_after_ms: None, hibernate_after_ms: None, stop_after_ms: None, start_on_use: true }
    }

    pub fn is_never(&self) -> bool {
        self.stages().into_iter().all(|(_, after_ms)| after_ms.is_none())
    }

    pub fn check(&self) -> Result<(), PolicyError> {
        let mut before: Option<(&'static str, u64)> = None;
        for (field, after_ms) in self.stages() {
            let Some(after_ms) = after_ms else { continue };
            check_time(field, after_ms, SLEEP_MS_MIN, SLEEP_MS_MAX)?;
            if let Some((earlier, earlier_ms)) = before
                && after_ms <= earlier_ms
            {
                return Err(PolicyError::Order { earlier, later: field });
            }
            before = Some((field, after_ms));
        }
        Ok(())
    }

    fn stages(&self) -> [(&'static str, Option<u64>); 3] {
        [
            ("pause_after", self.pause_after_ms),
            ("hibernate_after", self.hibernate_after_ms),
            ("stop_after", self.stop_after_ms),
        ]
    }
}

impl SnapshotPolicy {
    pub fn check(&self) -> Result<(), PolicyError> {
        check_time("every", self.every_ms, PERIOD_MS_MIN, PERIOD_MS_MAX)?;
        let max = SNAPSHOTS_MAX as u32;
        if !(1..=max).contains(&self.keep) {
            return Err(PolicyError::Keep { given: self.keep, max });
        }
        Ok(())
    }
}

impl RotatePolicy {
    pub fn check(&self) -> Result<(), PolicyError> {
        check_time("every", self.every_ms, PERIOD_MS_MIN, PERIOD_MS_MAX)
    }
}

/// The value of `start_on_use` in rows from before it existed.
fn yes() -> bool {
    true
}

fn check_time(field: &'static str, given_ms: u64, min_ms: u64, max_ms: u64) -> Result<(), PolicyError> {
    if (min_ms..=max_ms).contains(&given_ms) {
        return Ok(());
    }
    Err(PolicyError::Time { field, min_s: min_ms / 1000, max_s: max_ms / 1000 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleep(pause: Option<u64>, hibernate: Option<u64>, stop: Option<u64>) -> SleepPolicy {
        SleepPolicy {
            pause_after_ms: pause,
            hibernate_after_ms: hibernate,
            stop_after_ms: stop,
            ..SleepPolicy::never()
        }
    }

    #[test]
    fn sleep_deepens_with_time_and_any_stage_may_be_left_out() {
        for good in [
            SleepPolicy::never(),
            sleep(Some(1_000), Some(2_000), Some(3_000)),
            sleep(Some(1_000), None, Some(3_000)),
            sleep(None, Some(60_000), None),
        ] {
            assert_eq!(good.check(), Ok(()), "{good:?}");
        }
        let order = |earlier, later| Err(PolicyError::Order { earlier, later });
        assert_eq!(sleep(Some(2_000), Some(2_000), None).check(), order("pause_after", "hibernate_after"));
        assert_eq!(sleep(Some(9_000), None, Some(3_000)).check(), order("pause_after", "stop_after"));
        assert!(SleepPolicy::never().is_never() && !sleep(None, None, Some(1_000)).is_never());
    }

    #[test]
    fn a_time_out_of_bounds_is_named_with_its_bounds() {
        let error = sleep(Some(999), None, None).check().unwrap_err();
        assert_eq!(error.to_string(), "`pause_after` must be from 1 to 316224000 seconds");
        assert!(sleep(None, None, Some(u64::MAX)).check().is_err());
        let rotate = RotatePolicy { every_ms: 9_999, snapshot: SnapshotId::generate() };
        assert_eq!(rotate.check().unwrap_err().to_string(), "`every` must be from 10 to 316224000 seconds");
    }

    #[test]
    fn a_snapshot_policy_keeps_at_least_one_and_no_more_than_a_sandbox_may_have() {
        let policy = |keep| SnapshotPolicy { every_ms: 10_000, keep, files_only: false };
        assert_eq!(policy(1).check(), Ok(()));
        assert_eq!(policy(1000).check(), Ok(()));
        assert_eq!(policy(0).check(), Err(PolicyError::Keep { given: 0, max: 1000 }));
        assert!(policy(1001).check().is_err());
    }
}
