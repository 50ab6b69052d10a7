//! Writes history behind the callers' backs: events, and rows of execs.
//!
//! History is not state: nobody waits for it, and under a flood the oldest promise is that sandboxes go on, so a full
//! queue drops the record and says so in the log.

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

/// How long a record waits for others: an exec leaves several, and a commit costs more than all of them.
const GATHER: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(crate) struct Recorder {
    queue: Mutex<Option<mpsc::Sender<Record>>>,
    task: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
enum Record {
    Event(NewEvent),
    Exec(ExecRow),
    Remembered(ExecId),
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

    pub(crate) fn remembered(&self, exec: ExecId) {
        self.push(Record::Remembered(exec));
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
    while let Some(first) = records.recv().await {
        let (batch, flushed) = gather(first, &mut records).await;
        // The catalog commits together what it is asked for together, in this order.
        let written = join_all(batch.into_iter().map(|record| write(&catalog, record))).await;
        for error in written.into_iter().filter_map(Result::err) {
            tracing::warn!(%error, "could not record what happened");
        }
        for done in flushed {
            let _ = done.send(());
        }
    }
}

/// What comes within a moment of the first; at once where somebody waits for it.
async fn gather(
    first: Record,
    records: &mut mpsc::Receiver<Record>,
) -> (Vec<Record>, Vec<oneshot::Sender<()>>) {
    let (mut batch, mut flushed) = (Vec::new(), Vec::new());
    let mut next = Some(first);
    let pause = tokio::time::sleep(GATHER);
    tokio::pin!(pause);
    while let Some(record) = next.take() {
        match record {
            Record::Flush(done) => flushed.push(done),
            Record::Event(_) | Record::Exec(_) | Record::Remembered(_) => batch.push(record),
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

async fn write(catalog: &Catalog, record: Record) -> Result<(), CatalogError> {
    let written = match record {
        Record::Event(event) => catalog.append_event(event).await.map(|_| ()),
        Record::Exec(row) => catalog.insert_exec(row).await,
        Record::Remembered(exec) => catalog.exec_remembered(&exec).await,
        Record::Flush(_) => Ok(()),
    };
    match written {
        // An exec's sandbox may be gone before its row is written.
        Err(CatalogError::Unknown { .. }) => Ok(()),
        written => written,
    }
}
