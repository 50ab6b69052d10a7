//! Writes history behind the callers' backs: events, and rows of execs.
//!
//! History is not state: nobody waits for it, and under a flood the oldest promise is that sandboxes go on, so a full
//! queue drops the record and says so in the log.

use std::sync::{Mutex, PoisonError};

use burrow_catalog::{Catalog, CatalogError, ExecRow, NewEvent};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// Records waiting for the disk. A thousand execs per second for several seconds.
const QUEUE_MAX: usize = 8192;

#[derive(Debug)]
pub(crate) struct Recorder {
    queue: Mutex<Option<mpsc::Sender<Record>>>,
    task: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
enum Record {
    Event(NewEvent),
    Exec(ExecRow),
    /// Answered when all before it is written.
    Flush(oneshot::Sender<()>),
}

impl Recorder {
    pub(crate) fn spawn(catalog: Catalog) -> Self {
        let (queue, records) = mpsc::channel(QUEUE_MAX);
        let task = tokio::spawn(write_all(catalog, records));
        Self { queue: Mutex::new(Some(queue)), task: tokio::sync::Mutex::new(Some(task)) }
    }

    pub(crate) fn event(&self, event: NewEvent) {
        self.push(Record::Event(event));
    }

    pub(crate) fn exec(&self, row: ExecRow) {
        self.push(Record::Exec(row));
    }

    /// Returns when what was recorded so far can be read.
    pub(crate) async fn flush(&self) {
        let (done, written) = oneshot::channel();
        self.push(Record::Flush(done));
        let _ = written.await;
    }

    /// Writes what is queued and ends.
    pub(crate) async fn drain(&self) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).take();
        let task = self.task.lock().await.take();
        if let Some(task) = task
            && task.await.is_err()
        {
            tracing::error!("the recorder of events panicked");
        }
    }

    fn push(&self, record: Record) {
        if let Some(queue) = self.queue.lock().unwrap_or_else(PoisonError::into_inner).as_ref()
            && queue.try_send(record).is_err()
        {
            tracing::warn!(
                "dropped a record of what happened: the catalog is slower than {QUEUE_MAX} records"
            );
        }
    }
}

async fn write_all(catalog: Catalog, mut records: mpsc::Receiver<Record>) {
    while let Some(record) = records.recv().await {
        let written = match record {
            Record::Event(event) => catalog.append_event(event).await.map(|_| ()),
            Record::Exec(row) => catalog.insert_exec(row).await,
            Record::Flush(done) => {
                let _ = done.send(());
                Ok(())
            }
        };
        match written {
            // An exec's sandbox may be gone before its row is written.
            Ok(()) | Err(CatalogError::Unknown { .. }) => {}
            Err(error) => tracing::warn!(%error, "could not record what happened"),
        }
    }
}
