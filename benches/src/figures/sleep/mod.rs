//! Sleep, wake, snapshot and fork.
//!
//! Where two daemons are compared they run side by side, so that the noise is the same for both: compared values are
//! measured in the same round.

mod asleep;
mod files;
mod paused;
mod processes;

use burrow_client::Client;

use super::{Scale, argv, create, exec};
use crate::daemon::{BenchSetup, Daemon, Kind};
use crate::error::BenchError;
use crate::report::Figure;

/// With processes, and the cost of waking from a pause.
pub(super) async fn measure(
    daemon: &Daemon,
    prepared: &BenchSetup,
    scale: &Scale,
) -> Result<Vec<Figure>, BenchError> {
    let mut figures = paused::measure(daemon, scale).await?;
    figures.extend(processes::measure(daemon, prepared, scale).await?);
    Ok(figures)
}

/// Without processes.
pub(super) async fn measure_files(prepared: &BenchSetup, scale: &Scale) -> Result<Vec<Figure>, BenchError> {
    let bare = Daemon::start(prepared, Kind::Bare).await?;
    let usual = Daemon::start(prepared, Kind::Usual).await?;
    let figures = files::measure(&bare, &usual, prepared, scale).await?;
    bare.finish().await?;
    usual.finish().await?;
    Ok(figures)
}

/// The cost of many sleeping sandboxes for the others.
pub(super) async fn measure_sleepers(
    prepared: &BenchSetup,
    scale: &Scale,
) -> Result<Vec<Figure>, BenchError> {
    let crowded = Daemon::start(prepared, Kind::Roomy).await?;
    let quiet = Daemon::start(prepared, Kind::Roomy).await?;
    let figures = asleep::measure(&crowded, &quiet, scale).await?;
    crowded.finish().await?;
    quiet.finish().await?;
    Ok(figures)
}

/// Checks that it is awake and answers.
async fn greet(client: &Client, sandbox: &str) -> Result<(), BenchError> {
    exec(client, sandbox, &argv(&["true"])).await.map(drop)
}

/// Converts a duration in microseconds to milliseconds.
fn us_in_ms(us: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a pause is far below 2^52 microseconds")]
    let us = us as f64;
    us / 1e3
}
