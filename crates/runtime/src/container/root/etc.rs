//! The host name of a sandbox, in its `/etc`.
//!
//! Written at the first boot and after a change of the name, which is detected by `/etc/hostname`; otherwise the owner
//! may edit the files. Files that cannot be written safely (if `/etc` is a link) are skipped: a machine without them is
//! inconvenient, but not a danger.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use burrow_network::GATEWAY_V4;
use burrow_trees::hosts::{FormerNames, IMAGE_HOSTNAME, with_name};

use super::entry::{self, Owner};

/// A longer file is not a hosts file but an attack on the daemon's RAM.
const HOSTS_BYTES_MAX: u64 = 64 * 1024;
const HOSTNAME_BYTES_MAX: u64 = 256;

pub(super) fn prepare(root: BorrowedFd<'_>, hostname: &str) -> io::Result<()> {
    write_name(root, hostname, FormerNames::Keep)
}

fn write_name(root: BorrowedFd<'_>, hostname: &str, former: FormerNames) -> io::Result<()> {
    let etc = match entry::stat(root, "etc")? {
        None => entry::directory(root, "etc", 0o755, Owner::Inside)?,
        Some(_) => match entry::open_directory(root, "etc") {
            Ok(etc) => etc,
            Err(_) => return Ok(()),
        },
    };
    let etc = etc.as_fd();
    let known = entry::read(etc, "hostname", HOSTNAME_BYTES_MAX)?;
    if known.is_some_and(|known| known.trim_ascii() == hostname.as_bytes()) {
        return Ok(());
    }
    let hosts = entry::read(etc, "hosts", HOSTS_BYTES_MAX)?.unwrap_or_default();
    let hosts = with_name(&String::from_utf8_lossy(&hosts), hostname, former);
    entry::overwrite(etc, "hosts", hosts.as_bytes(), 0o644, Owner::Inside)?;
    // The gateway is the only resolver; a file from the build of the image would name an unreachable one.
    let resolver = format!("nameserver {GATEWAY_V4}\n");
    entry::overwrite(etc, "resolv.conf", resolver.as_bytes(), 0o644, Owner::Inside)?;
    // Last, since its content shows that the other files are complete.
    entry::overwrite(etc, "hostname", format!("{hostname}\n").as_bytes(), 0o644, Owner::Inside)
}

/// Creates the files again in an image, one after the other and with placeholder names, so that a sandbox created from
/// it changes them in place: in a copy-on-write child, every further changed block makes a commit slower.
pub(super) fn prepare_image(root: BorrowedFd<'_>) -> io::Result<()> {
    let Ok(etc) = entry::open_directory(root, "etc") else { return Ok(()) };
    let etc = etc.as_fd();
    for name in ["hosts", "resolv.conf", "hostname"] {
        let content = entry::read(etc, name, HOSTS_BYTES_MAX)?.unwrap_or_default();
        entry::replace(etc, name, &content, 0o644, Owner::Inside)?;
    }
    write_name(root, IMAGE_HOSTNAME, FormerNames::Drop)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_child_resolves_the_names_of_its_ancestors_and_an_image_none() {
        let root = tempfile::tempdir().unwrap();
        let directory = fs::File::open(root.path()).unwrap();
        let line = || {
            let hosts = fs::read_to_string(root.path().join("etc/hosts")).unwrap();
            hosts.lines().last().unwrap().to_owned()
        };
        for name in ["parent", "child", "child"] {
            prepare(directory.as_fd(), name).unwrap();
        }
        assert_eq!(line(), "127.0.1.1\tchild parent # this sandbox");
        prepare_image(directory.as_fd()).unwrap();
        prepare(directory.as_fd(), "other").unwrap();
        assert_eq!(line(), "127.0.1.1\tother # this sandbox");
    }
}
