//! Finds or creates the file system for the disks.
//!
//! A pool is an existing directory on btrfs, or a sparse file that this module creates, formats, attaches to a loop device
//! and mounts. The file is formatted under a temporary name and renamed when it is complete, so a crash cannot
//! leave an incomplete pool. The mount outlives the daemon, as the sandboxes do: the next start finds it.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags};

use super::{backing, ioctl};
use crate::command::{command, run};
use crate::dump::Disk;
use crate::{DiskError, step};

/// `statfs` type of btrfs.
const BTRFS_MAGIC: u64 = 0x9123_683e;

/// `discard` returns deleted space to the host's disk; asynchronously, because sandboxes must not wait for that.
/// `commit`: space freed by a sandbox at its limit is available to it after the next commit, by default every 30 s.
const MOUNT_OPTIONS: &std::ffi::CStr = c"discard=async,commit=5";

/// Attempts to get a loop device: another program may take the free one before this one does.
const LOOP_TRIES_MAX: u32 = 32;

/// The smallest pool that `mkfs.btrfs` and a few images fit in.
pub const POOL_BYTES_MIN: u64 = 256 << 20;

/// Where the pool is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolSource {
    /// An existing directory on btrfs. Nothing is mounted.
    Directory(PathBuf),
    /// A sparse file, created if it does not exist. It starts smaller and grows as it fills, up to `size_bytes`.
    LoopFile { file: PathBuf, size_bytes: u64 },
}

/// What to open.
#[derive(Clone, Debug)]
pub struct Options {
    pub pool: PoolSource,
    /// Where the loop file is mounted; unused for a directory.
    pub mount: PathBuf,
}

/// An open pool: its root directory, and its file if it is loop-backed.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) root: PathBuf,
    pub(super) directory: File,
    pub(super) file: Option<PathBuf>,
    /// How large the file may grow.
    pub(super) size_bytes_max: u64,
}

impl Pool {
    pub(super) fn open(options: &Options) -> Result<Self, DiskError> {
        let (root, file, size_bytes_max) = match &options.pool {
            PoolSource::Directory(directory) => (directory.clone(), None, 0),
            PoolSource::LoopFile { file, size_bytes } => {
                open_loop_file(file, *size_bytes, &options.mount)?;
                (options.mount.clone(), Some(file.clone()), *size_bytes)
            }
        };
        let directory = File::open(&root).map_err(step("open the pool", &root))?;
        let kind =
            rustix::fs::fstatfs(&directory).map_err(|error| step("inspect the pool", &root)(error.into()))?;
        if kind.f_type as u64 != BTRFS_MAGIC {
            return Err(DiskError::NotBtrfs { filesystem: filesystem_name(&root), pool: root });
        }
        Ok(Self { root, directory, file, size_bytes_max })
    }

    /// Makes the file `size_bytes` long, and resizes the file system to it. Slow (seconds on a busy pool).
    pub(super) fn grow(&self, size_bytes: u64) -> Result<(), DiskError> {
        let Some(path) = &self.file else { return Ok(()) };
        let file = OpenOptions::new().write(true).open(path).map_err(step("open the pool's file", path))?;
        let size = file.metadata().map_err(step("inspect the pool's file", path))?.len();
        if size < size_bytes {
            file.set_len(size_bytes).map_err(step("grow the pool's file", path))?;
            file.sync_all().map_err(step("grow the pool's file", path))?;
        }
        // Also if the file has the size already: an earlier attempt may have ended between these steps.
        let Some(device) = mounted_from(&self.root)? else { return Ok(()) };
        let device_file = File::open(&device).map_err(step("open the loop device", &device))?;
        ioctl::refresh_loop_capacity(device_file).map_err(step("grow the loop device", &device))?;
        ioctl::resize_to_device(&self.directory).map_err(step("grow the file system", &self.root))
    }

    /// Shrinks the file system and then its file to `size_bytes`. Data beyond that end is moved first, so this can take
    /// long, and it fails if the data does not fit.
    pub(super) fn shrink(&self, size_bytes: u64) -> Result<(), DiskError> {
        let Some(path) = &self.file else { return Ok(()) };
        let Some(device) = mounted_from(&self.root)? else { return Ok(()) };
        ioctl::resize_to(&self.directory, size_bytes).map_err(step("shrink the file system", &self.root))?;
        // The file may be cut only once the smaller size is on disk.
        ioctl::commit(&self.directory).map_err(step("shrink the file system", &self.root))?;
        let file = OpenOptions::new().write(true).open(path).map_err(step("open the pool's file", path))?;
        file.set_len(size_bytes).map_err(step("shrink the pool's file", path))?;
        let device_file = File::open(&device).map_err(step("open the loop device", &device))?;
        ioctl::refresh_loop_capacity(device_file).map_err(step("shrink the loop device", &device))
    }

    /// Unmounts a loop-backed pool; its loop device is released with the last mount.
    pub(super) fn unmount(&self) -> Result<(), DiskError> {
        if self.file.is_none() || mounted_from(&self.root)?.is_none() {
            return Ok(());
        }
        rustix::mount::unmount(&self.root, UnmountFlags::DETACH)
            .map_err(|error| step("unmount the pool", &self.root)(error.into()))
    }
}

/// Dumps are flushed file by file and made durable by one commit.
impl Disk for Pool {
    fn flush(&self, file: &File) -> io::Result<()> {
        ioctl::flush(file)
    }

    fn commit(&self) -> io::Result<()> {
        ioctl::commit(&self.directory)
    }

    /// With nothing left to write, this only checks whether a write has failed.
    fn check(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }
}

