//! `GET /v1/backup`: everything as one tar: the configuration, the catalog, the volume of every image, snapshot and
//! sandbox, volumes that outlive them with their snapshots, what was remembered with its artifacts, and the audit log. No processes: what `restore.rs` makes of rows that name dumps is in its header.
//!
//! The catalog is copied to a file first, consistent and while everything goes on, then streamed from it. Volumes are
//! streams of unknown length, so each is cut into numbered pieces. `restore.rs` reads what is written here; the format
//! is in its header.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use burrow_engine::EngineError;
use burrow_model::Snapshot;
use burrow_volumes::{Chunks, VolumeError, VolumeId};
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt as _, stream};
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use tokio::fs::File;
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;

use super::App;
use super::auth::Admin;
use super::error::ApiError;
use super::input::NoParams;
use super::refusals::Common;
use crate::config::ArtifactsConfig;

/// Bytes read at once.
const CHUNK_BYTES: usize = 256 << 10;

/// Pieces that may wait for the client.
const PIECES_MAX: usize = 4;

/// Tar counts in these.
const BLOCK_BYTES: usize = 512;

#[utoipa::path(
    get, path = "/v1/backup", tag = "daemon",
    responses(
        (status = 200, description = "A tar archive of the configuration, the catalog, all volumes and all memory",
         body = Vec<u8>, content_type = "application/x-tar"),
        Common,
    ),
)]
pub(crate) async fn backup(
    State(app): State<Arc<App>>,
    _caller: Admin,
    _: NoParams,
) -> Result<Response, ApiError> {
    let copy =
        Copy(app.config.state_dir.join(format!("backup-{}.db", burrow_model::OperationId::generate())));
    app.engine.catalog().backup_to(&copy.0).await?;
    let (sender, receiver) = mpsc::channel(PIECES_MAX);
    let archive = Archive { pieces: sender, now_ms: app.engine.now_ms() };
    let work = app.clone();
    app.tasks.spawn(async move {
        if let Err(error) = write(&work, &archive, copy).await {
            tracing::error!(error = &error as &dyn std::error::Error, "a backup could not be finished");
            // The client sees a cut-off body, never a complete archive.
            let _ = archive.pieces.send(Err(error)).await;
        }
    });
    let body = stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|piece| (piece, receiver))
    });
    Ok(Response::builder()
        .header(CONTENT_TYPE, "application/x-tar")
        .header(CONTENT_DISPOSITION, "attachment; filename=\"burrow-backup.tar\"")
        .body(Body::from_stream(body))
        .expect("the headers are constants"))
}

