//! Records the decisions of the egress process in the audit spool segment that the daemon passed to it (E-A1).
//!
//! Callers that must not continue without a record await [`Audit::record`]. Other events are recorded in the
//! background, in batches.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use burrow_audit::Event;
use burrow_audit::spool::{SpoolError, Writer};
use futures_util::future::join_all;
use tokio::sync::mpsc;

/// Events that wait in the background queue. When it is full, new events are dropped and counted; injections never
/// take this path.
const QUEUE_MAX: usize = 4_096;

/// Largest number of events per sync.
const BATCH_MAX: usize = 256;

/// How long a background event waits for others to share its sync. Without the delay, each request with a secret
/// would cause two syncs: the one it awaits, and one for its final event, which the next request would have to wait
/// for.
const NOTE_DELAY: Duration = Duration::from_millis(10);

/// Why an event could not be recorded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AuditError {
    #[error("there is no audit log yet")]
    Unset,
    #[error("{0}")]
    Spool(SpoolError),
}

#[derive(Debug)]
pub(crate) struct Audit {
    writer: Arc<Mutex<Option<Writer>>>,
    queue: mpsc::Sender<Event>,
    lost: Arc<AtomicU64>,
}

impl Audit {
    /// Must be called within a runtime, which the background task belongs to.
    pub(crate) fn new() -> Self {
        let (queue, events) = mpsc::channel(QUEUE_MAX);
        let writer = Arc::default();
        let lost = Arc::default();
        // Ends when `queue` is dropped, after the events in it are recorded.
        drop(tokio::spawn(note_all(Arc::clone(&writer), events, Arc::clone(&lost))));
        Self { writer, queue, lost }
    }

    /// Directs later events to another segment.
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

    /// Returns when the event is on disk.
    pub(crate) async fn record(&self, event: &Event) -> Result<(), AuditError> {
        let writer = writer(&self.writer).ok_or(AuditError::Unset)?;
        writer.record(event).await.map_err(AuditError::Spool)
    }

    /// Queues an event for recording in the background.
    pub(crate) fn note(&self, event: Event) {
        if self.queue.try_send(event).is_err() {
            self.lose();
        }
    }

    /// Counts an event as lost.
    fn lose(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of lost events.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

fn writer(writer: &Mutex<Option<Writer>>) -> Option<Writer> {
    writer.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Runs until the [`Audit`] is dropped.
async fn note_all(slot: Arc<Mutex<Option<Writer>>>, mut events: mpsc::Receiver<Event>, lost: Arc<AtomicU64>) {
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
            // A failed event is not retried: the spool reports the error to callers that must not continue without a
            // record.
            let recorded = join_all(batch.iter().map(|event| writer.record(event))).await;
            let failed = recorded.iter().filter(|outcome| outcome.is_err()).count();
            lost.fetch_add(failed as u64, Ordering::Relaxed);
        }
        batch.clear();
    }
}
