//! Takes events out of the egress process's spool into the log.
//!
//! ```text
//!  next() ─► a new segment file ──descriptor──► the egress process writes there
//!                 └── take_in() reads behind it, all the time
//!  sealed_below(n): nobody writes to segments before n ─► read to their end, then removed
//! ```
//!
//! After a restart of the daemon the egress process goes on writing where it was: those segments are read like any other,
//! and once it was given a new one, or is gone, they are sealed.
//!
//! The egress process is not trusted: it may speak of traffic only, of tenants there are, and in events of the usual form.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burrow_audit::spool::{Part, ReadError, Reader, Segment};
use burrow_audit::{Action, Event, Outcome, Span, Store, StoreError, Text};
use burrow_model::TenantId;
use tokio::sync::Notify;

/// Events of one commit.
const BATCH: usize = 2000;

/// A segment that has grown to this is to be replaced: reading one to its end, and keeping it meanwhile, stays cheap.
const REPLACE_BYTES: u64 = 16 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub(crate) enum TakeError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("could not list, open or remove segments of the audit spool")]
    File(#[from] io::Error),
    #[error("could not read segment {segment} of the audit spool")]
    Read { segment: u64, source: ReadError },
}

/// What one round came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) events: u64,
    /// Acknowledged to the egress process, and not in the log yet.
    pub(crate) behind_bytes: u64,
    /// Refused, since the egress process had no business to write them; and segments that were damaged.
    pub(crate) refused: u64,
}

#[derive(Debug)]
pub(crate) struct Spool {
    folder: PathBuf,
    store: Store,
    state: Mutex<State>,
    wanted: Notify,
    /// One round at a time.
    turn: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Default)]
struct State {
    /// Of the newest segment.
    newest: u64,
    sealed_below: u64,
    /// How far each is in the log.
    places: BTreeMap<u64, Option<u64>>,
    /// Damaged, and left alone until they are sealed.
    damaged: BTreeSet<u64>,
}

impl Spool {
    /// Blocks.
    pub(crate) fn open(folder: PathBuf, store: Store) -> Result<Self, StoreError> {
        let failed = |step, path: &PathBuf| {
            let path = path.clone();
            move |source| StoreError::File { step, path, source }
        };
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.map_err(failed("make", &folder))?;
        let there = Segment::list(&folder).map_err(failed("list", &folder))?;
        // Numbers are never used twice, also where a file is gone and its row is not.
        let known = store.segments_known()?;
        let newest = there.iter().chain(&known).copied().max().unwrap_or(0);
        let state = Mutex::new(State { newest, ..State::default() });
        Ok(Self { folder, store, state, wanted: Notify::new(), turn: Arc::default() })
    }

    /// Makes the next segment. Hand its `file` to the egress process; when it has answered that it writes there, call
    /// [`Spool::sealed_below`] with its `number`.
    pub(crate) fn next(&self) -> io::Result<Segment> {
        let mut state = self.state();
        let segment = Segment::create(&self.folder, state.newest + 1)?;
        state.newest = segment.number;
        Ok(segment)
    }

    /// Nobody writes to segments with a smaller number any more.
    pub(crate) fn sealed_below(&self, number: u64) {
        let mut state = self.state();
        state.sealed_below = state.sealed_below.max(number);
    }

    /// Comes back when the egress process should get another segment: the present one is large, or damaged.
    pub(crate) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Takes in all there is. `known` says which tenants there are; `now_ms` never goes back.
    pub(crate) async fn take_in(
        &self,
        now_ms: u64,
        home: &TenantId,
        known: impl Fn(&TenantId) -> bool,
    ) -> Result<Taken, TakeError> {
        let _turn = self.turn.lock().await;
        let mut taken = Taken::default();
        for segment in Segment::list(&self.folder)? {
            let (sealed, newest) = {
                let state = self.state();
                (segment < state.sealed_below, segment == state.newest)
            };
            if self.state().damaged.contains(&segment) && !sealed {
                continue;
            }
            let part = if sealed { Part::All } else { Part::Acknowledged };
            match self.take_segment(segment, part, now_ms, &known, home, &mut taken).await {
                Ok(end) if newest && end > REPLACE_BYTES => self.wanted.notify_one(),
                Ok(_) => {}
                Err(TakeError::Read { source: ReadError::Read { source }, .. }) => return Err(source.into()),
                Err(TakeError::Read { source, .. }) => {
                    self.set_aside(segment, sealed, &source, now_ms, home).await?;
                    taken.refused += 1;
                    continue;
                }
                Err(error) => return Err(error),
            }
            if sealed {
                self.remove(segment).await?;
            }
        }
        Ok(taken)
    }

