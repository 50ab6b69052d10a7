//! Waits for the first of several signals.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals, each with its meaning for the program.
#[derive(Debug)]
pub(crate) struct Signals<T> {
    signals: Vec<(T, Signal)>,
}

impl<T: Copy> Signals<T> {
    pub(crate) fn install(kinds: &[(T, SignalKind)]) -> io::Result<Self> {
        let installed = kinds.iter().map(|(meaning, kind)| Ok((*meaning, signal(*kind)?)));
        Ok(Self { signals: installed.collect::<io::Result<_>>()? })
    }

    /// The meaning of the next signal.
    pub(crate) async fn next(&mut self) -> T {
        poll_fn(|cx| {
            let arrived =
                |(meaning, signal): &mut (T, Signal)| signal.poll_recv(cx).is_ready().then_some(*meaning);
            self.signals.iter_mut().find_map(arrived).map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}
