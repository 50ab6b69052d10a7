//! Group commit: writes that arrive during a commit share the next one.
//!
//! ```text
//!  callers ──bounded queue──► drain ──► BEGIN
//!                                        SAVEPOINT, job, RELEASE or ROLLBACK TO   (each)
//!                                       COMMIT  (one sync for all) ──► arena ──► answer each
//! ```
//!
//! There is no thread per space: the caller that queues the first job starts one, which drains the queue and ends.
//!
//! Invariants: a job is answered only after its commit is durable and visible to readers; a job that fails rolls back only its own
//! changes; if storage fails, the jobs are run again one by one; a panic in a job is returned as an error.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use burrow_model::MemoryRef;
use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::Space;
use super::arena::Arena;
use super::growth::{Allowance, Measure, empty_journal};
use super::load::integer;
use super::visibility::Binding;
use super::writer::{Batch, Writer};
use crate::MemoryError;

/// Writes that may wait for one space. Beyond it, callers wait (back-pressure); nothing is lost.
const WAITING_MAX: usize = 1024;

/// Jobs of one commit: enough to amortise the sync.
const JOBS_MAX: usize = 256;

/// Rows of one commit, as estimated by the jobs: enough to be fast, few enough that no job waits long.
const WEIGHT_MAX: usize = 2000;

#[derive(Debug)]
pub(crate) struct Queue {
    waiting: Mutex<JobQueue>,
    places: Arc<Semaphore>,
}

#[derive(Default)]
struct JobQueue {
    jobs: VecDeque<Box<dyn Job>>,
    /// A thread is draining the queue.
    draining: bool,
}

impl std::fmt::Debug for JobQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobQueue").field("jobs", &self.jobs.len()).field("draining", &self.draining).finish()
    }
}

impl Queue {
    pub(crate) fn new() -> Self {
        Self { waiting: Mutex::default(), places: Arc::new(Semaphore::new(WAITING_MAX)) }
    }
}

