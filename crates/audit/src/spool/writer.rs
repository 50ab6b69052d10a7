//! Writes events to a segment: one thread, with one sync for all waiting callers.
//!
//! ```text
//!  record ──bounded queue──► drain up to BATCH_MAX ──► pwrite ──► fdatasync ──► mark ──► answer all
//!                                                         └────────┴─ failed: answer all with the error, remove the bytes
//! ```
//!
//! Invariants: an event is reported as recorded only after the sync. Events of a failed batch are not
//! retried, so a caller's view of an event always agrees with the file. Before anything is written after a failure,
//! the file is truncated to its durable part. Of all system calls this needs `pwrite64`, `pread64`, `fdatasync` and
//! `ftruncate`, and it opens no file.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;

#[cfg(not(target_vendor = "apple"))]
use rustix::fs::fdatasync as sync_data;
// Clients on macOS verify audit logs; nothing writes one there.
#[cfg(target_vendor = "apple")]
use rustix::fs::fsync as sync_data;
use tokio::sync::{mpsc, oneshot};

use super::frames::{Frames, FramesError};
use super::{FIRST, MAGIC, MARK, mark_bytes, mark_of, read_at, write_all_at};
use crate::{EVENT_BYTES_MAX, Event};

/// Largest number of queued events. When the queue is full, callers wait: backpressure, not loss.
const QUEUE_MAX: usize = 4096;

/// Largest number of events per sync: enough to hide its cost, and at most 8 MiB.
const BATCH_MAX: usize = 512;

/// Why an event was not recorded. Callers that must not act without a record must not act.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SpoolError {
    #[error("could not write to the audit spool")]
    Write { source: Arc<io::Error> },
    #[error("could not sync the audit spool")]
    Sync { source: Arc<io::Error> },
    #[error("could not remove incomplete writes from the audit spool")]
    Repair { source: Arc<io::Error> },
    #[error("the segment of the audit spool is full and was not replaced")]
    SegmentFull,
    #[error("an event of {bytes} bytes is too large for the audit spool")]
    TooLarge { bytes: usize },
    #[error("the audit spool is closed")]
    Closed,
}

impl SpoolError {
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Write { .. } | Self::Sync { .. } | Self::Repair { .. } => {
                Some("free space on the disk that holds the audit log; until then no secret is inserted")
            }
            Self::SegmentFull => Some("start the daemon, which reads the events from the spool"),
            Self::TooLarge { .. } | Self::Closed => None,
        }
    }
}

/// A handle of the writer thread, which ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Writer {
    queue: mpsc::Sender<Message>,
}

#[derive(Debug)]
enum Message {
    Record { body: Vec<u8>, reply: oneshot::Sender<Result<(), SpoolError>> },
    Replace { file: OwnedFd, reply: oneshot::Sender<io::Result<()>> },
}

impl Writer {
    /// Writes to a segment that the daemon created. Bytes beyond its mark were never acknowledged and are removed.
    pub fn start(file: OwnedFd) -> io::Result<Self> {
        let target = Target::open(file)?;
        let (queue, messages) = mpsc::channel(QUEUE_MAX);
        thread::Builder::new().name("audit-spool".to_owned()).spawn(move || run(target, messages))?;
        Ok(Self { queue })
    }

    /// Returns when the event is on disk. If the future is cancelled, the event may or may not be recorded.
    pub async fn record(&self, event: &Event) -> Result<(), SpoolError> {
        let body = event.to_bytes();
        if body.len() > EVENT_BYTES_MAX {
            return Err(SpoolError::TooLarge { bytes: body.len() });
        }
        let (reply, answer) = oneshot::channel();
        self.queue.send(Message::Record { body, reply }).await.map_err(|_| SpoolError::Closed)?;
        answer.await.unwrap_or(Err(SpoolError::Closed))
    }

    /// Continues in another segment. When this returns, nothing is written to the old segment any more, and its
    /// descriptor is closed. After an error the old one stays in use.
    pub async fn replace(&self, file: OwnedFd) -> io::Result<()> {
        let (reply, answer) = oneshot::channel();
        let closed = || io::Error::from(io::ErrorKind::BrokenPipe);
        self.queue.send(Message::Replace { file, reply }).await.map_err(|_| closed())?;
        answer.await.unwrap_or_else(|_| Err(closed()))
    }
}

fn run(mut target: Target, mut messages: mpsc::Receiver<Message>) {
    while let Some(message) = messages.blocking_recv() {
        let (mut bodies, mut replies, mut replacing) = (Vec::new(), Vec::new(), None);
        let mut next = Some(message);
        while let Some(message) = next.take() {
            match message {
                Message::Record { body, reply } => {
                    bodies.push(body);
                    replies.push(reply);
                }
                Message::Replace { file, reply } => replacing = Some((file, reply)),
            }
            if replacing.is_none() && bodies.len() < BATCH_MAX {
                next = messages.try_recv().ok();
            }
        }
        if !bodies.is_empty() {
            let outcome = target.append(&bodies);
            for reply in replies {
                // The caller may have stopped waiting.
                let _ = reply.send(outcome.clone());
            }
        }
        if let Some((file, reply)) = replacing {
            let _ = reply.send(Target::open(file).map(|opened| target = opened));
        }
    }
}

/// The segment: everything before its end is durable.
#[derive(Debug)]
struct Target(Frames<OwnedFd>);

impl Target {
    fn open(file: OwnedFd) -> io::Result<Self> {
        let mut header = [0; FIRST as usize];
        let known = read_at(&file, &mut header, 0)? == header.len() && header[..8] == MAGIC;
        let mark = header[8..24].try_into().ok().and_then(mark_of);
        let Some(end) = mark.filter(|end| known && *end >= FIRST) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not a segment of an audit spool"));
        };
        Frames::at(file, end).map(Self)
    }

    /// Writes and syncs all frames, or none.
    fn append(&mut self, bodies: &[Vec<u8>]) -> Result<(), SpoolError> {
        // Pages of a failed sync are truncated or overwritten here, so a later successful sync covers them too; the
        // callers of those events were informed of the failure.
        let written = self.0.write(bodies)?;
        if let Err(errno) = sync_data(&self.0.file) {
            self.0.take_back();
            return Err(SpoolError::Sync { source: Arc::new(errno.into()) });
        }
        // Overwrites existing bytes, so it needs no space, and is synced with the next batch. A reader that finds an
        // older mark only waits a little longer.
        if let Err(error) = write_all_at(&self.0.file, &mark_bytes(written.end), MARK) {
            self.0.take_back();
            return Err(SpoolError::Write { source: Arc::new(error) });
        }
        self.0.accept(written);
        Ok(())
    }
}

impl From<FramesError> for SpoolError {
    fn from(error: FramesError) -> Self {
        match error {
            FramesError::Full => Self::SegmentFull,
            FramesError::Write(source) => Self::Write { source: Arc::new(source) },
            FramesError::Repair(source) => Self::Repair { source: Arc::new(source) },
        }
    }
}