async fn write(app: &App, archive: &Archive, copy: Copy) -> io::Result<()> {
    match tokio::fs::read(&app.config.path).await {
        Ok(config) => archive.whole("config.toml", config).await?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    archive.file("catalog.db", &copy.0).await?;
    let catalog = app.engine.catalog();
    for row in catalog.all_images().await.map_err(io::Error::other)? {
        let image = VolumeId::Image(row.image.id.clone());
        volume(archive, row.image.id.as_str(), app.engine.send_volume(&image).await).await?;
    }
    snapshots(app, archive).await?;
    for row in catalog.all_sandboxes().await.map_err(io::Error::other)? {
        volume(archive, row.id.as_str(), app.engine.send_sandbox(&row).await).await?;
    }
    for row in catalog.all_shelves().await.map_err(io::Error::other)? {
        let shelf = VolumeId::Shelf(row.shelf.id.clone());
        volume(archive, row.shelf.id.as_str(), app.engine.send_volume(&shelf).await).await?;
    }
    for row in
        catalog.all_shelf_snapshots().await.map_err(io::Error::other)?.into_iter().filter(|row| row.ready)
    {
        let snapshot = VolumeId::ShelfSnapshot(row.snapshot.id.clone());
        volume(archive, row.snapshot.id.as_str(), app.engine.send_volume(&snapshot).await).await?;
    }
    memory(app, archive).await?;
    audit(app, archive).await?;
    archive.send(Bytes::from_static(&[0; 2 * BLOCK_BYTES])).await
}

/// With its key, without which the log could not go on.
async fn audit(app: &App, archive: &Archive) -> io::Result<()> {
    let copy =
        Copy(app.config.state_dir.join(format!("backup-{}.db", burrow_model::OperationId::generate())));
    let key = app.audit.store.copy_to(&copy.0).await.map_err(io::Error::other)?;
    archive.file("audit/audit.db", &copy.0).await?;
    archive.file("audit/key", &key).await
}

/// After the catalog was copied, so that every number it names is in here. What was remembered since is seen by the
/// branches that wrote it, as if it had come before.
async fn memory(app: &App, archive: &Archive) -> io::Result<()> {
    let memory = app.engine.memory();
    for space in memory.spaces().await.map_err(io::Error::other)? {
        let copy =
            Copy(app.config.state_dir.join(format!("backup-{}.db", burrow_model::OperationId::generate())));
        if memory.copy_to(&space, &copy.0).await.map_err(io::Error::other)? {
            archive.file(&format!("memory/{space}.db"), &copy.0).await?;
        }
    }
    if !matches!(app.config.memory.artifacts, ArtifactsConfig::Folder(_)) {
        // A bucket outlives this host by itself, and may hold more than anybody wants in one file.
        return Ok(());
    }
    for blob in memory.blobs().await.map_err(io::Error::other)? {
        let Some(mut pieces) = memory.blob(&blob).await.map_err(io::Error::other)? else { continue };
        archive.send(archive.header(&format!("artifacts/{}", blob.place), blob.bytes)).await?;
        while let Some(piece) = pieces.next().await {
            archive.send(piece?).await?;
        }
        archive.send(padding(blob.bytes)).await?;
    }
    Ok(())
}

/// Oldest first: each is the difference to the one before it, if that is in the archive.
async fn snapshots(app: &App, archive: &Archive) -> io::Result<()> {
    let mut sent = HashSet::new();
    for row in app.engine.catalog().all_snapshots().await.map_err(io::Error::other)? {
        let Snapshot { id, image, parent, .. } = row.snapshot;
        let parent = parent.filter(|parent| sent.contains(parent));
        let snapshot = VolumeId::Snapshot { id: id.clone(), image, parent };
        if row.ready && volume(archive, id.as_str(), app.engine.send_volume(&snapshot).await).await? {
            sent.insert(id);
        }
    }
    Ok(())
}

/// Answers whether the volume was still there.
async fn volume(archive: &Archive, name: &str, sent: Result<Chunks, EngineError>) -> io::Result<bool> {
    let mut chunks = match sent {
        Ok(chunks) => chunks,
        // Deleted since the catalog was copied.
        Err(EngineError::Volume(
            VolumeError::NotFound { .. }
            | VolumeError::ImageNotFound { .. }
            | VolumeError::SnapshotNotFound { .. }
            | VolumeError::ShelfNotFound { .. }
            | VolumeError::ShelfSnapshotNotFound { .. },
        )) => return Ok(false),
        Err(error) => return Err(io::Error::other(error)),
    };
    let mut number = 0u32;
    while let Some(chunk) = chunks.recv().await {
        archive.whole(&format!("volumes/{name}/{number:08}"), chunk?).await?;
        number += 1;
    }
    Ok(true)
}

/// A tar being written to a client.
struct Archive {
    pieces: mpsc::Sender<io::Result<Bytes>>,
    now_ms: u64,
}

impl Archive {
    async fn whole(&self, name: &str, contents: Vec<u8>) -> io::Result<()> {
        let size = contents.len() as u64;
        self.send(self.header(name, size)).await?;
        self.send(Bytes::from(contents)).await?;
        self.send(padding(size)).await
    }

    async fn file(&self, name: &str, path: &Path) -> io::Result<()> {
        let mut file = File::open(path).await?;
        let size = file.metadata().await?.len();
        self.send(self.header(name, size)).await?;
        let mut left = size;
        while left > 0 {
            let wanted = CHUNK_BYTES.min(usize::try_from(left).unwrap_or(usize::MAX));
            let mut buffer = BytesMut::with_capacity(wanted);
            let read = (&mut file).take(wanted as u64).read_buf(&mut buffer).await?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            left -= read as u64;
            self.send(buffer.freeze()).await?;
        }
        self.send(padding(size)).await
    }

    async fn send(&self, bytes: Bytes) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.pieces.send(Ok(bytes)).await.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn header(&self, name: &str, size: u64) -> Bytes {
        let mut header = tar::Header::new_ustar();
        header.set_path(name).expect("the names are short and plain");
        header.set_size(size);
        header.set_mode(0o600);
        header.set_mtime(self.now_ms / 1000);
        header.set_cksum();
        Bytes::copy_from_slice(header.as_bytes())
    }
}

/// A file that goes when nobody needs it any more.
struct Copy(PathBuf);

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn padding(size: u64) -> Bytes {
    let over = usize::try_from(size % BLOCK_BYTES as u64).expect("less than a block");
    Bytes::from_static(&[0; BLOCK_BYTES]).slice(..(BLOCK_BYTES - over) % BLOCK_BYTES)
}
