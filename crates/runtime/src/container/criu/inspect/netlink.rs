//! What the kernel has told a process over netlink, and the process has not read yet.
//!
//! CRIU keeps such a socket, but not what waits in it, and gives up a dump over it. A program that listens for changes of
//! the network, as browsers do, reads within moments; it is told something each time the machine is wired anew.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;

use super::{Entry, Obstacle, Reason, gone_is_fine};

pub(super) fn check(entries: &BTreeMap<u32, Entry>) -> io::Result<Vec<Obstacle>> {
    let Some(first) = entries.get(&1) else { return Ok(Vec::new()) };
    // All are in one network namespace, or in the way for that.
    let unread = unread(&gone_is_fine(fs::read_to_string(format!("/proc/{}/net/netlink", first.outer)))?);
    if unread.is_empty() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for entry in entries.values().filter(|entry| !entry.zombie) {
        if gone_is_fine(sockets(entry.outer))?.iter().any(|inode| unread.contains(inode)) {
            found.push(Obstacle { pid: entry.inner, name: entry.name.clone(), reason: Reason::Unread });
        }
    }
    Ok(found)
}

/// The sockets with something in them, by their inodes. Those of the kernel itself have none.
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
    fn sockets_with_something_unread_are_told_from_the_others() {
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