/// Creates the file and the mount, whichever is missing.
fn open_loop_file(file: &Path, size_bytes: u64, mount: &Path) -> Result<(), DiskError> {
    if let Some(device) = mounted_from(mount)? {
        check_backing_file(&device, file, mount)?;
        match File::open(&device) {
            Ok(opened) => bypass_page_cache(&opened, file),
            Err(error) => tracing::debug!(device = %device.display(), %error, "could not open a loop device"),
        }
        return Ok(());
    }
    if !file.exists() {
        format(file, backing::first_size_on_disk(file, size_bytes)?)?;
    }
    // Only root may enter: the files inside that are setuid, or belong to a uid of this host, must be out of reach.
    DirBuilder::new().recursive(true).mode(0o700).create(mount).map_err(step("make the directory", mount))?;
    let device = attach(file)?;
    rustix::mount::mount(&device.path, mount, "btrfs", MountFlags::NOATIME, MOUNT_OPTIONS)
        .map_err(|error| step("mount the pool", mount)(error.into()))?;
    fs::set_permissions(mount, Permissions::from_mode(0o700)).map_err(step("close the pool to others", mount))
}

/// Creates a sparse, formatted file that appears under its name when it is complete.
fn format(file: &Path, size_bytes: u64) -> Result<(), DiskError> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(step("make the directory", folder))?;
    let unfinished = file.with_extension("unfinished");
    let handle = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&unfinished)
        .map_err(step("make the pool's file", &unfinished))?;
    handle.set_len(size_bytes).map_err(step("make the pool's file", &unfinished))?;
    // One copy of the metadata, not two: both copies would be on the same disk, and every commit would write both.
    run(command("mkfs.btrfs")
        .args(["--quiet", "--label", "burrow", "--metadata", "single"])
        .arg(&unfinished))?;
    handle.sync_all().map_err(step("save the pool's file", &unfinished))?;
    fs::rename(&unfinished, file).map_err(step("rename the pool's file", &unfinished))?;
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(step("save the directory", folder))
}

/// Keeps the pool out of the page cache of the file system that its file is on. Otherwise all data would be in RAM twice,
/// evicted data would stay there, and a commit would have to write data that btrfs had passed on long before. Not
/// every file system supports this; a pool works without it.
fn bypass_page_cache(device: &File, file: &Path) {
    if let Err(error) = ioctl::bypass_page_cache(device) {
        tracing::info!(pool = %file.display(), %error, "the pool is cached twice: its file takes no direct input and output");
    }
}

/// A loop device, held open until it is mounted.
struct LoopDevice {
    path: PathBuf,
    _device: File,
}

fn attach(file: &Path) -> Result<LoopDevice, DiskError> {
    let backing =
        OpenOptions::new().read(true).write(true).open(file).map_err(step("open the pool's file", file))?;
    let control = Path::new("/dev/loop-control");
    let control_file = File::open(control).map_err(step("open the loop devices", control))?;
    for _ in 0..LOOP_TRIES_MAX {
        let number =
            ioctl::free_loop_device(&control_file).map_err(step("find a free loop device", control))?;
        let path = PathBuf::from(format!("/dev/loop{number}"));
        let device = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(step("open the loop device", &path))?;
        match ioctl::configure_loop(&device, &backing) {
            Ok(()) => {
                bypass_page_cache(&device, file);
                return Ok(LoopDevice { path, _device: device });
            }
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
            Err(error) => return Err(step("attach the pool's file", file)(error)),
        }
    }
    Err(step("attach the pool's file", file)(io::ErrorKind::ResourceBusy.into()))
}

/// The device of the last mount on exactly `mount`, if there is one.
pub(super) fn mounted_from(mount: &Path) -> Result<Option<PathBuf>, DiskError> {
    let table = Path::new("/proc/self/mountinfo");
    let text = fs::read_to_string(table).map_err(step("read", table))?;
    // `36 35 7:0 / /mnt rw,noatime - btrfs /dev/loop0 rw`: the fifth field is the mount point, the source follows ` - `.
    let mount = fs::canonicalize(mount).unwrap_or_else(|_| mount.to_owned());
    let wanted = escaped(&mount.to_string_lossy());
    let line = text.lines().rfind(|line| line.split(' ').nth(4) == Some(&wanted));
    Ok(line.and_then(|line| line.split_once(" - ")?.1.split(' ').nth(1)).map(PathBuf::from))
}

/// A path as the mount table shows it.
fn escaped(path: &str) -> String {
    path.replace('\\', "\\134").replace(' ', "\\040").replace('\t', "\\011").replace('\n', "\\012")
}

/// Refuses a mount of anything but this pool's file.
fn check_backing_file(device: &Path, file: &Path, mount: &Path) -> Result<(), DiskError> {
    let name = device.file_name().unwrap_or_default();
    let shown = Path::new("/sys/block").join(name).join("loop/backing_file");
    let backing = fs::read_to_string(&shown).unwrap_or_default();
    let file = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    if Path::new(backing.trim_end_matches('\n')) == file {
        return Ok(());
    }
    Err(DiskError::MountTaken { mount: mount.to_owned(), device: device.to_owned() })
}

/// The name of the file system that a path is on, for messages.
fn filesystem_name(path: &Path) -> String {
    let Ok(text) = fs::read_to_string("/proc/self/mountinfo") else { return "an unknown file system".into() };
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let best = text
        .lines()
        .filter_map(|line| Some((line.split(' ').nth(4)?, line.split_once(" - ")?.1.split(' ').next()?)))
        .filter(|(mount, _)| path.starts_with(mount))
        .max_by_key(|(mount, _)| mount.len());
    best.map_or_else(|| "an unknown file system".into(), |(_, kind)| kind.to_owned())
}
