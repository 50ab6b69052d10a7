//! `GET /v1/backup`: the state of the host as one tar: the configuration, the catalog, the disks of all images, snapshots
//! and sandboxes, all volumes and their snapshots, memory with its artifacts, and the audit log. It contains no processes;
//! `restore.rs` describes what happens to rows that name dumps.
//!
//! The catalog is copied to a file first, in a consistent state and while the daemon keeps working, and then streamed from
//! that file. Disks are streams of unknown length, so each is split into numbered pieces. `restore.rs` reads the archive;
//! its header describes the format.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use burrow_disks::{Chunks, DiskError, DiskId};
use burrow_engine::EngineError;
use burrow_memory::MemoryError;
use burrow_memory::artifacts::DiskLease;
use burrow_model::Snapshot;
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt as _, stream};
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use tokio::fs::File;
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;

use burrow_config::ArtifactsConfig;
use burrow_http::app::App;
use burrow_http::auth::Admin;
use burrow_http::error::ApiError;
use burrow_http::input::NoParams;
use burrow_http::refusals::Common;

/// Bytes read at once.
const CHUNK_BYTES: usize = 256 << 10;

/// Pieces that may wait for the client.
const PIECES_MAX: usize = 4;

/// Block size of tar.
const BLOCK_BYTES: usize = 512;

#[utoipa::path(
    get, path = "/v1/backup", tag = "daemon",
    responses(
        (status = 200, description = "A tar archive of the configuration, the catalog, all disks, all memory and the audit log",
         body = Vec<u8>, content_type = "application/x-tar"),
        Common,
    ),
)]
pub(crate) async fn backup(
    State(app): State<Arc<App>>,
    _caller: Admin,
    _: NoParams,
) -> Result<Response, ApiError> {
    let size = app.engine.catalog().size();
    let mut copy = TempCopy::reserve(&app, size.database_bytes.saturating_add(size.log_bytes))?;
    app.engine.catalog().backup_to(&copy.path).await?;
    copy.lease = None;
    let (sender, receiver) = mpsc::channel(PIECES_MAX);
    let archive = Archive { pieces: sender, now_ms: app.engine.now_ms() };
    let work = app.clone();
    app.tasks.spawn(async move {
        if let Err(error) = write(&work, &archive, copy).await {
            tracing::error!(error = &error as &dyn std::error::Error, "could not complete a backup");
            // The client receives an incomplete body, never a complete archive.
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

async fn write(app: &App, archive: &Archive, copy: TempCopy) -> io::Result<()> {
    match tokio::fs::read(&app.config.path).await {
        Ok(config) => archive.whole("config.toml", config).await?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    archive.file("catalog.db", &copy.path).await?;
    let catalog = app.engine.catalog();
    for row in catalog.all_images().await.map_err(io::Error::other)? {
        let sent = app.engine.send_disk(DiskId::from(&row.image.id), None).await;
        stream_disk(archive, row.image.id.as_str(), sent).await?;
    }
    snapshots(app, archive).await?;
    for row in catalog.all_sandboxes().await.map_err(io::Error::other)? {
        stream_disk(archive, row.id.as_str(), app.engine.send_sandbox(&row).await).await?;
    }
    for row in catalog.all_volumes().await.map_err(io::Error::other)? {
        let sent = app.engine.send_disk(DiskId::from(&row.volume.id), None).await;
        stream_disk(archive, row.volume.id.as_str(), sent).await?;
    }
    for row in
        catalog.all_volume_snapshots().await.map_err(io::Error::other)?.into_iter().filter(|row| row.ready)
    {
        let sent = app.engine.send_disk(DiskId::from(&row.snapshot.id), None).await;
        stream_disk(archive, row.snapshot.id.as_str(), sent).await?;
    }
    memory(app, archive).await?;
    audit(app, archive).await?;
    archive.send(Bytes::from_static(&[0; 2 * BLOCK_BYTES])).await
}

/// Includes its key, because the log cannot be continued without it.
async fn audit(app: &App, archive: &Archive) -> io::Result<()> {
    let mut copy = TempCopy::reserve(app, app.audit.store.database_bytes()).map_err(io::Error::other)?;
    let key = app.audit.store.copy_to(&copy.path).await.map_err(io::Error::other)?;
    copy.lease = None;
    archive.file("audit/audit.db", &copy.path).await?;
    archive.file("audit/key", &key).await
}

/// Runs after the catalog was copied, so the archive contains every log number that the catalog names. Entries that were
/// written since then are visible to the branches that wrote them, as if they had been written before.
async fn memory(app: &App, archive: &Archive) -> io::Result<()> {
    let memory = app.engine.memory();
    for space in memory.spaces().await.map_err(io::Error::other)? {
        let mut copy = TempCopy::reserve(app, memory.file_bytes(&space)).map_err(io::Error::other)?;
        if memory.copy_to(&space, &copy.path).await.map_err(io::Error::other)? {
            copy.lease = None;
            archive.file(&format!("memory/{space}.db"), &copy.path).await?;
        }
    }
    if !matches!(app.config.memory.artifacts, ArtifactsConfig::Folder(_)) {
        // A bucket does not depend on this host, and may be too large for one file.
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

/// Oldest first: each snapshot is stored as the difference to its parent, if that is in the archive.
async fn snapshots(app: &App, archive: &Archive) -> io::Result<()> {
    let mut sent = HashSet::new();
    for row in app.engine.catalog().all_snapshots().await.map_err(io::Error::other)? {
        let Snapshot { id, image, parent, .. } = row.snapshot;
        let parent = parent.filter(|parent| sent.contains(parent));
        let base = parent.as_ref().map_or_else(|| DiskId::Image(image), DiskId::from);
        let stream = app.engine.send_disk(DiskId::from(&id), Some(base)).await;
        if row.ready && stream_disk(archive, id.as_str(), stream).await? {
            sent.insert(id);
        }
    }
    Ok(())
}

/// Returns whether the disk still existed.
async fn stream_disk(archive: &Archive, name: &str, sent: Result<Chunks, EngineError>) -> io::Result<bool> {
    let mut chunks = match sent {
        Ok(chunks) => chunks,
        // Deleted since the catalog was copied.
        Err(EngineError::Disk(DiskError::NotFound { .. })) => return Ok(false),
        Err(error) => return Err(io::Error::other(error)),
    };
    let mut number = 0u32;
    while let Some(chunk) = chunks.recv().await {
        archive.whole(&format!("volumes/{name}/{number:08}"), chunk?).await?;
        number += 1;
    }
    Ok(true)
}

/// A tar archive that is being sent to a client.
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

/// A temporary file, removed on drop.
struct TempCopy {
    path: PathBuf,
    /// Until the copy is written.
    lease: Option<DiskLease>,
}

impl TempCopy {
    /// A path for a copy of `bytes`, if the filesystem has room for it in addition to the space that was promised to the
    /// pool.
    fn reserve(app: &App, bytes: u64) -> Result<Self, MemoryError> {
        let folder = app.config.state_dir.clone();
        let lease = burrow_http::memory::floor(&app.config, folder.clone()).reserve(bytes)?;
        let path = folder.join(format!("backup-{}.db", burrow_model::OperationId::generate()));
        Ok(Self { path, lease: Some(lease) })
    }
}

impl Drop for TempCopy {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn padding(size: u64) -> Bytes {
    let over = usize::try_from(size % BLOCK_BYTES as u64).expect("less than a block");
    Bytes::from_static(&[0; BLOCK_BYTES]).slice(..(BLOCK_BYTES - over) % BLOCK_BYTES)
}
