//! Stores history asynchronously: events, and rows of execs.
//!
//! History is not state. No request waits for it, and a flood of records must not delay sandboxes. So if the queue is full, the
//! record is dropped and the loss is logged.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use burrow_catalog::{Catalog, CatalogError, ExecRow, NewEvent};
use burrow_model::ExecId;
use futures_util::future::join_all;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// Records waiting for the disk. A thousand execs per second for several seconds.
const QUEUE_MAX: usize = 8192;

/// Records of one commit.
const BATCH_MAX: usize = 64;

/// How long a record waits for more: an exec creates several, and one commit costs more than all of them.
const GATHER: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(crate) struct Recorder {
    queue: Mutex<Option<mpsc::Sender<HistoryRecord>>>,
    task: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
enum HistoryRecord {
    Event(NewEvent),
    Exec(ExecRow),
    Remembered(ExecId),
    /// Answered when all earlier records are stored.
    Flush(oneshot::Sender<()>),
}

impl Recorder {
    pub(crate) fn spawn(catalog: Catalog) -> Self {
        let (queue, records) = mpsc::channel(QUEUE_MAX);
        let task = tokio::spawn(write_all(catalog, records));
        Self { queue: Mutex::new(Some(queue)), task: tokio::sync::Mutex::new(Some(task)) }
    }

    pub(crate) fn event(&self, event: NewEvent) {
        self.push(HistoryRecord::Event(event));
    }

    pub(crate) fn exec(&self, row: ExecRow) {
        self.push(HistoryRecord::Exec(row));
    }

    pub(crate) fn remembered(&self, exec: ExecId) {
        self.push(HistoryRecord::Remembered(exec));
    }

    /// Returns when everything recorded so far can be read.
    pub(crate) async fn flush(&self) {
        let (done, written) = oneshot::channel();
        self.push(HistoryRecord::Flush(done));
        let _ = written.await;
    }

    /// Stores what is queued, and ends.
    pub(crate) async fn drain(&self) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).take();
        let task = self.task.lock().await.take();
        if let Some(task) = task
            && task.await.is_err()
        {
            tracing::error!("the recorder of events panicked");
        }
    }

    fn push(&self, record: HistoryRecord) {
        if let Some(queue) = self.queue.lock().unwrap_or_else(PoisonError::into_inner).as_ref()
            && queue.try_send(record).is_err()
        {
            tracing::warn!("dropped a history record: the queue of {QUEUE_MAX} records is full");
        }
    }
}

async fn write_all(catalog: Catalog, mut records: mpsc::Receiver<HistoryRecord>) {
    while let Some(first) = records.recv().await {
        let (batch, flushed) = gather(first, &mut records).await;
        // The catalog commits concurrent requests together, in this order.
        let written = join_all(batch.into_iter().map(|record| write(&catalog, record))).await;
        for error in written.into_iter().filter_map(Result::err) {
            tracing::warn!(%error, "could not store a history record");
        }
        for done in flushed {
            let _ = done.send(());
        }
    }
}

/// Collects the records that arrive shortly after the first; returns at once if a task waits for a flush.
async fn gather(
    first: HistoryRecord,
    records: &mut mpsc::Receiver<HistoryRecord>,
) -> (Vec<HistoryRecord>, Vec<oneshot::Sender<()>>) {
    let (mut batch, mut flushed) = (Vec::new(), Vec::new());
    let mut next = Some(first);
    let pause = tokio::time::sleep(GATHER);
    tokio::pin!(pause);
    while let Some(record) = next.take() {
        match record {
            HistoryRecord::Flush(done) => flushed.push(done),
            HistoryRecord::Event(_) | HistoryRecord::Exec(_) | HistoryRecord::Remembered(_) => {
                batch.push(record)
            }
        }
        if !flushed.is_empty() || batch.len() >= BATCH_MAX {
            break;
        }
        next = tokio::select! {
            biased;
            record = records.recv() => record,
            () = &mut pause => None,
        };
    }
    (batch, flushed)
}

async fn write(catalog: &Catalog, record: HistoryRecord) -> Result<(), CatalogError> {
    let written = match record {
        HistoryRecord::Event(event) => catalog.append_event(event).await.map(|_| ()),
        HistoryRecord::Exec(row) => catalog.insert_exec(row).await,
        HistoryRecord::Remembered(exec) => catalog.exec_remembered(&exec).await,
        HistoryRecord::Flush(_) => Ok(()),
    };
    match written {
        // An exec's sandbox may be deleted before its row is stored.
        Err(CatalogError::Unknown { .. }) => Ok(()),
        written => written,
    }
}
