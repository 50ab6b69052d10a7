//! A machine's disk: a file with an ext4 file system, in the sandbox's directory.
//!
//! The host creates it from a tree of files, grows it, and passes it to the emulator as a descriptor. The host never
//! mounts it: its content is controlled by the guest, and a hostile file system could exploit the host's kernel.
//!
//! In the tree, owners are shifted, as containers need them. The program that creates the file system runs in a user
//! namespace in which owners, access control lists and file capabilities have their values inside. So the program needs
//! no privileges on the host either.

#![expect(unsafe_code, reason = "what a child does before its program starts cannot be checked")]

use std::fs::{File, Permissions};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{PermissionsExt as _, fchown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use burrow_network::linux::UID_BASE;
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};

/// The name of the file.
pub const NAME: &str = "disk.raw";

const MIB: u64 = 1 << 20;

/// Search path for system programs, whatever the daemon's own environment contains.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Bytes of the program's error output that are kept.
const MESSAGE_BYTES_MAX: usize = 500;

/// Additional space beyond the files: for the file system itself, and to boot. A machine's disk grows to its limit.
const SPARE_MIB: u64 = 64;

/// Space of an entry besides its content: its inode, its name, its share of the tables.
const ENTRY_BYTES: u64 = 1024;

const BLOCK_BYTES: u64 = 4096;

/// As [`make`], with a disk just large enough for the tree.
pub fn make_fitting(tree: &Path, into: &Path) -> io::Result<PathBuf> {
    let bytes = needed(tree)?;
    // A twentieth more for the tables.
    let mib = (bytes + bytes / 20).div_ceil(MIB) + SPARE_MIB;
    make(tree, into, u32::try_from(mib).map_err(io::Error::other)?)
}

fn needed(directory: &Path) -> io::Result<u64> {
    let mut bytes = 0u64;
    let mut left = vec![directory.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            // Metadata of the entry itself; links are not followed.
            let about = entry.metadata()?;
            bytes += ENTRY_BYTES + about.len().div_ceil(BLOCK_BYTES) * BLOCK_BYTES;
            if about.is_dir() {
                left.push(entry.path());
            }
        }
    }
    Ok(bytes)
}

/// Creates the disk of a machine from a tree of files, in the directory `into`. Blocks, for seconds if the tree is
/// large.
pub fn make(tree: &Path, into: &Path, disk_mib: u32) -> io::Result<PathBuf> {
    let path = into.join(NAME);
    let disk = File::options().read(true).write(true).create_new(true).open(&path)?;
    disk.set_len(u64::from(disk_mib) * MIB)?;
    let made = burrow_network::linux::user_namespace().and_then(|user| {
        // The program opens the file by path. Afterwards only the host's root owns it again.
        fchown(&disk, Some(UID_BASE), Some(UID_BASE))?;
        fill(tree, &disk, user)?;
        fchown(&disk, Some(0), Some(0))?;
        disk.set_permissions(Permissions::from_mode(0o600))
    });
    if let Err(error) = made {
        let _ = std::fs::remove_file(&path);
        return Err(error);
    }
    Ok(path)
}

fn fill(tree: &Path, disk: &File, user: OwnedFd) -> io::Result<()> {
    let program = find("mkfs.ext4").ok_or_else(|| {
        io::Error::new(io::ErrorKind::NotFound, "there is no `mkfs.ext4`: install the package `e2fsprogs`")
    })?;
    let (user, disk) = (user.as_raw_fd(), disk.as_raw_fd());
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", SEARCH_PATH)
        // Entered before dropping privileges; the parent directories are closed to other users.
        .current_dir(tree)
        // No blocks are reserved for root, who is the normal user here. Blocks that are already zero are not written.
        // The usual file system type, however small the disk is: it will grow.
        .args([
            "-q",
            "-F",
            "-T",
            "default",
            "-b",
            "4096",
            "-m",
            "0",
            "-E",
            "lazy_itable_init=1,lazy_journal_init=1,nodiscard",
            "-d",
            ".",
        ])
        .arg(format!("/proc/self/fd/{disk}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    // SAFETY: system calls on numbers only: no lock, no allocation. Both descriptors outlive the call.
    unsafe {
        command.pre_exec(move || {
            let inside = [
                libc::syscall(libc::SYS_setns, user, libc::CLONE_NEWUSER),
                libc::syscall(libc::SYS_setresgid, 0, 0, 0),
                libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()),
                libc::syscall(libc::SYS_setresuid, 0, 0, 0),
                libc::syscall(libc::SYS_fcntl, disk, libc::F_SETFD, 0),
            ];
            if inside.iter().any(|result| *result < 0) { Err(io::Error::last_os_error()) } else { Ok(()) }
        });
    }
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said: String = said.trim().chars().take(MESSAGE_BYTES_MAX).collect();
    Err(io::Error::other(format!("`mkfs.ext4` failed ({}): {said}", output.status)))
}

/// The disk in a sandbox's directory, opened without following links.
pub(super) fn open(root: &Path, writable: bool) -> io::Result<File> {
    let directory = openat(
        CWD,
        root,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let mode = if writable { OFlags::RDWR } else { OFlags::RDONLY };
    let flags = mode | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let disk = openat(&directory, NAME, flags, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&disk)?.st_mode).is_file() {
        return Ok(disk.into());
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "the disk is not a regular file"))
}

