//! The machine's name and resolver, in its `/etc`; in containers the host writes the same.
//!
//! Written at the first boot and after a change of name, recognised by `/etc/hostname`: in between the files are the
//! owner's to edit. What cannot be written is left alone: a machine without these files is a nuisance, not a danger.

use std::fs;
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;

use crate::agent::identity::{HOSTS_MARK, replace};

pub(super) fn name(hostname: &str, resolver: Ipv4Addr) {
    let known = fs::read_to_string("/etc/hostname").unwrap_or_default();
    if known.trim() == hostname {
        return;
    }
    let _ = fs::create_dir("/etc");
    let Ok(etc) = fs::File::open("/etc") else { return };
    let hosts = fs::read_to_string("/etc/hosts").unwrap_or_default();
    let contents = [
        ("hosts", with_name(&hosts, hostname)),
        ("resolv.conf", format!("nameserver {resolver}\n")),
        // Last, since its being right is what says that the others are.
        ("hostname", format!("{hostname}\n")),
    ];
    for (name, content) in contents {
        if replace(etc.as_fd(), name, content.as_bytes(), 0o644).is_err() {
            return;
        }
    }
}

/// The owner's lines, `localhost` if they lack it, and the machine's own name.
fn with_name(hosts: &str, hostname: &str) -> String {
    let has = |address: &str| {
        hosts.lines().any(|line| {
            let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
            words.next() == Some(address) && words.any(|word| word == "localhost")
        })
    };
    let mut lines: Vec<String> = Vec::new();
    if !has("127.0.0.1") {
        lines.push("127.0.0.1\tlocalhost".to_owned());
    }
    if !has("::1") {
        lines.push("::1\tlocalhost ip6-localhost ip6-loopback".to_owned());
    }
    let theirs = hosts.lines().filter(|line| !line.trim_end().ends_with(HOSTS_MARK));
    lines.extend(theirs.map(str::to_owned));
    lines.push(format!("127.0.1.1\t{hostname} {HOSTS_MARK}"));
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_name_replaces_ours_and_keeps_the_owners_lines() {
        let fresh = with_name("", "box");
        assert_eq!(
            fresh,
            "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\tbox # this sandbox\n"
        );
        let theirs = "127.0.0.1 localhost\n::1 localhost\n10.0.0.9 db\n127.0.1.1\told # this sandbox\n";
        assert_eq!(with_name(theirs, "new"), theirs.replace("old", "new"));
    }
}
