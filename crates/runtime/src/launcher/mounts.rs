//! What a machine sees besides its own files: `/proc`, `/sys`, terminals, shared memory, and volumes.
//!
//! Every target is opened beneath the root, following no link, and mounted on by descriptor: a link put where `/proc`
//! belongs makes the machine fail to start, it does not move the mount. All mounts are of kinds that a dump can take
//! and a restore can make again; covers are bind mounts of the sandbox's own files rather than file systems, of which
//! each would cost a dump some milliseconds.

#![expect(unsafe_code, reason = "mount_setattr has no safe interface")]

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::ptr;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, makedev, open, openat2};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};

use super::message::{At as _, Failure, MountPlan, Plan};

/// Terminals of one sandbox. The agent bounds its own; this bounds programs that open `/dev/ptmx` themselves.
const TERMINALS_MAX: &str = "1024";

/// Files that tell about, or act on, the whole host: reading finds nothing, writing does nothing.
///
/// Only names that every boot of the same kernel has: a dump names its mounts, and could not be restored where one of
/// these files is missing. That is why `/proc/mdstat`, which comes and goes with a module, is not here.
const COVERED_FILES: [&str; 16] = [
    "proc/cmdline",
    "proc/bootconfig",
    "proc/partitions",
    "proc/diskstats",
    "proc/swaps",
    "proc/kcore",
    "proc/keys",
    "proc/key-users",
    "proc/kallsyms",
    "proc/kmsg",
    "proc/timer_list",
    "proc/latency_stats",
    "proc/sched_debug",
    "proc/interrupts",
    "proc/sysrq-trigger",
    "proc/kpagecount",
];

/// Directories of the same kind.
const COVERED_DIRECTORIES: [&str; 12] = [
    "proc/acpi",
    "proc/asound",
    "proc/scsi",
    // One directory per mounted file system, named by its disk.
    "proc/fs",
    // Any process may write a trigger there, each of which costs the host a timer. It also shows the load of the host.
    "proc/pressure",
    "sys/block",
    "sys/class/block",
    "sys/dev",
    "sys/firmware",
    "sys/kernel/debug",
    "sys/kernel/tracing",
    "sys/kernel/security",
];

/// Directories that are shown in part.
///
/// Below `/sys/devices` are the host's disks, their serial numbers and the files behind its loop devices; below `/sys/fs`
/// the quotas of all sandboxes and the names of mounted disks. Which directories there are differs from host to host, and
/// changes with each device that is plugged in, so a list of what to hide would be neither complete nor the same at the
/// restore of a dump. Programs need the processors, the RAM banks and their own network interfaces.
const SHOWN_IN_PART: [Partial; 2] = [
    Partial { path: "sys/devices", substitute: ".burrow/sys/devices", shown: &["system", "virtual/net"] },
    // `/sys/fs/cgroup` is an empty directory in both.
    Partial { path: "sys/fs", substitute: ".burrow/sys/fs", shown: &[] },
];

/// May be read, not written.
const READ_ONLY: [&str; 3] = ["proc/sys", "proc/bus", "proc/irq"];

struct Partial {
    path: &'static str,
    /// A directory of the sandbox's own files that takes its place, with empty directories where the shown ones go.
    substitute: &'static str,
    shown: &'static [&'static str],
}

const HARMLESS: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOSUID
    .union(MountAttrFlags::MOUNT_ATTR_NOEXEC)
    .union(MountAttrFlags::MOUNT_ATTR_NODEV);

