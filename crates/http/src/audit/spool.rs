//! Imports events from the spool of the egress process into the log.
//!
//! ```text
//!  next() ─► a new segment file ──descriptor──► the egress process writes there
//!                 └── take_in() reads behind it, all the time
//!  sealed_below(n): nobody writes to segments before n ─► read to their end, then removed
//! ```
//!
//! After a restart of the daemon, the egress process continues to write to its segment. Such segments are read like any
//! other, and sealed when the egress process got a new one or has ended.
//!
//! The egress process is not trusted: it may only record traffic, only of existing tenants, and only in well-formed
//! events.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burrow_audit::spool::{ReadError, Reader, SEGMENT_BYTES_MAX, Segment, SegmentPart};
use burrow_audit::{Action, Event, Outcome, Span, Store, StoreError, Text};
use burrow_memory::artifacts::{DiskFloor, NoDiskSpace};
use burrow_model::TenantId;
use tokio::sync::Notify;

/// Maximum number of events per commit.
const BATCH: usize = 2000;

/// A segment of this size is replaced, so that storing it and reading it to its end stay cheap.
const REPLACE_BYTES: u64 = 16 * 1024 * 1024;

/// Disk space that must be available for one commit of events.
const COMMIT_BYTES: u64 = 4 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    #[error(transparent)]
    NoDiskSpace(#[from] NoDiskSpace),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("could not list, open or remove segments of the audit spool")]
    File(#[from] io::Error),
    #[error("could not read segment {segment} of the audit spool")]
    Read { segment: u64, source: ReadError },
}

/// The result of one import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpoolImport {
    pub events: u64,
    /// Bytes that were acknowledged to the egress process and are not in the log yet.
    pub behind_bytes: u64,
    /// Number of events that the egress process was not allowed to write, and of damaged segments.
    pub refused: u64,
}

#[derive(Debug)]
pub struct Spool {
    folder: PathBuf,
    store: Store,
    /// The disk that segments and log are on. `None` in tests of other behaviour.
    floor: Option<DiskFloor>,
    state: Mutex<State>,
    wanted: Notify,
    /// Held during an import: one at a time.
    import_lock: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Default)]
struct State {
    /// Number of the newest segment.
    newest: u64,
    sealed_below: u64,
    /// For each segment, how far it was imported.
    places: BTreeMap<u64, Option<u64>>,
    /// Damaged segments, which are ignored until they are sealed.
    damaged: BTreeSet<u64>,
}

impl Spool {
    /// Blocks.
    pub fn open(folder: PathBuf, store: Store, floor: Option<DiskFloor>) -> Result<Self, StoreError> {
        let failed = |step, path: &PathBuf| {
            let path = path.clone();
            move |source| StoreError::File { step, path, source }
        };
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.map_err(failed("make", &folder))?;
        let there = Segment::list(&folder).map_err(failed("list", &folder))?;
        // Numbers are never used twice, even if the file was deleted and its row still exists.
        let known = store.segments_known()?;
        let newest = there.iter().chain(&known).copied().max().unwrap_or(0);
        let state = Mutex::new(State { newest, ..State::default() });
        Ok(Self { folder, store, floor, state, wanted: Notify::new(), import_lock: Arc::default() })
    }

    /// Creates the next segment. Pass its `file` to the egress process; when that has confirmed that it writes there,
    /// call [`Spool::sealed_below`] with its `number`.
    ///
    /// Fails if the disk has no space for it: the egress process then fills its present segment, and injects no secret
    /// without one.
    pub fn next(&self) -> io::Result<Segment> {
        self.check_disk(SEGMENT_BYTES_MAX)
            .map_err(|error| io::Error::new(io::ErrorKind::StorageFull, error))?;
        let mut state = self.state();
        let segment = Segment::create(&self.folder, state.newest + 1)?;
        state.newest = segment.number;
        Ok(segment)
    }

    /// No process writes to segments with a smaller number any more.
    pub fn sealed_below(&self, number: u64) {
        let mut state = self.state();
        state.sealed_below = state.sealed_below.max(number);
    }

