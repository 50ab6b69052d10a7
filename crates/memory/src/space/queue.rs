//! Group commit: writes that wait while one commit syncs share the next.
//!
//! ```text
//!  callers ──bounded queue──► drain ──► BEGIN
//!                                        SAVEPOINT, job, RELEASE or ROLLBACK TO   (each)
//!                                       COMMIT  (one sync for all) ──► arena ──► answer each
//! ```
//!
//! There is no thread per space: whoever queues the first job starts one that drains the queue and ends.
//!
//! Invariants: nobody is answered before the commit, and before readers see it; a job that fails takes back only its own
//! changes; where storage fails the jobs are run again one by one; a panic in a job is answered as an error.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use burrow_model::MemoryRef;
use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::Space;
use super::arena::Arena;
use super::lens::Binding;
use super::load::integer;
use super::writer::{Batch, Writer};
use crate::MemoryError;

/// Writes that may wait for one space. Beyond it callers wait for a place: back-pressure, not loss.
const WAITING_MAX: usize = 1024;

/// Jobs of one commit: enough to hide the sync.
const JOBS_MAX: usize = 256;

/// Rows of one commit, as far as jobs tell beforehand: enough to be fast, few enough that nobody waits long.
const WEIGHT_MAX: usize = 2000;

#[derive(Debug)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    places: Arc<Semaphore>,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Box<dyn Job>>,
    /// Somebody is draining.
    draining: bool,
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiting").field("jobs", &self.jobs.len()).field("draining", &self.draining).finish()
    }
}

impl Queue {
    pub(crate) fn new() -> Self {
        Self { waiting: Mutex::default(), places: Arc::new(Semaphore::new(WAITING_MAX)) }
    }
}

/// Queues `work` and answers once it is committed and readers see it. A future dropped before it was queued changes
/// nothing; one dropped later changes what it would have changed.
pub(crate) async fn write<T, F>(
    space: &Arc<Space>,
    of: &MemoryRef,
    weight: usize,
    work: F,
) -> Result<T, MemoryError>
where
    T: Send + 'static,
    F: Fn(&mut Writer<'_>) -> Result<T, MemoryError> + Send + 'static,
{
    queued(space, Some(of.clone()), weight, work).await
}

/// As [`write`], for indices: on no branch, and takes no number.
pub(crate) async fn upkeep<T, F>(space: &Arc<Space>, weight: usize, work: F) -> Result<T, MemoryError>
where
    T: Send + 'static,
    F: Fn(&mut Writer<'_>) -> Result<T, MemoryError> + Send + 'static,
{
    queued(space, None, weight, work).await
}

async fn queued<T, F>(
    space: &Arc<Space>,
    of: Option<MemoryRef>,
    weight: usize,
    work: F,
) -> Result<T, MemoryError>
where
    T: Send + 'static,
    F: Fn(&mut Writer<'_>) -> Result<T, MemoryError> + Send + 'static,
{
    let place = Arc::clone(&space.queue.places).acquire_owned().await.map_err(|_| MemoryError::Closed)?;
    let (reply, answer) = oneshot::channel();
    let job = Task { of, weight, work, result: None, reply, _place: place };
    let start = {
        let mut waiting = space.queue.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.jobs.push_back(Box::new(job));
        !std::mem::replace(&mut waiting.draining, true)
    };
    if start {
        let space = Arc::clone(space);
        tokio::task::spawn_blocking(move || drain(&space));
    }
    answer.await.unwrap_or(Err(MemoryError::Closed))
}

fn drain(space: &Space) {
    let mut side = space.write_side.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let mut jobs: Vec<Box<dyn Job>> = Vec::new();
        let mut weight = 0;
        {
            let mut waiting = space.queue.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            while let Some(job) = waiting.jobs.front() {
                if !jobs.is_empty() && (jobs.len() >= JOBS_MAX || weight + job.weight() > WEIGHT_MAX) {
                    break;
                }
                weight += job.weight();
                jobs.extend(waiting.jobs.pop_front());
            }
            if jobs.is_empty() {
                waiting.draining = false;
                return;
            }
        }
        side.commit_all(space, jobs);
    }
}

/// Runs work of ours so that its panic becomes an error and the thread survives.
pub(crate) fn contained<T>(work: impl FnOnce() -> Result<T, MemoryError>) -> Result<T, MemoryError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|cause| {
        let text = cause.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| cause.downcast_ref::<String>().cloned()).unwrap_or_default();
        tracing::error!(panic = text, "work in memory panicked and was rolled back");
        Err(MemoryError::Panicked)
    })
}

// === the jobs ===

enum Verdict {
    Keep,
    TakeBack,
    /// Storage failed: the transaction may be gone as a whole.
    Storage(MemoryError),
}

