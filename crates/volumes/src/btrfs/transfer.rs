//! Volumes as streams, out and in, by btrfs's own `send` and `receive`.
//!
//! ```text
//!   send:     snapshot read-only into transfer/ ─► `btrfs send` ─► chunks ─► snapshot removed
//!   receive:  chunks ─► `btrfs receive` into transfer/ ─► snapshot into its place ─► what was received removed
//! ```
//!
//! A sandbox is sent as its difference to its image, a snapshot as that to the one before it, so a pool of many sandboxes is
//! little more than its images. What is in `transfer/` belongs to a transfer under way; what a crash leaves there is removed at the next start.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;

use tokio::sync::mpsc;

use super::ioctl::{self, Access};
use super::{Folder, Inner};
use crate::command::{command, shown, tail};
use crate::{Chunks, VolumeError, VolumeId, step};

/// Bytes of a chunk: large enough for speed, small enough to hold a few.
const CHUNK_BYTES: usize = 1 << 20;

/// Chunks that may wait for their reader.
const CHUNKS_MAX: usize = 4;

/// What a failing program may say on standard error before it is cut.
const MESSAGE_BYTES_MAX: u64 = 64 << 10;

/// Begins to send a volume as it is at this moment.
pub(super) fn send(inner: &Arc<Inner>, volume: &VolumeId) -> Result<Chunks, VolumeError> {
    let outgoing = Outgoing::freeze(inner, volume)?;
    let mut program = command("btrfs");
    program.args(["-q", "send"]);
    if let Some(base) = base(inner, volume) {
        program.arg("-p").arg(base);
    }
    program.arg(&outgoing.path).stdout(Stdio::piped()).stderr(Stdio::piped());
    let what = shown(&program);
    let child = program.spawn().map_err(step("start the program", Path::new(&what)))?;
    let (chunks, receiver) = mpsc::channel(CHUNKS_MAX);
    let work = move || {
        // Held until the last byte is out.
        let _outgoing = outgoing;
        if let Err(error) = pump(child, &chunks) {
            let _ = chunks.blocking_send(Err(error));
        }
    };
    let thread = std::thread::Builder::new().name("volume-send".to_owned()).spawn(work);
    thread.map_err(step("start a thread for", Path::new(&what)))?;
    Ok(receiver)
}

/// What a volume is sent as the difference to.
fn base(inner: &Inner, volume: &VolumeId) -> Option<PathBuf> {
    let held = |folder: &Folder, name: &str| folder.holds(name).then(|| folder.path.join(name));
    match volume {
        VolumeId::Image(_) | VolumeId::Shelf(_) | VolumeId::ShelfSnapshot(_) => None,
        VolumeId::Sandbox { image, .. } => held(&inner.images, image.as_str()),
        VolumeId::Snapshot { image, parent, .. } => parent
            .as_ref()
            .and_then(|parent| held(&inner.snapshots, parent.as_str()))
            .or_else(|| held(&inner.images, image.as_str())),
    }
}

/// Reads a stream made by [`send`] and puts the volume in its place. A volume that is there already stays as it is.
pub(super) fn receive(
    inner: &Inner,
    volume: &VolumeId,
    disk_bytes: u64,
    mut chunks: Chunks,
) -> Result<(), VolumeError> {
    let name = volume.name();
    inner.remove(&inner.transfer, name)?;
    let mut program = command("btrfs");
    program.args(["-q", "receive"]).arg(&inner.transfer.path).stdin(Stdio::piped()).stderr(Stdio::piped());
    let what = shown(&program);
    let mut child = program.spawn().map_err(step("start the program", Path::new(&what)))?;
    let fed = feed(&mut child, &mut chunks);
    let ended = finish(child).and(fed);
    let placed = ended
        .map_err(step("receive the volume", Path::new(name)))
        .and_then(|()| place(inner, volume, disk_bytes));
    inner.remove(&inner.transfer, name)?;
    placed
}

fn place(inner: &Inner, volume: &VolumeId, disk_bytes: u64) -> Result<(), VolumeError> {
    let path = inner.transfer.path.join(volume.name());
    let received = File::open(&path).map_err(step("open the received volume", &path))?;
    match volume {
        VolumeId::Image(id) if inner.images.holds(id.as_str()) => Ok(()),
        VolumeId::Image(id) => {
            ioctl::snapshot(&inner.images.directory, id.as_str(), &received, Access::ReadOnly, None)
                .map_err(inner.failed("put in place the image", &path))
        }
        VolumeId::Sandbox { id, .. } if inner.sandboxes.holds(id.as_str()) => Ok(()),
        VolumeId::Sandbox { id, .. } => inner
            .quotas
            .with_group(&inner.pool.directory, id, disk_bytes, |group| {
                ioctl::snapshot(&inner.sandboxes.directory, id.as_str(), &received, Access::Writable, group)
            })
            .map(|()| inner.note_base(&inner.sandboxes, id))
            .map_err(inner.failed("put in place the volume", &path)),
        VolumeId::Snapshot { id, .. } if inner.snapshots.holds(id.as_str()) => Ok(()),
        VolumeId::Snapshot { id, .. } => {
            ioctl::snapshot(&inner.snapshots.directory, id.as_str(), &received, Access::ReadOnly, None)
                .map_err(inner.failed("put in place the snapshot", &path))
        }
        VolumeId::Shelf(id) if inner.shelves.holds(id.as_str()) => Ok(()),
        VolumeId::Shelf(id) => inner
            .quotas
            .with_group(&inner.pool.directory, id, disk_bytes, |group| {
                ioctl::snapshot(&inner.shelves.directory, id.as_str(), &received, Access::Writable, group)
            })
            .map_err(inner.failed("put in place the volume", &path)),
        VolumeId::ShelfSnapshot(id) if inner.shelf_snapshots.holds(id.as_str()) => Ok(()),
        VolumeId::ShelfSnapshot(id) => {
            ioctl::snapshot(&inner.shelf_snapshots.directory, id.as_str(), &received, Access::ReadOnly, None)
                .map_err(inner.failed("put in place the snapshot", &path))
        }
    }
}

