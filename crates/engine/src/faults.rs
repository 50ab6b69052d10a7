//! Places where a test may make an operation fail or the daemon die.
//!
//! Compiled to nothing without the feature `faults`. With it, `BURROW_FAULT=<point>=<action>` arms one point:
//! `kill` ends the process by SIGKILL, `fail` makes the step fail, `wait:PATH` holds the step until that file exists. The walk in the end-to-end tests takes every point
//! of [`POINTS`] in turn, so a step that is added here is tested without further ado.

use crate::EngineError;

/// Every point, in the order an operation reaches them.
pub const POINTS: &[&str] = &[
    "create.begun",
    "create.volume",
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
    "delete.volume",
    "delete.settled",
];

/// Points on the way into stock and out of it, which only a daemon that keeps stock reaches.
pub const STOCK_POINTS: &[&str] =
    &["stock.row", "stock.volume", "stock.network", "stock.machine", "create.taken", "create.claimed"];

/// Points on an image's way; a test arms them one by one around an import or a build.
pub const IMAGE_POINTS: &[&str] =
    &["layer.staged", "layer.filled", "step.begun", "step.staged", "image.staged", "image.sealed"];

/// Points on the way to sleep and back, into a snapshot, back to one, and of a child.
pub const SLEEP_POINTS: &[&str] = &[
    "hibernate.begun",
    "hibernate.dumped",
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
    "restore.volume",
    "restore.settled",
    "fork.base",
    "fork.begun",
    "fork.volume",
    "fork.settled",
];

/// Points on the way of a fork's work into its parent.
pub const MERGE_POINTS: &[&str] =
    &["merge.begun", "merge.half", "merge.applied", "merge.settled", "merge.remembered"];

/// Points on a snapshot's way out of this host, and into it.
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

/// Points on the way to what microVMs of an image start from.
pub const DISK_POINTS: &[&str] = &["disk.made", "template.made"];

/// Points on the way of a volume that outlives sandboxes.
pub const SHELF_POINTS: &[&str] = &[
    "shelf.begun",
    "shelf.made",
    "shelf.snapshot.begun",
    "shelf.snapshot.taken",
    "shelf.restore.begun",
    "shelf.restore.replaced",
    "shelf.remove.begun",
    "shelf.remove.removed",
];

#[cfg(any(feature = "faults", debug_assertions))]
fn is_known(point: &str) -> bool {
    [POINTS, STOCK_POINTS, IMAGE_POINTS, SLEEP_POINTS, MERGE_POINTS, MOVING_POINTS, DISK_POINTS, SHELF_POINTS]
        .iter()
        .any(|points| points.contains(&point))
}

/// Called right after what the point names has happened.
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

/// Longer than a test needs, so that one that failed leaves no thread behind for long.
#[cfg(feature = "faults")]
const WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(60);

/// Blocks the thread: only for points that are not on an async one.
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
