//! A view: one branch of one space, now or at a moment of its past.
//!
//! Creating a view does no IO, and every query reads the file again; a view can be kept and cloned.

use std::sync::Arc;

use burrow_model::{MemoryPoint, MemoryRef};
use tokio::sync::broadcast;

use crate::memory::Shared;
use crate::space::chain::Chain;
use crate::space::growth::{Allowance, Growth};
use crate::space::queue;
use crate::space::reader::Reader;
use crate::space::slots::Access;
use crate::space::visibility::Visibility;
use crate::space::writer::Writer;
use crate::space::{ReadSide, Space};
use crate::{MemoryError, blocking};

/// A moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AsOf {
    Now,
    /// Everything up to this number of the space's log.
    Seq(u64),
    /// Everything written up to this time.
    TimeMs(u64),
    /// The moment of a snapshot; `None` is an empty memory.
    Point(Option<MemoryPoint>),
}

/// One branch of one space.
#[derive(Clone, Debug)]
pub struct View {
    pub(crate) shared: Arc<Shared>,
    pub(crate) of: MemoryRef,
    pub(crate) cut: ViewPosition,
    /// The limit of the space's file and artifacts together.
    pub(crate) quota_bytes: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ViewPosition {
    /// The present, which can be written to.
    Now,
    Seq(u64),
    /// The highest number at a time, and that time, which determines what has expired.
    Time {
        seq: u64,
        at_ms: u64,
    },
    Point(Option<MemoryPoint>),
}

impl ViewPosition {
    /// The earlier of two moments.
    fn earlier(&self, other: Self) -> Self {
        match (self, &other) {
            (Self::Point(point), _) => Self::Point(other.limited(point.clone())),
            (_, Self::Point(point)) => Self::Point(self.limited(point.clone())),
            _ if self.most() < other.most() => self.clone(),
            _ => other,
        }
    }

    /// A point, limited to this moment.
    fn limited(&self, point: Option<MemoryPoint>) -> Option<MemoryPoint> {
        if matches!(self, Self::Point(None)) {
            return None;
        }
        point.map(|point| MemoryPoint { seq: point.seq.min(self.most()), ..point })
    }

    /// The highest visible sequence number.
    fn most(&self) -> u64 {
        match self {
            Self::Now => u64::MAX,
            Self::Seq(seq) | Self::Time { seq, .. } => *seq,
            Self::Point(point) => point.as_ref().map_or(0, |point| point.seq),
        }
    }
}

impl View {
    pub fn of(&self) -> &MemoryRef {
        &self.of
    }

    pub fn is_read_only(&self) -> bool {
        self.cut != ViewPosition::Now
    }

    /// The same view for a writer whose space, including artifacts, is limited to this many bytes.
    pub fn with_quota(self, bytes: u64) -> Self {
        Self { quota_bytes: Some(bytes), ..self }
    }

    /// The same view at a moment of the past; read-only.
    pub async fn at(&self, as_of: &AsOf) -> Result<Self, MemoryError> {
        // A moment of a moment sees no more than either.
        let cut = match as_of {
            AsOf::Now => self.cut.clone(),
            AsOf::Seq(seq) => self.cut.earlier(ViewPosition::Seq(*seq)),
            AsOf::TimeMs(at_ms) => {
                self.cut.earlier(ViewPosition::Time { seq: self.seq_at(*at_ms).await?, at_ms: *at_ms })
            }
            AsOf::Point(point) => self.cut.earlier(ViewPosition::Point(point.clone())),
        };
        Ok(Self { cut, ..self.clone() })
    }

