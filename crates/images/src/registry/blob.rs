//! Downloads a layer into a file, and resumes after a broken connection.
//!
//! ```text
//!  connection ─► pieces ─► channel ─► digest and file (a blocking thread)
//! ```
//!
//! The file gets its name only when it is complete, verified and on disk; until then it is removed when it is
//! dropped.

use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_RANGE, HeaderMap, HeaderValue, RANGE};
use tempfile::NamedTempFile;
use tokio::sync::mpsc;

use super::http::{next, shown};
use super::session::{Session, is_retryable};
use super::{FetchOptions, Progress};
use crate::{Digest, Hasher, ImageError, Layer};

/// Connections for one layer; each resumes where the last one broke.
const ATTEMPTS: u32 = 8;
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(8);

/// The time limit of a layer, plus an allowance for its size: a connection of 32 KiB/s is still fast enough.
const TIME_BASE: Duration = Duration::from_secs(600);
const BYTES_PER_SECOND_MIN: u64 = 32 * 1024;

/// Pieces in transit to the disk, of some 16 KiB each.
const PIECES: usize = 64;

/// The interval of progress reports.
const PROGRESS_BYTES: u64 = 256 * 1024;

/// An incomplete file.
struct PartialFile {
    file: NamedTempFile,
    hasher: Hasher,
    size: u64,
    /// Whether its content came from more than one response.
    resumed: bool,
}

/// Downloads one layer, unless it exists already. Returns its path.
pub(super) async fn download(
    session: &Session<'_>,
    index: usize,
    layer: &Layer,
    options: &FetchOptions,
) -> Result<PathBuf, ImageError> {
    let what = || format!("layer {} of {}", index + 1, session.reference);
    let digest = layer.digest.ok_or_else(|| ImageError::Document {
        document: "manifest",
        of: session.reference.to_string(),
        reason: "a layer has no digest",
    })?;
    let path = options.cache.join(digest.hex());
    let done = Progress { layer: index, done: layer.size, total: layer.size };
    let complete = |found: std::fs::Metadata| found.is_file() && found.len() == layer.size;
    if tokio::fs::symlink_metadata(&path).await.is_ok_and(complete) {
        (options.progress)(done);
        return Ok(path);
    }
    let limit = TIME_BASE + Duration::from_secs(layer.size / BYTES_PER_SECOND_MIN);
    let transfer = Transfer { session, index, digest, size: layer.size, options };
    let downloading = transfer.run(&path);
    match tokio::time::timeout(limit, downloading).await {
        Ok(result) => result?,
        Err(_) => {
            let source =
                io::Error::new(io::ErrorKind::TimedOut, "the time limit of the download was exceeded");
            return Err(ImageError::Transfer { url: what(), source });
        }
    }
    (options.progress)(done);
    Ok(path)
}

struct Transfer<'a> {
    session: &'a Session<'a>,
    index: usize,
    digest: Digest,
    size: u64,
    options: &'a FetchOptions,
}