    /// Returns when the egress process needs a new segment: the current one is large, or damaged.
    pub async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Imports all available events. `known` decides which tenants exist; `now_ms` never goes backwards.
    pub async fn import(
        &self,
        now_ms: u64,
        home: &TenantId,
        known: impl Fn(&TenantId) -> bool,
    ) -> Result<SpoolImport, SpoolError> {
        let _lock = self.import_lock.lock().await;
        let mut imported = SpoolImport::default();
        for segment in Segment::list(&self.folder)? {
            let (sealed, newest) = {
                let state = self.state();
                (segment < state.sealed_below, segment == state.newest)
            };
            if self.state().damaged.contains(&segment) && !sealed {
                continue;
            }
            let part = if sealed { SegmentPart::All } else { SegmentPart::Acknowledged };
            match self.import_segment(segment, part, now_ms, &known, home, &mut imported).await {
                Ok(end) if newest && end > REPLACE_BYTES => self.wanted.notify_one(),
                Ok(_) => {}
                Err(SpoolError::Read { source: ReadError::Read { source }, .. }) => return Err(source.into()),
                Err(SpoolError::Read { source, .. }) => {
                    self.set_aside(segment, sealed, &source, now_ms, home).await?;
                    imported.refused += 1;
                    continue;
                }
                Err(error) => return Err(error),
            }
            if sealed {
                self.remove(segment).await?;
            }
        }
        Ok(imported)
    }

