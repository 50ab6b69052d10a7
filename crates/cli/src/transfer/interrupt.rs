//! Lets Ctrl-C cancel a transfer without leaving a part of it behind.

use std::future::Future;

use tokio::signal::unix::{SignalKind, signal};

use crate::failure::{OrFail, Stop};

/// 128 + the signal's number, as a shell shows it.
const CODE_HUNG_UP: u8 = 129;
const CODE_INTERRUPTED: u8 = 130;
const CODE_TERMINATED: u8 = 143;

/// Does the work, or drops it on a signal to end; its temporary files are then removed.
pub(crate) async fn unless_interrupted<T>(work: impl Future<Output = T>) -> Result<T, Stop> {
    let what = || "could not watch for signals".to_owned();
    let mut interrupt = signal(SignalKind::interrupt()).or_fail(what)?;
    let mut terminate = signal(SignalKind::terminate()).or_fail(what)?;
    let mut hang_up = signal(SignalKind::hangup()).or_fail(what)?;
    tokio::select! {
        result = work => Ok(result),
        Some(()) = interrupt.recv() => Err(Stop::Exit(CODE_INTERRUPTED)),
        Some(()) = terminate.recv() => Err(Stop::Exit(CODE_TERMINATED)),
        Some(()) = hang_up.recv() => Err(Stop::Exit(CODE_HUNG_UP)),
    }
}
