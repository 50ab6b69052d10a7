//! Hashes and compresses frames on threads, and returns them in order.
//!
//! ```text
//!  submit ─► worker 0 ─┐
//!         ─► worker 1 ─┼─► returned in the order of submission: worker (n mod workers) processes frame n
//!         ─► …        ─┘
//! ```
//!
//! Bounded: each worker has a few frames queued and a few done, so a slow reader of the file slows its writer down.

use std::collections::HashSet;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::PortableError;
use crate::frame::{Compression, FrameHeader, FrameKind};

/// Frames of one worker that are queued, and as many that are done.
const WAITING_MAX: usize = 3;

/// Chunks that are remembered, so that equal ones are written once: a terabyte, in at most about 50 MiB.
const SEEN_MAX: usize = 1 << 20;

/// A frame to compress.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) kind: FrameKind,
    pub(crate) raw: Vec<u8>,
    /// Whether it is one chunk of one file, which may be repeated.
    pub(crate) repeats: bool,
}

/// A frame as written to the file.
#[derive(Debug)]
pub(crate) struct FinishedFrame {
    pub(crate) header: FrameHeader,
    /// Empty if the length in `header` is 0.
    pub(crate) stored: Vec<u8>,
    pub(crate) repeats: bool,
    /// The buffer of the raw content, for reuse.
    pub(crate) raw: Vec<u8>,
}

/// The hashes of chunks that are in the file already.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenChunks(Arc<Mutex<HashSet<[u8; 32]>>>);

impl SeenChunks {
    pub(crate) fn has(&self, hash: &[u8; 32]) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(hash)
    }

    pub(crate) fn add(&self, hash: [u8; 32]) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() < SEEN_MAX {
            seen.insert(hash);
        }
    }
}

#[derive(Debug)]
pub(crate) struct Workers {
    workers: Vec<Worker>,
    submitted: u64,
    taken: u64,
}

#[derive(Debug)]
struct Worker {
    jobs: Option<SyncSender<Job>>,
    done: Receiver<Result<FinishedFrame, PortableError>>,
    thread: Option<JoinHandle<()>>,
}

impl Workers {
    pub(crate) fn start(count: usize, level: i32, seen: &SeenChunks) -> Result<Self, PortableError> {
        let workers =
            (0..count.max(1)).map(|_| Worker::start(level, seen.clone())).collect::<Result<_, _>>()?;
        Ok(Self { workers, submitted: 0, taken: 0 })
    }

    /// Whether another frame would have to wait.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting() >= (self.workers.len() * WAITING_MAX) as u64
    }

    pub(crate) fn waiting(&self) -> u64 {
        self.submitted - self.taken
    }

    /// If all workers are full, the caller must take a frame first.
    pub(crate) fn submit(&mut self, job: Job) -> Result<(), PortableError> {
        let index = (self.submitted % self.workers.len() as u64) as usize;
        self.submitted += 1;
        let jobs = self.workers[index].jobs.as_ref();
        jobs.and_then(|jobs| jobs.send(job).ok()).ok_or_else(gone)
    }

    /// The next frame in order.
    pub(crate) fn take(&mut self) -> Result<FinishedFrame, PortableError> {
        let index = (self.taken % self.workers.len() as u64) as usize;
        self.taken += 1;
        self.workers[index].done.recv().map_err(|_| gone())?
    }
}

fn gone() -> PortableError {
    PortableError::Compress { source: std::io::ErrorKind::BrokenPipe.into() }
}

impl Worker {
    fn start(level: i32, seen: SeenChunks) -> Result<Self, PortableError> {
        let (jobs, waiting) = sync_channel::<Job>(WAITING_MAX);
        let (finished, done) = sync_channel(WAITING_MAX);
        let work = move || {
            let mut compressor = None;
            for job in waiting {
                if finished.send(make(job, level, &seen, &mut compressor)).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("export".to_owned()).spawn(work);
        let thread = thread.map_err(|source| PortableError::Thread { source })?;
        Ok(Self { jobs: Some(jobs), done, thread: Some(thread) })
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            worker.jobs = None;
            // Unblocks a worker that waits to return a frame.
            while worker.done.recv().is_ok() {}
            if let Some(thread) = worker.thread.take() {
                let _ = thread.join();
            }
        }
    }
}

fn make(
    job: Job,
    level: i32,
    seen: &SeenChunks,
    compressor: &mut Option<zstd::bulk::Compressor<'static>>,
) -> Result<FinishedFrame, PortableError> {
    let Job { kind, raw, repeats } = job;
    let length = u32::try_from(raw.len()).expect("frames are a few MiB");
    let hash = *blake3::hash(&raw).as_bytes();
    let header = |compression, stored: usize| FrameHeader {
        kind,
        compression,
        stored: u32::try_from(stored).expect("frames are a few MiB"),
        raw: length,
        hash,
    };
    if repeats && seen.has(&hash) {
        return Ok(FinishedFrame { header: header(Compression::None, 0), stored: Vec::new(), repeats, raw });
    }
    let compressor = match compressor {
        Some(compressor) => compressor,
        None => compressor
            .insert(zstd::bulk::Compressor::new(level).map_err(|source| PortableError::Compress { source })?),
    };
    let stored = compressor.compress(&raw).map_err(|source| PortableError::Compress { source })?;
    if stored.len() < raw.len() {
        return Ok(FinishedFrame { header: header(Compression::Zstd, stored.len()), stored, repeats, raw });
    }
    Ok(FinishedFrame { header: header(Compression::None, raw.len()), stored: raw.clone(), repeats, raw })
}
