//! The mounts of a machine besides its own files: `/proc`, `/sys`, terminals, shared memory, and volumes.
//!
//! Every mount point is opened beneath the root, without following links, and mounted on by descriptor: if a link is
//! put in place of `/proc`, the machine fails to start, and the mount is not redirected. All mounts are of kinds that
//! CRIU can dump and restore. Files are hidden by bind mounts of the sandbox's own files instead of new file systems,
//! each of which would cost a dump some milliseconds.

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

use super::message::{AtStep as _, Failure, MountPlan, Plan};

/// Terminals of one sandbox. The agent limits its own; this limits programs that open `/dev/ptmx` themselves.
const TERMINALS_MAX: &str = "1024";

/// Files that show information about the whole host, or affect it: they read as empty, and writes have no effect.
///
/// Only names that exist on every boot of the same kernel: a dump contains the names of its mounts, and could not be
/// restored if one of these files were missing. Therefore `/proc/mdstat`, which depends on a module, is not here.
const HIDDEN_FILES: [&str; 16] = [
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
const HIDDEN_DIRECTORIES: [&str; 12] = [
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

/// Directories that are partly hidden.
///
/// Below `/sys/devices` are the host's disks, their serial numbers and the files behind its loop devices; below
/// `/sys/fs` the quotas of all sandboxes and the names of mounted disks. The directories differ from host to host, and
/// change with each device that is plugged in, so a list of hidden directories would be neither complete nor the same
/// at the restore of a dump. Programs need the processors, the RAM banks and their own network interfaces.
const PARTLY_HIDDEN: [PartlyHiddenDirectory; 2] = [
    PartlyHiddenDirectory {
        path: "sys/devices",
        substitute: ".burrow/sys/devices",
        shown: &["system", "virtual/net"],
    },
    // `/sys/fs/cgroup` is an empty directory in both.
    PartlyHiddenDirectory { path: "sys/fs", substitute: ".burrow/sys/fs", shown: &[] },
];

/// Read-only.
const READ_ONLY: [&str; 3] = ["proc/sys", "proc/bus", "proc/irq"];

struct PartlyHiddenDirectory {
    path: &'static str,
    /// A directory of the sandbox's own files that is mounted over it, with empty directories as mount points for the
    /// visible ones.
    substitute: &'static str,
    shown: &'static [&'static str],
}

const RESTRICTED: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOSUID
    .union(MountAttrFlags::MOUNT_ATTR_NOEXEC)
    .union(MountAttrFlags::MOUNT_ATTR_NODEV);

pub(super) fn mount_all(root: BorrowedFd<'_>, shm_bytes: u64) -> Result<(), Failure> {
    let shm = shm_bytes.to_string();
    let no_devices = RESTRICTED.difference(MountAttrFlags::MOUNT_ATTR_NODEV);
    let terminals = [("ptmxmode", "0666"), ("mode", "0620"), ("gid", "5"), ("max", TERMINALS_MAX)];
    file_system(root, "proc", "proc", &[], RESTRICTED).at("mount `/proc`")?;
    file_system(root, "sys", "sysfs", &[], RESTRICTED | MountAttrFlags::MOUNT_ATTR_RDONLY)
        .at("mount `/sys`")?;
    file_system(root, "dev/pts", "devpts", &terminals, no_devices).at("mount `/dev/pts`")?;
    file_system(root, "dev/shm", "tmpfs", &[("mode", "1777"), ("size", &shm)], RESTRICTED)
        .at("mount `/dev/shm`")?;

    let meminfo = open_beneath(root, ".burrow/meminfo").at("open the agent's meminfo")?;
    mount_over(root, "proc/meminfo", meminfo.as_fd()).at("hide `/proc/meminfo`")?;
    let null = open_beneath(root, "dev/null").at("open `/dev/null`")?;
    check_null(null.as_fd()).at("check `/dev/null`")?;
    for path in HIDDEN_FILES {
        mount_over(root, path, null.as_fd()).at("hide a file of `/proc`")?;
    }
    let empty = open_beneath(root, ".burrow/empty").at("open the empty directory")?;
    for path in HIDDEN_DIRECTORIES {
        mount_over(root, path, empty.as_fd()).at("hide a directory of `/proc` or `/sys`")?;
    }
    for partial in PARTLY_HIDDEN {
        hide_partly(root, &partial).at("hide a part of `/sys`")?;
    }
    for path in READ_ONLY {
        read_only(root, path).at("make a directory of `/proc` read-only")?;
    }
    // Last: the read-only `/proc/sys` hides earlier mounts below it.
    let boot_id = open_beneath(root, ".burrow/boot_id").at("open the sandbox's boot id")?;
    mount_over(root, "proc/sys/kernel/random/boot_id", boot_id.as_fd()).at("hide the boot id")
}

/// The files of a machine, as detached mounts.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) root: OwnedFd,
    pub(super) volumes: Vec<OwnedFd>,
}

