//! The machine's name and resolver, in its `/etc`; in containers the host writes the same.
//!
//! Written at the first boot and after a change of name, recognised by `/etc/hostname`: in between the files are the
//! owner's to edit. What cannot be written is left alone: a machine without these files is a nuisance, not a danger.

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
        // Last, since its being right is what says that the others are.
        ("hostname", format!("{hostname}\n")),
    ];
    for (name, content) in contents {
        if replace(etc.as_fd(), name, content.as_bytes(), 0o644).is_err() {
            return;
        }
    }
}
