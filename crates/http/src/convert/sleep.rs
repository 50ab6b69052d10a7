//! Converts automatic actions of a sandbox: sleep, snapshots, rotation.

use burrow_api::{self as api, SleepRequest, SnapshotPolicyRequest};
use burrow_model::{Origin, OriginKind, PolicyError, RotatePolicy, SleepPolicy, SnapshotId, SnapshotPolicy};

use crate::error::ApiError;

/// The policy of a new sandbox: the request, completed by the operator's default where that fits between the given times.
pub(super) fn new_sleep_policy(request: SleepRequest, default: SleepPolicy) -> Result<SleepPolicy, ApiError> {
    let given = [request.pause_after_seconds, request.hibernate_after_seconds, request.stop_after_seconds];
    let given = given.map(|seconds| seconds.filter(|seconds| *seconds > 0).map(millis));
    let fits = |stage: usize, after_ms: u64| {
        given[..stage].iter().flatten().all(|earlier| *earlier < after_ms)
            && given[stage + 1..].iter().flatten().all(|later| after_ms < *later)
    };
    let default = SleepPolicy {
        pause_after_ms: default.pause_after_ms.filter(|after_ms| fits(0, *after_ms)),
        hibernate_after_ms: default.hibernate_after_ms.filter(|after_ms| fits(1, *after_ms)),
        stop_after_ms: default.stop_after_ms.filter(|after_ms| fits(2, *after_ms)),
        ..default
    };
    sleep_policy(request, default)
}

/// Applies a request to the policy of a sandbox.
pub fn sleep_policy(request: SleepRequest, now: SleepPolicy) -> Result<SleepPolicy, ApiError> {
    let after = |seconds: Option<u64>, now: Option<u64>| match seconds {
        None => now,
        Some(0) => None,
        Some(seconds) => Some(millis(seconds)),
    };
    let policy = SleepPolicy {
        pause_after_ms: after(request.pause_after_seconds, now.pause_after_ms),
        hibernate_after_ms: after(request.hibernate_after_seconds, now.hibernate_after_ms),
        stop_after_ms: after(request.stop_after_seconds, now.stop_after_ms),
        start_on_use: request.start_on_use.unwrap_or(now.start_on_use),
    };
    policy.check().map_err(|error| refused("sleep", &error))?;
    Ok(policy)
}

/// `None`: no automatic snapshots.
pub(super) fn snapshot_policy(request: SnapshotPolicyRequest) -> Result<Option<SnapshotPolicy>, ApiError> {
    if request.every_seconds == 0 {
        return Ok(None);
    }
    let SnapshotPolicyRequest { every_seconds, keep, files_only } = request;
    let policy = SnapshotPolicy { every_ms: millis(every_seconds), keep, files_only };
    policy.check().map_err(|error| refused("snapshot_policy", &error))?;
    Ok(Some(policy))
}

pub fn rotate_policy(every_seconds: u64, snapshot: SnapshotId) -> Result<RotatePolicy, ApiError> {
    let policy = RotatePolicy { every_ms: millis(every_seconds), snapshot };
    policy.check().map_err(|error| refused("rotate", &error))?;
    Ok(policy)
}

fn refused(field: &str, error: &PolicyError) -> ApiError {
    ApiError::invalid(format!("invalid `{field}`: {error}"))
}

/// Values that overflow are rejected by the check that follows.
fn millis(seconds: u64) -> u64 {
    seconds.saturating_mul(1000)
}

pub(super) fn sleep(policy: SleepPolicy) -> api::SleepPolicy {
    api::SleepPolicy {
        pause_after_seconds: policy.pause_after_ms.map(seconds),
        hibernate_after_seconds: policy.hibernate_after_ms.map(seconds),
        stop_after_seconds: policy.stop_after_ms.map(seconds),
        start_on_use: policy.start_on_use,
    }
}

pub(super) fn snapshots(policy: SnapshotPolicy) -> api::SnapshotPolicy {
    let SnapshotPolicy { every_ms, keep, files_only } = policy;
    api::SnapshotPolicy { every_seconds: seconds(every_ms), keep, files_only }
}

