//! The name of a sandbox, in its `/etc`.
//!
//! Written at the first boot and after a change of name, recognised by `/etc/hostname`: in between the files are the
//! owner's to edit. What cannot be written safely (an `/etc` that is a link) is left alone: a machine without these
//! files is a nuisance, not a danger.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use burrow_network::GATEWAY_V4;

use super::entry::{self, Owner};

/// More is not a hosts file but an attack on the daemon's RAM.
const HOSTS_BYTES_MAX: u64 = 64 * 1024;
const HOSTNAME_BYTES_MAX: u64 = 256;

/// Of no sandbox: as long as an id, so that a sandbox's name fits where this one stood.
const IMAGE_HOSTNAME: &str = "sbxaaaaaaaaaaaaaaaaaaaa";

/// Marks our line, so that the next name replaces it.
const MARK: &str = "# this sandbox";

pub(super) fn prepare(root: BorrowedFd<'_>, hostname: &str) -> io::Result<()> {
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
    let hosts = with_name(&String::from_utf8_lossy(&hosts), hostname);
    entry::overwrite(etc, "hosts", hosts.as_bytes(), 0o644, Owner::Inside)?;
    // The gateway is the only resolver there is; a file from the image's build would name one nobody can reach.
    let resolver = format!("nameserver {GATEWAY_V4}\n");
    entry::overwrite(etc, "resolv.conf", resolver.as_bytes(), 0o644, Owner::Inside)?;
    // Last, since its being right is what says that the others are.
    entry::overwrite(etc, "hostname", format!("{hostname}\n").as_bytes(), 0o644, Owner::Inside)
}

/// Makes the files anew in an image, one after the other and under a name of no meaning, so that a sandbox made from
/// it changes them in place: in a copy-on-write child, every further block that changes costs a commit some time.
pub(super) fn prepare_image(root: BorrowedFd<'_>) -> io::Result<()> {
    let Ok(etc) = entry::open_directory(root, "etc") else { return Ok(()) };
    let etc = etc.as_fd();
    for name in ["hosts", "resolv.conf", "hostname"] {
        let content = entry::read(etc, name, HOSTS_BYTES_MAX)?.unwrap_or_default();
        entry::replace(etc, name, &content, 0o644, Owner::Inside)?;
    }
    prepare(root, IMAGE_HOSTNAME)
}

/// The owner's lines, `localhost` if they lack it, and the sandbox's own name: `sudo` complains when it cannot resolve
/// the host it runs on.
fn with_name(hosts: &str, hostname: &str) -> String {
    let names = |address: &'static str| {
        move |line: &&str| {
            let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
            words.next() == Some(address) && words.any(|word| word == "localhost")
        }
    };
    let mut text = String::new();
    let mut keep = |line: &str| {
        text.push_str(line);
        text.push('\n');
    };
    if !hosts.lines().any(|line| names("127.0.0.1")(&line)) {
        keep("127.0.0.1\tlocalhost");
    }
    if !hosts.lines().any(|line| names("::1")(&line)) {
        keep("::1\tlocalhost ip6-localhost ip6-loopback");
    }
    hosts.lines().filter(|line| !line.trim_end().ends_with(MARK)).for_each(&mut keep);
    keep(&format!("127.0.1.1\t{hostname} {MARK}"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_hosts_file_gets_localhost_and_the_name() {
        assert_eq!(
            with_name("", "box"),
            "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\tbox # this sandbox\n"
        );
    }

    #[test]
    fn a_new_name_replaces_ours_and_keeps_the_owners_lines() {
        let before = "127.0.0.1 localhost\n::1 localhost\n10.0.0.9 db\n127.0.1.1\told # this sandbox\n";
        assert_eq!(
            with_name(before, "new"),
            "127.0.0.1 localhost\n::1 localhost\n10.0.0.9 db\n127.0.1.1\tnew # this sandbox\n"
        );
    }
}
