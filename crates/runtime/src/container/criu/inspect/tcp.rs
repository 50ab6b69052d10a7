//! TCP connections within a machine of which one end has no descriptor, and contains data.
//!
//! CRIU only restores sockets that processes have open. It restores neither an end that its server has not accepted
//! yet, nor the unsent data of an end that was closed: after a restore, the process at the other end would wait
//! forever, or miss data. Both disappear by themselves when the server accepts, or the reader reads.
//!
//! Connections to the outside are aborted by every restore, and are no obstacle.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;

use super::entries::{Entry, default_if_gone};
use super::obstacle::{Obstacle, Reason};

const NOT_ACCEPTED: &str = "a TCP connection that its server has not accepted";
const NOT_SENT: &str = "a TCP connection whose other end was closed before all of its data was read";

/// The kernel's numbers of states.
const ESTABLISHED: u8 = 1;
const SYN_RECEIVED: u8 = 3;
const FIN_WAIT_1: u8 = 4;
const CLOSE_WAIT: u8 = 8;
const LAST_ACK: u8 = 9;
const LISTEN: u8 = 10;
const CLOSING: u8 = 11;

/// The end of a connection is counted as one byte.
const FIN_BYTES: u64 = 1;

/// Prefix of IPv4 addresses in the table of IPv6.
const MAPPED: &str = "0000000000000000FFFF0000";

/// One end of a connection, or a listening socket.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ConnectionEnd {
    local: (String, String),
    remote: (String, String),
    state: u8,
    unsent_bytes: u64,
    /// 0: no descriptor.
    inode: u64,
}

pub(super) fn check(entries: &BTreeMap<u32, Entry>) -> io::Result<Vec<Obstacle>> {
    let Some(first) = entries.get(&1) else { return Ok(Vec::new()) };
    let mut ends = Vec::new();
    for table in ["tcp", "tcp6"] {
        // All processes are in one network namespace; others are reported as obstacles for that reason. A host may have
        // no IPv6.
        let text = default_if_gone(fs::read_to_string(format!("/proc/{}/net/{table}", first.outer)))?;
        ends.extend(text.lines().filter_map(end));
    }
    let attributed = attributed(&ends);
    let mut found = Vec::new();
    if attributed.is_empty() {
        return Ok(found);
    }
    for entry in entries.values().filter(|entry| !entry.zombie) {
        for (descriptor, inode) in default_if_gone(sockets(entry.outer))? {
            if let Some(what) = attributed.get(&inode) {
                let reason = Reason::Connection { descriptor, what };
                found.push(Obstacle { pid: entry.inner, name: entry.name.clone(), reason });
            }
        }
    }
    Ok(found)
}

/// The sockets at the other end of such connections, by their inodes; if there is none, the listening sockets.
fn attributed(ends: &[ConnectionEnd]) -> HashMap<u64, &'static str> {
    let within = |end: &&ConnectionEnd| end.inode == 0 && end.local.0 == end.remote.0;
    // A program may have tens of thousands, so each is looked up in a map.
    let held = || ends.iter().filter(|end| end.inode != 0);
    let others: HashMap<_, u64> = held().map(|end| ((&end.remote, &end.local), end.inode)).collect();
    let listeners: HashMap<&str, u64> =
        held().filter(|end| end.state == LISTEN).map(|end| (end.local.1.as_str(), end.inode)).collect();
    let mut attributed = HashMap::new();
    for end in ends.iter().filter(within) {
        let what = match end.state {
            ESTABLISHED | SYN_RECEIVED | CLOSE_WAIT => NOT_ACCEPTED,
            FIN_WAIT_1 | LAST_ACK | CLOSING if end.unsent_bytes > FIN_BYTES => NOT_SENT,
            _ => continue,
        };
        let holder = match others.get(&(&end.local, &end.remote)) {
            None if what == NOT_ACCEPTED => listeners.get(end.local.1.as_str()),
            other => other,
        };
        attributed.extend(holder.map(|inode| (*inode, what)));
    }
    attributed
}

/// A row of the kernel's table; `None` for its header.
fn end(line: &str) -> Option<ConnectionEnd> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let address = |at: usize| {
        let (address, port) = words.get(at)?.split_once(':')?;
        Some((address.strip_prefix(MAPPED).unwrap_or(address).to_owned(), port.to_owned()))
    };
    let (unsent, _) = words.get(4)?.split_once(':')?;
    Some(ConnectionEnd {
        local: address(1)?,
        remote: address(2)?,
        state: u8::from_str_radix(words.get(3)?, 16).ok()?,
        unsent_bytes: u64::from_str_radix(unsent, 16).ok()?,
        inode: words.get(9)?.parse().ok()?,
    })
}

/// Descriptors of sockets, with the sockets' inodes.
fn sockets(pid: u32) -> io::Result<Vec<(u32, u64)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let entry = entry?;
        let Ok(link) = fs::read_link(entry.path()) else { continue };
        let link = link.to_string_lossy();
        let inode = link.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        let inode = inode.and_then(|inode| inode.parse().ok());
        found.extend(entry.file_name().to_string_lossy().parse().ok().zip(inode));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rows: &[&str]) -> Vec<(u64, &'static str)> {
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";
        let ends: Vec<ConnectionEnd> =
            std::iter::once(&head).chain(rows).filter_map(|row| end(row)).collect();
        assert_eq!(ends.len(), rows.len());
        let mut attributed: Vec<_> = attributed(&ends).into_iter().collect();
        attributed.sort_unstable();
        attributed
    }

    fn row(local: &str, remote: &str, state: &str, unsent: &str, inode: u64) -> String {
        format!(
            "   0: {local} {remote} {state} {unsent}:00000000 00:00000000 00000000     0        0 {inode} 1 0 20 4 30 10 -1"
        )
    }

    #[test]
    fn ends_without_a_descriptor_are_attributed_to_the_other_end() {
        let (server, client) = ("0100007F:1F90", "0100007F:C001");
        let listens = row("00000000:1F90", "00000000:0000", "0A", "0", 10);
        let holds = |state: &str| row(client, server, state, "0", 20);
        for (state, unsent, expected) in [
            ("01", "0", Some(NOT_ACCEPTED)),
            ("08", "0", Some(NOT_ACCEPTED)),
            ("04", "400", Some(NOT_SENT)),
            ("09", "2", Some(NOT_SENT)),
            ("04", "1", None),
            ("06", "0", None),
        ] {
            let orphan = row(server, client, state, unsent, 0);
            let expected: Vec<_> = expected.into_iter().map(|what| (20, what)).collect();
            assert_eq!(of(&[&listens, &holds("01"), &orphan]), expected, "{state}");
        }
        // Its client has ended as well.
        assert_eq!(of(&[&listens, &row(server, client, "08", "0", 0)]), [(10, NOT_ACCEPTED)]);
        // Both ends are open; and a connection whose client is outside.
        assert!(of(&[&listens, &holds("01"), &row(server, client, "01", "400", 30)]).is_empty());
        assert!(of(&[&listens, &row("02580A0A:1F90", "01580A0A:C001", "01", "0", 0)]).is_empty());
        // An IPv6 server with an IPv4 client.
        let mapped = |address: &str| format!("{MAPPED}{address}");
        let orphan = row(&mapped(server), &mapped(client), "01", "0", 0);
        assert_eq!(of(&[&holds("01"), &orphan]), [(20, NOT_ACCEPTED)]);
    }
}
