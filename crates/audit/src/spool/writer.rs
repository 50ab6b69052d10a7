//! The writing end: one thread, one sync for all who wait.
//!
//! ```text
//!  record ──bounded queue──► drain up to BATCH_MAX ──► pwrite ──► fdatasync ──► mark ──► answer each
//!                                                         └────────┴─ failed: answer each with it, take the bytes back
//! ```
//!
//! Invariants: nobody is answered "recorded" before the sync; what failed is never written again by itself, so no event is
//! there that its caller believes absent, and the other way round; before anything is written after a failure, the file is
//! cut to what was durable. Needs, of system calls, `pwrite64`, `pread64`, `fdatasync`, `ftruncate`, and opens nothing.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;

use tokio::sync::{mpsc, oneshot};

use super::frames::{Frames, FramesError};
use super::{FIRST, MAGIC, MARK, mark_bytes, mark_of, read_at, write_all_at};
use crate::{EVENT_BYTES_MAX, Event};

/// Events that may wait. Beyond it callers wait for a place: back-pressure, not loss.
const QUEUE_MAX: usize = 4096;

/// Events of one sync: enough to hide it, and at their largest 8 MiB.
const BATCH_MAX: usize = 512;

/// Why an event is not recorded. Whoever must not act without a trace does not act.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SpoolError {
    #[error("could not write to the audit spool")]
    Write { source: Arc<io::Error> },
    #[error("could not sync the audit spool")]
    Sync { source: Arc<io::Error> },
    #[error("could not take back what was half written to the audit spool")]
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
                Some("make room on the disk that holds the audit log; until then no secret is injected")
            }
            Self::SegmentFull => Some("start the daemon, which takes events out of the spool"),
            Self::TooLarge { .. } | Self::Closed => None,
        }
    }
}

/// The handle; its clones share one thread, which ends with the last of them.
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
    /// Writes to a segment that the daemon made. What it holds beyond its mark was acknowledged to nobody and is cut off.
    pub fn start(file: OwnedFd) -> io::Result<Self> {
        let target = Target::open(file)?;
        let (queue, messages) = mpsc::channel(QUEUE_MAX);
        thread::Builder::new().name("audit-spool".to_owned()).spawn(move || run(target, messages))?;
        Ok(Self { queue })
    }

    /// Answers once the event is on disk. A future that is dropped may or may not have recorded it.
    pub async fn record(&self, event: &Event) -> Result<(), SpoolError> {
        let body = event.to_bytes();
        if body.len() > EVENT_BYTES_MAX {
            return Err(SpoolError::TooLarge { bytes: body.len() });
        }
        let (reply, answer) = oneshot::channel();
        self.queue.send(Message::Record { body, reply }).await.map_err(|_| SpoolError::Closed)?;
        answer.await.unwrap_or(Err(SpoolError::Closed))
    }

    /// Puts another segment in place. Once it has answered, nothing is written to the old one any more, and its descriptor
    /// is closed. An error means that the old one stays in use.
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
                // The caller may have gone.
                let _ = reply.send(outcome.clone());
            }
        }
        if let Some((file, reply)) = replacing {
            let _ = reply.send(Target::open(file).map(|opened| target = opened));
        }
    }
}

/// The segment: all before its end is durable.
#[derive(Debug)]
struct Target(Frames<OwnedFd>);

impl Target {
    fn open(file: OwnedFd) -> io::Result<Self> {
        let mut header = [0; FIRST as usize];
        let known = read_at(&file, &mut header, 0)? == header.len() && header[..8] == MAGIC;
        let mark = header[8..24].try_into().ok().and_then(mark_of);
        let Some(end) = mark.filter(|end| known && *end >= FIRST) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "no segment of an audit spool"));
        };
        Frames::at(file, end).map(Self)
    }

    /// All of it, durably, or nothing.
    fn append(&mut self, bodies: &[Vec<u8>]) -> Result<(), SpoolError> {
        // The pages that could not be synced are cut off or written anew here, so a sync that succeeds afterwards speaks
        // for them too; those whose event it was have been told that it failed.
        let written = self.0.write(bodies)?;
        if let Err(errno) = rustix::fs::fdatasync(&self.0.file) {
            self.0.take_back();
            return Err(SpoolError::Sync { source: Arc::new(errno.into()) });
        }
        // Over bytes that exist: it needs no space, and is synced with the next batch. A reader that finds an older mark only
        // waits a little longer.
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
