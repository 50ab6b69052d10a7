//! Flags for automatic behaviour of a sandbox: sleep, snapshots, rotation.

use burrow_api::{
    CreateSandbox, RotatePolicy, RotateRequest, SleepRequest, SnapshotPolicyRequest, UpdateSandbox, defaults,
};

use crate::commands::prelude::*;

/// Automatic behaviour of a sandbox. In seconds; 0 means never, as in the API.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct LifeFlags {
    /// Pause the sandbox when it was idle for this long, e.g. 5m; or never. `sleep.pause_after` of the daemon is the default
    #[arg(long, value_name = "DURATION", value_parser = parse::seconds_or_never)]
    sleep_after: Option<u64>,
    /// Hibernate the sandbox when it was idle for this long, e.g. 1h; or never
    #[arg(long, value_name = "DURATION", value_parser = parse::seconds_or_never)]
    hibernate_after: Option<u64>,
    /// Stop the sandbox when it was idle for this long, e.g. 7d; or never
    #[arg(long, value_name = "DURATION", value_parser = parse::seconds_or_never)]
    stop_after: Option<u64>,
    /// Whether any use of the stopped sandbox starts it: true or false
    #[arg(long, value_name = "BOOL")]
    start_on_use: Option<bool>,
    /// Take a snapshot this often while the sandbox is active, e.g. 15m; or never
    #[arg(long, value_name = "DURATION", value_parser = parse::seconds_or_never)]
    snapshot_every: Option<u64>,
    /// Number of these snapshots to keep; 10 by default
    #[arg(long, value_name = "COUNT", requires = "snapshot_every", value_parser = clap::value_parser!(u32).range(1..=1000))]
    snapshot_keep: Option<u32>,
    /// Restore the snapshot of --from this often, e.g. 7d; or never
    #[arg(long, value_name = "DURATION", value_parser = parse::seconds_or_never)]
    rotate_every: Option<u64>,
}

impl LifeFlags {
    pub(crate) fn is_empty(&self) -> bool {
        self.sleep(None).is_none() && self.snapshot_every.is_none() && self.rotate_every.is_none()
    }

    /// Merges the flags into the request of the file.
    pub(crate) fn over(&self, from: Option<&str>, request: &mut CreateSandbox) {
        request.sleep = self.sleep(request.sleep);
        request.snapshot_policy = self.snapshots().or(request.snapshot_policy);
        let known = request.rotate.take();
        let known_snapshot = known.as_ref().and_then(|rotate| rotate.snapshot.clone());
        request.rotate = self.rotate(from.map(str::to_owned).or(known_snapshot)).or(known);
    }

    /// The flags as a change of a sandbox with the rotation `known`. A rotation without --from keeps its snapshot.
    pub(crate) fn change(
        &self,
        from: Option<&str>,
        known: Option<&RotatePolicy>,
        update: &mut UpdateSandbox,
    ) {
        update.sleep = self.sleep(None);
        update.snapshot_policy = self.snapshots();
        let known = known.map(|rotate| rotate.snapshot.clone());
        update.rotate = self.rotate(from.map(str::to_owned).or(known));
    }

    /// Whether the flags ask for a rotation whose snapshot must be looked up.
    pub(crate) fn rotates(&self) -> bool {
        self.rotate_every.is_some_and(|seconds| seconds > 0)
    }

    fn sleep(&self, base: Option<SleepRequest>) -> Option<SleepRequest> {
        let base = base.unwrap_or_default();
        let sleep = SleepRequest {
            pause_after_seconds: self.sleep_after.or(base.pause_after_seconds),
            hibernate_after_seconds: self.hibernate_after.or(base.hibernate_after_seconds),
            stop_after_seconds: self.stop_after.or(base.stop_after_seconds),
            start_on_use: self.start_on_use.or(base.start_on_use),
        };
        Some(sleep).filter(|sleep| *sleep != SleepRequest::default())
    }

    fn snapshots(&self) -> Option<SnapshotPolicyRequest> {
        Some(SnapshotPolicyRequest {
            every_seconds: self.snapshot_every?,
            keep: self.snapshot_keep.unwrap_or(defaults::SNAPSHOT_KEEP),
            files_only: false,
        })
    }

    fn rotate(&self, snapshot: Option<String>) -> Option<RotateRequest> {
        let every_seconds = self.rotate_every?;
        Some(RotateRequest { every_seconds, snapshot: snapshot.filter(|_| every_seconds > 0) })
    }
}

/// Whether a rotation lacks the snapshot to restore.
pub(crate) fn lacks_snapshot(rotate: Option<&RotateRequest>) -> bool {
    rotate.is_some_and(|rotate| rotate.every_seconds > 0 && rotate.snapshot.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(line: &str) -> LifeFlags {
        parse::arguments(line)
    }

    #[test]
    fn flags_override_the_file_and_never_is_zero() {
        let mut request = CreateSandbox {
            sleep: Some(SleepRequest {
                pause_after_seconds: Some(60),
                stop_after_seconds: Some(600),
                ..SleepRequest::default()
            }),
            rotate: Some(RotateRequest { every_seconds: 60, snapshot: Some("base".to_owned()) }),
            ..CreateSandbox::default()
        };
        flags("--sleep-after never --hibernate-after 1h --snapshot-every 15m --rotate-every 7d")
            .over(None, &mut request);
        let sleep = request.sleep.unwrap();
        assert_eq!(
            (sleep.pause_after_seconds, sleep.hibernate_after_seconds, sleep.stop_after_seconds),
            (Some(0), Some(3600), Some(600))
        );
        let policy = request.snapshot_policy.unwrap();
        assert_eq!((policy.every_seconds, policy.keep), (900, 10));
        let rotate = request.rotate.unwrap();
        assert_eq!((rotate.every_seconds, rotate.snapshot.as_deref()), (604_800, Some("base")));
    }

    #[test]
    fn without_flags_nothing_is_requested() {
        let mut request = CreateSandbox::default();
        flags("").over(Some("base"), &mut request);
        assert_eq!(request, CreateSandbox::default());
        assert!(flags("").is_empty() && !flags("--stop-after 1d").is_empty());
    }

    #[test]
    fn a_rotation_needs_a_snapshot_but_ending_one_does_not() {
        let mut update = UpdateSandbox::default();
        flags("--rotate-every 7d").change(None, None, &mut update);
        assert!(lacks_snapshot(update.rotate.as_ref()));
        let known = RotatePolicy { every_seconds: 5, snapshot: "snpold".to_owned() };
        flags("--rotate-every 7d").change(None, Some(&known), &mut update);
        assert_eq!(update.rotate.as_ref().unwrap().snapshot.as_deref(), Some("snpold"));
        flags("--rotate-every never").change(Some("x"), Some(&known), &mut update);
        assert_eq!(update.rotate, Some(RotateRequest { every_seconds: 0, snapshot: None }));
    }
}
