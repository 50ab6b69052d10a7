//! Limits the rate of a sandbox's network: a second nftables table in its gateway namespace, which exists only while
//! there is a rate.
//!
//! ```text
//! table inet burrow_pace {
//!   chain sent { type filter hook prerouting priority mangle + 1; policy accept;
//!     iifname != "gw0" accept
//!     socket mark 0x00000002 accept
//!     limit rate over 10 mbytes/second drop
//!   }
//!   chain received { type filter hook output priority filter; policy accept;
//!     oifname != "gw0" accept
//!     meta mark 0x00000002 accept
//!     limit rate over 10 mbytes/second drop
//!   }
//! }
//! ```
//!
//! Each direction has its own token bucket, which fills at the rate and holds one second's worth. Packets that find it
//! empty are dropped, and the sender's TCP retransmits them later. Packets that the other table drops have been dropped
//! before, so they are not counted. The traffic between the daemon and the agent is not counted either: a sandbox that
//! uses up its rate can still be inspected and stopped. Those packets are recognised by the mark of the daemon's own
//! sockets. Nothing that a sandbox writes into a packet has the same effect.
//!
//! Dropping needs no queue that would have to be bounded, and the rules name the interface instead of being attached to
//! it: a new interface, as of a restored machine, is limited from its first packet on.

use super::interfaces::GATEWAY_INTERFACE;
use super::netlink::Batch;
use super::table::{Chain, Hook, NF_ACCEPT, NF_DROP, Table};
use crate::Rate;

const TABLE: &str = "burrow_pace";

/// The mark of sockets whose packets are not counted. It differs from `HANDED_OVER`, by which packets are routed.
pub(super) const UNCOUNTED: u32 = 2;

/// The step that errors name if loading fails.
pub(super) const STEP: &str = "set the network's rate";

/// After the chain of the other table, which has dropped the packets that are not allowed.
const SENT: Chain = Chain { name: "sent", hook: Hook::Prerouting, priority: -149, policy: NF_ACCEPT };
const RECEIVED: Chain = Chain { name: "received", hook: Hook::Output, priority: 0, policy: NF_ACCEPT };

/// The batch that makes this the rate of a gateway namespace, in place of an earlier one.
pub(super) fn load(rate: Option<Rate>) -> Batch {
    let Some(rate) = rate else { return Table::removing(TABLE, STEP).finish() };
    let mut table = Table::replacing(TABLE, STEP);
    table.chain(SENT);
    table.chain(RECEIVED);
    table.rule(SENT, |rule| rule.interface_is_not(GATEWAY_INTERFACE).verdict(NF_ACCEPT));
    table.rule(SENT, |rule| rule.for_marked(UNCOUNTED).verdict(NF_ACCEPT));
    table.rule(RECEIVED, |rule| rule.output_interface_is_not(GATEWAY_INTERFACE).verdict(NF_ACCEPT));
    table.rule(RECEIVED, |rule| rule.of_marked(UNCOUNTED).verdict(NF_ACCEPT));
    for chain in [SENT, RECEIVED] {
        table.rule(chain, |rule| rule.exceeds_bytes(rate.bytes_per_second).verdict(NF_DROP));
    }
    table.finish()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::linux::interfaces::Families;
    use crate::linux::namespace::NamespaceVisitor;
    use crate::linux::netlink::{Protocol, Socket};
    use crate::linux::rules;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn documented() -> Vec<String> {
        let lines = include_str!("pace.rs").lines().skip_while(|line| *line != "//! ```text").skip(1);
        let block = lines.take_while(|line| *line != "//! ```");
        words(&block.map(|line| line.trim_start_matches("//!")).collect::<String>())
    }

    /// Loads the batches one after the other into a new namespace, and returns the kernel's listing of `table`.
    fn loaded(batches: &[Batch], table: &str) -> String {
        let visit = || {
            let filter = Socket::open(Protocol::Netfilter)?;
            for batch in batches {
                filter.run(batch).map_err(|error| error.source)?;
            }
            Command::new("nft").args(["list", "table", "inet", table]).output()
        };
        let listed = NamespaceVisitor::new().unwrap().visit_new(visit).unwrap().1;
        String::from_utf8(listed.stdout).unwrap()
    }

    fn rate(mib: u64) -> Option<Rate> {
        Some(Rate { bytes_per_second: mib << 20 })
    }

    #[test]
    fn the_kernel_has_the_documented_rules_also_after_repeated_loads() {
        for before in [vec![], vec![rate(1)], vec![rate(10), None, None]] {
            let all = before.into_iter().chain([rate(10)]).map(load).collect::<Vec<_>>();
            assert_eq!(words(&loaded(&all, TABLE)), documented());
        }
        assert_eq!(loaded(&[load(rate(10)), load(None)], TABLE), "");
    }

    /// The largest rate that a user may set, at which the kernel's arithmetic still works.
    #[test]
    fn the_kernel_accepts_the_largest_rate() {
        let most = u64::from(burrow_model::Rates::MIB_PER_SECOND_MAX);
        assert!(loaded(&[load(rate(most))], TABLE).contains("limit rate over"));
    }

    #[test]
    fn setting_a_rate_leaves_the_other_rules_alone() {
        let alone = loaded(&[rules::load(Families::Both)], "burrow");
        assert!(alone.contains("chain forward"), "{alone}");
        assert_eq!(loaded(&[rules::load(Families::Both), load(rate(1)), load(None)], "burrow"), alone);
    }
}
