//! The only writer: a thread with the only connection that may change anything.
//!
//! ```text
//!  callers ──bounded queue──► drain up to BATCH_MAX ──► BEGIN
//!                                                        SAVEPOINT, job, RELEASE or ROLLBACK TO   (each)
//!                                                       COMMIT  (one fsync for all) ──► answer each
//! ```
//!
//! Jobs that wait while a commit syncs share the next commit, so eight callers wait for about two syncs, not eight. A
//! failed job rolls back only its own changes. If storage itself fails, SQLite may have rolled back the whole
//! transaction; the jobs are then run again one by one. For this reason, work is `Fn`: it may run twice, and only the
//! run that was committed counts.
//!
//! Invariants: no caller gets an answer before the commit. Actions that must follow a commit (`after`) run here, so they
//! happen even if the caller has gone. A panic in a job is returned as an error, and the thread continues.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{self, JoinHandle};

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use crate::CatalogError;
use crate::reserve::Reserve;

/// Requests in the queue. Beyond that, callers wait to enter it: back-pressure, not loss.
const QUEUE_MAX: usize = 1024;

/// Jobs of one commit: enough to hide the sync, few enough that the first one does not wait for long.
const BATCH_MAX: usize = 64;

/// How a job is treated when the disk is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskFullPolicy {
    /// It adds something new, and is refused.
    Growth,
    /// It removes something, or records something that has already happened: it may use the reserve.
    Upkeep,
}

/// What a completed job survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Durability {
    /// The death of this process. For records of processes and events; a power failure ends the processes anyway.
    Process,
    /// A power failure: synced before the answer.
    Power,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteMode {
    pub(crate) need: DiskFullPolicy,
    pub(crate) durability: Durability,
}

impl WriteMode {
    pub(crate) const GROWTH: Self = Self { need: DiskFullPolicy::Growth, durability: Durability::Power };
    pub(crate) const UPKEEP: Self = Self { need: DiskFullPolicy::Upkeep, durability: Durability::Power };
    pub(crate) const LIGHT_GROWTH: Self =
        Self { need: DiskFullPolicy::Growth, durability: Durability::Process };
    pub(crate) const LIGHT_UPKEEP: Self =
        Self { need: DiskFullPolicy::Upkeep, durability: Durability::Process };
}

/// The handle to the thread. Dropping it lets the thread finish the queued jobs, and waits for that.
pub(crate) struct Writer {
    queue: Option<mpsc::Sender<Message>>,
    thread: Option<JoinHandle<()>>,
}

enum Message {
    Job(Box<dyn Job>),
    /// Work that must not be inside a transaction.
    Alone(Box<dyn FnOnce(&mut Connection) + Send>),
}

impl Writer {
    pub(crate) fn start(connection: Connection, reserve: Option<Reserve>) -> std::io::Result<Self> {
        let (queue, requests) = mpsc::channel(QUEUE_MAX);
        let thread = thread::Builder::new().name("catalog-writer".to_owned()).spawn(move || {
            WriterThread { connection, reserve, durability: Durability::Power }.run(requests);
        })?;
        Ok(Self { queue: Some(queue), thread: Some(thread) })
    }

    /// Runs `work` in a transaction and returns after the commit. Dropping the future before the job is queued cancels the
    /// job; dropping it later does not.
    pub(crate) async fn write<T, F>(&self, manner: WriteMode, work: F) -> Result<T, CatalogError>
    where
        T: Send + 'static,
        F: Fn(&Connection) -> Result<T, CatalogError> + Send + 'static,
    {
        self.write_then(manner, work, |_| ()).await
    }

