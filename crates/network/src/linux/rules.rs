//! The packet filter of a gateway namespace: what may arrive from a sandbox, and where.
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
//! In words. Answers to connections that the daemon dialled come in, and so does neighbour discovery. Questions to the
//! gateway's own port 53 reach the resolver's doors, and connections to its port 7700 the sandbox's own door. Every other TCP connection, wherever to, is handed to the egress
//! door, which hears where it was meant to go. Everything else a sandbox sends is dropped before it is routed. It is
//! an allow-list of the sandbox's own addresses, so a spoofed source is dropped by not being on it; and the last rules
//! are the ones that hand over, so where no door is open (`tproxy` then lets the packet go on) nothing remains but the
//! policy. The forward chain is a second lock: it holds even where the host's own settings (`ip_forward`,
//! `route_localnet`) leaked into the namespace when it was made.
//!
//! An answer is told by the socket it is for, not by connection tracking: a namespace whose rules never ask for that
//! tracks nothing, so there is no table of the host's that a sandbox could fill, nor a connection that is forgotten
//! because it was silent for long. Fragments are put together before any of this sees them; `tproxy` demands it.
//!
//! Spoken to the kernel directly: starting `nft` would take half of the time a slot costs. A test compares what
//! `nft` reads back with the text above.

use super::expression::{Header, NFPROTO_IPV4, NFPROTO_IPV6, PacketRate, Rule, Transport};
use super::interfaces::{Families, GATEWAY_INTERFACE, HANDED_OVER};
use super::netlink::Batch;
use super::table::{Chain, Hook, NF_ACCEPT, NF_DROP, Table};
use crate::address::{
    DNS_PORT, EGRESS_PORT, GATEWAY_V4, GATEWAY_V6, OWN_PORT, SANDBOX_HARDWARE, SANDBOX_V4, SANDBOX_V6,
};

const TABLE: &str = "burrow";

/// What a failure to load any of it is called.
const STEP: &str = "load the gateway's rules";

/// New connections per sandbox. Far above what programs do (a package manager opens some dozens at once); below what
/// would keep whoever accepts them from serving the others. One more is dropped, and tried again by its kernel.
const CONNECTIONS: PacketRate = PacketRate { per_second: 2_000, burst: 8_000 };

/// Questions to the resolver per sandbox, likewise.
const QUESTIONS: PacketRate = PacketRate { per_second: 2_000, burst: 2_000 };

/// After fragments were put together (-400), before routing decides anything: nft calls it `mangle`.
const PREROUTING: Chain =
    Chain { name: "prerouting", hook: Hook::Prerouting, priority: -150, policy: NF_DROP };
const FORWARD: Chain = Chain { name: "forward", hook: Hook::Forward, priority: 0, policy: NF_DROP };

/// Adds the whole table to a batch for the netfilter socket of a fresh namespace. A kernel that speaks both families
/// loads the rules of both or none: there is no sandbox whose v6 is not filtered.
pub(super) fn load(families: Families) -> Batch {
    load_for(&Ends::of(families))
}

fn load_for(ends: &[Ends]) -> Batch {
    let mut table = Table::fresh(TABLE, STEP);
    table.chain(PREROUTING);
    table.chain(FORWARD);
    add_rules(&mut table, ends);
    table.finish()
}

/// The addresses of one family, as rules name them.
struct Ends {
    family: u8,
    source: (Header, Vec<u8>),
    destination: (Header, Vec<u8>),
}

impl Ends {
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

fn add_rules(table: &mut Table, ends: &[Ends]) {
    table.rule(PREROUTING, |rule| rule.interface_is_loopback().verdict(NF_ACCEPT));
    table.rule(PREROUTING, |rule| rule.interface_is_not(GATEWAY_INTERFACE).verdict(NF_DROP));
    table.rule(PREROUTING, |rule| {
        rule.comes_by_ethernet().field_is_not(Header::EthernetSource, &SANDBOX_HARDWARE).verdict(NF_DROP);
    });
    for ends in ends {
        table.rule(PREROUTING, |rule| {
            let rule = ends.sent_to_gateway(rule).speaks(Transport::Tcp);
            rule.continues_what_an_own_socket_began().verdict(NF_ACCEPT);
        });
    }
    for ends in ends.iter().filter(|ends| ends.family == NFPROTO_IPV6) {
        table.rule(PREROUTING, |rule| {
            ends.sent_by_sandbox(rule).says_neighbour_discovery().verdict(NF_ACCEPT)
        });
    }
    table.rule(PREROUTING, |rule| rule.speaks(Transport::Tcp).opens().exceeds(CONNECTIONS).verdict(NF_DROP));
    table.rule(PREROUTING, |rule| {
        rule.speaks(Transport::Udp).goes_to_port(DNS_PORT).exceeds(QUESTIONS).verdict(NF_DROP);
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
    // Last: what is not handed over because no door is open meets no rule any more.
    for ends in ends {
        table.rule(PREROUTING, |rule| {
            let rule = ends.sent_by_sandbox(rule).speaks(Transport::Tcp);
            rule.hand_over(ends.family, EGRESS_PORT, HANDED_OVER).verdict(NF_ACCEPT);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::linux::namespace::Traveller;
    use crate::linux::netlink::{Protocol, SlotError, Socket};

    /// The words of the rules as the header of this file writes them, of the lines that are wanted.
    fn documented(wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let lines = include_str!("rules.rs").lines().skip_while(|line| *line != "//! ```text").skip(1);
        let block = lines.take_while(|line| *line != "//! ```").filter(|line| wanted(line));
        words(&block.map(|line| line.trim_start_matches("//!")).collect::<String>())
    }

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// Loads `rules` into a fresh namespace, and says whether that worked and what the kernel then holds.
    fn loaded(rules: &Batch) -> (Result<(), SlotError>, String) {
        let visit = || {
            let outcome = Socket::open(Protocol::Netfilter)?.run(rules);
            Ok((outcome, Command::new("nft").args(["list", "ruleset"]).output()?))
        };
        let (outcome, listed) = Traveller::new().unwrap().visit_new(visit).unwrap().1;
        assert!(listed.status.success(), "{listed:?}");
        (outcome, String::from_utf8(listed.stdout).unwrap())
    }

    #[test]
    fn the_kernel_holds_the_rules_that_are_documented() {
        let (outcome, listed) = loaded(&load(Families::Both));
        outcome.unwrap();
        assert_eq!(words(&listed), documented(|_| true));
    }

    /// E-N3: no filter for v6, no sandbox.
    #[test]
    fn when_the_rules_of_one_family_cannot_be_loaded_none_are_and_it_fails() {
        let mut ends = Ends::of(Families::Both);
        // A family that the kernel cannot hand over.
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
