//! Points at which a test can make an operation fail or the daemon die.
//!
//! Compiled to nothing without the feature `faults`. With it, `BURROW_FAULT=<point>=<action>` arms one point: `kill` ends the
//! process by SIGKILL, `fail` makes the step fail, `wait:PATH` blocks the step until that file exists. The end-to-end tests run
//! once for every point of [`POINTS`], so a step that is added here is tested automatically.

use crate::EngineError;

/// Every point, in the order in which an operation reaches them.
pub const POINTS: &[&str] = &[
    "create.begun",
    "create.disk",
    "create.network",
    "create.egress",
    "create.machine",
    "create.settled",
    "start.begun",
    "start.network",
    "start.egress",
    "start.machine",
    "start.settled",
    "stop.begun",
    "stop.machine",
    "stop.network",
    "stop.settled",
    "delete.begun",
    "delete.machine",
    "delete.network",
    "delete.disk",
    "delete.settled",
];

/// Points of pre-creating a sandbox and of using it, which only a daemon with a warm pool reaches.
pub const WARM_POOL_POINTS: &[&str] =
    &["warm.row", "warm.disk", "warm.network", "warm.machine", "create.taken", "create.claimed"];

/// Points of making an image; a test arms them one by one during an import or a build.
pub const IMAGE_POINTS: &[&str] =
    &["layer.staged", "layer.filled", "step.begun", "step.staged", "image.staged", "image.sealed"];

/// Points of sleep, wake, snapshots, restores and forks.
pub const SLEEP_POINTS: &[&str] = &[
    "hibernate.begun",
    "hibernate.dumped",
    "hibernate.trial-disk",
    "hibernate.trial-network",
    "hibernate.trial-machine",
    "hibernate.tried",
    "hibernate.sealed",
    "hibernate.settled",
    "hibernate.machine",
    "hibernate.network",
    "wake.begun",
    "wake.network",
    "wake.egress",
    "wake.machine",
    "wake.settled",
    "snapshot.begun",
    "snapshot.dumped",
    "snapshot.disk",
    "snapshot.sealed",
    "snapshot.settled",
    "restore.begun",
    "restore.machine",
    "restore.network",
    "restore.disk",
    "restore.settled",
    "fork.base",
    "fork.begun",
    "fork.disk",
    "fork.settled",
];

/// Points of a merge of a fork into its parent.
pub const MERGE_POINTS: &[&str] =
    &["merge.begun", "merge.half", "merge.applied", "merge.settled", "merge.remembered"];

/// Points of the export and import of a snapshot.
pub const MOVING_POINTS: &[&str] = &[
    "export.begun",
    "export.noted",
    "import.begun",
    "import.staged",
    "import.filled",
    "import.sealed",
    "import.kept",
    "import.settled",
];

/// Points of making the disk and the template from which microVMs of an image start.
pub const DISK_POINTS: &[&str] = &["disk.made", "template.made"];

/// Points of the operations on volumes.
pub const VOLUME_POINTS: &[&str] = &[
    "volume.begun",
    "volume.made",
    "volume.snapshot.begun",
    "volume.snapshot.taken",
    "volume.restore.begun",
    "volume.restore.replaced",
    "volume.remove.begun",
    "volume.remove.removed",
];

#[cfg(any(feature = "faults", debug_assertions))]
fn is_known(point: &str) -> bool {
    [
        POINTS,
        WARM_POOL_POINTS,
        IMAGE_POINTS,
        SLEEP_POINTS,
        MERGE_POINTS,
        MOVING_POINTS,
        DISK_POINTS,
        VOLUME_POINTS,
    ]
    .iter()
    .any(|points| points.contains(&point))
}

/// Called right after the event that the point names.
#[cfg(feature = "faults")]
pub(crate) fn hit(point: &'static str) -> Result<(), EngineError> {
    use std::sync::OnceLock;
    debug_assert!(is_known(point), "`{point}` is missing from POINTS");
    static ARMED: OnceLock<Option<(String, String)>> = OnceLock::new();
    let armed = ARMED.get_or_init(|| {
        let value = std::env::var("BURROW_FAULT").ok()?;
        value.split_once('=').map(|(point, action)| (point.to_owned(), action.to_owned()))
    });
    match armed {
        Some((armed, action)) if armed == point => match action.as_str() {
            "kill" => die(),
            action if action.starts_with("wait:") => wait(point, std::path::Path::new(&action[5..])),
            _ => Err(EngineError::Injected { point: point.to_owned() }),
        },
        _ => Ok(()),
    }
}

/// Longer than a test needs, but short enough that a failed test leaves no thread for long.
#[cfg(feature = "faults")]
const WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(60);

/// Blocks the thread: only for points that are not on an async thread.
#[cfg(feature = "faults")]
fn wait(point: &str, file: &std::path::Path) -> Result<(), EngineError> {
    let since = std::time::Instant::now();
    while !file.exists() {
        if since.elapsed() > WAIT_MAX {
            return Err(EngineError::Injected { point: point.to_owned() });
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    Ok(())
}

#[cfg(feature = "faults")]
fn die() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    std::process::abort()
}

#[cfg(not(feature = "faults"))]
#[expect(clippy::unnecessary_wraps, reason = "the armed version can fail")]
pub(crate) fn hit(point: &'static str) -> Result<(), EngineError> {
    #[cfg(debug_assertions)]
    assert!(is_known(point), "`{point}` is missing from POINTS");
    let _ = point;
    Ok(())
}
