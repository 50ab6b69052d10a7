//! The only thread that changes the log.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread;

use burrow_model::TenantId;
use rusqlite::{Connection, OptionalExtension as _, params};
use tokio::sync::{mpsc, oneshot, watch};

use super::journal::{Journal, JournalPosition, WaitingEvents};
use super::{Durability, Span, StoreError, as_stored};
use crate::note::{Checkpoint, SigningKey};
use crate::tree::{Edge, Hash, leaf_hash};
use crate::{Action, Event, Outcome};

/// Largest number of queued jobs. When the queue is full, callers wait.
const QUEUE_MAX: usize = 1024;

/// Largest number of jobs per commit.
const BATCH_MAX: usize = 256;

/// Only full subtrees of these levels are stored: of 256 leaves, 65,536, …
pub(super) const KEPT_LEVELS: u32 = 8;

/// Bodies removed per commit, so that the first removal does not delay other jobs.
const RETAIN_MAX: u64 = 20_000;

type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// Reports the outcome of the commit to one caller.
type OnCommit = Box<dyn FnOnce(Result<(), StoreError>)>;

#[derive(Debug)]
enum Job {
    Append {
        events: Vec<Event>,
        span: Option<Span>,
        seen_ms: u64,
        durability: Durability,
        reply: Reply<()>,
    },
    /// Moves the events of the journal into the log, and nothing else.
    Settle(Reply<()>),
    Sync(Reply<()>),
    Forget {
        segment: u64,
        reply: Reply<()>,
    },
    Retain {
        before_ms: u64,
        now_ms: u64,
        reply: Reply<u64>,
    },
}

/// The queue of the thread, which ends when the queue is dropped.
#[derive(Clone, Debug)]
pub(super) struct Queue(mpsc::Sender<Job>);

impl Queue {
    pub(super) async fn append(
        &self,
        events: Vec<Event>,
        span: Option<Span>,
        seen_ms: u64,
        durability: Durability,
    ) -> Result<(), StoreError> {
        self.ask(|reply| Job::Append { events, span, seen_ms, durability, reply }).await
    }

    pub(super) async fn settle(&self) -> Result<(), StoreError> {
        self.ask(Job::Settle).await
    }

    pub(super) async fn sync(&self) -> Result<(), StoreError> {
        self.ask(Job::Sync).await
    }

    pub(super) async fn forget(&self, segment: u64) -> Result<(), StoreError> {
        self.ask(|reply| Job::Forget { segment, reply }).await
    }

    pub(super) async fn retain(&self, before_ms: u64, now_ms: u64) -> Result<u64, StoreError> {
        let mut removed = 0;
        loop {
            let count = self.ask(|reply| Job::Retain { before_ms, now_ms, reply }).await?;
            removed += count;
            if count < RETAIN_MAX {
                return Ok(removed);
            }
        }
    }

    async fn ask<T>(&self, job: impl FnOnce(Reply<T>) -> Job) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.0.send(job(reply)).await.map_err(|_| StoreError::Closed)?;
        answer.await.unwrap_or(Err(StoreError::Closed))
    }
}

/// A tenant's tree as the thread keeps it.
#[derive(Clone, Debug)]
struct Tree {
    number: i64,
    edge: Edge,
    /// The time of its newest leaf.
    seen_ms: u64,
}

pub(super) struct WriterThread {
    connection: Connection,
    key: Arc<SigningKey>,
    journal: Arc<Journal>,
    grows: watch::Sender<u64>,
    trees: HashMap<TenantId, Tree>,
    /// The current `synchronous` setting of the connection.
    durability: Durability,
    /// A commit has not been synced yet.
    unsynced: bool,
}

impl WriterThread {
    pub(super) fn start(
        connection: Connection,
        key: Arc<SigningKey>,
        journal: Arc<Journal>,
        grows: watch::Sender<u64>,
    ) -> Result<Queue, StoreError> {
        let mut writer = Self {
            connection,
            key,
            journal,
            grows,
            trees: HashMap::new(),
            durability: Durability::Power,
            unsynced: true,
        };
        writer.load()?;
        let (queue, jobs) = mpsc::channel(QUEUE_MAX);
        let spawned = thread::Builder::new().name("audit-writer".to_owned()).spawn(move || writer.run(jobs));
        spawned.map_err(|source| StoreError::Thread { source })?;
        Ok(Queue(queue))
    }

