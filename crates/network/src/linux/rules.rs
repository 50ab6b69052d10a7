//! The packet filter of a gateway namespace: which packets of a sandbox are accepted, and where they go.
//!
//! ```text
//! table inet burrow {
//!   chain prerouting { type filter hook prerouting priority mangle; policy drop;
//!     iif "lo" accept
//!     iifname != "gw0" drop
//!     ether saddr != 02:88:00:00:00:02 drop
//!     ip saddr 10.88.0.2 ip daddr 10.88.0.1 tcp flags != syn / syn,ack socket transparent 0 accept
//!     ip6 saddr fd88::2 ip6 daddr fd88::1 tcp flags != syn / syn,ack socket transparent 0 accept
//!     ip6 saddr fd88::2 icmpv6 type 135-136 accept
//!     tcp flags syn / syn,ack limit rate over 2000/second burst 8000 packets drop
//!     udp dport 53 limit rate over 2000/second burst 2000 packets drop
//!     ip saddr 10.88.0.2 ip daddr 10.88.0.1 udp dport 53 accept
//!     ip saddr 10.88.0.2 ip daddr 10.88.0.1 tcp dport 53 accept
//!     ip6 saddr fd88::2 ip6 daddr fd88::1 udp dport 53 accept
//!     ip6 saddr fd88::2 ip6 daddr fd88::1 tcp dport 53 accept
//!     ip saddr 10.88.0.2 ip daddr 10.88.0.1 tcp dport 7700 accept
//!     ip6 saddr fd88::2 ip6 daddr fd88::1 tcp dport 7700 accept
//!     ip saddr 10.88.0.2 meta l4proto tcp tproxy ip to :15001 meta mark set 0x00000001 accept
//!     ip6 saddr fd88::2 meta l4proto tcp tproxy ip6 to :15001 meta mark set 0x00000001 accept
//!   }
//!   chain forward { type filter hook forward priority filter; policy drop; }
//! }
//! ```
//!
//! Replies to connections that the daemon opened are accepted, and so is neighbour discovery. DNS queries to the
//! gateway's own port 53 reach the resolver's listeners, and connections to its port 7700 the sandbox's own listener.
//! All other TCP connections, to any destination, are redirected to the egress listener, which receives the original
//! destination. Everything else that a sandbox sends is dropped before it is routed. The rules allow only the sandbox's
//! own addresses, so packets with a spoofed source are dropped. The redirecting rules are the last ones, so if no
//! listener is open (`tproxy` then passes the packet on), only the policy remains. The forward chain is a second
//! barrier: it holds even if settings of the host (`ip_forward`, `route_localnet`) were inherited by the namespace.
//!
//! A reply is recognised by the socket that it is for, not by connection tracking. The kernel does no tracking in a
//! namespace whose rules do not request it. So a sandbox cannot fill the host's tracking table, and no connection is
//! forgotten because it was idle for long. Fragments are reassembled before these rules; `tproxy` requires it.
//!
//! The rules are sent to the kernel directly: starting `nft` would take half of the time of creating a slot. A test
//! compares the output of `nft` with the text above.

use super::expression::{Header, NFPROTO_IPV4, NFPROTO_IPV6, PacketRate, Rule, Transport};
use super::interfaces::{Families, GATEWAY_INTERFACE, HANDED_OVER};
use super::netlink::Batch;
use super::table::{Chain, Hook, NF_ACCEPT, NF_DROP, Table};
use crate::address::{
    DNS_PORT, EGRESS_PORT, GATEWAY_V4, GATEWAY_V6, OWN_PORT, SANDBOX_HARDWARE, SANDBOX_V4, SANDBOX_V6,
};

const TABLE: &str = "burrow";

/// The step that errors name if loading fails.
const STEP: &str = "load the gateway's rules";

/// New connections per sandbox. Far above what programs need (a package manager opens some dozens at once); below the
/// rate at which the accepting process could no longer serve the other sandboxes. Connections over the limit are
/// dropped, and retried by the client's kernel.
const CONNECTIONS: PacketRate = PacketRate { per_second: 2_000, burst: 8_000 };

/// DNS queries per sandbox, likewise.
const DNS_QUERIES: PacketRate = PacketRate { per_second: 2_000, burst: 2_000 };

/// After fragments were reassembled (-400), before routing decisions: nft calls it `mangle`.
const PREROUTING: Chain =
    Chain { name: "prerouting", hook: Hook::Prerouting, priority: -150, policy: NF_DROP };
const FORWARD: Chain = Chain { name: "forward", hook: Hook::Forward, priority: 0, policy: NF_DROP };

/// Adds the whole table to a batch for the netfilter socket of a new namespace. On a kernel with both families, the
/// rules of both are loaded or none: no sandbox has unfiltered IPv6.
pub(super) fn load(families: Families) -> Batch {
    load_for(&RuleAddresses::of(families))
}

fn load_for(ends: &[RuleAddresses]) -> Batch {
    let mut table = Table::fresh(TABLE, STEP);
    table.chain(PREROUTING);
    table.chain(FORWARD);
    add_rules(&mut table, ends);
    table.finish()
}

/// The addresses of one family, as used in rules.
struct RuleAddresses {
    family: u8,
    source: (Header, Vec<u8>),
    destination: (Header, Vec<u8>),
}

