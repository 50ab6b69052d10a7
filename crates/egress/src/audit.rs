//! Writes down what was decided, in the segment that the daemon gave (E-A1).
//!
//! What must not happen without a trace waits for [`Audit::record`]; the rest is noted in the background, many at a time.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use burrow_audit::Event;
use burrow_audit::spool::{SpoolError, Writer};
use futures_util::future::join_all;
use tokio::sync::mpsc;

/// Events that wait to be noted. What comes when it is full is counted as lost: it is no injection.
const QUEUE_MAX: usize = 4_096;

/// Events of one sync.
const BATCH_MAX: usize = 256;

/// How long an event that nobody waits for is kept for others to come along. Otherwise every request that gets a secret
/// would have two syncs: one that it waits for, and one, at its end, that the next request has to wait for.
const NOTE_DELAY: Duration = Duration::from_millis(10);

/// Why nothing could be written down.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoAudit {
    #[error("there is no audit log yet")]
    Unset,
    #[error("{0}")]
    Spool(SpoolError),
}

#[derive(Debug)]
pub(crate) struct Audit {
    writer: Arc<Mutex<Option<Writer>>>,
    queue: mpsc::Sender<Event>,
    lost: AtomicU64,
}

impl Audit {
    /// Must be called within a runtime, which the background task belongs to.
    pub(crate) fn new() -> Self {
        let (queue, events) = mpsc::channel(QUEUE_MAX);
        let writer = Arc::default();
        tokio::spawn(note_all(Arc::clone(&writer), events));
        Self { writer, queue, lost: AtomicU64::new(0) }
    }

    /// Writes to another segment from now on.
    pub(crate) async fn set(&self, file: OwnedFd) -> io::Result<()> {
        let current = writer(&self.writer);
        match current {
            Some(writer) => writer.replace(file).await,
            None => {
                let started = Writer::start(file)?;
                *self.writer.lock().unwrap_or_else(PoisonError::into_inner) = Some(started);
                Ok(())
            }
        }
    }

    /// Answers once the event is on disk.
    pub(crate) async fn record(&self, event: &Event) -> Result<(), NoAudit> {
        let writer = writer(&self.writer).ok_or(NoAudit::Unset)?;
        writer.record(event).await.map_err(NoAudit::Spool)
    }

    /// Has it written down soon.
    pub(crate) fn note(&self, event: Event) {
        if self.queue.try_send(event).is_err() {
            self.lose();
        }
    }

    /// One is not written down.
    pub(crate) fn lose(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Events that found no room.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

fn writer(writer: &Mutex<Option<Writer>>) -> Option<Writer> {
    writer.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Ends with the [`Audit`].
async fn note_all(slot: Arc<Mutex<Option<Writer>>>, mut events: mpsc::Receiver<Event>) {
    let mut batch = Vec::new();
    while events.recv_many(&mut batch, BATCH_MAX).await > 0 {
        if batch.len() < BATCH_MAX {
            tokio::time::sleep(NOTE_DELAY).await;
            while batch.len() < BATCH_MAX
                && let Ok(event) = events.try_recv()
            {
                batch.push(event);
            }
        }
        if let Some(writer) = writer(&slot) {
            // Those that fail are not tried again: the spool says why to whoever must not act without it.
            join_all(batch.iter().map(|event| writer.record(event))).await;
        }
        batch.clear();
    }
}