trait Job: Send {
    fn weight(&self) -> usize;
    fn of(&self) -> Option<MemoryRef>;
    fn attempt(&mut self, writer: &mut Writer<'_>) -> Verdict;
    fn fail(&mut self, error: MemoryError);
    /// Called once, after the commit or the failure.
    fn answer(self: Box<Self>);
}

struct Task<T, F> {
    of: Option<MemoryRef>,
    weight: usize,
    work: F,
    result: Option<Result<T, MemoryError>>,
    reply: oneshot::Sender<Result<T, MemoryError>>,
    /// Given back when the job is done.
    _place: OwnedSemaphorePermit,
}

impl<T, F> Job for Task<T, F>
where
    T: Send,
    F: Fn(&mut Writer<'_>) -> Result<T, MemoryError> + Send,
{
    fn weight(&self) -> usize {
        self.weight
    }

    fn of(&self) -> Option<MemoryRef> {
        self.of.clone()
    }

    fn attempt(&mut self, writer: &mut Writer<'_>) -> Verdict {
        match contained(|| (self.work)(writer)) {
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

    fn fail(&mut self, error: MemoryError) {
        self.result = Some(Err(error));
    }

    fn answer(self: Box<Self>) {
        // The caller may have gone.
        let _ = self.reply.send(self.result.unwrap_or(Err(MemoryError::Closed)));
    }
}

// === the commit ===

/// The one connection that writes, and what it knows of the file.
#[derive(Debug)]
pub(crate) struct WriteSide {
    pub(crate) connection: Connection,
    pub(crate) binding: Binding,
    pub(crate) counters: super::load::Counters,
    pub(crate) model: Option<u32>,
}

impl WriteSide {
    fn commit_all(&mut self, space: &Space, mut jobs: Vec<Box<dyn Job>>) {
        match self.commit(space, &mut jobs) {
            Ok(()) => jobs.into_iter().for_each(Job::answer),
            Err(error) if jobs.len() == 1 => {
                let mut job = jobs.remove(0);
                job.fail(error);
                job.answer();
            }
            Err(_) => {
                // One by one, so that each gets its own answer.
                for mut job in jobs {
                    if let Err(error) = self.commit(space, std::slice::from_mut(&mut job)) {
                        job.fail(error);
                    }
                    job.answer();
                }
            }
        }
    }

    /// One transaction, then the arena. An error means that nothing of it happened.
    fn commit(&mut self, space: &Space, jobs: &mut [Box<dyn Job>]) -> Result<(), MemoryError> {
        let arena = space.arena();
        let mut batch = Batch::new(&arena, self.counters, self.model);
        let result = self.transact(space, &arena, &mut batch, jobs);
        self.binding.set(None);
        if let Err(error) = result {
            if !self.connection.is_autocommit() {
                self.connection.execute_batch("ROLLBACK")?;
            }
            return Err(error);
        }
        (self.counters, self.model) = (batch.counters, batch.model);
        space.publish(&arena, &batch);
        Ok(())
    }

    fn transact(
        &self,
        space: &Space,
        arena: &Arc<Arena>,
        batch: &mut Batch,
        jobs: &mut [Box<dyn Job>],
    ) -> Result<(), MemoryError> {
        self.statement("BEGIN IMMEDIATE")?;
        for job in jobs {
            self.statement("SAVEPOINT job")?;
            let start = batch.start();
            let (of, now_ms) = (job.of(), space.clock.now_ms());
            let verdict =
                match Writer::new(&self.connection, arena, batch, &self.binding, of.as_ref(), now_ms) {
                    Ok(mut writer) => job.attempt(&mut writer),
                    Err(error) if error.is_of_storage() => Verdict::Storage(error),
                    Err(error) => {
                        job.fail(error);
                        Verdict::TakeBack
                    }
                };
            match verdict {
                Verdict::Keep => self.statement("RELEASE job")?,
                Verdict::TakeBack => {
                    self.statement("ROLLBACK TO job")?;
                    self.statement("RELEASE job")?;
                    batch.take_back(&start, arena);
                }
                Verdict::Storage(error) => return Err(error),
            }
        }
        self.write_counters(batch)?;
        self.statement("COMMIT")
    }

    fn write_counters(&self, batch: &Batch) -> Result<(), MemoryError> {
        if batch.counters != self.counters {
            let counters = batch.counters;
            self.connection
                .prepare_cached("UPDATE state SET last_seq = ?, last_ms = ?, last_row = ?")?
                .execute((integer(counters.seq), integer(counters.ms), counters.row))?;
        }
        let heads: std::collections::BTreeMap<u32, u64> = batch.effects.heads.iter().copied().collect();
        for (branch, head) in heads {
            self.connection
                .prepare_cached("UPDATE branches SET head = ? WHERE no = ?")?
                .execute((integer(head), branch))?;
        }
        Ok(())
    }

    fn statement(&self, sql: &str) -> Result<(), MemoryError> {
        self.connection.prepare_cached(sql)?.execute(())?;
        Ok(())
    }
}
