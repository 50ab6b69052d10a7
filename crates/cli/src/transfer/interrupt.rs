//! Lets Ctrl-C cancel a transfer without leaving a part of it behind.

use std::future::Future;

use tokio::signal::unix::SignalKind;

use crate::failure::{OrFail, Stop};
use crate::signals::Signals;

/// The signals that end this program, with 128 + their numbers, as a shell shows them.
#[derive(Debug)]
pub(crate) struct Interrupts(Signals<u8>);

impl Interrupts {
    pub(crate) fn install() -> Result<Self, Stop> {
        let ends = [SignalKind::hangup(), SignalKind::interrupt(), SignalKind::terminate()];
        let signals = Signals::install(&[129, 130, 143].into_iter().zip(ends).collect::<Vec<_>>());
        signals.or_fail("could not watch for signals").map(Self)
    }

    pub(crate) async fn next(&mut self) -> u8 {
        self.0.next().await
    }

    /// Runs the work; drops it if a termination signal arrives, or has arrived before.
    pub(crate) async fn unless<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Stop> {
        tokio::select! {
            biased;
            code = self.next() => Err(Stop::Exit(code)),
            result = work => Ok(result),
        }
    }
}

/// Does the work, or drops it on a signal to end; its temporary files are then removed.
pub(crate) async fn unless_interrupted<T>(work: impl Future<Output = T>) -> Result<T, Stop> {
    Interrupts::install()?.unless(work).await
}
