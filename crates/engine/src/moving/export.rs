//! A snapshot out of this host, as a stream.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use burrow_model::{Snapshot, SnapshotId, TenantId};
use burrow_portable::{Header, Options, PortableError, Section, Writer};
use burrow_volumes::{ChangedPath, Times, Tree};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::header::{self, Parts};
use super::{ExportOptions, blocking, processes, remembered, tree};
use crate::dump::{self, Kept};
use crate::pins::Pin;
use crate::shared::Shared;
use crate::{Engine, EngineError, faults};

/// Bytes of a piece of the stream, and pieces that may wait for their reader.
const PIECE_BYTES: usize = 256 << 10;
const PIECES_MAX: usize = 8;

/// Threads that compress, as many as a small host has; and how hard they try: what takes no longer than reading.
const THREADS: usize = 2;
const LEVEL: i32 = 1;

/// A snapshot that is being exported.
#[derive(Debug)]
pub struct Exporting {
    /// The file, piece by piece. An error ends it; so does the end.
    pub pieces: mpsc::Receiver<io::Result<Vec<u8>>>,
    /// Which key signs it.
    pub signer: Option<String>,
}

/// All that is needed, looked at before the first byte is answered.
struct Plan {
    tenant: TenantId,
    snapshot: Snapshot,
    header: Header,
    root: PathBuf,
    changed: Option<Vec<ChangedPath>>,
    kept: Option<Kept>,
    _pins: Vec<Pin>,
    _permit: OwnedSemaphorePermit,
}

impl Engine {
    /// Begins to export a snapshot. It cannot be removed before the stream ends or is dropped.
    pub async fn export_snapshot(
        &self,
        tenant: &TenantId,
        id: &SnapshotId,
        options: ExportOptions,
    ) -> Result<Exporting, EngineError> {
        let permit = self.shared.moving.0.clone().acquire_owned().await;
        let permit = permit.map_err(|_| EngineError::ShuttingDown)?;
        let (snapshot, pin) = self.pinned(tenant, id).await?;
        let plan = self.plan_export(tenant, snapshot, options, pin, permit).await?;
        faults::hit("export.begun")?;
        let (sender, pieces) = mpsc::channel(PIECES_MAX);
        let signer = self.shared.policy.moving.key.as_ref().map(|key| key.public().to_string());
        let (shared, alive) = (self.shared.clone(), self.shared.sign_of_life());
        tokio::spawn(async move {
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
        });
        Ok(Exporting { pieces, signer })
    }

    async fn plan_export(
        &self,
        tenant: &TenantId,
        snapshot: Snapshot,
        options: ExportOptions,
        pin: Pin,
        permit: OwnedSemaphorePermit,
    ) -> Result<Plan, EngineError> {
        let shared = &self.shared;
        let kept = match snapshot.dump.as_ref().filter(|_| !options.files_only) {
            // Volumes stay here, and where they are missing the processes cannot go on.
            Some(_) if !snapshot.spec.volumes.is_empty() => {
                return Err(EngineError::VolumesStay { id: snapshot.id });
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
        let parts = Parts {
            about: kept.as_ref().map(|kept| kept.about.runtime.clone()),
            remembers: snapshot.memory.as_ref().is_some_and(|memory| memory.point.is_some()),
            base: base.clone(),
        };
        let header = header::of_snapshot(shared, tenant, &snapshot, parts).await?;
        let volumes = &shared.seams.volumes;
        let changed = match &base {
            Some(base) => {
                let (old, new) = (Tree::Snapshot(base.id.clone()), Tree::Snapshot(snapshot.id.clone()));
                let comparison = volumes.compare(&old, &new, Times::Count).await?;
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
        let root = volumes.locate_snapshot(&snapshot.id).await?;
        let tenant = tenant.clone();
        Ok(Plan { tenant, snapshot, header, root, changed, kept, _pins: pins, _permit: permit })
    }
}

fn write(
    shared: &Arc<Shared>,
    handle: &Handle,
    plan: Plan,
    sender: mpsc::Sender<io::Result<Vec<u8>>>,
) -> Result<(), EngineError> {
    let cancelled = AtomicBool::new(false);
    let out = Pieces { sender, piece: Vec::with_capacity(PIECE_BYTES), cancelled: &cancelled };
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
        remembered::write_out(&mut writer, handle, &shared.seams.memory, &memory.space, point)?;
    }
    let mut noted = Ok(());
    let key = shared.policy.moving.key.clone();
    let (summary, mut out) = writer.finish(|identity| {
        // Before the receiver can have it: whoever has it may then be sent no more than what differs from it.
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

/// Passes on what is written, in pieces. A reader that has gone ends the writing.
struct Pieces<'c> {
    sender: mpsc::Sender<io::Result<Vec<u8>>>,
    piece: Vec<u8>,
    cancelled: &'c AtomicBool,
}

impl Pieces<'_> {
    fn pass_on(&mut self) -> io::Result<()> {
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        self.sender.blocking_send(Ok(piece)).map_err(|_| {
            self.cancelled.store(true, Ordering::Relaxed);
            io::ErrorKind::BrokenPipe.into()
        })
    }
}

impl Write for Pieces<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(PIECE_BYTES - self.piece.len());
        self.piece.extend_from_slice(&bytes[..taken]);
        if self.piece.len() == PIECE_BYTES {
            self.pass_on()?;
        }
        Ok(taken)
    }

    /// Only the end passes on what is less than a piece, and only once all that must be noted is.
    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() { Ok(()) } else { self.pass_on() }
    }
}
