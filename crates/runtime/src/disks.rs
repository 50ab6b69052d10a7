//! Disks that the host does not parse, and that a temporary machine reads.
//!
//! The guest controls the file system on a disk. It could crash or exploit a kernel that mounts it. So the kernel of a
//! machine that has nothing but these disks reads it, and its answers are as untrusted as any guest's: names are
//! checked and numbers limited here, content is handled by [`burrow_trees::carry`].

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use async_trait::async_trait;
use burrow_trees::survey::Survey;

use crate::error::RuntimeError;

/// Disks that one machine reads at once: three sides of a merge, and one spare.
pub const DISKS_MAX: usize = 4;

#[derive(Clone, Debug)]
pub struct OpenDisks {
    /// At most [`DISKS_MAX`]; they are numbered in this order.
    pub disks: Vec<DiskSpec>,
    /// A directory on the file system of the disks, for unnamed copies of them.
    pub scratch: PathBuf,
}

#[derive(Clone, Debug)]
pub struct DiskSpec {
    /// The directory with the disk, which nothing may write to meanwhile.
    pub root: PathBuf,
    /// The disk itself is changed; otherwise a copy is read, after its journal was replayed.
    pub writable: bool,
}

/// Reads what a machine sends.
pub type ReceiveFn = Box<dyn FnOnce(&mut dyn Read) -> io::Result<()> + Send>;

/// Writes what a machine receives.
pub type SendFn = Box<dyn FnOnce(&mut dyn Write) -> io::Result<()> + Send>;

/// Which names of a disk to read.
#[derive(Clone, Debug)]
pub enum Names {
    All,
    These(BTreeSet<Vec<u8>>),
}

/// A machine that reads disks. It ends when this is dropped; [`Self::close`] waits for that. After a failure, or a
/// cancelled call, it is unusable.
#[async_trait]
pub trait DiskAccess: fmt::Debug + Send {
    /// The names at which two disks differ.
    async fn changes(&mut self, old: usize, new: usize) -> Result<Survey, RuntimeError>;

    /// Makes `take` read names of a disk, in the format of [`burrow_trees::carry::send`], on a thread that may block.
    async fn copy_out(&mut self, disk: usize, names: Names, take: ReceiveFn) -> Result<(), RuntimeError>;

    /// Applies the changes that `give` writes to a writable disk, as [`burrow_trees::carry::send_actions`] does; they
    /// are on the disk afterwards. A failure may leave some of them applied.
    async fn apply(&mut self, disk: usize, give: SendFn) -> Result<(), RuntimeError>;

    async fn close(self: Box<Self>) -> Result<(), RuntimeError>;
}
