//! Gives a copy of a sandbox its own identity: replaces what distinguishes one machine from another.
//!
//! ```text
//!   /etc/machine-id, /var/lib/dbus/machine-id   random
//!   /etc/mcp-gateway/.token                     removed: it gives access to the original sandbox
//!   /etc/ssh/ssh_host_*                         removed; created again by `ssh-keygen -A` where it is installed
//!   /etc/hostname, /etc/hosts                   the new name, if the old one was written by the host; the old one
//!                                               still resolves, see [`burrow_trees::hosts`]
//! ```
//!
//! The agent itself holds no random state that matters: it reads ids and the like from the kernel each time.
//!
//! All other processes may be frozen meanwhile, so nothing here waits for an existing process. Files are replaced by
//! renaming: whatever a process left in their place (a link, a FIFO) is neither followed nor opened. A full disk is
//! not an error: an identity that cannot be replaced is removed.

use std::fmt::Write as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use burrow_trees::hosts::{self, FormerNames};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::DumpableBehavior;

use super::Agent;
use super::failure::{fail, invalid, refused};
use super::{exec, random};
use crate::protocol::{ErrorCode, RequestError};

/// A larger hosts file was not written by the host.
const HOSTS_BYTES_MAX: usize = 64 * 1024;
const HOSTNAME_BYTES_MAX: usize = 256;

/// The kernel's limit for host names.
const HOSTNAME_CHARS_MAX: usize = 64;

/// A directory of keys contains some dozen entries; a larger one is not processed.
const KEY_ENTRIES_MAX: usize = 10_000;

/// `ssh-keygen` takes most of a second for an RSA key, and many sandboxes may create theirs at once.
const KEYGEN_WAIT_MAX: Duration = Duration::from_secs(10);

/// Takes a new identity. With `None` the name stays: a runtime driver that boots a machine has set it.
pub(super) async fn renew(agent: &Rc<Agent>, hostname: Option<String>) -> Result<(), RequestError> {
    if let Some(name) = &hostname {
        check_hostname(name)?;
    }
    // As at boot; a machine restored from a dump may have lost it.
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let renewed = tokio::task::spawn_blocking(move || renew_files(Path::new("/"), hostname.as_deref()));
    let had_keys = renewed
        .await
        .unwrap_or_else(|_| Err(fail(ErrorCode::Internal, "the disk operation was interrupted")))?;
    if had_keys {
        // If the program is missing or fails, there are no keys, and software that needs them creates them.
        exec::run_quietly(agent, &["ssh-keygen", "-A"], KEYGEN_WAIT_MAX).await;
    }
    Ok(())
}

fn check_hostname(name: &str) -> Result<(), RequestError> {
    let fits = !name.is_empty() && name.len() <= HOSTNAME_CHARS_MAX;
    if fits && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.') {
        return Ok(());
    }
    Err(invalid(format_args!("`{name}` is not a valid host name")))
}

/// Replaces the files. Returns whether there were SSH host keys. `root` is `/` except in tests.
fn renew_files(root: &Path, hostname: Option<&str>) -> Result<bool, RequestError> {
    let id = new_machine_id();
    let etc = open_directory(CWD, &root.join("etc")).map_err(|errno| refused("open", "/etc", errno))?;
    let Some(etc) = etc else { return Ok(false) };
    renew_machine_id(etc.as_fd(), &id).map_err(|errno| refused("replace", "/etc/machine-id", errno))?;
    let dbus = open_directory(CWD, &root.join("var/lib/dbus"))
        .map_err(|errno| refused("open", "/var/lib/dbus", errno))?;
    // Usually a link to the other file, otherwise a copy.
    if let Some(dbus) = dbus
        && is_regular(dbus.as_fd(), "machine-id")
    {
        renew_machine_id(dbus.as_fd(), &id)
            .map_err(|errno| refused("replace", "/var/lib/dbus/machine-id", errno))?;
    }
    if let Some(hostname) = hostname {
        // A wrong name in a file is inconvenient, but not a risk.
        let _ = rename_machine(etc.as_fd(), hostname);
    }
    remove_mcp_token(etc.as_fd())
        .map_err(|errno| refused("remove the token in", "/etc/mcp-gateway", errno))?;
    remove_host_keys(etc.as_fd()).map_err(|errno| refused("remove the host keys in", "/etc/ssh", errno))
}

/// The token of the MCP address gives access to the sandbox it was created for, so a copy must not have it.
fn remove_mcp_token(etc: BorrowedFd<'_>) -> Result<(), Errno> {
    let Some(directory) = open_directory(etc, Path::new("mcp-gateway"))? else { return Ok(()) };
    match rustix::fs::unlinkat(&directory, ".token", AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT | Errno::ISDIR) => Ok(()),
        Err(errno) => Err(errno),
    }
}