/// Queues `work` and returns when it is committed and visible to readers. A future that is dropped before it was queued
/// changes nothing; if it is dropped later, the change is made.
pub(crate) async fn write<T, F>(
    space: &Arc<Space>,
    of: &MemoryRef,
    allowance: Allowance,
    weight: usize,
    work: F,
) -> Result<T, MemoryError>
where
    T: Send + 'static,
    F: Fn(&mut Writer<'_>) -> Result<T, MemoryError> + Send + 'static,
{
    queued(space, Some((of.clone(), allowance)), weight, work).await
}

/// As [`write`], for indices: without a branch or a sequence number.
pub(crate) async fn upkeep<T, F>(space: &Arc<Space>, weight: usize, work: F) -> Result<T, MemoryError>
where
    T: Send + 'static,
    F: Fn(&mut Writer<'_>) -> Result<T, MemoryError> + Send + 'static,
{
    queued(space, None, weight, work).await
}

async fn queued<T, F>(
    space: &Arc<Space>,
    of: Option<(MemoryRef, Allowance)>,
    weight: usize,
    work: F,
) -> Result<T, MemoryError>
where
    T: Send + 'static,
    F: Fn(&mut Writer<'_>) -> Result<T, MemoryError> + Send + 'static,
{
    let place = Arc::clone(&space.queue.places).acquire_owned().await.map_err(|_| MemoryError::Closed)?;
    let (reply, answer) = oneshot::channel();
    let (of, allowance) = of.unzip();
    let job = Task { of, allowance, weight, work, result: None, reply, _place: place };
    let start = {
        let mut waiting = space.queue.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.jobs.push_back(Box::new(job));
        !std::mem::replace(&mut waiting.draining, true)
    };
    if start {
        let space = Arc::clone(space);
        // Ends when the queue is empty. Each caller waits for its own job.
        drop(tokio::task::spawn_blocking(move || drain(&space)));
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

/// Runs work such that its panic becomes an error and the thread survives.
pub(crate) fn contained<T>(work: impl FnOnce() -> Result<T, MemoryError>) -> Result<T, MemoryError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|cause| {
        let text = cause.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| cause.downcast_ref::<String>().cloned()).unwrap_or_default();
        tracing::error!(panic = text, "a memory operation panicked and was rolled back");
        Err(MemoryError::Panicked)
    })
}

// === the jobs ===

enum Verdict {
    Keep,
    TakeBack,
    /// As `TakeBack`, after work that made the space too large.
    TooLarge,
    /// Storage failed: the whole transaction may be lost.
    Storage(MemoryError),
}

/// Whether a transaction contained work that made the space too large.
enum Sizes {
    Kept,
    Refused,
}

trait Job: Send {
    fn weight(&self) -> usize;
    fn of(&self) -> Option<MemoryRef>;
    /// `None` for indices, whose size follows from the entries.
    fn allowance(&self) -> Option<&Allowance>;
    fn attempt(&mut self, writer: &mut Writer<'_>) -> Verdict;
    fn fail(&mut self, error: MemoryError);
    /// Called once, after the commit or the failure.
    fn answer(self: Box<Self>);
}

struct Task<T, F> {
    of: Option<MemoryRef>,
    allowance: Option<Allowance>,
    weight: usize,
    work: F,
    result: Option<Result<T, MemoryError>>,
    reply: oneshot::Sender<Result<T, MemoryError>>,
    /// Released when the job is done.
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

    fn allowance(&self) -> Option<&Allowance> {
        self.allowance.as_ref()
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
        // The caller may have been dropped.
        let _ = self.reply.send(self.result.unwrap_or(Err(MemoryError::Closed)));
    }
}

/// Runs a job, and rolls it back if the space would become too large.
fn attempt(job: &mut dyn Job, writer: &mut Writer<'_>, measure: &Measure) -> Verdict {
    let Some(allowance) = job.allowance().cloned() else { return job.attempt(writer) };
    let refused = |job: &mut dyn Job, error: MemoryError| {
        if error.is_of_storage() {
            return Verdict::Storage(error);
        }
        job.fail(error);
        Verdict::TakeBack
    };
    if let Err(error) = allowance.check_disk(measure) {
        return refused(job, error);
    }
    match job.attempt(writer) {
        Verdict::Keep => match allowance.check_size(measure, writer.connection()) {
            Ok(()) => Verdict::Keep,
            Err(error) => match refused(job, error) {
                Verdict::TakeBack => Verdict::TooLarge,
                verdict @ (Verdict::Keep | Verdict::TooLarge | Verdict::Storage(_)) => verdict,
            },
        },
        verdict @ (Verdict::TakeBack | Verdict::TooLarge | Verdict::Storage(_)) => verdict,
    }
}

// === the commit ===

/// The connection that writes, and its cached state of the file.
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
                // One by one, so that each gets its own result.
                for mut job in jobs {
                    if let Err(error) = self.commit(space, std::slice::from_mut(&mut job)) {
                        job.fail(error);
                    }
                    job.answer();
                }
            }
        }
    }

    /// One transaction, then the arena. After an error, nothing was changed.
    fn commit(&mut self, space: &Space, jobs: &mut [Box<dyn Job>]) -> Result<(), MemoryError> {
        let arena = space.arena();
        let mut batch = Batch::new(&arena, self.counters, self.model);
        let result = self.transact(space, &arena, &mut batch, jobs);
        self.binding.set(None);
        let sizes = match result {
            Ok(sizes) => sizes,
            Err(error) => {
                if !self.connection.is_autocommit() {
                    self.connection.execute_batch("ROLLBACK")?;
                }
                if matches!(error, MemoryError::DiskFull) {
                    self.empty_journal(space);
                }
                return Err(error);
            }
        };
        if matches!(sizes, Sizes::Refused) {
            self.empty_journal(space);
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
    ) -> Result<Sizes, MemoryError> {
        let mut sizes = Sizes::Kept;
        self.statement("BEGIN IMMEDIATE")?;
        let writes = jobs.iter().filter_map(|job| job.allowance());
        let measure = Measure::new(&self.connection, space.path.as_ref(), writes)?;
        for job in jobs {
            self.statement("SAVEPOINT job")?;
            let start = batch.start();
            let (of, now_ms) = (job.of(), space.clock.now_ms());
            let verdict =
                match Writer::new(&self.connection, arena, batch, &self.binding, of.as_ref(), now_ms) {
                    Ok(mut writer) => attempt(&mut **job, &mut writer, &measure),
                    Err(error) if error.is_of_storage() => Verdict::Storage(error),
                    Err(error) => {
                        job.fail(error);
                        Verdict::TakeBack
                    }
                };
            match verdict {
                Verdict::Keep => self.statement("RELEASE job")?,
                verdict @ (Verdict::TakeBack | Verdict::TooLarge) => {
                    if matches!(verdict, Verdict::TooLarge) {
                        sizes = Sizes::Refused;
                    }
                    self.statement("ROLLBACK TO job")?;
                    self.statement("RELEASE job")?;
                    batch.take_back(&start, arena);
                }
                Verdict::Storage(error) => return Err(error),
            }
        }
        self.write_counters(batch)?;
        self.statement("COMMIT")?;
        Ok(sizes)
    }

    /// What was rolled back may have been written to the journal already, if it was large.
    fn empty_journal(&self, space: &Space) {
        if let Some(path) = &space.path {
            empty_journal(&self.connection, path);
        }
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
