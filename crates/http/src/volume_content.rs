//! Files of volumes as bodies of requests and responses.
//!
//! The host itself touches them, beneath the volume's root and following no link; see `disks/src/volume_files.rs`. Bodies
//! pass through in pieces, handed to a thread that may block.

use std::io;

use axum::body::Body;
use axum::response::Response;
use burrow_api::ErrorCode;
use burrow_disks::volume_files::{Ownership, VolumeEntry, VolumeFileError};
use burrow_engine::{EngineError, OpenVolume};
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http::HeaderValue;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http_body_util::BodyExt as _;
use tokio::io::AsyncReadExt as _;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use crate::error::ApiError;
use crate::upload::{SILENCE_MAX, linger};

/// Bytes read at once.
const CHUNK_BYTES: usize = 256 << 10;

/// Pieces of a body that may wait for the disk.
const PIECES_MAX: usize = 4;

/// Concurrent uploads of all tenants, so that some threads remain for other work.
const UPLOADS_MAX: usize = 64;

static UPLOADS: Semaphore = Semaphore::const_new(UPLOADS_MAX);

/// Runs work on files in a thread that may block.
pub async fn off_thread<T: Send + 'static>(
    volume: &OpenVolume,
    work: impl FnOnce(&OpenVolume) -> Result<T, VolumeFileError> + Send + 'static,
) -> Result<T, ApiError> {
    let volume = volume.clone();
    match tokio::task::spawn_blocking(move || work(&volume)).await {
        Ok(done) => Ok(done.map_err(EngineError::from)?),
        Err(error) => Err(ApiError::internal("could not use the volume's files", error)),
    }
}

/// A file as a response body.
pub async fn download(volume: OpenVolume, path: String) -> Result<Response, ApiError> {
    let (file, entry) = off_thread(&volume, move |volume| volume.files.read(&path)).await?;
    let file = tokio::fs::File::from_std(file);
    // No more than was announced, even if the file grows in the meantime. The volume stays open until the last byte is
    // sent.
    let pieces = stream::unfold((file, entry.bytes, volume), |(mut file, left, volume)| async move {
        if left == 0 {
            return None;
        }
        let wanted = CHUNK_BYTES.min(usize::try_from(left).unwrap_or(usize::MAX));
        let mut piece = BytesMut::with_capacity(wanted);
        let read = match (&mut file).take(wanted as u64).read_buf(&mut piece).await {
            Ok(0) => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            other => other,
        };
        match read {
            Ok(read) => Some((Ok(piece.freeze()), (file, left - read as u64, volume))),
            Err(error) => Some((Err(error), (file, 0, volume))),
        }
    });
    let mut response = Response::new(Body::from_stream(pieces));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    // A browser must not interpret a volume's file as a page of the daemon.
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    headers.insert(CONTENT_LENGTH, entry.bytes.into());
    let mode = HeaderValue::try_from(format!("{:04o}", entry.mode)).expect("digits are a header value");
    headers.insert("x-burrow-mode", mode);
    Ok(response)
}

/// Writes a body to a file, which is replaced atomically.
pub async fn upload(
    volume: OpenVolume,
    path: String,
    owner: Ownership,
    parents: bool,
    mut body: Body,
) -> Result<VolumeEntry, ApiError> {
    // Each upload occupies a thread for as long as its client sends.
    let Ok(_place) = UPLOADS.try_acquire() else {
        linger(body);
        let message = format!("{UPLOADS_MAX} uploads to volumes are already in progress");
        return Err(ApiError::new(ErrorCode::TooMany, message).hint("try again when one of them has ended"));
    };
    let (sender, mut pieces) = mpsc::channel::<Option<Bytes>>(PIECES_MAX);
    let writing = tokio::task::spawn_blocking(move || {
        let mut incoming = volume.files.begin(&path, parents)?;
        while let Some(piece) = pieces.blocking_recv() {
            match piece {
                Some(bytes) => incoming.write(&bytes)?,
                None => return volume.files.finish(incoming, owner).map(Some),
            }
        }
        // The body was interrupted: the unnamed temporary file is discarded.
        Ok::<_, VolumeFileError>(None)
    });
    let sent = feed(&sender, &mut body).await;
    drop(sender);
    let written = writing.await.map_err(|error| ApiError::internal("could not write the file", error))?;
    if written.is_err() {
        linger(body);
    }
    let written = written.map_err(EngineError::from)?;
    sent?;
    written.ok_or_else(|| ApiError::invalid("could not read the body: it was interrupted"))
}

async fn feed(sender: &mpsc::Sender<Option<Bytes>>, body: &mut Body) -> Result<(), ApiError> {
    loop {
        let frame = match timeout(SILENCE_MAX, body.frame()).await {
            Ok(frame) => frame,
            Err(_) => return Err(ApiError::invalid("could not read the body: the client stopped sending")),
        };
        let piece = match frame {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(bytes) => Some(bytes),
                // Trailers contain nothing that is used.
                Err(_) => continue,
            },
            Some(Err(error)) => {
                return Err(ApiError::invalid("could not read the body: it was interrupted").cause(error));
            }
            None => None,
        };
        let last = piece.is_none();
        // If the writer has failed, it returns its error when it ends.
        if sender.send(piece).await.is_err() || last {
            return Ok(());
        }
    }
}