    /// One segment, as far as it goes. Answers where it ended.
    async fn take_segment(
        &self,
        segment: u64,
        part: Part,
        now_ms: u64,
        known: &impl Fn(&TenantId) -> bool,
        home: &TenantId,
        taken: &mut Taken,
    ) -> Result<u64, TakeError> {
        let remembered = self.state().places.get(&segment).copied();
        let mut from = match remembered {
            Some(place) => place,
            None => self.store.taken(segment).await?,
        };
        let path = Segment::path(&self.folder, segment);
        let read = move |source| TakeError::Read { segment, source };
        let mut reader = Reader::open(&path, from).map_err(read)?;
        loop {
            let task = tokio::task::spawn_blocking(move || {
                let events = reader.read(part, BATCH);
                (reader, events)
            });
            let (back, events) = task.await.map_err(io::Error::other)?;
            reader = back;
            // What was whole before the damage was recorded, and counts.
            let events = events.map_err(read)?;
            if events.is_empty() {
                break;
            }
            let span = Span { segment, from, to: reader.offset() };
            let count = events.len();
            let mut proper: Vec<Event> = events
                .into_iter()
                .filter(|event| event.action.is_of_egress() && known(&event.tenant))
                .collect();
            let refused = count - proper.len();
            if refused > 0 {
                let why = format!("the egress process wrote {refused} events that are not its to write");
                proper.push(gap(now_ms, home, segment, &why));
            }
            self.store.ingest(proper, span, now_ms).await?;
            from = Some(reader.offset());
            self.state().places.insert(segment, from);
            taken.events += (count - refused) as u64;
            taken.refused += refused as u64;
        }
        taken.behind_bytes += reader.behind().map_err(read)?;
        Ok(reader.offset())
    }

    /// Keeps a damaged segment for a person to look at, and says in the log that something may be missing.
    async fn set_aside(
        &self,
        segment: u64,
        sealed: bool,
        why: &ReadError,
        now_ms: u64,
        home: &TenantId,
    ) -> Result<(), TakeError> {
        let first = self.state().damaged.insert(segment);
        if first {
            tracing::error!(segment, error = why as &dyn std::error::Error, "the audit spool is damaged");
            let event = gap(now_ms, home, segment, &why.to_string());
            self.store.append(vec![event], now_ms, burrow_audit::Durability::Power).await?;
            self.wanted.notify_one();
        }
        if sealed {
            let path = Segment::path(&self.folder, segment);
            fs::rename(&path, path.with_extension("damaged"))?;
            self.forget(segment).await?;
        }
        Ok(())
    }

    async fn remove(&self, segment: u64) -> Result<(), TakeError> {
        fs::remove_file(Segment::path(&self.folder, segment))?;
        self.forget(segment).await
    }

