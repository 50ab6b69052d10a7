//! Disks as streams, out and in, by btrfs's own `send` and `receive`.
//!
//! ```text
//!   send:     snapshot read-only into transfer/ ─► `btrfs send` ─► chunks ─► snapshot removed
//!   receive:  chunks ─► `btrfs receive` into transfer/ ─► snapshot into its place ─► what was received removed
//! ```
//!
//! A sandbox is sent as the difference to its image, and a snapshot as the difference to the one before it, so a pool of
//! many sandboxes is little larger than its images. `transfer/` contains the disks of transfers in progress; the next start
//! removes what a crash left there.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;

use tokio::sync::mpsc;

use super::ioctl::{self, Access};
use super::{Folder, Inner};
use crate::command::{command, shown, tail};
use crate::{Chunks, DiskError, DiskId, step};

/// Bytes of a chunk: large enough for speed, small enough to keep a few in RAM.
const CHUNK_BYTES: usize = 1 << 20;

/// Chunks that may wait for their reader.
const CHUNKS_MAX: usize = 4;

/// How much of a failing program's standard error is kept.
const MESSAGE_BYTES_MAX: u64 = 64 << 10;

/// Starts to send a disk in its present state.
pub(super) fn send(inner: &Arc<Inner>, disk: &DiskId, base: Option<&DiskId>) -> Result<Chunks, DiskError> {
    let outgoing = OutgoingDisk::freeze(inner, disk)?;
    let mut program = command("btrfs");
    program.args(["-q", "send"]);
    if let Some(base) = base.and_then(|base| inner.find(base).ok()) {
        program.arg("-p").arg(base);
    }
    program.arg(&outgoing.path).stdout(Stdio::piped()).stderr(Stdio::piped());
    let what = shown(&program);
    let child = program.spawn().map_err(step("start the program", Path::new(&what)))?;
    let (chunks, receiver) = mpsc::channel(CHUNKS_MAX);
    let work = move || {
        // Kept until the last byte is sent.
        let _outgoing = outgoing;
        if let Err(error) = pump(child, &chunks) {
            let _ = chunks.blocking_send(Err(error));
        }
    };
    let thread = std::thread::Builder::new().name("disk-send".to_owned()).spawn(work);
    thread.map_err(step("start a thread for", Path::new(&what)))?;
    Ok(receiver)
}

/// Reads a stream that [`send`] produced and puts the disk in its place. An existing disk is left unchanged.
pub(super) fn receive(
    inner: &Inner,
    disk: DiskId,
    disk_bytes: u64,
    mut chunks: Chunks,
) -> Result<(), DiskError> {
    let name = disk.name();
    inner.remove(&inner.transfer, name)?;
    let mut program = command("btrfs");
    program.args(["-q", "receive"]).arg(&inner.transfer.path).stdin(Stdio::piped()).stderr(Stdio::piped());
    let what = shown(&program);
    let mut child = program.spawn().map_err(step("start the program", Path::new(&what)))?;
    let fed = feed(&mut child, &mut chunks);
    let ended = finish(child).and(fed);
    let placed = ended
        .map_err(step("receive the disk", Path::new(name)))
        .and_then(|()| place(inner, &disk, disk_bytes));
    inner.remove(&inner.transfer, name)?;
    placed
}

fn place(inner: &Inner, disk: &DiskId, disk_bytes: u64) -> Result<(), DiskError> {
    let path = inner.transfer.path.join(disk.name());
    let received = File::open(&path).map_err(step("open the received disk", &path))?;
    if inner.holds(disk) {
        return Ok(());
    }
    let folder = inner.folder(disk);
    match disk {
        DiskId::Sandbox(_) | DiskId::Volume(_) => {
            inner.copy_with_quota(folder, disk, &received, disk_bytes)?
        }
        DiskId::Image(_) | DiskId::Snapshot(_) | DiskId::Frozen(_) | DiskId::VolumeSnapshot(_) => {
            ioctl::snapshot(&folder.directory, disk.name(), &received, Access::ReadOnly, None)
        }
    }
    .map_err(inner.failed("install the disk", &path))
}

/// A disk that does not change during the transfer.
#[derive(Debug)]
struct OutgoingDisk {
    inner: Arc<Inner>,
    path: PathBuf,
    /// The snapshot to remove afterwards; images and snapshots need none.
    snapshot: Option<String>,
}

impl OutgoingDisk {
    fn freeze(inner: &Arc<Inner>, disk: &DiskId) -> Result<Self, DiskError> {
        let (inner, path) = (Arc::clone(inner), inner.find(disk)?);
        match disk {
            DiskId::Sandbox(_) | DiskId::Volume(_) => Self::copy(inner, &path, disk.name()),
            // No copy: a later disk that is sent as a difference to it must refer to this very disk.
            DiskId::Image(_) | DiskId::Snapshot(_) | DiskId::Frozen(_) | DiskId::VolumeSnapshot(_) => {
                Ok(Self { path, inner, snapshot: None })
            }
        }
    }

    /// A snapshot of a disk that may be written to during the transfer.
    fn copy(inner: Arc<Inner>, source: &Path, name: &str) -> Result<Self, DiskError> {
        inner.remove(&inner.transfer, name)?;
        let opened = File::open(source).map_err(step("open the disk", source))?;
        ioctl::snapshot(&inner.transfer.directory, name, &opened, Access::ReadOnly, None)
            .map_err(inner.failed("freeze the disk", source))?;
        let path = inner.transfer.path.join(name);
        Ok(Self { inner, path, snapshot: Some(name.to_owned()) })
    }
}

impl Drop for OutgoingDisk {
    fn drop(&mut self) {
        if let Some(name) = &self.snapshot
            && let Err(error) = self.inner.remove(&self.inner.transfer, name)
        {
            tracing::warn!(
                disk = name,
                error = &error as &dyn std::error::Error,
                "could not remove a sent snapshot"
            );
        }
    }
}

impl Inner {
    /// Removes what a crash left in a folder of temporary disks.
    pub(super) fn sweep(&self, folder: &Folder) -> Result<(), DiskError> {
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
            // The receiver has stopped reading.
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

/// Waits for the program's end; the error contains the program's message.
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
    /// The names of all subvolumes here.
    fn names(&self) -> Result<Vec<String>, DiskError> {
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