pub(super) fn mount_all(root: BorrowedFd<'_>, shm_bytes: u64) -> Result<(), Failure> {
    let shm = shm_bytes.to_string();
    let no_devices = HARMLESS.difference(MountAttrFlags::MOUNT_ATTR_NODEV);
    let terminals = [("ptmxmode", "0666"), ("mode", "0620"), ("gid", "5"), ("max", TERMINALS_MAX)];
    file_system(root, "proc", "proc", &[], HARMLESS).at("mount `/proc`")?;
    file_system(root, "sys", "sysfs", &[], HARMLESS | MountAttrFlags::MOUNT_ATTR_RDONLY)
        .at("mount `/sys`")?;
    file_system(root, "dev/pts", "devpts", &terminals, no_devices).at("mount `/dev/pts`")?;
    file_system(root, "dev/shm", "tmpfs", &[("mode", "1777"), ("size", &shm)], HARMLESS)
        .at("mount `/dev/shm`")?;

    let meminfo = open_beneath(root, ".burrow/meminfo").at("open the agent's meminfo")?;
    cover(root, "proc/meminfo", meminfo.as_fd()).at("cover `/proc/meminfo`")?;
    let null = open_beneath(root, "dev/null").at("open `/dev/null`")?;
    check_null(null.as_fd()).at("check `/dev/null`")?;
    for path in COVERED_FILES {
        cover(root, path, null.as_fd()).at("cover a file of `/proc`")?;
    }
    let empty = open_beneath(root, ".burrow/empty").at("open the empty directory")?;
    for path in COVERED_DIRECTORIES {
        cover(root, path, empty.as_fd()).at("cover a directory of `/proc` or `/sys`")?;
    }
    for partial in SHOWN_IN_PART {
        show_in_part(root, &partial).at("cover a part of `/sys`")?;
    }
    for path in READ_ONLY {
        read_only(root, path).at("make a directory of `/proc` read-only")?;
    }
    // Last: the read-only `/proc/sys` lies over what was mounted there before.
    let boot_id = open_beneath(root, ".burrow/boot_id").at("open the sandbox's boot id")?;
    cover(root, "proc/sys/kernel/random/boot_id", boot_id.as_fd()).at("cover the boot id")
}

/// The files of a machine, as mounts that are in no place yet.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) root: OwnedFd,
    pub(super) volumes: Vec<OwnedFd>,
}

impl Files {
    /// Binds them as the host's root, who alone gets to them and may map their owners. `ids` is a user namespace that maps
    /// those that are on disk to those of the machine.
    pub(super) fn bind(plan: &Plan, ids: Option<BorrowedFd<'_>>) -> Result<Self, Failure> {
        let root = open_again(&plan.root, plan.root_identity, ["open the root directory", ROOT_GONE])?;
        let root = bind_mapped(root.as_fd(), ids).at("bind the root directory")?;
        let bind_volume = |plan: &MountPlan| {
            let source = open_again(&plan.source, plan.source_identity, ["open a volume", VOLUME_GONE])?;
            let mount = bind_mapped(source.as_fd(), ids).at("bind a volume")?;
            set_access(mount.as_fd(), plan.read_only).at("say who may write to a volume")?;
            Ok(mount)
        };
        let volumes = plan.mounts.iter().map(bind_volume).collect::<Result<_, Failure>>()?;
        Ok(Self { root, volumes })
    }
}

const ROOT_GONE: &str = "find the root directory again";
const VOLUME_GONE: &str = "find a volume again";

/// Opens a directory that must still be the one that was meant.
fn open_again(path: &Path, identity: (u64, u64), steps: [&str; 2]) -> Result<OwnedFd, Failure> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = open(path, flags, Mode::empty()).at(steps[0])?;
    let stat = fstat(&directory).at(steps[1])?;
    match (stat.st_dev, stat.st_ino) == identity {
        true => Ok(directory),
        false => Err(Failure { step: steps[1].to_owned(), errno: libc::ESTALE }),
    }
}

/// Puts them in their places, which follow no link either.
pub(super) fn attach_volumes(
    root: BorrowedFd<'_>,
    plans: &[MountPlan],
    volumes: &[OwnedFd],
) -> Result<(), Failure> {
    for (plan, volume) in plans.iter().zip(volumes) {
        let target = open_beneath(root, &plan.target).at("open a volume's place")?;
        attach(volume, &target).at("mount a volume")?;
    }
    Ok(())
}

/// Mounts a new file system on a directory.
fn file_system(
    root: BorrowedFd<'_>,
    path: &str,
    kind: &str,
    options: &[(&str, &str)],
    attributes: MountAttrFlags,
) -> io::Result<()> {
    let target = open_beneath(root, path)?;
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    // Shown in the first column of `mount`.
    fsconfig_set_string(&context, "source", kind)?;
    for (name, value) in options {
        fsconfig_set_string(&context, *name, *value)?;
    }
    fsconfig_create(&context)?;
    let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    attach(&mount, &target)
}

/// Binds `source` over what is at `path`; nothing to do where the kernel has no such thing.
fn cover(root: BorrowedFd<'_>, path: &str, source: BorrowedFd<'_>) -> io::Result<()> {
    let Some(target) = if_there(open_beneath(root, path))? else { return Ok(()) };
    attach(&bind(source)?, &target)
}

