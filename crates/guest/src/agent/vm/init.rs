//! From the first program of the kernel to a root file system like a container's.
//!
//! Runs in the initial file system: this program as `/init`, the kernel's modules in `/modules`, and empty
//! directories. Everything on the disk was written by processes inside the machine; whatever it may cause here, those
//! processes could do to their own machine anyway.

#![expect(unsafe_code, reason = "loading a module, and ending the machine, have no safe interface")]

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::Path;
use std::time::Duration;

use rustix::mount::{MountFlags, mount, mount_bind, mount_move, mount_remount};
use rustix::process::{Resource, Rlimit};

use super::failure::{AtStep as _, Failure};

const DISK: &str = "/dev/vda";
const ROOT: &str = "/root";
const AGENT: &str = ".burrow/guest";
const COMMAND: &str = "/usr/local/bin/burrow-memory";

/// The same as in containers.
const OPEN_FILES_SOFT: u64 = 65_536;
const OPEN_FILES_HARD: u64 = 1 << 20;

/// A device exists when its driver is loaded; in an emulated machine on a busy host a little later.
const DEVICE_LOOKS: u32 = 3000;
const DEVICE_LOOK_EVERY: Duration = Duration::from_millis(5);

const HARMLESS: MountFlags = MountFlags::NOSUID.union(MountFlags::NOEXEC).union(MountFlags::NODEV);

pub(super) fn prepare() -> Result<(), Failure> {
    prepare_bare()?;
    mount_disk()?;
    switch_root()?;
    populate_dev()?;
    let limit = Rlimit { current: Some(OPEN_FILES_SOFT), maximum: Some(OPEN_FILES_HARD) };
    rustix::process::setrlimit(Resource::Nofile, limit).at("limit open files")
}

/// A kernel with its devices, but without a disk.
pub(super) fn prepare_bare() -> Result<(), Failure> {
    mount("devtmpfs", "/dev", "devtmpfs", MountFlags::NOSUID, c"mode=0755").at("mount `/dev`")?;
    mount("proc", "/proc", "proc", HARMLESS, None).at("mount `/proc`")?;
    mount("sysfs", "/sys", "sysfs", HARMLESS, None).at("mount `/sys`")?;
    load_modules()
}

/// Writes to the kernel's log, which the host shows if a machine does not boot.
pub(super) fn tell(message: &str) {
    if let Ok(mut log) = File::options().write(true).open("/dev/kmsg") {
        let _ = log.write_all(format!("<2>burrow: {message}\n").as_bytes());
    }
}

pub(super) fn reboot() -> ! {
    rustix::fs::sync();
    // If a file system is still in use, it is synced at least.
    let _ = mount_remount("/", MountFlags::RDONLY, c"");
    // SAFETY: ends the machine; takes a number.
    unsafe { libc::reboot(libc::RB_AUTOBOOT) };
    // Not permitted, so this is not a microVM.
    std::process::exit(1)
}

/// Repeats until `found` returns a value.
pub(super) fn await_device<T>(mut found: impl FnMut() -> Option<T>) -> Option<T> {
    for _ in 0..DEVICE_LOOKS {
        if let Some(found) = found() {
            return Some(found);
        }
        std::thread::sleep(DEVICE_LOOK_EVERY);
    }
    None
}

fn load_modules() -> Result<(), Failure> {
    let order = fs::read_to_string("/modules/order").at("read the list of modules")?;
    for name in order.lines() {
        let file = File::open(Path::new("/modules").join(name)).at("open a module")?;
        // SAFETY: the descriptor is open, the parameters are an empty string that lives, and no flag is set.
        let result = unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), c"".as_ptr(), 0) };
        if result < 0 {
            let error = io::Error::last_os_error();
            return Err(Failure::of(&format!("load the module `{name}`"), &error));
        }
    }
    // The kernel has loaded them.
    let _ = fs::remove_dir_all("/modules");
    Ok(())
}

fn mount_disk() -> Result<(), Failure> {
    let found = await_device(|| Path::new(DISK).exists().then_some(()));
    found.ok_or_else(|| Failure::new("find the disk", "there is none"))?;
    mount(DISK, ROOT, "ext4", MountFlags::empty(), c"discard").at("mount the disk")?;
    for (name, mode) in
        [("dev", 0o755), ("proc", 0o555), ("sys", 0o555), ("tmp", 0o1777), ("run", 0o755), (".burrow", 0o755)]
    {
        let path = Path::new(ROOT).join(name);
        if fs::symlink_metadata(&path).is_err() {
            // If the disk is full, the mounts below fail with a precise error.
            let _ = fs::DirBuilder::new().mode(mode).create(&path);
            let _ = fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode));
        }
    }
    show_agent();
    Ok(())
}

/// This program stays in RAM, where a full or damaged disk does not affect it, and is mounted at the same path as in
/// containers.
fn show_agent() {
    let place = Path::new(ROOT).join(AGENT);
    if fs::symlink_metadata(&place).is_err() {
        let _ = File::create(&place);
    }
    let _ = mount_bind("/init", &place);
}

fn switch_root() -> Result<(), Failure> {
    for name in ["dev", "proc", "sys"] {
        mount_move(format!("/{name}"), Path::new(ROOT).join(name)).at("move a mount to the disk")?;
    }
    rustix::process::chdir(ROOT).at("enter the disk")?;
    mount_move(".", "/").at("make the disk the root")?;
    rustix::process::chroot(".").at("change the root")?;
    rustix::process::chdir("/").at("enter the root")
}

/// Device files that the kernel does not create itself.
fn populate_dev() -> Result<(), Failure> {
    for (name, mode) in [("/dev/pts", 0o755), ("/dev/shm", 0o1777)] {
        let _ = fs::DirBuilder::new().mode(mode).create(name);
    }
    let terminals = c"ptmxmode=0666,mode=0620,gid=5";
    mount("devpts", "/dev/pts", "devpts", MountFlags::NOSUID | MountFlags::NOEXEC, terminals)
        .at("mount `/dev/pts`")?;
    // The kernel's default size is half of the RAM.
    mount("tmpfs", "/dev/shm", "tmpfs", HARMLESS, c"mode=1777").at("mount `/dev/shm`")?;
    for (name, target) in [
        ("/dev/fd", "/proc/self/fd"),
        ("/dev/stdin", "/proc/self/fd/0"),
        ("/dev/stdout", "/proc/self/fd/1"),
        ("/dev/stderr", "/proc/self/fd/2"),
    ] {
        let _ = symlink(target, name);
    }
    if fs::symlink_metadata(COMMAND).is_err() {
        // In an image without the usual directories the command is missing.
        let _ = symlink(format!("/{AGENT}"), COMMAND);
    }
    Ok(())
}
