//! Readers: a few threads with a read-only connection each, so that a list never waits behind a sync.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rusqlite::{Connection, OpenFlags};
use tokio::sync::{mpsc, oneshot};

use crate::CatalogError;
use crate::connection;
use crate::writer::{contained, join};

/// Each list occupies a core; more threads would only compete on the machines that Burrow runs on.
const READERS: usize = 3;

/// Reads in the queue; beyond that, callers wait to enter it.
const QUEUE_MAX: usize = 1024;

type Work = Box<dyn FnOnce(&Connection) + Send>;

/// The handle to the threads. Dropping it waits for them, so that the writer closes the database last.
pub(crate) struct Readers {
    queue: Option<mpsc::Sender<Work>>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    pub(crate) fn start(path: &Path) -> Result<Self, CatalogError> {
        let (queue, requests) = mpsc::channel::<Work>(QUEUE_MAX);
        let requests = Arc::new(Mutex::new(requests));
        let mut threads = Vec::with_capacity(READERS);
        for number in 0..READERS {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let connection = Connection::open_with_flags(path, flags)?;
            connection::prepare(&connection)?;
            let requests = Arc::clone(&requests);
            let name = format!("catalog-reader-{number}");
            let thread = thread::Builder::new()
                .name(name)
                .spawn(move || read(&connection, &requests))
                .map_err(|source| CatalogError::Open { path: path.to_owned(), source })?;
            threads.push(thread);
        }
        Ok(Self { queue: Some(queue), threads })
    }

    pub(crate) async fn read<T, F>(&self, work: F) -> Result<T, CatalogError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, CatalogError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let work = move |connection: &Connection| {
            // The caller may have gone.
            let _ = reply.send(contained(|| work(connection)));
        };
        let queue = self.queue.as_ref().ok_or(CatalogError::Closed)?;
        queue.send(Box::new(work)).await.map_err(|_| CatalogError::Closed)?;
        answer.await.unwrap_or(Err(CatalogError::Closed))
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.queue = None;
        self.threads.drain(..).for_each(|thread| join(Some(thread)));
    }
}

fn read(connection: &Connection, requests: &Mutex<mpsc::Receiver<Work>>) {
    loop {
        // One thread waits for work with the lock, the others wait for the lock: a queue of threads.
        let work = requests.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
        let Some(work) = work else { return };
        work(connection);
    }
}
