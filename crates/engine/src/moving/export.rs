//! Exports a snapshot from this host, as a stream.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use burrow_disks::{ChangedPath, TimeComparison, Tree};
use burrow_model::{Snapshot, SnapshotId, TenantId};
use burrow_portable::{Header, Options, PortableError, Section, Writer};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::header::{self, SnapshotParts};
use super::{ExportOptions, blocking, memory, processes, tree};
use crate::shared::Shared;
use crate::snapshots::dump;
use crate::snapshots::dump_description::OpenedDump;
use crate::snapshots::pins::Pin;
use crate::{Engine, EngineError, VolumeRefusal, faults};

/// Bytes of a chunk of the stream, and chunks that may wait for their reader.
const PIECE_BYTES: usize = 256 << 10;
const PIECES_MAX: usize = 8;

/// Compression threads, as many as a small host has cores, and the level: compression must not take longer than reading.
const THREADS: usize = 2;
const LEVEL: i32 = 1;

/// A snapshot that is being exported.
#[derive(Debug)]
pub struct ExportStream {
    /// The file, in chunks. The stream ends at the first error.
    pub pieces: mpsc::Receiver<io::Result<Vec<u8>>>,
    /// The key that signs it.
    pub signer: Option<String>,
}

/// All that is needed, checked before the first byte of the answer.
struct ExportPlan {
    tenant: TenantId,
    snapshot: Snapshot,
    header: Header,
    root: PathBuf,
    changed: Option<Vec<ChangedPath>>,
    kept: Option<OpenedDump>,
    _pins: Vec<Pin>,
    _permit: OwnedSemaphorePermit,
}

impl Engine {
    /// Starts to export a snapshot. It cannot be removed before the stream ends or is dropped.
    pub async fn export_snapshot(
        &self,
        tenant: &TenantId,
        id: &SnapshotId,
        options: ExportOptions,
    ) -> Result<ExportStream, EngineError> {
        let permit = self.shared.moving.0.clone().acquire_owned().await;
        let permit = permit.map_err(|_| EngineError::ShuttingDown)?;
        let (snapshot, pin) = self.pinned(tenant, id).await?;
        let plan = self.plan_export(tenant, snapshot, options, pin, permit).await?;
        faults::hit("export.begun")?;
        let (sender, pieces) = mpsc::channel(PIECES_MAX);
        let signer = self.shared.policy.moving.key.as_ref().map(|key| key.public().to_string());
        let (shared, alive) = (self.shared.clone(), self.shared.actor_guard());
        // Ends with the stream. The shutdown waits for it, since it holds a guard.
        drop(tokio::spawn(async move {
            let (failed, id) = (sender.clone(), plan.snapshot.id.clone());
            let handle = Handle::current();
            let written = blocking(move || write(&shared, &handle, plan, sender)).await;
            if let Err(error) = written
                && !failed.is_closed()
            {
                tracing::warn!(snapshot = %id, error = &error as &dyn std::error::Error, "could not export a snapshot");
                let _ = failed.send(Err(io::Error::other(error.to_string()))).await;
            }
            drop(alive);
        }));
        Ok(ExportStream { pieces, signer })
    }

