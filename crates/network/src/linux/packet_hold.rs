//! Blocks outgoing packets of a network namespace while its connections are being restored.
//!
//! ```text
//! table inet burrow-restore {
//!   chain output { type filter hook output priority filter; policy drop;
//!     meta mark 0x0000c114 accept
//!   }
//! }
//! ```
//!
//! Only CRIU's own packets pass: it sends them to itself to put connections into their earlier state.

use std::io;
use std::os::fd::BorrowedFd;
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::netlink::{Batch, Protocol, Socket};
use super::table::{Chain, Hook, NF_ACCEPT, NF_DROP, Table};

const TABLE: &str = "burrow-restore";

/// CRIU's `SOCCR_MARK`.
const CRIU_MARK: u32 = 0xc114;

const OUTPUT: Chain = Chain { name: "output", hook: Hook::Output, priority: 0, policy: NF_DROP };

/// Drops everything that the sockets of a namespace send, until [`release_packets`]. TCP retransmits it later.
pub fn hold_packets(namespace: BorrowedFd<'_>) -> io::Result<()> {
    let mut table = Table::fresh(TABLE, "hold packets");
    table.chain(OUTPUT);
    table.rule(OUTPUT, |rule| rule.of_marked(CRIU_MARK).verdict(NF_ACCEPT));
    run_in(namespace, &table.finish())
}

/// Lets packets pass again.
pub fn release_packets(namespace: BorrowedFd<'_>) -> io::Result<()> {
    run_in(namespace, &Table::removing(TABLE, "release packets").finish())
}

fn run_in(namespace: BorrowedFd<'_>, batch: &Batch) -> io::Result<()> {
    // A separate thread, since it never leaves that namespace.
    thread::scope(|scope| {
        let done = scope.spawn(|| {
            move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))?;
            Socket::open(Protocol::Netfilter)?.run(batch).map_err(io::Error::other)
        });
        done.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    })
}