impl Transfer<'_> {
    async fn run(&self, path: &Path) -> Result<(), ImageError> {
        let cache = self.options.cache.clone();
        let mut partial = on_disk(move || PartialFile::create(&cache)).await?;
        let mut pause = PAUSE;
        for attempt in 1.. {
            let (back, result) = self.attempt(partial).await;
            partial = back?;
            let error = match result {
                Ok(()) => match self.finish(partial, path).await? {
                    None => return Ok(()),
                    Some((back, error)) => {
                        partial = back;
                        error
                    }
                },
                Err(error) => error,
            };
            let connected = !matches!(error, ImageError::Connect { .. });
            let again = is_retryable(&error) || !connected || matches!(error, ImageError::Mismatch { .. });
            if !again || attempt == ATTEMPTS {
                return Err(error);
            }
            tracing::debug!(%error, done = partial.size, "resuming the download of a layer");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
        unreachable!("the loop ends with its last attempt")
    }

    /// One request, until its end or an error. The file is returned in both cases.
    async fn attempt(
        &self,
        mut partial: PartialFile,
    ) -> (Result<PartialFile, ImageError>, Result<(), ImageError>) {
        if partial.size == self.size && self.size > 0 {
            return (Ok(partial), Ok(()));
        }
        let mut headers = HeaderMap::new();
        if partial.size > 0 {
            let range = format!("bytes={}-", partial.size);
            headers.insert(RANGE, HeaderValue::from_str(&range).expect("digits are a header"));
        }
        let answer = match self.session.get(&self.session.blob_path(self.digest), &headers).await {
            Ok(answer) => answer,
            // The store cannot resume there, so the download restarts from the beginning.
            Err(error @ ImageError::Status { status: 416, .. }) => {
                let url = self.session.reference.to_string();
                let source = io::Error::other(error);
                return (partial.restart(), Err(ImageError::Transfer { url, source }));
            }
            Err(error) => return (Ok(partial), Err(error)),
        };
        if partial.size > 0 {
            let resumes = answer.response.status() == StatusCode::PARTIAL_CONTENT
                && range_start(answer.response.headers()) == Some(partial.size);
            if resumes {
                partial.resumed = true;
            } else {
                match partial.restart() {
                    Ok(restarted) => partial = restarted,
                    Err(error) => return (Err(error), Ok(())),
                }
                if answer.response.status() == StatusCode::PARTIAL_CONTENT {
                    let source = io::Error::other("the registry sent another range than was requested");
                    return (Ok(partial), Err(ImageError::Transfer { url: shown(&answer.url), source }));
                }
            }
        }
        let mut done = partial.size;
        let (sender, receiver) = mpsc::channel(PIECES);
        let writer = tokio::task::spawn_blocking(move || partial.write_pieces(receiver));
        let result = self.receive(answer.response.into_body(), &answer.url, &mut done, sender).await;
        let written = writer.await.expect("writing does not panic");
        (written, result)
    }

    async fn receive(
        &self,
        mut body: hyper::body::Incoming,
        url: &http::Uri,
        done: &mut u64,
        sender: mpsc::Sender<Bytes>,
    ) -> Result<(), ImageError> {
        let mut last_reported = *done;
        while let Some(piece) = next(&mut body, url).await? {
            *done += piece.len() as u64;
            if *done > self.size {
                return Err(ImageError::Size { what: shown(url), expected: self.size, found: *done });
            }
            // The receiver ended because writing failed; its own result contains the error.
            if sender.send(piece).await.is_err() {
                return Ok(());
            }
            if *done - last_reported >= PROGRESS_BYTES {
                last_reported = *done;
                (self.options.progress)(Progress { layer: self.index, done: *done, total: self.size });
            }
        }
        match *done == self.size {
            true => Ok(()),
            false => {
                let source =
                    io::Error::new(io::ErrorKind::UnexpectedEof, "the connection closed before the end");
                Err(ImageError::Transfer { url: shown(url), source })
            }
        }
    }

    /// Verifies the file and gives it its name. A wrong file that was assembled from several responses is downloaded
    /// again.
    async fn finish(
        &self,
        partial: PartialFile,
        path: &Path,
    ) -> Result<Option<(PartialFile, ImageError)>, ImageError> {
        let (path, expected) = (path.to_owned(), self.digest);
        let what = format!("layer {} of {}", self.index + 1, self.session.reference);
        on_disk(move || {
            let found = partial.hasher.clone().finish();
            if found != expected {
                let error = ImageError::Mismatch { what, expected, found };
                return match partial.resumed {
                    true => Ok(Some((partial.restart()?, error))),
                    false => Err(error),
                };
            }
            partial.persist_as(&path)?;
            Ok(None)
        })
        .await
    }
}

impl PartialFile {
    fn create(cache: &Path) -> Result<Self, ImageError> {
        let file = tempfile::Builder::new().prefix("partial-").tempfile_in(cache);
        let file = file.map_err(ImageError::io("write to", cache.display()))?;
        Ok(Self { file, hasher: Hasher::default(), size: 0, resumed: false })
    }

    fn restart(mut self) -> Result<Self, ImageError> {
        let emptied = self.file.as_file().set_len(0).and_then(|()| self.file.as_file_mut().rewind());
        emptied.map_err(ImageError::io("write to", self.file.path().display()))?;
        Ok(Self { hasher: Hasher::default(), size: 0, resumed: false, ..self })
    }

    /// Writes pieces until the channel ends.
    fn write_pieces(mut self, mut pieces: mpsc::Receiver<Bytes>) -> Result<Self, ImageError> {
        while let Some(piece) = pieces.blocking_recv() {
            let written = self.file.as_file_mut().write_all(&piece);
            written.map_err(ImageError::io("write to", self.file.path().display()))?;
            self.hasher.update(&piece);
            self.size += piece.len() as u64;
        }
        Ok(self)
    }

    /// Syncs the content, then renames the file, then syncs the directory.
    fn persist_as(self, path: &Path) -> Result<(), ImageError> {
        self.file.as_file().sync_data().map_err(ImageError::io("sync", path.display()))?;
        self.file.persist(path).map_err(|error| ImageError::io("rename to", path.display())(error.error))?;
        let parent = path.parent().unwrap_or(Path::new("."));
        let synced = std::fs::File::open(parent).and_then(|directory| directory.sync_all());
        synced.map_err(ImageError::io("sync", parent.display()))
    }
}

/// `bytes <start>-<end>/<total>`
fn range_start(headers: &HeaderMap) -> Option<u64> {
    let text = headers.get(CONTENT_RANGE)?.to_str().ok()?;
    text.strip_prefix("bytes ")?.split('-').next()?.trim().parse().ok()
}

async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ImageError> + Send + 'static,
) -> Result<T, ImageError> {
    tokio::task::spawn_blocking(work).await.expect("work on the disk does not panic")
}
