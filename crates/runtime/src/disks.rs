//! Disks that the host does not look into, read in a machine that is thrown away.
//!
//! The file system on a disk was written by whoever ran on it. A kernel that mounts it may fall over, or be taken over; so
//! the kernel is one of a machine that has nothing but these disks, and what it answers is believed as little as any
//! guest's: names are checked and numbers bounded here, content is in the hands of [`burrow_trees::carry`].

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use async_trait::async_trait;
use burrow_trees::survey::Survey;

use crate::RuntimeError;

/// Disks that one machine reads at once: three sides of a merge, and one to spare.
pub const DISKS_MAX: usize = 4;

#[derive(Clone, Debug)]
pub struct OpenDisks {
    /// At most [`DISKS_MAX`]; they are numbered in this order.
    pub disks: Vec<DiskOf>,
    /// A directory on the file system that holds the disks, for copies of them that have no name.
    pub scratch: PathBuf,
}

#[derive(Clone, Debug)]
pub struct DiskOf {
    /// The directory that holds the disk, which nobody writes to meanwhile.
    pub root: PathBuf,
    /// The disk itself is changed; else a copy is read, as it is after its journal was replayed.
    pub writable: bool,
}

/// Reads what a machine sends.
pub type Take = Box<dyn FnOnce(&mut dyn Read) -> io::Result<()> + Send>;

/// Writes what a machine receives.
pub type Give = Box<dyn FnOnce(&mut dyn Write) -> io::Result<()> + Send>;

/// Which names of a disk.
#[derive(Clone, Debug)]
pub enum Names {
    All,
    These(BTreeSet<Vec<u8>>),
}

/// A machine that reads disks. It ends when this is dropped; [`Self::close`] waits for that. After a failure, or a call that
/// was given up, it is of no more use.
#[async_trait]
pub trait Disks: fmt::Debug + Send {
    /// Names at which two disks differ.
    async fn changes(&mut self, old: usize, new: usize) -> Result<Survey, RuntimeError>;

    /// Has `take` read names of a disk, as [`burrow_trees::carry::send`] writes them. It runs where it may block.
    async fn copy_out(&mut self, disk: usize, names: Names, take: Take) -> Result<(), RuntimeError>;

    /// Does to a writable disk what `give` writes, as [`burrow_trees::carry::send_actions`] does; it is on the disk
    /// afterwards. After a failure some of it may have been done.
    async fn apply(&mut self, disk: usize, give: Give) -> Result<(), RuntimeError>;

    async fn close(self: Box<Self>) -> Result<(), RuntimeError>;
}