    /// Reads the edge of every tree, and refuses one that does not match its signed checkpoint.
    fn load(&mut self) -> Result<(), StoreError> {
        self.trees.clear();
        let sql = "SELECT number, tenant, size, edge, note, \
                   (SELECT max(place) + 1 FROM leaves WHERE tree = number), \
                   (SELECT seen_ms FROM leaves WHERE tree = number ORDER BY place DESC LIMIT 1) FROM trees";
        let mut statement = self.connection.prepare(sql)?;
        let mut rows = statement.query(())?;
        while let Some(row) = rows.next()? {
            let text: String = row.get(1)?;
            let Ok(tenant) = text.parse::<TenantId>() else { continue };
            let tampered = |what| StoreError::Tampered { tenant: tenant.clone(), what };
            let (size, bytes): (u64, Vec<u8>) = (row.get(2)?, row.get(3)?);
            let full = bytes.chunks_exact(32).filter_map(Hash::from_slice).collect();
            let edge =
                Edge::from_parts(size, full).ok_or_else(|| tampered("its edge does not match its size"))?;
            let signed = self.key.public().verify(&row.get::<_, String>(4)?)?;
            if signed != (Checkpoint { tenant: tenant.clone(), size, root: edge.root() }) {
                return Err(tampered("its size or root does not match its checkpoint"));
            }
            if row.get::<_, Option<u64>>(5)?.unwrap_or(0) != size {
                return Err(tampered("events at its end are missing"));
            }
            let tree =
                Tree { number: row.get(0)?, edge, seen_ms: row.get::<_, Option<u64>>(6)?.unwrap_or(0) };
            self.trees.insert(tenant, tree);
        }
        Ok(())
    }

    fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        while let Some(job) = jobs.blocking_recv() {
            let mut batch = vec![job];
            while batch.len() < BATCH_MAX
                && let Ok(job) = jobs.try_recv()
            {
                batch.push(job);
            }
            self.commit(batch);
        }
    }

    /// Executes all jobs in one commit. An error applies to all of them: none had an effect.
    fn commit(&mut self, batch: Vec<Job>) {
        let mut answers: Vec<OnCommit> = Vec::with_capacity(batch.len());
        let durability = batch.iter().map(durability_of).max().unwrap_or(Durability::Power);
        let waited = self.journal.take();
        let outcome = self.transact(waited.as_ref(), batch, durability, &mut answers);
        if outcome.is_err() {
            if let Some(waited) = waited {
                self.journal.put_back(waited);
            }
            if !self.connection.is_autocommit() {
                // If this fails, the transaction is rolled back when the next BEGIN fails, or at the next start.
                let _ = self.connection.execute_batch("ROLLBACK");
            }
            // The edges in RAM are ahead of those on disk. If they cannot be read either, nothing is appended.
            if self.load().is_err() {
                self.trees.clear();
            }
        } else {
            self.unsynced = durability == Durability::Process;
            self.grows.send_modify(|count| *count = count.wrapping_add(1));
            if let Some(waited) = waited {
                self.journal.taken_to(waited.end);
            }
        }
        // One error, shared by all callers.
        let outcome = outcome.map_err(Arc::new);
        for answer in answers {
            answer(match &outcome {
                Ok(()) => Ok(()),
                Err(error) if matches!(**error, StoreError::Full) => Err(StoreError::Full),
                Err(error) => Err(StoreError::Commit { source: error.clone() }),
            });
        }
    }

    fn transact(
        &mut self,
        waited: Option<&WaitingEvents>,
        batch: Vec<Job>,
        durability: Durability,
        answers: &mut Vec<OnCommit>,
    ) -> Result<(), StoreError> {
        let mut failed =
            self.begin(durability).and_then(|()| waited.map_or(Ok(()), |it| self.settle(it))).err();
        for job in batch {
            // Every job is answered, including those after a failure.
            match job {
                Job::Append { events, span, seen_ms, reply, .. } => {
                    let refused = match failed {
                        None => self.append(&events, span, seen_ms).unwrap_or_else(|error| {
                            failed = Some(error);
                            None
                        }),
                        Some(_) => None,
                    };
                    answers.push(Box::new(move |outcome| {
                        let _ = reply.send(outcome.and(refused.map_or(Ok(()), Err)));
                    }));
                }
                Job::Settle(reply) | Job::Sync(reply) => {
                    answers.push(Box::new(move |outcome| drop(reply.send(outcome))))
                }
                Job::Forget { segment, reply } => {
                    if failed.is_none() {
                        let sql = "DELETE FROM segments WHERE number = ?";
                        failed =
                            self.connection.execute(sql, [as_stored(segment)]).map_err(StoreError::of).err();
                    }
                    answers.push(Box::new(move |outcome| drop(reply.send(outcome))));
                }
                Job::Retain { before_ms, now_ms, reply } => {
                    let removed = match failed {
                        None => self.retain(before_ms, now_ms).unwrap_or_else(|error| {
                            failed = Some(error);
                            0
                        }),
                        Some(_) => 0,
                    };
                    answers.push(Box::new(move |outcome| drop(reply.send(outcome.map(|()| removed)))));
                }
            }
        }
        match failed {
            Some(error) => Err(error),
            None => self.connection.execute_batch("COMMIT").map_err(StoreError::of),
        }
    }

    fn begin(&mut self, durability: Durability) -> Result<(), StoreError> {
        if self.durability != durability {
            self.connection.execute_batch(match durability {
                Durability::Process => "PRAGMA synchronous = NORMAL",
                Durability::Power => "PRAGMA synchronous = FULL",
            })?;
            self.durability = durability;
        }
        self.connection.execute_batch("BEGIN IMMEDIATE").map_err(StoreError::of)?;
        if self.unsynced && durability == Durability::Power {
            // A commit without changes would not sync.
            self.connection.execute_batch("UPDATE synced SET count = count + 1").map_err(StoreError::of)?;
        }
        Ok(())
    }

    /// Appends the events of the journal, and stores the position after them.
    fn settle(&mut self, waited: &WaitingEvents) -> Result<(), StoreError> {
        let JournalPosition { segment, offset } = waited.end;
        let sql = "UPDATE journal SET segment = ?, place = ?";
        self.connection.prepare_cached(sql)?.execute([as_stored(segment), as_stored(offset)])?;
        self.append(&waited.events, None, waited.seen_ms).map(|_| ())
    }

    /// A returned error refuses only this job, which then has had no effect.
    fn append(
        &mut self,
        events: &[Event],
        span: Option<Span>,
        seen_ms: u64,
    ) -> Result<Option<StoreError>, StoreError> {
        if let Some(Span { segment, from, to }) = span {
            let sql = "SELECT place FROM segments WHERE number = ?";
            let known: Option<u64> = self
                .connection
                .prepare_cached(sql)?
                .query_row([as_stored(segment)], |row| row.get(0))
                .optional()?;
            if known != from {
                let (from, known) = (from.unwrap_or(0), known.unwrap_or(0));
                return Ok(Some(StoreError::Moved { segment, from, known }));
            }
            let sql = "INSERT INTO segments VALUES (?, ?) ON CONFLICT (number) DO UPDATE SET place = excluded.place";
            self.connection
                .prepare_cached(sql)?
                .execute([as_stored(segment), as_stored(to)])
                .map_err(StoreError::of)?;
        }
        // The events of one tenant together, in their order.
        let mut groups: Vec<(&TenantId, Vec<&Event>)> = Vec::new();
        for event in events {
            match groups.iter_mut().find(|(tenant, _)| *tenant == &event.tenant) {
                Some((_, group)) => group.push(event),
                None => groups.push((&event.tenant, vec![event])),
            }
        }
        for (tenant, group) in groups {
            self.grow(tenant, &group, seen_ms)?;
        }
        Ok(None)
    }

    fn grow(&mut self, tenant: &TenantId, events: &[&Event], seen_ms: u64) -> Result<(), StoreError> {
        let mut tree = self.tree(tenant)?;
        tree.seen_ms = tree.seen_ms.max(seen_ms);
        let mut leaves = self.connection.prepare_cached(
            "INSERT INTO leaves (tree, place, hash, seen_ms, body, at_ms, action, outcome, sandbox, actor, secret) \
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )?;
        let mut nodes = self.connection.prepare_cached("INSERT INTO nodes VALUES (?, ?, ?, ?)")?;
        for event in events {
            let body = event.to_bytes();
            let hash = leaf_hash(&body);
            leaves.execute(params![
                tree.number,
                as_stored(tree.edge.size()),
                hash.0,
                as_stored(tree.seen_ms),
                body,
                as_stored(event.at_ms),
                event.action.as_str(),
                event.outcome.as_str(),
                event.sandbox.as_ref().map(|id| id.as_str()),
                event.actor.as_ref().map(|text| text.as_str()),
                event.secret.as_ref().map(|text| text.as_str()),
            ])?;
            let mut full = Vec::new();
            tree.edge.append(hash, |made| full.push(made));
            for made in full.iter().filter(|made| made.level.is_multiple_of(KEPT_LEVELS)) {
                nodes.execute(params![tree.number, made.level, as_stored(made.index), made.hash.0])?;
            }
        }
        let edge: Vec<u8> = tree.edge.full().iter().flat_map(|hash| hash.0).collect();
        let (size, root) = (tree.edge.size(), tree.edge.root());
        let note = self.key.sign(&Checkpoint { tenant: tenant.clone(), size, root });
        let sql = "UPDATE trees SET size = ?, edge = ?, note = ? WHERE number = ?";
        self.connection.prepare_cached(sql)?.execute(params![as_stored(size), edge, note, tree.number])?;
        drop((leaves, nodes));
        self.trees.insert(tenant.clone(), tree);
        Ok(())
    }

    fn tree(&self, tenant: &TenantId) -> Result<Tree, StoreError> {
        if let Some(tree) = self.trees.get(tenant) {
            return Ok(tree.clone());
        }
        // Fails if there is a tree that was not loaded: its edge must not be reset.
        let sql = "INSERT INTO trees (tenant, size, edge, note) VALUES (?, 0, x'', '')";
        self.connection.execute(sql, [tenant.as_str()])?;
        Ok(Tree { number: self.connection.last_insert_rowid(), edge: Edge::default(), seen_ms: 0 })
    }

    /// Removes bodies seen before `before_ms`, from the first event up to the first that is kept.
    fn retain(&mut self, before_ms: u64, now_ms: u64) -> Result<u64, StoreError> {
        let tenants: Vec<_> = self.trees.iter().map(|(tenant, tree)| (tenant.clone(), tree.number)).collect();
        let mut removed = 0;
        for (tenant, number) in tenants {
            let sql = "SELECT kept_from FROM trees WHERE number = ?";
            let from: u64 = self.connection.query_row(sql, [number], |row| row.get(0))?;
            let sql = "SELECT count(*) FROM (SELECT 1 FROM leaves WHERE tree = ? AND place >= ? AND seen_ms < ? LIMIT ?)";
            let values = [number, as_stored(from), as_stored(before_ms), as_stored(RETAIN_MAX - removed)];
            let count: u64 = self.connection.query_row(sql, values, |row| row.get(0))?;
            if count == 0 {
                continue;
            }
            let to = from + count;
            let sql = "UPDATE leaves SET body = NULL, at_ms = NULL, action = NULL, outcome = NULL, sandbox = NULL, \
                       actor = NULL, secret = NULL WHERE tree = ? AND place >= ? AND place < ?";
            self.connection.execute(sql, [number, as_stored(from), as_stored(to)]).map_err(StoreError::of)?;
            let sql = "UPDATE trees SET kept_from = ? WHERE number = ?";
            self.connection.execute(sql, [as_stored(to), number]).map_err(StoreError::of)?;
            let event = Event {
                actor: Some("daemon".into()),
                target: Some(to.to_string().into()),
                reason: Some(
                    format!("removed the bodies of events {from} to {}, by `audit.keep`", to - 1).into(),
                ),
                ..Event::new(now_ms, tenant.clone(), Action::AuditRetention, Outcome::Done)
            };
            self.grow(&tenant, &[&event], now_ms)?;
            removed += count;
        }
        Ok(removed)
    }
}

fn durability_of(job: &Job) -> Durability {
    match job {
        Job::Append { durability, .. } => *durability,
        Job::Settle(_) => Durability::Process,
        Job::Sync(_) | Job::Forget { .. } | Job::Retain { .. } => Durability::Power,
    }
}