    async fn plan_export(
        &self,
        tenant: &TenantId,
        snapshot: Snapshot,
        options: ExportOptions,
        pin: Pin,
        permit: OwnedSemaphorePermit,
    ) -> Result<ExportPlan, EngineError> {
        let shared = &self.shared;
        let kept = match snapshot.dump.as_ref().filter(|_| !options.files_only) {
            // Volumes are not exported, and without them the processes cannot resume.
            Some(_) if !snapshot.spec.volumes.is_empty() => {
                return Err(EngineError::Volumes(VolumeRefusal::NotExported { id: snapshot.id }));
            }
            Some(dump) => Some(dump::open(shared, dump).await?),
            None => None,
        };
        let mut pins = vec![pin];
        let base = match options.since {
            Some(base) => {
                let (base, pin) = self.pinned(tenant, &base.id).await?;
                pins.push(pin);
                Some(base)
            }
            None => None,
        };
        let parts = SnapshotParts {
            about: kept.as_ref().map(|kept| kept.about.runtime.clone()),
            remembers: snapshot.memory.as_ref().is_some_and(|memory| memory.point.is_some()),
            base: base.clone(),
        };
        let header = header::of_snapshot(shared, tenant, &snapshot, parts).await?;
        let disks = &shared.seams.disks;
        let changed = match &base {
            Some(base) => {
                let (old, new) = (Tree::Snapshot(base.id.clone()), Tree::Snapshot(snapshot.id.clone()));
                let comparison = disks.compare(&old, &new, TimeComparison::Count).await?;
                if comparison.more {
                    return Err(EngineError::ExportTooDifferent {
                        id: snapshot.id.clone(),
                        base: base.id.clone(),
                    });
                }
                Some(comparison.paths)
            }
            None => None,
        };
        let root = disks.locate((&snapshot.id).into()).await?;
        let tenant = tenant.clone();
        Ok(ExportPlan { tenant, snapshot, header, root, changed, kept, _pins: pins, _permit: permit })
    }
}

fn write(
    shared: &Arc<Shared>,
    handle: &Handle,
    plan: ExportPlan,
    sender: mpsc::Sender<io::Result<Vec<u8>>>,
) -> Result<(), EngineError> {
    let cancelled = AtomicBool::new(false);
    let out = ChunkWriter { sender, piece: Vec::with_capacity(PIECE_BYTES), cancelled: &cancelled };
    let options = Options { threads: THREADS, level: LEVEL };
    let mut writer = Writer::begin(out, &plan.header, options)?;
    writer.section(Section::Files)?;
    tree::write_out(&mut writer, &plan.root, plan.changed.as_deref(), &cancelled)?;
    if let Some(kept) = &plan.kept {
        writer.section(Section::Processes)?;
        processes::write_out(&mut writer, &kept.images, &kept.about.to_text())?;
    }
    if let Some(memory) = &plan.snapshot.memory
        && let Some(point) = &memory.point
    {
        writer.section(Section::Memory)?;
        memory::write_out(&mut writer, handle, &shared.seams.memory, &memory.space, point)?;
    }
    let mut noted = Ok(());
    let key = shared.policy.moving.key.clone();
    let (summary, mut out) = writer.finish(|identity| {
        // Stored before the receiver can have the whole file: a later export to it may then contain only the differences.
        let catalog = &shared.seams.catalog;
        let text = identity.to_string();
        let note = catalog.note_identity(&plan.tenant, &plan.snapshot.id, &text, shared.now_ms());
        noted = handle.block_on(note).map_err(EngineError::from).and_then(|()| faults::hit("export.noted"));
        key.map(|key| key.sign(identity))
    })?;
    noted?;
    out.flush().map_err(|source| PortableError::Write { source })?;
    let detail = serde_json::json!({
        "snapshot": plan.snapshot.id, "identity": summary.identity.to_string(), "bytes": summary.bytes,
        "incremental": plan.changed.is_some(),
    });
    shared.event(&plan.tenant, "snapshot.exported", Some(&plan.snapshot.sandbox), detail);
    Ok(())
}

/// Passes the written bytes on, in chunks. If the reader is gone, writing ends.
struct ChunkWriter<'c> {
    sender: mpsc::Sender<io::Result<Vec<u8>>>,
    piece: Vec<u8>,
    cancelled: &'c AtomicBool,
}

impl ChunkWriter<'_> {
    fn send_chunk(&mut self) -> io::Result<()> {
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        self.sender.blocking_send(Ok(piece)).map_err(|_| {
            self.cancelled.store(true, Ordering::Relaxed);
            io::ErrorKind::BrokenPipe.into()
        })
    }
}

impl Write for ChunkWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(PIECE_BYTES - self.piece.len());
        self.piece.extend_from_slice(&bytes[..taken]);
        if self.piece.len() == PIECE_BYTES {
            self.send_chunk()?;
        }
        Ok(taken)
    }

    /// Only the end passes on a partial chunk, after the identity was stored.
    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() { Ok(()) } else { self.send_chunk() }
    }
}