fn new_machine_id() -> String {
    let mut random = [0; 16];
    random::fill_random(&mut random);
    // A UUID of version 4, as `machine-id(5)` requires.
    random[6] = (random[6] & 0x0f) | 0x40;
    random[8] = (random[8] & 0x3f) | 0x80;
    let mut text = String::with_capacity(33);
    for byte in random {
        write!(text, "{byte:02x}").expect("a string takes all that is written to it");
    }
    text.push('\n');
    text
}

fn renew_machine_id(directory: BorrowedFd<'_>, id: &str) -> Result<(), Errno> {
    replace(directory, "machine-id", id.as_bytes(), 0o444).or_else(|_| {
        match rustix::fs::unlinkat(directory, "machine-id", AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            removed => removed,
        }
    })
}

/// Writes the new name where the host had written the old one: in the marked line of the hosts file, and in
/// `hostname` if that has the old name too. Changes of the user are kept.
fn rename_machine(etc: BorrowedFd<'_>, hostname: &str) -> Result<(), Errno> {
    let Some(text) = read_text(etc, "hosts", HOSTS_BYTES_MAX)? else { return Ok(()) };
    let Some(known) = hosts::names(&text).first().copied() else { return Ok(()) };
    let shown = read_text(etc, "hostname", HOSTNAME_BYTES_MAX)?;
    replace(etc, "hosts", hosts::renamed(&text, hostname, FormerNames::Keep).as_bytes(), 0o644)?;
    if shown.is_some_and(|shown| shown.trim() == known) {
        replace(etc, "hostname", format!("{hostname}\n").as_bytes(), 0o644)?;
    }
    Ok(())
}

