//! Tells followers the number of the newest row of a log.

use tokio::sync::watch;

/// Sends the newest number to followers.
pub(crate) struct Feed {
    newest: watch::Sender<u64>,
}

impl Feed {
    /// `newest` as the database returns it: `None` if the log is empty.
    pub(crate) fn new(newest: Option<i64>) -> Self {
        Self { newest: watch::Sender::new(u64::try_from(newest.unwrap_or(0)).unwrap_or(0)) }
    }

    pub(crate) fn announce(&self, seq: u64) {
        self.newest.send_modify(|newest| *newest = (*newest).max(seq));
    }

    /// Changes whenever there is a newer number.
    pub(crate) fn follow(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }
}