/// A volume that does not change while it is sent.
#[derive(Debug)]
struct Outgoing {
    inner: Arc<Inner>,
    path: PathBuf,
    /// The snapshot to remove afterwards; images and snapshots are sent as they are.
    snapshot: Option<String>,
}

impl Outgoing {
    fn freeze(inner: &Arc<Inner>, volume: &VolumeId) -> Result<Self, VolumeError> {
        let inner = Arc::clone(inner);
        match volume {
            VolumeId::Image(id) if inner.images.holds(id.as_str()) => {
                Ok(Self { path: inner.images.path.join(id.as_str()), inner, snapshot: None })
            }
            VolumeId::Image(id) => Err(VolumeError::ImageNotFound { image: id.clone() }),
            VolumeId::Sandbox { id, .. } if inner.sandboxes.holds(id.as_str()) => {
                let source = inner.sandboxes.path.join(id.as_str());
                Self::copy(inner, &source, id.as_str())
            }
            VolumeId::Sandbox { id, .. } => Err(VolumeError::NotFound { id: id.clone() }),
            // As it is: what is sent as a difference to it later must find this very volume.
            VolumeId::Snapshot { id, .. } if inner.snapshots.holds(id.as_str()) => {
                Ok(Self { path: inner.snapshots.path.join(id.as_str()), inner, snapshot: None })
            }
            VolumeId::Snapshot { id, .. } => Err(VolumeError::SnapshotNotFound { snapshot: id.clone() }),
            VolumeId::Shelf(id) if inner.shelves.holds(id.as_str()) => {
                let source = inner.shelves.path.join(id.as_str());
                Self::copy(inner, &source, id.as_str())
            }
            VolumeId::Shelf(id) => Err(VolumeError::ShelfNotFound { shelf: id.clone() }),
            VolumeId::ShelfSnapshot(id) if inner.shelf_snapshots.holds(id.as_str()) => {
                Ok(Self { path: inner.shelf_snapshots.path.join(id.as_str()), inner, snapshot: None })
            }
            VolumeId::ShelfSnapshot(id) => Err(VolumeError::ShelfSnapshotNotFound { snapshot: id.clone() }),
        }
    }

    /// Of one that somebody may write to meanwhile.
    fn copy(inner: Arc<Inner>, source: &Path, name: &str) -> Result<Self, VolumeError> {
        inner.remove(&inner.transfer, name)?;
        let opened = File::open(source).map_err(step("open the volume", source))?;
        ioctl::snapshot(&inner.transfer.directory, name, &opened, Access::ReadOnly, None)
            .map_err(inner.failed("freeze the volume", source))?;
        let path = inner.transfer.path.join(name);
        Ok(Self { inner, path, snapshot: Some(name.to_owned()) })
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        if let Some(name) = &self.snapshot
            && let Err(error) = self.inner.remove(&self.inner.transfer, name)
        {
            tracing::warn!(
                volume = name,
                error = &error as &dyn std::error::Error,
                "could not remove a sent snapshot"
            );
        }
    }
}

impl Inner {
    /// Removes what a crash left in a folder whose volumes live for one call.
    pub(super) fn sweep(&self, folder: &Folder) -> Result<(), VolumeError> {
        for name in folder.names()? {
            self.remove(folder, &name)?;
        }
        Ok(())
    }
}

fn pump(mut child: Child, chunks: &mpsc::Sender<io::Result<Vec<u8>>>) -> io::Result<()> {
    let mut output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    loop {
        let mut chunk = Vec::with_capacity(CHUNK_BYTES);
        let read = (&mut output).take(CHUNK_BYTES as u64).read_to_end(&mut chunk)?;
        if read == 0 {
            return finish(child);
        }
        if chunks.blocking_send(Ok(chunk)).is_err() {
            // Nobody reads any more.
            child.kill()?;
            child.wait()?;
            return Ok(());
        }
    }
}

fn feed(child: &mut Child, chunks: &mut Chunks) -> io::Result<()> {
    let mut input = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
    while let Some(chunk) = chunks.blocking_recv() {
        input.write_all(&chunk?)?;
    }
    Ok(())
}

/// Waits for the program's end; a failure carries its own words.
fn finish(mut child: Child) -> io::Result<()> {
    let mut said = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        stderr.take(MESSAGE_BYTES_MAX).read_to_end(&mut said)?;
    }
    let status = child.wait()?;
    if status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&said);
    Err(io::Error::other(format!("{} ({status})", tail(&said))))
}

impl Folder {
    /// Every subvolume here, whatever it is called.
    fn names(&self) -> Result<Vec<String>, VolumeError> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path).map_err(step("list", &self.path))? {
            let name = entry.map_err(step("list", &self.path))?.file_name();
            if let Some(name) = name.to_str()
                && self.holds(name)
            {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }
}