pub(super) fn rotate(policy: RotatePolicy) -> api::RotatePolicy {
    api::RotatePolicy { every_seconds: seconds(policy.every_ms), snapshot: policy.snapshot.into() }
}

pub(super) fn origin(origin: Origin) -> api::Origin {
    api::Origin {
        snapshot: origin.snapshot.into(),
        sandbox: origin.sandbox.into(),
        kind: match origin.kind {
            OriginKind::Fork => api::OriginKind::Fork,
            OriginKind::Restore => api::OriginKind::Restore,
        },
    }
}

fn seconds(ms: u64) -> u64 {
    ms / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(pause: Option<u64>, hibernate: Option<u64>, stop: Option<u64>) -> SleepRequest {
        SleepRequest {
            pause_after_seconds: pause,
            hibernate_after_seconds: hibernate,
            stop_after_seconds: stop,
            start_on_use: None,
        }
    }

    #[test]
    fn defaults_of_a_new_sandbox_yield_to_the_given_times() {
        let default = SleepPolicy {
            pause_after_ms: Some(300_000),
            hibernate_after_ms: Some(1_800_000),
            ..SleepPolicy::never()
        };
        let check = |request: SleepRequest, pause: Option<u64>, hibernate: Option<u64>, stop: Option<u64>| {
            let policy = sleep(new_sleep_policy(request, default).unwrap());
            let times =
                (policy.pause_after_seconds, policy.hibernate_after_seconds, policy.stop_after_seconds);
            assert_eq!(times, (pause, hibernate, stop), "{request:?}");
        };
        check(request(None, None, None), Some(300), Some(1800), None);
        check(request(Some(3600), None, None), Some(3600), None, None);
        check(request(None, Some(60), None), None, Some(60), None);
        check(request(None, None, Some(600)), Some(300), None, Some(600));
        check(request(Some(0), None, None), None, Some(1800), None);
        new_sleep_policy(request(Some(60), Some(30), None), default).unwrap_err();
        let off = SleepRequest { start_on_use: Some(false), ..request(None, None, None) };
        assert!(!new_sleep_policy(off, default).unwrap().start_on_use);
    }

    #[test]
    fn absent_fields_stay_and_zero_means_never() {
        let now = SleepPolicy {
            pause_after_ms: Some(5_000),
            hibernate_after_ms: Some(60_000),
            ..SleepPolicy::never()
        };
        assert_eq!(sleep_policy(request(None, None, None), now).unwrap(), now);
        let changed = sleep_policy(request(Some(0), None, Some(90)), now).unwrap();
        let expected = SleepPolicy { pause_after_ms: None, stop_after_ms: Some(90_000), ..now };
        assert_eq!(changed, expected);
        assert_eq!(sleep(changed).hibernate_after_seconds, Some(60));
        for bad in [
            request(Some(60), None, None),
            request(None, None, Some(60)),
            request(Some(u64::MAX), None, None),
        ] {
            let error = sleep_policy(bad, now).unwrap_err().into_detail();
            assert!(error.message.starts_with("invalid `sleep`: "), "{}", error.message);
        }
    }

    #[test]
    fn snapshot_policies_are_validated_and_zero_removes_them() {
        let policy = |every_seconds, keep| SnapshotPolicyRequest { every_seconds, keep, files_only: true };
        assert_eq!(snapshot_policy(policy(0, 10)).unwrap(), None);
        let kept = snapshot_policy(policy(60, 10)).unwrap().unwrap();
        assert_eq!((kept.every_ms, kept.keep, kept.files_only), (60_000, 10, true));
        for bad in [policy(9, 10), policy(60, 0), policy(60, 1001), policy(u64::MAX, 1)] {
            assert!(snapshot_policy(bad).is_err(), "{bad:?}");
        }
        assert!(rotate_policy(9, SnapshotId::generate()).is_err());
        assert_eq!(rotate_policy(60, SnapshotId::generate()).unwrap().every_ms, 60_000);
    }
}