impl RuleAddresses {
    fn of(families: Families) -> Vec<Self> {
        let v4 = Self {
            family: NFPROTO_IPV4,
            source: (Header::Ipv4Source, SANDBOX_V4.octets().to_vec()),
            destination: (Header::Ipv4Destination, GATEWAY_V4.octets().to_vec()),
        };
        let v6 = Self {
            family: NFPROTO_IPV6,
            source: (Header::Ipv6Source, SANDBOX_V6.octets().to_vec()),
            destination: (Header::Ipv6Destination, GATEWAY_V6.octets().to_vec()),
        };
        match families {
            Families::Both => vec![v4, v6],
            Families::V4Only => vec![v4],
        }
    }

    fn sent_by_sandbox<'l, 'b>(&self, rule: Rule<'l, 'b>) -> Rule<'l, 'b> {
        rule.of_family(self.family).field_is(self.source.0, &self.source.1)
    }

    fn sent_to_gateway<'l, 'b>(&self, rule: Rule<'l, 'b>) -> Rule<'l, 'b> {
        self.sent_by_sandbox(rule).field_is(self.destination.0, &self.destination.1)
    }
}

fn add_rules(table: &mut Table, ends: &[RuleAddresses]) {
    table.rule(PREROUTING, |rule| rule.interface_is_loopback().verdict(NF_ACCEPT));
    table.rule(PREROUTING, |rule| rule.interface_is_not(GATEWAY_INTERFACE).verdict(NF_DROP));
    table.rule(PREROUTING, |rule| {
        rule.arrives_by_ethernet().field_is_not(Header::EthernetSource, &SANDBOX_HARDWARE).verdict(NF_DROP);
    });
    for ends in ends {
        table.rule(PREROUTING, |rule| {
            let rule = ends.sent_to_gateway(rule).speaks(Transport::Tcp);
            rule.belongs_to_a_local_socket().verdict(NF_ACCEPT);
        });
    }
    for ends in ends.iter().filter(|ends| ends.family == NFPROTO_IPV6) {
        table.rule(PREROUTING, |rule| {
            ends.sent_by_sandbox(rule).speaks_neighbour_discovery().verdict(NF_ACCEPT)
        });
    }
    table.rule(PREROUTING, |rule| rule.speaks(Transport::Tcp).opens().exceeds(CONNECTIONS).verdict(NF_DROP));
    table.rule(PREROUTING, |rule| {
        rule.speaks(Transport::Udp).goes_to_port(DNS_PORT).exceeds(DNS_QUERIES).verdict(NF_DROP);
    });
    for ends in ends {
        for transport in [Transport::Udp, Transport::Tcp] {
            table.rule(PREROUTING, |rule| {
                let rule = ends.sent_to_gateway(rule).speaks(transport);
                rule.goes_to_port(DNS_PORT).verdict(NF_ACCEPT);
            });
        }
    }
    for ends in ends {
        table.rule(PREROUTING, |rule| {
            let rule = ends.sent_to_gateway(rule).speaks(Transport::Tcp);
            rule.goes_to_port(OWN_PORT).verdict(NF_ACCEPT);
        });
    }
    // Last: packets that are not redirected, because no listener is open, meet no further rule.
    for ends in ends {
        table.rule(PREROUTING, |rule| {
            let rule = ends.sent_by_sandbox(rule).speaks(Transport::Tcp);
            rule.redirect_to(ends.family, EGRESS_PORT, HANDED_OVER).verdict(NF_ACCEPT);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::linux::namespace::NamespaceVisitor;
    use crate::linux::netlink::{Protocol, SlotError, Socket};

    /// The words of the selected rules, as written in the header of this file.
    fn documented(wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let lines = include_str!("rules.rs").lines().skip_while(|line| *line != "//! ```text").skip(1);
        let block = lines.take_while(|line| *line != "//! ```").filter(|line| wanted(line));
        words(&block.map(|line| line.trim_start_matches("//!")).collect::<String>())
    }

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// Loads `rules` into a new namespace, and returns the outcome and the kernel's listing.
    fn loaded(rules: &Batch) -> (Result<(), SlotError>, String) {
        let visit = || {
            let outcome = Socket::open(Protocol::Netfilter)?.run(rules);
            Ok((outcome, Command::new("nft").args(["list", "ruleset"]).output()?))
        };
        let (outcome, listed) = NamespaceVisitor::new().unwrap().visit_new(visit).unwrap().1;
        assert!(listed.status.success(), "{listed:?}");
        (outcome, String::from_utf8(listed.stdout).unwrap())
    }

    #[test]
    fn the_kernel_has_the_documented_rules() {
        let (outcome, listed) = loaded(&load(Families::Both));
        outcome.unwrap();
        assert_eq!(words(&listed), documented(|_| true));
    }

    /// E-N3: without a filter for IPv6, no sandbox.
    #[test]
    fn when_the_rules_of_one_family_cannot_be_loaded_none_are_and_it_fails() {
        let mut ends = RuleAddresses::of(Families::Both);
        // A family that the kernel cannot redirect.
        ends[1].family = 7;
        let (outcome, listed) = loaded(&load_for(&ends));
        assert_eq!(outcome.unwrap_err().step, STEP);
        assert_eq!(listed, "");
    }

    #[test]
    fn a_kernel_without_ipv6_gets_the_same_rules_without_it() {
        let (outcome, listed) = loaded(&load(Families::V4Only));
        outcome.unwrap();
        assert_eq!(words(&listed), documented(|line| !line.contains("ip6")));
    }
}