    /// Like [`Writer::write`]; `after` runs on the writer's thread after the commit and before the answer.
    pub(crate) async fn write_then<T, F, A>(
        &self,
        manner: WriteMode,
        work: F,
        after: A,
    ) -> Result<T, CatalogError>
    where
        T: Send + 'static,
        F: Fn(&Connection) -> Result<T, CatalogError> + Send + 'static,
        A: FnOnce(&T) + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job = Task { manner, work, after, result: None, reply };
        self.send(Message::Job(Box::new(job))).await?;
        answer.await.unwrap_or(Err(CatalogError::Closed))
    }

    /// Runs `work` soon, unless the queue is full: for data that may be lost.
    pub(crate) fn write_lazily<F>(&self, work: F)
    where
        F: Fn(&Connection) -> Result<(), CatalogError> + Send + 'static,
    {
        let (reply, _) = oneshot::channel();
        let manner = WriteMode::LIGHT_GROWTH;
        let job = Task { manner, work, after: |_: &()| (), result: None, reply };
        if let Some(queue) = &self.queue {
            // If the queue is full, the writer has more important work.
            let _ = queue.try_send(Message::Job(Box::new(job)));
        }
    }

    /// Runs `work` between two transactions.
    pub(crate) async fn alone<T, F>(&self, work: F) -> Result<T, CatalogError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Connection) -> Result<T, CatalogError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let work = move |connection: &mut Connection| {
            // The caller may have gone; the work is done all the same.
            let _ = reply.send(contained(|| work(connection)));
        };
        self.send(Message::Alone(Box::new(work))).await?;
        answer.await.unwrap_or(Err(CatalogError::Closed))
    }

    async fn send(&self, message: Message) -> Result<(), CatalogError> {
        let queue = self.queue.as_ref().ok_or(CatalogError::Closed)?;
        queue.send(message).await.map_err(|_| CatalogError::Closed)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue = None;
        join(self.thread.take());
    }
}

/// Waits for a thread whose queue was closed. If the thread itself drops the handle, it does not wait for itself.
pub(crate) fn join(thread: Option<JoinHandle<()>>) {
    if let Some(thread) = thread.filter(|handle| handle.thread().id() != thread::current().id()) {
        // Its panic, if any, was logged by the hook.
        let _ = thread.join();
    }
}

/// Runs work so that a panic in it becomes an error and the thread survives.
pub(crate) fn contained<T>(work: impl FnOnce() -> Result<T, CatalogError>) -> Result<T, CatalogError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|cause| {
        let text = cause.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| cause.downcast_ref::<String>().cloned()).unwrap_or_default();
        tracing::error!(panic = text, "work in the catalog panicked and was rolled back");
        Err(CatalogError::Panicked)
    })
}

// === the jobs ===

enum Verdict {
    Keep,
    TakeBack,
    /// Storage failed: the transaction may be gone as a whole.
    Storage(CatalogError),
}

trait Job: Send {
    fn manner(&self) -> WriteMode;
    fn attempt(&mut self, connection: &Connection) -> Verdict;
    fn fail(&mut self, error: CatalogError);
    /// Called once, after the commit or the failure.
    fn answer(self: Box<Self>);
}

struct Task<T, F, A> {
    manner: WriteMode,
    work: F,
    after: A,
    result: Option<Result<T, CatalogError>>,
    reply: oneshot::Sender<Result<T, CatalogError>>,
}

impl<T, F, A> Job for Task<T, F, A>
where
    T: Send,
    F: Fn(&Connection) -> Result<T, CatalogError> + Send,
    A: FnOnce(&T) + Send,
{
    fn manner(&self) -> WriteMode {
        self.manner
    }

    fn attempt(&mut self, connection: &Connection) -> Verdict {
        match contained(|| (self.work)(connection)) {
            Ok(value) => {
                self.result = Some(Ok(value));
                Verdict::Keep
            }
            Err(error) if error.is_of_storage() => Verdict::Storage(error),
            Err(error) => {
                self.result = Some(Err(error));
                Verdict::TakeBack
            }
        }
    }

    fn fail(&mut self, error: CatalogError) {
        self.result = Some(Err(error));
    }

    fn answer(self: Box<Self>) {
        let Self { after, result, reply, .. } = *self;
        let result = result.unwrap_or(Err(CatalogError::Closed));
        if let Ok(value) = &result {
            // A panic here must not end the thread: the commit is valid.
            let _ = contained(|| {
                after(value);
                Ok(())
            });
        }
        // The caller may have gone.
        let _ = reply.send(result);
    }
}

// === the thread ===

struct WriterThread {
    connection: Connection,
    /// `None` for a catalog in RAM.
    reserve: Option<Reserve>,
    /// The present setting of the connection.
    durability: Durability,
}