impl Files {
    /// Creates the mounts as the host's root, the only user that can access the files and map their owners. `ids` is a
    /// user namespace that maps the ids on disk to those of the machine.
    pub(super) fn bind(plan: &Plan, ids: Option<BorrowedFd<'_>>) -> Result<Self, Failure> {
        let root = open_again(&plan.root, plan.root_identity, ["open the root directory", ROOT_GONE])?;
        let root = bind_mapped(root.as_fd(), ids).at("bind the root directory")?;
        let bind_volume = |plan: &MountPlan| {
            let source = open_again(&plan.source, plan.source_identity, ["open a volume", VOLUME_GONE])?;
            let mount = bind_mapped(source.as_fd(), ids).at("bind a volume")?;
            set_access(mount.as_fd(), plan.read_only).at("set the access mode of a volume")?;
            Ok(mount)
        };
        let volumes = plan.mounts.iter().map(bind_volume).collect::<Result<_, Failure>>()?;
        Ok(Self { root, volumes })
    }
}

const ROOT_GONE: &str = "find the same root directory again";
const VOLUME_GONE: &str = "find a volume again";

/// Opens a directory and checks that it is still the expected one.
fn open_again(path: &Path, identity: (u64, u64), steps: [&str; 2]) -> Result<OwnedFd, Failure> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = open(path, flags, Mode::empty()).at(steps[0])?;
    let stat = fstat(&directory).at(steps[1])?;
    match (stat.st_dev, stat.st_ino) == identity {
        true => Ok(directory),
        false => Err(Failure { step: steps[1].to_owned(), errno: libc::ESTALE }),
    }
}

/// Attaches the volumes at their mount points, without following links.
pub(super) fn attach_volumes(
    root: BorrowedFd<'_>,
    plans: &[MountPlan],
    volumes: &[OwnedFd],
) -> Result<(), Failure> {
    for (plan, volume) in plans.iter().zip(volumes) {
        let target = open_beneath(root, &plan.target).at("open a volume's mount point")?;
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

/// Mounts `source` over `path`; no effect if the kernel has no such file.
fn mount_over(root: BorrowedFd<'_>, path: &str, source: BorrowedFd<'_>) -> io::Result<()> {
    let Some(target) = if_exists(open_beneath(root, path))? else { return Ok(()) };
    attach(&bind(source)?, &target)
}

/// Mounts the substitute over a directory, and the visible parts of the directory into the substitute.
fn hide_partly(root: BorrowedFd<'_>, partial: &PartlyHiddenDirectory) -> io::Result<()> {
    let place = |name: &str| format!("{}/{name}", partial.path);
    let mut shown = Vec::with_capacity(partial.shown.len());
    for name in partial.shown {
        if let Some(directory) = if_exists(open_beneath(root, &place(name)))? {
            shown.push((name, bind(directory.as_fd())?));
        }
    }
    let substitute = open_beneath(root, partial.substitute)?;
    mount_over(root, partial.path, substitute.as_fd())?;
    for (name, mount) in shown {
        attach(&mount, &open_beneath(root, &place(name))?)?;
    }
    Ok(())
}

fn read_only(root: BorrowedFd<'_>, path: &str) -> io::Result<()> {
    let Some(target) = if_exists(open_beneath(root, path))? else { return Ok(()) };
    let mount = bind(target.as_fd())?;
    set_read_only(&mount)?;
    attach(&mount, &target)
}

pub(crate) fn open_beneath(root: BorrowedFd<'_>, path: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(root, path, flags, Mode::empty(), resolve)
}

fn if_exists(opened: rustix::io::Result<OwnedFd>) -> io::Result<Option<OwnedFd>> {
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

/// The same with other owners: `ids` is a user namespace that maps the ids on disk to the visible ones. Later mounts
/// and unmounts at the source do not affect this mount, and vice versa.
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

/// Checks that the file mounted over the host's files is the null device.
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

    /// By a direct system call; returns -1 on failure.
    pub(crate) fn apply_raw(&self, mount: libc::c_int) -> libc::c_long {
        // SAFETY: the path is empty and static, and the structure is valid and has the given size; the kernel only
        // reads it.
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

/// The attributes of a volume's mount: programs can run there, but set-user-id bits and device files have no effect.
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