    /// The point that a fork or a snapshot of now must store. `None` if memory is empty.
    pub async fn point(&self) -> Result<Option<MemoryPoint>, MemoryError> {
        if self.cut == ViewPosition::Now && self.shared.slots.if_open(&self.of.space).is_none() {
            return self.point_of_closed().await;
        }
        let space = self.shared.slots.open(&self.of.space, Access::Read).await?;
        let arena = space.arena();
        let own = arena.branches.number(&self.of.branch).filter(|no| space.head(*no) > 0);
        Ok(match (&self.cut, own) {
            (ViewPosition::Point(point), _) => point.clone(),
            (cut, None) => cut.limited(self.of.from.clone()),
            (ViewPosition::Now, Some(no)) => {
                Some(MemoryPoint { branch: self.of.branch.clone(), seq: space.head(no) })
            }
            (ViewPosition::Seq(seq) | ViewPosition::Time { seq, .. }, Some(_)) => {
                Some(MemoryPoint { branch: self.of.branch.clone(), seq: (*seq).min(arena.head) })
            }
        })
    }

    /// The time of this view: now, or the time of the last row that it sees.
    pub async fn time_ms(&self) -> Result<u64, MemoryError> {
        self.read(|reader| Ok(reader.now_ms())).await
    }

    /// The same without opening the space: a machine is paused while its snapshot is taken, and a large space
    /// takes time to open.
    async fn point_of_closed(&self) -> Result<Option<MemoryPoint>, MemoryError> {
        let (path, of) = (self.shared.slots.path(&self.of.space), self.of.clone());
        blocking(move || {
            if !path.exists() {
                return Ok(of.from);
            }
            let connection = crate::space::migrate::open_reader(&path)?;
            let mut statement = connection.prepare("SELECT head FROM branches WHERE id = ? AND head > 0")?;
            let mut rows = statement.query([of.branch.as_str()])?;
            match rows.next()? {
                Some(row) => {
                    let seq = crate::space::load::unsigned(row, 0)?;
                    Ok(Some(MemoryPoint { branch: of.branch, seq }))
                }
                None => Ok(of.from),
            }
        })
        .await
    }

    /// The sequence numbers of this space's commits, from now on. A receiver that lags behind skips some, and must then read the log.
    pub fn changes(&self) -> broadcast::Receiver<u64> {
        self.shared.slots.changes(&self.of.space)
    }