/// Removes all host keys. Returns whether there were private ones.
fn remove_host_keys(etc: BorrowedFd<'_>) -> Result<bool, Errno> {
    let Some(directory) = open_directory(etc, Path::new("ssh"))? else { return Ok(false) };
    let mut keys = Vec::new();
    for entry in Dir::read_from(&directory)?.take(KEY_ENTRIES_MAX) {
        let name = entry?.file_name().to_owned();
        if is_host_key(&name.to_string_lossy()) {
            keys.push(name);
        }
    }
    let mut had_keys = false;
    for name in keys {
        match rustix::fs::unlinkat(&directory, &name, AtFlags::empty()) {
            Ok(()) => had_keys |= name.to_bytes().ends_with(b"_key"),
            Err(Errno::NOENT | Errno::ISDIR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(had_keys)
}

fn is_host_key(name: &str) -> bool {
    name.starts_with("ssh_host_")
        && ["_key", "_key.pub", "_key-cert.pub"].iter().any(|end| name.ends_with(end))
}

/// Returns `None` if there is no such directory.
fn open_directory(at: impl AsFd, path: &Path) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::openat(at, path, flags, Mode::empty()) {
        Ok(directory) => Ok(Some(directory)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn is_regular(directory: BorrowedFd<'_>, name: &str) -> bool {
    rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file())
}

/// The text of a regular file of at most `bytes_max`; `None` for anything else.
fn read_text(directory: BorrowedFd<'_>, name: &str, bytes_max: usize) -> Result<Option<String>, Errno> {
    if !is_regular(directory, name) {
        return Ok(None);
    }
    // It may be a FIFO by now, on which opening must not wait.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, name, flags, Mode::empty())?;
    let mut text = vec![0; bytes_max + 1];
    let mut filled = 0;
    while filled < text.len() {
        match rustix::io::read(&file, &mut text[filled..])? {
            0 => break,
            count => filled += count,
        }
    }
    text.truncate(filled);
    Ok((filled <= bytes_max).then(|| String::from_utf8_lossy(&text).into_owned()))
}

/// Creates a new file and renames it to `name`, whatever exists there.
pub(super) fn replace(directory: BorrowedFd<'_>, name: &str, content: &[u8], mode: u32) -> Result<(), Errno> {
    let fresh = format!(".{name}.{}", random::new_id());
    let write = || {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(directory, &fresh, flags, Mode::from_raw_mode(mode))?;
        let mut rest = content;
        while !rest.is_empty() {
            rest = &rest[rustix::io::write(&file, rest)?..];
        }
        rustix::fs::renameat(directory, &fresh, directory, name)
    };
    write().inspect_err(|_| {
        // It may not have been created.
        let _ = rustix::fs::unlinkat(directory, &fresh, AtFlags::empty());
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("etc/ssh")).unwrap();
        root
    }

    fn read(root: &tempfile::TempDir, name: &str) -> String {
        fs::read_to_string(root.path().join(name)).unwrap()
    }

    #[test]
    fn a_machine_id_has_32_digits_and_differs_each_time() {
        let root = machine();
        let mut seen = Vec::new();
        for _ in 0..2 {
            assert!(!renew_files(root.path(), None).unwrap());
            let id = read(&root, "etc/machine-id");
            assert_eq!(id.len(), 33, "{id:?}");
            assert!(id.trim_end().bytes().all(|byte| byte.is_ascii_hexdigit()), "{id:?}");
            seen.push(id);
        }
        assert_ne!(seen[0], seen[1]);
    }

    #[test]
    fn a_copy_of_the_machine_id_is_updated_and_link_targets_are_unchanged() {
        let root = machine();
        fs::create_dir_all(root.path().join("var/lib/dbus")).unwrap();
        let precious = root.path().join("precious");
        fs::write(&precious, "mine").unwrap();
        symlink(&precious, root.path().join("etc/machine-id")).unwrap();
        fs::write(root.path().join("var/lib/dbus/machine-id"), "old").unwrap();
        renew_files(root.path(), None).unwrap();
        assert_eq!(read(&root, "etc/machine-id"), read(&root, "var/lib/dbus/machine-id"));
        assert_eq!(fs::read_to_string(&precious).unwrap(), "mine");
    }

    #[test]
    fn a_machine_without_an_etc_has_no_identity_to_renew() {
        let root = tempfile::tempdir().unwrap();
        assert!(!renew_files(root.path(), Some("new")).unwrap());
    }

    #[test]
    fn the_token_of_the_mcp_address_is_removed() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("etc/mcp-gateway")).unwrap();
        for name in [".token", "other"] {
            fs::write(root.path().join("etc/mcp-gateway").join(name), "text").unwrap();
        }
        for _ in 0..2 {
            renew_files(root.path(), None).unwrap();
            assert!(!root.path().join("etc/mcp-gateway/.token").exists());
            assert!(root.path().join("etc/mcp-gateway/other").exists());
        }
    }

    #[test]
    fn host_keys_are_removed_and_other_ssh_files_are_kept() {
        let root = machine();
        let names = ["ssh_host_rsa_key", "ssh_host_rsa_key.pub", "ssh_host_rsa_key-cert.pub", "sshd_config"];
        for name in names {
            fs::write(root.path().join("etc/ssh").join(name), "").unwrap();
        }
        assert!(renew_files(root.path(), None).unwrap());
        assert!(!renew_files(root.path(), None).unwrap(), "no keys are left the second time");
        let left: Vec<_> = fs::read_dir(root.path().join("etc/ssh"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left, ["sshd_config"]);
    }

    #[test]
    fn the_name_is_replaced_only_where_the_host_had_written_it() {
        let root = machine();
        let hosts = "127.0.0.1 localhost\n10.0.0.9 db\n127.0.1.1\told # this sandbox\n";
        fs::write(root.path().join("etc/hosts"), hosts).unwrap();
        fs::write(root.path().join("etc/hostname"), "old\n").unwrap();
        renew_files(root.path(), Some("new")).unwrap();
        assert_eq!(read(&root, "etc/hosts"), hosts.replace("old", "new old"));
        assert_eq!(read(&root, "etc/hostname"), "new\n");

        fs::write(root.path().join("etc/hostname"), "the-owners\n").unwrap();
        renew_files(root.path(), Some("newer")).unwrap();
        assert_eq!(read(&root, "etc/hosts"), hosts.replace("old", "newer new old"));
        assert_eq!(read(&root, "etc/hostname"), "the-owners\n");

        fs::write(root.path().join("etc/hosts"), "127.0.0.1 localhost\n").unwrap();
        renew_files(root.path(), Some("newest")).unwrap();
        assert_eq!(read(&root, "etc/hosts"), "127.0.0.1 localhost\n");
        let odd = [root.path().join("etc/hosts"), root.path().join("etc/hostname")];
        odd.iter().for_each(|file| fs::remove_file(file).unwrap());
        odd.iter().for_each(|file| fs::create_dir(file).unwrap());
        renew_files(root.path(), Some("last")).unwrap();
    }

    #[test]
    fn invalid_host_names_are_refused() {
        for good in ["box", "sbx7h3k", "a.b-c"] {
            assert!(check_hostname(good).is_ok(), "{good}");
        }
        let long = "a".repeat(65);
        for bad in ["", "two words", "new\nline", "# comment", long.as_str()] {
            assert!(check_hostname(bad).is_err(), "{bad}");
        }
    }
}
