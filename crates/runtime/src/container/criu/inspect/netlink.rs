//! Netlink messages that a process has not read yet.
//!
//! CRIU restores such a socket, but not its queue, and refuses the dump because of it. A program that listens for
//! changes of the network, as browsers do, reads within moments. It gets messages each time the machine's network is
//! connected.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;

use super::entries::{Entry, default_if_gone};
use super::obstacle::{Obstacle, Reason};

pub(super) fn check(entries: &BTreeMap<u32, Entry>) -> io::Result<Vec<Obstacle>> {
    let Some(first) = entries.get(&1) else { return Ok(Vec::new()) };
    // All processes are in one network namespace; others are reported as obstacles for that reason.
    let unread = unread(&default_if_gone(fs::read_to_string(format!("/proc/{}/net/netlink", first.outer)))?);
    if unread.is_empty() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for entry in entries.values().filter(|entry| !entry.zombie) {
        if default_if_gone(sockets(entry.outer))?.iter().any(|inode| unread.contains(inode)) {
            found.push(Obstacle { pid: entry.inner, name: entry.name.clone(), reason: Reason::Unread });
        }
    }
    Ok(found)
}

/// The sockets with unread messages, by their inodes. Those of the kernel itself have none.
fn unread(table: &str) -> HashSet<u64> {
    const RECEIVED: usize = 4;
    const INODE: usize = 9;
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let received: u64 = words.get(RECEIVED)?.parse().ok()?;
        let inode: u64 = words.get(INODE)?.parse().ok()?;
        (received != 0 && inode != 0).then_some(inode)
    };
    table.lines().filter_map(row).collect()
}

fn sockets(pid: u32) -> io::Result<Vec<u64>> {
    let mut inodes = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let Ok(link) = fs::read_link(entry?.path()) else { continue };
        let link = link.to_string_lossy();
        let inode = link.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        inodes.extend(inode.and_then(|inode| inode.parse::<u64>().ok()));
    }
    Ok(inodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_with_unread_messages_are_found() {
        let table = "\
sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode
0000000000000000 0   1284       00000111 1408     0        0     2        0        77
0000000000000000 0   1285       00000111 0        0        0     2        0        78
0000000000000000 15  0          00000000 512      0        0     2        0        0
";
        assert_eq!(unread(table), HashSet::from([77]));
        assert!(unread("").is_empty());
    }
}