    /// Runs `work` on a thread that may block, in one read transaction.
    pub async fn read<T, F>(&self, work: F) -> Result<T, MemoryError>
    where
        T: Send + 'static,
        F: FnOnce(&Reader<'_>) -> Result<T, MemoryError> + Send + 'static,
    {
        let space = self.shared.slots.open(&self.of.space, Access::Read).await?;
        let place = Arc::clone(&self.shared.readers).acquire_owned().await;
        let place = place.map_err(|_| MemoryError::Closed)?;
        let (of, cut) = (self.of.clone(), self.cut.clone());
        blocking(move || {
            let result = read(&space, &of, &cut, work);
            drop(place);
            result
        })
        .await
    }

    /// Queues `work` for the space's next commit and returns when it is durable. It may run twice, and only the committed
    /// run counts. It fails if the space would exceed its limits or the disk's reserve.
    pub async fn write<T, F>(&self, work: F) -> Result<T, MemoryError>
    where
        T: Send + 'static,
        F: Fn(&mut Writer<'_>) -> Result<T, MemoryError> + Send + 'static,
    {
        self.write_weighed(1, work).await
    }

    /// As [`View::write`], for a job of about this many rows.
    pub(crate) async fn write_weighed<T, F>(&self, weight: usize, work: F) -> Result<T, MemoryError>
    where
        T: Send + 'static,
        F: Fn(&mut Writer<'_>) -> Result<T, MemoryError> + Send + 'static,
    {
        self.write_as(Growth::Adds, weight, work).await
    }

    /// As [`View::write_weighed`], for a job with other limits than one that adds.
    pub(crate) async fn write_as<T, F>(
        &self,
        growth: Growth,
        weight: usize,
        work: F,
    ) -> Result<T, MemoryError>
    where
        T: Send + 'static,
        F: Fn(&mut Writer<'_>) -> Result<T, MemoryError> + Send + 'static,
    {
        if self.is_read_only() {
            return Err(MemoryError::ReadOnly);
        }
        let space = self.shared.slots.open(&self.of.space, Access::Write).await?;
        let allowance = Allowance {
            growth,
            quota_bytes: self.quota_bytes,
            space: self.of.space.clone(),
            limits: Arc::clone(&self.shared.file_limits),
        };
        queue::write(&space, &self.of, allowance, weight, work).await
    }

    pub(crate) async fn space(&self, access: Access) -> Result<Arc<Space>, MemoryError> {
        self.shared.slots.open(&self.of.space, access).await
    }

    /// The highest number that was written by this time. Numbers and times increase together, so binary search finds
    /// it without an index.
    async fn seq_at(&self, at_ms: u64) -> Result<u64, MemoryError> {
        self.read(move |reader| {
            let mut statement = reader
                .connection()
                .prepare_cached("SELECT seq, at_ms FROM log WHERE seq >= ? ORDER BY seq LIMIT 1")?;
            let (mut known, mut beyond) = (0u64, reader.visibility.arena.head + 1);
            while known + 1 < beyond {
                let middle = known + (beyond - known) / 2;
                let found = statement.query([crate::space::load::integer(middle)])?.next()?.map(|row| {
                    Ok::<_, rusqlite::Error>((
                        crate::space::load::unsigned(row, 0)?,
                        crate::space::load::unsigned(row, 1)?,
                    ))
                });
                match found.transpose()? {
                    Some((seq, written_ms)) if written_ms <= at_ms && seq < beyond => known = seq,
                    _ => beyond = middle,
                }
            }
            Ok(known)
        })
        .await
    }
}

/// Takes the arena first, then begins the transaction: the database is then as new or newer, and newer rows are cut off.
fn read<T>(
    space: &Space,
    of: &MemoryRef,
    cut: &ViewPosition,
    work: impl FnOnce(&Reader<'_>) -> Result<T, MemoryError>,
) -> Result<T, MemoryError> {
    let arena = space.arena();
    let chain = match cut {
        ViewPosition::Now => Chain::of(&arena.branches, of, arena.head),
        ViewPosition::Seq(seq) | ViewPosition::Time { seq, .. } => {
            Chain::of(&arena.branches, of, arena.head.min(*seq))
        }
        ViewPosition::Point(point) => Chain::at(&arena.branches, point.as_ref(), arena.head),
    };
    let visibility = Visibility { arena, chain };
    let clock_ms = space.clock.now_ms();
    space.with_reader(|side: &ReadSide| {
        side.binding.set(Some(visibility.clone()));
        let transaction = side.connection.unchecked_transaction()?;
        let now_ms = match cut {
            ViewPosition::Now => clock_ms,
            ViewPosition::Time { at_ms, .. } => clock_ms.min(*at_ms),
            // Not the end of the chain: the chain of a fork without writes ends where it was forked.
            ViewPosition::Seq(seq) => moment(&side.connection, *seq)?.unwrap_or(clock_ms),
            ViewPosition::Point(Some(point)) => moment(&side.connection, point.seq)?.unwrap_or(clock_ms),
            ViewPosition::Point(None) => clock_ms,
        };
        let reader = Reader { space, connection: &side.connection, visibility, now_ms };
        let result = queue::contained(|| work(&reader));
        transaction.commit()?;
        result
    })
}

/// The time at which the log reached this number.
pub(crate) fn moment(connection: &rusqlite::Connection, seq: u64) -> Result<Option<u64>, MemoryError> {
    let mut statement =
        connection.prepare_cached("SELECT at_ms FROM log WHERE seq <= ? ORDER BY seq DESC LIMIT 1")?;
    let mut rows = statement.query([crate::space::load::integer(seq)])?;
    Ok(rows.next()?.map(|row| crate::space::load::unsigned(row, 0)).transpose()?)
}
