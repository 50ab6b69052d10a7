//! The machine's host name and resolver in its `/etc`; for containers the host writes the same files.
//!
//! Written at the first boot and after a change of name, which is detected in `/etc/hostname`; in between, users may
//! edit the files. Failures are ignored: a machine without these files is inconvenient, but not a risk.

use std::fs;
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;

use burrow_trees::hosts::{FormerNames, with_name};

use crate::agent::identity::replace;

pub(super) fn name(hostname: &str, resolver: Ipv4Addr) {
    let known = fs::read_to_string("/etc/hostname").unwrap_or_default();
    if known.trim() == hostname {
        return;
    }
    let _ = fs::create_dir("/etc");
    let Ok(etc) = fs::File::open("/etc") else { return };
    let hosts = fs::read_to_string("/etc/hosts").unwrap_or_default();
    let contents = [
        ("hosts", with_name(&hosts, hostname, FormerNames::Keep)),
        ("resolv.conf", format!("nameserver {resolver}\n")),
        // Last, since this file with the right name means that the others are written too.
        ("hostname", format!("{hostname}\n")),
    ];
    for (name, content) in contents {
        if replace(etc.as_fd(), name, content.as_bytes(), 0o644).is_err() {
            return;
        }
    }
}
