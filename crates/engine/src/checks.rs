//! Checks of the limits and the policies that a caller requests for a sandbox.

use burrow_model::{Limits, RotatePolicy, SleepPolicy, SnapshotPolicy};

use crate::EngineError;

/// Checks the automatic policies of a sandbox.
pub(crate) fn check_policies(
    sleep: &SleepPolicy,
    snapshots: Option<&SnapshotPolicy>,
    rotate: Option<&RotatePolicy>,
) -> Result<(), EngineError> {
    sleep.check()?;
    snapshots.map_or(Ok(()), SnapshotPolicy::check)?;
    rotate.map_or(Ok(()), RotatePolicy::check)?;
    Ok(())
}

pub(crate) fn check_limits(limits: &Limits, max: &Limits) -> Result<(), EngineError> {
    limits.check()?;
    let pairs = [
        ("ram_mib", limits.ram_mib, max.ram_mib),
        ("cpu_millis", limits.cpu_millis, max.cpu_millis),
        ("pids", limits.pids, max.pids),
        ("disk_mib", limits.disk_mib, max.disk_mib),
    ];
    for (field, given, max) in pairs {
        if given > max {
            return Err(EngineError::LimitAboveMax { field, given, max });
        }
    }
    Ok(())
}