    /// After its file is gone: the other way round a kill in between would have it read again.
    async fn forget(&self, segment: u64) -> Result<(), TakeError> {
        self.store.forget(segment).await?;
        let mut state = self.state();
        state.places.remove(&segment);
        state.damaged.remove(&segment);
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn gap(now_ms: u64, tenant: &TenantId, segment: u64, why: &str) -> Event {
    Event {
        actor: Some("daemon".into()),
        target: Some(Text::new(&format!("segment {segment}"))),
        reason: Some(Text::new(why)),
        ..Event::new(now_ms, tenant.clone(), Action::AuditGap, Outcome::Failed)
    }
}

#[cfg(test)]
mod tests {
    use burrow_audit::Filter;
    use burrow_audit::spool::Writer;

    use super::*;

    struct Bench {
        folder: tempfile::TempDir,
        store: Store,
        tenant: TenantId,
    }

    impl Bench {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let store = Store::open(folder.path()).unwrap();
            Self { folder, store, tenant: TenantId::generate() }
        }

        fn spool(&self) -> Spool {
            Spool::open(self.folder.path().join("spool"), self.store.clone()).unwrap()
        }

        fn event(&self, action: Action) -> Event {
            Event::new(1, self.tenant.clone(), action, Outcome::Allowed)
        }

        async fn take_in(&self, spool: &Spool) -> Taken {
            spool.take_in(7, &self.tenant, |tenant| *tenant == self.tenant).await.unwrap()
        }

        async fn actions(&self) -> Vec<Action> {
            let found = self.store.since(&self.tenant, Filter::default(), 0, 100).await.unwrap().0;
            found.iter().map(|entry| entry.event.action).collect()
        }

        fn files(&self) -> Vec<String> {
            let files = fs::read_dir(self.folder.path().join("spool")).unwrap();
            let mut names: Vec<_> =
                files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    #[tokio::test]
    async fn a_segment_is_taken_in_while_it_is_written_and_removed_once_it_is_sealed() {
        let bench = Bench::new();
        let spool = bench.spool();
        let first = spool.next().unwrap();
        let writer = Writer::start(first.file).unwrap();
        writer.record(&bench.event(Action::EgressAllow)).await.unwrap();
        assert_eq!(bench.take_in(&spool).await, Taken { events: 1, ..Taken::default() });
        writer.record(&bench.event(Action::EgressDeny)).await.unwrap();
        // Another daemon, the same egress process.
        let spool = bench.spool();
        assert_eq!(bench.take_in(&spool).await.events, 1);
        let second = spool.next().unwrap();
        assert_eq!(second.number, 2);
        writer.record(&bench.event(Action::EgressInject)).await.unwrap();
        writer.replace(second.file).await.unwrap();
        spool.sealed_below(second.number);
        writer.record(&bench.event(Action::EgressScrub)).await.unwrap();
        assert_eq!(bench.take_in(&spool).await.events, 2);
        assert_eq!(bench.files(), ["0000000000000002.spool"]);
        assert_eq!(bench.take_in(&spool).await, Taken::default());
        use Action::{EgressAllow, EgressDeny, EgressInject, EgressScrub};
        assert_eq!(bench.actions().await, [EgressAllow, EgressDeny, EgressInject, EgressScrub]);
    }

    #[tokio::test]
    async fn the_egress_process_cannot_write_as_somebody_else() {
        let bench = Bench::new();
        let spool = bench.spool();
        let writer = Writer::start(spool.next().unwrap().file).unwrap();
        writer.record(&bench.event(Action::KeyCreate)).await.unwrap();
        let foreign = Event { tenant: TenantId::generate(), ..bench.event(Action::EgressAllow) };
        writer.record(&foreign).await.unwrap();
        writer.record(&bench.event(Action::EgressAllow)).await.unwrap();
        assert_eq!(bench.take_in(&spool).await, Taken { events: 1, refused: 2, behind_bytes: 0 });
        assert_eq!(bench.actions().await, [Action::EgressAllow, Action::AuditGap]);
        assert_eq!(bench.store.size(&foreign.tenant).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_damaged_segment_is_told_of_once_kept_and_replaced() {
        let bench = Bench::new();
        let spool = bench.spool();
        let segment = spool.next().unwrap();
        let path = segment.path.clone();
        let writer = Writer::start(segment.file).unwrap();
        writer.record(&bench.event(Action::EgressAllow)).await.unwrap();
        let mut bytes = fs::read(&path).unwrap();
        bytes[50] ^= 1;
        fs::write(&path, bytes).unwrap();
        assert_eq!(bench.take_in(&spool).await.refused, 1);
        assert_eq!(bench.take_in(&spool).await, Taken::default());
        spool.wanted().await;
        let next = spool.next().unwrap();
        writer.replace(next.file).await.unwrap();
        spool.sealed_below(next.number);
        bench.take_in(&spool).await;
        assert_eq!(bench.files(), ["0000000000000001.damaged", "0000000000000002.spool"]);
        assert_eq!(bench.actions().await, [Action::AuditGap]);
    }
}