    /// Imports one segment, up to its current end. Returns the position of that end.
    async fn import_segment(
        &self,
        segment: u64,
        part: SegmentPart,
        now_ms: u64,
        known: &impl Fn(&TenantId) -> bool,
        home: &TenantId,
        imported: &mut SpoolImport,
    ) -> Result<u64, SpoolError> {
        let remembered = self.state().places.get(&segment).copied();
        let mut from = match remembered {
            Some(place) => place,
            None => self.store.taken(segment).await?,
        };
        let path = Segment::path(&self.folder, segment);
        let read = move |source| SpoolError::Read { segment, source };
        let mut reader = Reader::open(&path, from).map_err(read)?;
        loop {
            let task = tokio::task::spawn_blocking(move || {
                let events = reader.read(part, BATCH);
                (reader, events)
            });
            let (back, events) = task.await.map_err(io::Error::other)?;
            reader = back;
            // Events before the damage are valid.
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
                let why =
                    format!("the egress process wrote {refused} events that it is not allowed to write");
                proper.push(gap(now_ms, home, segment, &why));
            }
            // Without space, events stay in the spool, whose size has a limit.
            self.check_disk(COMMIT_BYTES)?;
            self.store.ingest(proper, span, now_ms).await?;
            from = Some(reader.offset());
            self.state().places.insert(segment, from);
            imported.events += (count - refused) as u64;
            imported.refused += refused as u64;
        }
        imported.behind_bytes += reader.behind().map_err(read)?;
        Ok(reader.offset())
    }

    fn check_disk(&self, bytes: u64) -> Result<(), NoDiskSpace> {
        self.floor.as_ref().map_or(Ok(()), |floor| floor.check(bytes))
    }

    /// Renames a damaged segment, so that a person can inspect it, and records in the log that events may be missing.
    async fn set_aside(
        &self,
        segment: u64,
        sealed: bool,
        why: &ReadError,
        now_ms: u64,
        home: &TenantId,
    ) -> Result<(), SpoolError> {
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

    async fn remove(&self, segment: u64) -> Result<(), SpoolError> {
        fs::remove_file(Segment::path(&self.folder, segment))?;
        self.forget(segment).await
    }

    /// Called after the file was removed: in the other order, a kill in between would import it twice.
    async fn forget(&self, segment: u64) -> Result<(), SpoolError> {
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
    use std::path::Path;
    use std::sync::atomic::{AtomicU64, Ordering};

    use burrow_audit::Filter;
    use burrow_audit::spool::Writer;
    use burrow_memory::artifacts::FreeSpace;

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
            self.spool_on(None)
        }

        fn spool_on(&self, floor: Option<DiskFloor>) -> Spool {
            Spool::open(self.folder.path().join("spool"), self.store.clone(), floor).unwrap()
        }

        fn event(&self, action: Action) -> Event {
            Event::new(1, self.tenant.clone(), action, Outcome::Allowed)
        }

        async fn import(&self, spool: &Spool) -> SpoolImport {
            spool.import(7, &self.tenant, |tenant| *tenant == self.tenant).await.unwrap()
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
    async fn a_segment_is_imported_while_it_is_written_and_removed_once_it_is_sealed() {
        let bench = Bench::new();
        let spool = bench.spool();
        let first = spool.next().unwrap();
        let writer = Writer::start(first.file).unwrap();
        writer.record(&bench.event(Action::EgressAllow)).await.unwrap();
        assert_eq!(bench.import(&spool).await, SpoolImport { events: 1, ..SpoolImport::default() });
        writer.record(&bench.event(Action::EgressDeny)).await.unwrap();
        // A new daemon, the same egress process.
        let spool = bench.spool();
        assert_eq!(bench.import(&spool).await.events, 1);
        let second = spool.next().unwrap();
        assert_eq!(second.number, 2);
        writer.record(&bench.event(Action::EgressInject)).await.unwrap();
        writer.replace(second.file).await.unwrap();
        spool.sealed_below(second.number);
        writer.record(&bench.event(Action::EgressScrub)).await.unwrap();
        assert_eq!(bench.import(&spool).await.events, 2);
        assert_eq!(bench.files(), ["0000000000000002.spool"]);
        assert_eq!(bench.import(&spool).await, SpoolImport::default());
        use Action::{EgressAllow, EgressDeny, EgressInject, EgressScrub};
        assert_eq!(bench.actions().await, [EgressAllow, EgressDeny, EgressInject, EgressScrub]);
    }

    #[tokio::test]
    async fn without_disk_space_there_is_no_new_segment_and_events_stay_in_the_spool() {
        #[derive(Debug, Default)]
        struct AdjustableFreeSpace(AtomicU64);

        impl FreeSpace for AdjustableFreeSpace {
            fn free_bytes(&self, _: &Path) -> Option<u64> {
                Some(self.0.load(Ordering::Relaxed))
            }
        }
        let bench = Bench::new();
        let free = Arc::new(AdjustableFreeSpace(AtomicU64::new(u64::MAX)));
        let folder = bench.folder.path().to_owned();
        let floor = DiskFloor { folder, reserve_bytes: 1 << 20, free: free.clone(), leases: Arc::default() };
        let spool = bench.spool_on(Some(floor));
        let writer = Writer::start(spool.next().unwrap().file).unwrap();
        writer.record(&bench.event(Action::EgressInject)).await.unwrap();
        free.0.store(COMMIT_BYTES, Ordering::Relaxed);
        assert_eq!(spool.next().unwrap_err().kind(), io::ErrorKind::StorageFull);
        let imported = spool.import(7, &bench.tenant, |_| true).await;
        assert!(matches!(imported, Err(SpoolError::NoDiskSpace(_))), "{imported:?}");
        assert!(bench.actions().await.is_empty());
        // The segment in use accepts events until it is full.
        writer.record(&bench.event(Action::EgressInject)).await.unwrap();
        free.0.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(bench.import(&spool).await.events, 2);
        spool.next().unwrap();
    }

    #[tokio::test]
    async fn the_egress_process_cannot_write_events_of_other_actors() {
        let bench = Bench::new();
        let spool = bench.spool();
        let writer = Writer::start(spool.next().unwrap().file).unwrap();
        writer.record(&bench.event(Action::KeyCreate)).await.unwrap();
        let foreign = Event { tenant: TenantId::generate(), ..bench.event(Action::EgressAllow) };
        writer.record(&foreign).await.unwrap();
        writer.record(&bench.event(Action::EgressAllow)).await.unwrap();
        assert_eq!(bench.import(&spool).await, SpoolImport { events: 1, refused: 2, behind_bytes: 0 });
        assert_eq!(bench.actions().await, [Action::EgressAllow, Action::AuditGap]);
        assert_eq!(bench.store.size(&foreign.tenant).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_damaged_segment_is_reported_once_kept_and_replaced() {
        let bench = Bench::new();
        let spool = bench.spool();
        let segment = spool.next().unwrap();
        let path = segment.path.clone();
        let writer = Writer::start(segment.file).unwrap();
        writer.record(&bench.event(Action::EgressAllow)).await.unwrap();
        let mut bytes = fs::read(&path).unwrap();
        bytes[50] ^= 1;
        fs::write(&path, bytes).unwrap();
        assert_eq!(bench.import(&spool).await.refused, 1);
        assert_eq!(bench.import(&spool).await, SpoolImport::default());
        spool.wanted().await;
        let next = spool.next().unwrap();
        writer.replace(next.file).await.unwrap();
        spool.sealed_below(next.number);
        bench.import(&spool).await;
        assert_eq!(bench.files(), ["0000000000000001.damaged", "0000000000000002.spool"]);
        assert_eq!(bench.actions().await, [Action::AuditGap]);
    }
}