/// Puts the substitute over a directory, and what is to be shown of the directory into the substitute.
fn show_in_part(root: BorrowedFd<'_>, partial: &Partial) -> io::Result<()> {
    let place = |name: &str| format!("{}/{name}", partial.path);
    let mut shown = Vec::with_capacity(partial.shown.len());
    for name in partial.shown {
        if let Some(directory) = if_there(open_beneath(root, &place(name)))? {
            shown.push((name, bind(directory.as_fd())?));
        }
    }
    let substitute = open_beneath(root, partial.substitute)?;
    cover(root, partial.path, substitute.as_fd())?;
    for (name, mount) in shown {
        attach(&mount, &open_beneath(root, &place(name))?)?;
    }
    Ok(())
}

fn read_only(root: BorrowedFd<'_>, path: &str) -> io::Result<()> {
    let Some(target) = if_there(open_beneath(root, path))? else { return Ok(()) };
    let mount = bind(target.as_fd())?;
    set_read_only(&mount)?;
    attach(&mount, &target)
}

pub(crate) fn open_beneath(root: BorrowedFd<'_>, path: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(root, path, flags, Mode::empty(), resolve)
}

fn if_there(opened: rustix::io::Result<OwnedFd>) -> io::Result<Option<OwnedFd>> {
    match opened {
        Ok(target) => Ok(Some(target)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn bind(source: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    Ok(open_tree(source, "", flags)?)
}

/// The same with other owners: `ids` is a user namespace that maps those on disk to those that are seen. What is mounted
/// or unmounted later where it comes from, or in it, is seen at neither by the other.
pub(crate) fn bind_mapped(source: BorrowedFd<'_>, ids: Option<BorrowedFd<'_>>) -> io::Result<OwnedFd> {
    let mount = bind(source)?;
    let mapping = ids.map(|ids| MountAttributes::mapping(ids.as_raw_fd()));
    let unmapped = MountAttributes { set: 0, clear: 0, propagation: 0, user_namespace: 0 };
    let attributes = mapping.unwrap_or(unmapped);
    MountAttributes { propagation: libc::MS_PRIVATE, ..attributes }.apply(mount.as_fd())?;
    Ok(mount)
}

pub(crate) fn attach(mount: &OwnedFd, target: &OwnedFd) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(mount, "", target, "", flags)?)
}

/// What covers the host's secrets must be the device that holds nothing.
fn check_null(null: BorrowedFd<'_>) -> io::Result<()> {
    let stat = fstat(null)?;
    let is_null =
        FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == makedev(1, 3);
    if is_null { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ENODEV)) }
}

/// The kernel's flag for mounts that map owners.
const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;

/// `struct mount_attr` of the kernel.
#[repr(C)]
pub(crate) struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

impl MountAttributes {
    /// Of a mount that maps owners by a user namespace.
    pub(crate) fn mapping(ids: libc::c_int) -> Self {
        let user_namespace = u64::from(ids.cast_unsigned());
        Self { set: MOUNT_ATTR_IDMAP, clear: 0, propagation: 0, user_namespace }
    }

    fn apply(&self, mount: BorrowedFd<'_>) -> io::Result<()> {
        match self.apply_raw(mount.as_raw_fd()) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// By system call alone; answers with -1 for a failure.
    pub(crate) fn apply_raw(&self, mount: libc::c_int) -> libc::c_long {
        // SAFETY: the path is empty and static, and the structure lives and is as large as said; the kernel only reads.
        unsafe {
            libc::syscall(
                libc::SYS_mount_setattr,
                mount,
                c"".as_ptr(),
                libc::AT_EMPTY_PATH,
                ptr::from_ref(self),
                size_of::<Self>(),
            )
        }
    }
}

pub(super) fn set_read_only(mount: &OwnedFd) -> io::Result<()> {
    set_attributes(mount.as_fd(), MountAttrFlags::MOUNT_ATTR_RDONLY, MountAttrFlags::empty())
}

/// What a volume's mount is: programs there run, but no file gives anybody more rights, and no device is one.
pub(crate) fn set_access(mount: BorrowedFd<'_>, read_only: bool) -> io::Result<()> {
    let harmless = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let write = MountAttrFlags::MOUNT_ATTR_RDONLY;
    match read_only {
        true => set_attributes(mount, harmless | write, MountAttrFlags::empty()),
        false => set_attributes(mount, harmless, write),
    }
}

fn set_attributes(mount: BorrowedFd<'_>, set: MountAttrFlags, clear: MountAttrFlags) -> io::Result<()> {
    let (set, clear) = (u64::from(set.bits()), u64::from(clear.bits()));
    MountAttributes { set, clear, propagation: 0, user_namespace: 0 }.apply(mount)
}