impl WriterThread {
    fn run(mut self, mut requests: mpsc::Receiver<Message>) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        while let Some(message) = requests.blocking_recv() {
            let mut next = Some(message);
            let mut alone = None;
            while let Some(message) = next.take() {
                match message {
                    Message::Job(job) => batch.push(job),
                    Message::Alone(work) => alone = Some(work),
                }
                if alone.is_none() && batch.len() < BATCH_MAX {
                    next = requests.try_recv().ok();
                }
            }
            if !batch.is_empty() {
                self.commit_all(std::mem::take(&mut batch));
            }
            if let Some(work) = alone {
                work(&mut self.connection);
            }
        }
    }

    fn commit_all(&mut self, batch: Vec<Box<dyn Job>>) {
        let mut batch = self.refuse_growth_on_a_full_disk(batch);
        if batch.is_empty() {
            return;
        }
        if self.commit(&mut batch).is_ok() {
            batch.into_iter().for_each(Job::answer);
        } else {
            // One by one, so that each gets its own answer and only those that need the reserve use it.
            for job in batch {
                self.commit_one(job);
            }
        }
    }

    /// While the reserve is spent, its space is for upkeep only.
    fn refuse_growth_on_a_full_disk(&mut self, batch: Vec<Box<dyn Job>>) -> Vec<Box<dyn Job>> {
        let Some(reserve) = &mut self.reserve else { return batch };
        if reserve.is_held() || reserve.take_back() {
            return batch;
        }
        let (growth, upkeep): (Vec<_>, Vec<_>) =
            batch.into_iter().partition(|job| job.manner().need == DiskFullPolicy::Growth);
        for mut job in growth {
            job.fail(CatalogError::Full);
            job.answer();
        }
        upkeep
    }

    fn commit_one(&mut self, mut job: Box<dyn Job>) {
        let need = job.manner().need;
        if let Err(error) = self.commit(std::slice::from_mut(&mut job)) {
            let error = self.judged(error);
            let full = matches!(error, CatalogError::Full);
            if full && need == DiskFullPolicy::Upkeep && self.reserve.as_mut().is_some_and(Reserve::release) {
                if let Err(error) = self.commit(std::slice::from_mut(&mut job)) {
                    job.fail(self.judged(error));
                }
            } else {
                job.fail(error);
            }
        }
        job.answer();
    }

    fn judged(&self, error: CatalogError) -> CatalogError {
        match &self.reserve {
            Some(reserve) => reserve.judge(error),
            None => error,
        }
    }

    /// Runs one transaction. On an error, none of it has happened.
    fn commit(&mut self, batch: &mut [Box<dyn Job>]) -> Result<(), CatalogError> {
        let durability = batch.iter().map(|job| job.manner().durability).max();
        self.set_durability(durability.unwrap_or(Durability::Power))?;
        let result = self.transact(batch);
        if result.is_err() && !self.connection.is_autocommit() {
            self.statement("ROLLBACK")?;
        }
        result
    }

    fn transact(&self, batch: &mut [Box<dyn Job>]) -> Result<(), CatalogError> {
        self.statement("BEGIN IMMEDIATE")?;
        for job in batch {
            self.statement("SAVEPOINT job")?;
            match job.attempt(&self.connection) {
                Verdict::Keep => self.statement("RELEASE job")?,
                Verdict::TakeBack => {
                    self.statement("ROLLBACK TO job")?;
                    self.statement("RELEASE job")?;
                }
                Verdict::Storage(error) => return Err(error),
            }
        }
        self.statement("COMMIT")
    }

    fn set_durability(&mut self, durability: Durability) -> Result<(), CatalogError> {
        if self.durability != durability {
            self.connection.execute_batch(match durability {
                Durability::Process => "PRAGMA synchronous = NORMAL",
                Durability::Power => "PRAGMA synchronous = FULL",
            })?;
            self.durability = durability;
        }
        Ok(())
    }

    fn statement(&self, sql: &str) -> Result<(), CatalogError> {
        self.connection.prepare_cached(sql)?.execute(())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::mpsc as blocking;

    use super::*;

    struct Bench {
        writer: Writer,
        path: PathBuf,
        _directory: tempfile::TempDir,
    }

    impl Bench {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("test.db");
            let connection = Connection::open(&path).unwrap();
            connection.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (x INTEGER UNIQUE)").unwrap();
            Self { writer: Writer::start(connection, None).unwrap(), path, _directory: directory }
        }

        async fn insert(&self, x: i64) -> Result<(), CatalogError> {
            self.writer.write(WriteMode::GROWTH, move |connection| insert(connection, x)).await
        }

        /// Pauses the writer until the sender is dropped, so that jobs sent in the meantime share a batch.
        fn hold(&self) -> blocking::Sender<()> {
            let (release, held) = blocking::channel::<()>();
            let queue = self.writer.queue.clone().unwrap();
            let work: Box<dyn FnOnce(&mut Connection) + Send> = Box::new(move |_| {
                let _ = held.recv();
            });
            queue.try_send(Message::Alone(work)).ok().unwrap();
            release
        }
    }

    fn insert(connection: &Connection, x: i64) -> Result<(), CatalogError> {
        connection.execute("INSERT INTO t VALUES (?)", [x])?;
        Ok(())
    }

    fn count(connection: &Connection) -> i64 {
        connection.query_row("SELECT count(*) FROM t", (), |row| row.get(0)).unwrap()
    }

    #[tokio::test]
    async fn jobs_that_wait_together_are_committed_together() {
        let bench = Bench::new();
        let release = bench.hold();
        let outside = bench.path.clone();
        let jobs = (0..8).map(|x| {
            let outside = outside.clone();
            bench.writer.write(WriteMode::GROWTH, move |connection| {
                insert(connection, x)?;
                let outside = Connection::open(&outside)?;
                Ok((count(connection), count(&outside)))
            })
        });
        let mut jobs: Vec<_> = jobs.map(Box::pin).collect();
        for job in &mut jobs {
            // The first poll queues it.
            assert!(
                std::future::poll_fn(|context| std::task::Poll::Ready(
                    job.as_mut().poll(context).is_pending()
                ))
                .await
            );
        }
        drop(release);
        for (number, job) in (1..).zip(jobs) {
            assert_eq!(job.await.unwrap(), (number, 0), "rows seen inside and outside of the transaction");
        }
    }

    #[tokio::test]
    async fn a_job_that_fails_takes_back_only_its_own_changes() {
        let bench = Bench::new();
        bench.insert(1).await.unwrap();
        let release = bench.hold();
        let failing = bench.writer.write(WriteMode::GROWTH, |connection| {
            insert(connection, 2)?;
            insert(connection, 1)
        });
        let (before, failed, after, ()) =
            tokio::join!(bench.insert(3), failing, bench.insert(4), async { drop(release) });
        assert!(before.is_ok() && after.is_ok());
        assert!(matches!(failed, Err(CatalogError::Sql { .. })), "{failed:?}");
        let connection = Connection::open(&bench.path).unwrap();
        let mut statement = connection.prepare("SELECT x FROM t ORDER BY x").unwrap();
        let rows: Vec<i64> = statement.query_map((), |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        assert_eq!(rows, [1, 3, 4]);
    }

    #[tokio::test]
    async fn a_panic_is_returned_as_an_error_and_the_thread_continues() {
        let bench = Bench::new();
        let panicking = bench.writer.write(WriteMode::GROWTH, |connection| -> Result<(), CatalogError> {
            insert(connection, 1)?;
            panic!("on purpose");
        });
        assert!(matches!(panicking.await, Err(CatalogError::Panicked)));
        let alone = bench.writer.alone(|_| -> Result<(), CatalogError> { panic!("on purpose") });
        assert!(matches!(alone.await, Err(CatalogError::Panicked)));
        bench.insert(1).await.unwrap();
        assert_eq!(count(&Connection::open(&bench.path).unwrap()), 1);
    }

    #[tokio::test]
    async fn queued_jobs_are_written_after_the_handle_is_dropped() {
        let bench = Bench::new();
        let release = bench.hold();
        for x in 0..10 {
            bench.writer.write_lazily(move |connection| insert(connection, x));
        }
        drop(release);
        let Bench { writer, path, _directory } = bench;
        drop(writer);
        assert_eq!(count(&Connection::open(&path).unwrap()), 10);
    }

    #[tokio::test]
    async fn a_caller_that_goes_away_does_not_keep_the_after_from_running() {
        let bench = Bench::new();
        let release = bench.hold();
        let (ran, running) = blocking::channel();
        let job = bench.writer.write_then(
            WriteMode::GROWTH,
            |connection| insert(connection, 1),
            move |()| ran.send(()).unwrap(),
        );
        let mut job = Box::pin(job);
        assert!(
            std::future::poll_fn(|context| std::task::Poll::Ready(job.as_mut().poll(context).is_pending()))
                .await
        );
        drop(job);
        drop(release);
        assert!(running.recv().is_ok());
    }
}