/// The size in whole mebibytes.
pub(super) fn size_mib(disk: &File) -> io::Result<u32> {
    u32::try_from(disk.metadata()?.len() / MIB).map_err(io::Error::other)
}

fn find(program: &str) -> Option<PathBuf> {
    SEARCH_PATH.split(':').map(|folder| Path::new(folder).join(program)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    /// Output of `debugfs`, which reads the file without the kernel.
    fn debugfs(disk: &Path, request: &str) -> String {
        let output = Command::new("debugfs").args(["-R", request]).arg(disk).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    #[test]
    fn owners_bits_and_capabilities_are_as_inside_also_below_a_closed_directory() {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let tree = directory.path().join("tree");
        fs::create_dir(&tree).unwrap();
        fs::create_dir(tree.join("home")).unwrap();
        fs::write(tree.join("home/file"), "text").unwrap();
        fs::write(tree.join("sudo"), "").unwrap();
        fs::write(tree.join("ping"), "").unwrap();
        symlink("/etc/passwd", tree.join("link")).unwrap();
        for name in ["", "sudo", "ping", "home"] {
            chown(tree.join(name), Some(UID_BASE), Some(UID_BASE)).unwrap();
        }
        chown(tree.join("home/file"), Some(UID_BASE + 1000), Some(UID_BASE + 7)).unwrap();
        fs::set_permissions(tree.join("home/file"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(tree.join("sudo"), fs::Permissions::from_mode(0o4755)).unwrap();
        // `cap_net_raw=ep` in the form that is valid in the sandbox's namespace only.
        let words = [0x0300_0001_u32, 1 << 13, 0, 0, 0, UID_BASE];
        let value: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(tree.join("ping"), "security.capability", &value, flags).unwrap();

        let disk = make(&tree, directory.path(), 16).unwrap();
        assert_eq!(size_mib(&open(directory.path(), true).unwrap()).unwrap(), 16);
        let file = debugfs(&disk, "stat /home/file");
        assert!(file.contains("User:  1000   Group:     7") && file.contains("Mode:  0600"), "{file}");
        assert_eq!(debugfs(&disk, "cat /home/file"), "text");
        let sudo = debugfs(&disk, "stat /sudo");
        assert!(sudo.contains("Mode:  04755") && sudo.contains("User:     0"), "{sudo}");
        assert!(debugfs(&disk, "stat /link").contains("/etc/passwd"));
        let ping = debugfs(&disk, "ea_get -x /ping security.capability").replace(' ', "");
        // In the form that is valid everywhere: a microVM has no user namespace around it.
        assert!(ping.contains("0100000200200000"), "{ping}");
        assert!(make(&tree, directory.path(), 16).is_err(), "an existing disk is not overwritten");
    }

    #[test]
    fn a_tree_that_does_not_fit_leaves_no_disk() {
        let directory = tempfile::tempdir().unwrap();
        let tree = directory.path().join("tree");
        fs::create_dir(&tree).unwrap();
        fs::write(tree.join("large"), vec![1; 8 << 20]).unwrap();
        chown(tree.join("large"), Some(UID_BASE), Some(UID_BASE)).unwrap();
        let error = make(&tree, directory.path(), 4).unwrap_err();
        assert!(error.to_string().starts_with("`mkfs.ext4` failed"), "{error}");
        assert!(!directory.path().join(NAME).exists());
    }

    #[test]
    fn only_a_regular_file_is_accepted_as_a_disk() {
        let directory = tempfile::tempdir().unwrap();
        assert!(open(directory.path(), true).is_err());
        fs::write(directory.path().join("precious"), "").unwrap();
        symlink(directory.path().join("precious"), directory.path().join(NAME)).unwrap();
        assert!(open(directory.path(), true).is_err());
        fs::remove_file(directory.path().join(NAME)).unwrap();
        fs::create_dir(directory.path().join(NAME)).unwrap();
        assert!(open(directory.path(), true).is_err());
    }
}
