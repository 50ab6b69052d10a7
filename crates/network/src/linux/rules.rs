//! The packet filter of a gateway namespace: what may arrive from a sandbox.
//!
//! ```text
//! table inet burrow {
//!   chain prerouting { type filter hook prerouting priority mangle; policy drop;
//!     iif "lo" accept
//!     iifname != "gw0" drop
//!     ip saddr 10.88.0.2 ip daddr 10.88.0.1 meta l4proto tcp ct direction reply ct state established accept
//!     ip6 saddr fd88::2 ip6 daddr fd88::1 meta l4proto tcp ct direction reply ct state established accept
//!     ip6 saddr fd88::2 icmpv6 type 135-136 accept
//!     ip6 saddr fe80::/10 icmpv6 type 135-136 accept
//!   }
//!   chain forward { type filter hook forward priority filter; policy drop; }
//! }
//! ```
//!
//! In words: answers to connections that the daemon dialled come in, from the sandbox's own addresses only, and
//! neighbour discovery does; everything else a sandbox sends is dropped before it is routed. It is an allow-list, so
//! a spoofed source is dropped by not being on it. The forward chain is a second lock: it holds even where the host's
//! own settings (`ip_forward`, `route_localnet`) leaked into the namespace when it was made.
//!
//! Spoken to the kernel directly: starting `nft` would take half of the time a slot costs. A test compares what
//! `nft` reads back with the text above.

use super::expression;
use super::interfaces::GATEWAY_INTERFACE;
use super::netlink::{APPEND, Attributes, Batch, CREATE};
use crate::address::{GATEWAY_V4, GATEWAY_V6, SANDBOX_V4, SANDBOX_V6};

const TABLE: &str = "burrow";
const PREROUTING: &str = "prerouting";
const FORWARD: &str = "forward";

/// What a failure to load any of it is called.
const STEP: &str = "load the gateway's rules";

// From <linux/netfilter/nfnetlink.h> and <linux/netfilter.h>.
const NFPROTO_INET: u8 = 1;
const NFNL_SUBSYS_NFTABLES: u16 = 10;
const NFNL_MSG_BATCH_BEGIN: u16 = 16;
const NFNL_MSG_BATCH_END: u16 = 17;
const NF_DROP: u32 = 0;
const NF_ACCEPT: u32 = 1;
const NF_INET_PRE_ROUTING: u32 = 0;
const NF_INET_FORWARD: u32 = 2;
/// After connection tracking (-200), before routing decides anything.
const PRIORITY_MANGLE: i32 = -150;
const PRIORITY_FILTER: i32 = 0;

// From <linux/netfilter/nf_tables.h>.
const NFT_MSG_NEWTABLE: u16 = 0;
const NFT_MSG_NEWCHAIN: u16 = 3;
const NFT_MSG_NEWRULE: u16 = 6;
const NFTA_TABLE_NAME: u16 = 1;
const NFTA_CHAIN_TABLE: u16 = 1;
const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_CHAIN_HOOK: u16 = 4;
const NFTA_CHAIN_POLICY: u16 = 5;
const NFTA_CHAIN_TYPE: u16 = 7;
const NFTA_HOOK_HOOKNUM: u16 = 1;
const NFTA_HOOK_PRIORITY: u16 = 2;
const NFTA_RULE_TABLE: u16 = 1;
const NFTA_RULE_CHAIN: u16 = 2;
const NFTA_RULE_EXPRESSIONS: u16 = 4;

/// Adds the whole table to a batch for the netfilter socket of a fresh namespace.
pub(super) fn load() -> Batch {
    let mut batch = Batch::default();
    // The bracket names the subsystem its content is for, in network order.
    let bracket = [&[0, 0][..], &NFNL_SUBSYS_NFTABLES.to_be_bytes()].concat();
    batch.bracket(STEP, NFNL_MSG_BATCH_BEGIN, &bracket);
    add(&mut batch, NFT_MSG_NEWTABLE, CREATE, |table| table.put_text(NFTA_TABLE_NAME, TABLE));
    add_chain(&mut batch, PREROUTING, NF_INET_PRE_ROUTING, PRIORITY_MANGLE);
    add_chain(&mut batch, FORWARD, NF_INET_FORWARD, PRIORITY_FILTER);
    add_rules(&mut batch);
    batch.bracket(STEP, NFNL_MSG_BATCH_END, &bracket);
    batch
}

fn add_rules(batch: &mut Batch) {
    use expression::{Header, Rule};

    add_rule(batch, |rule| rule.interface_is_loopback().verdict(NF_ACCEPT));
    add_rule(batch, |rule| rule.interface_is_not(GATEWAY_INTERFACE).verdict(NF_DROP));
    add_rule(batch, |rule| {
        let rule = rule.of_family(expression::NFPROTO_IPV4);
        let rule = rule.field_is(Header::Ipv4Source, &SANDBOX_V4.octets());
        let rule = rule.field_is(Header::Ipv4Destination, &GATEWAY_V4.octets());
        rule.answers_a_tcp_dial().verdict(NF_ACCEPT);
    });
    add_rule(batch, |rule| {
        let rule = rule.of_family(expression::NFPROTO_IPV6);
        let rule = rule.field_is(Header::Ipv6Source, &SANDBOX_V6.octets());
        let rule = rule.field_is(Header::Ipv6Destination, &GATEWAY_V6.octets());
        rule.answers_a_tcp_dial().verdict(NF_ACCEPT);
    });
    let solicits = |rule: Rule<'_, '_>| rule.says_neighbour_discovery().verdict(NF_ACCEPT);
    add_rule(batch, |rule| {
        solicits(rule.of_family(expression::NFPROTO_IPV6).field_is(Header::Ipv6Source, &SANDBOX_V6.octets()));
    });
    add_rule(batch, |rule| solicits(rule.of_family(expression::NFPROTO_IPV6).comes_from_link_local()));
}

fn add_chain(batch: &mut Batch, name: &str, hook: u32, priority: i32) {
    add(batch, NFT_MSG_NEWCHAIN, CREATE, |chain| {
        chain.put_text(NFTA_CHAIN_TABLE, TABLE);
        chain.put_text(NFTA_CHAIN_NAME, name);
        chain.nest(NFTA_CHAIN_HOOK, |attributes| {
            attributes.put_be32(NFTA_HOOK_HOOKNUM, hook);
            attributes.put(NFTA_HOOK_PRIORITY, &priority.to_be_bytes());
        });
        chain.put_be32(NFTA_CHAIN_POLICY, NF_DROP);
        chain.put_text(NFTA_CHAIN_TYPE, "filter");
    });
}

fn add_rule(batch: &mut Batch, describe: impl FnOnce(expression::Rule<'_, '_>)) {
    add(batch, NFT_MSG_NEWRULE, APPEND, |rule| {
        rule.put_text(NFTA_RULE_TABLE, TABLE);
        rule.put_text(NFTA_RULE_CHAIN, PREROUTING);
        rule.nest(NFTA_RULE_EXPRESSIONS, |list| describe(expression::Rule::new(list)));
    });
}

fn add(batch: &mut Batch, message: u16, flags: u16, attributes: impl FnOnce(&mut Attributes<'_>)) {
    batch.add(STEP, (NFNL_SUBSYS_NFTABLES << 8) | message, flags, &[NFPROTO_INET, 0, 0, 0], attributes);
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::linux::namespace::Traveller;
    use crate::linux::netlink::{Protocol, Socket};

    /// The words of the rules as the header of this file writes them.
    fn documented() -> Vec<String> {
        let lines = include_str!("rules.rs").lines();
        let block =
            lines.skip_while(|line| *line != "//! ```text").skip(1).take_while(|line| *line != "//! ```");
        words(&block.map(|line| line.trim_start_matches("//!")).collect::<String>())
    }

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_kernel_holds_the_rules_that_are_documented() {
        let listed = Traveller::new()
            .unwrap()
            .visit_new(|| {
                Socket::open(Protocol::Netfilter)?.run(&load()).map_err(std::io::Error::other)?;
                Command::new("nft").args(["list", "ruleset"]).output()
            })
            .unwrap()
            .1;
        assert!(listed.status.success(), "{listed:?}");
        assert_eq!(words(&String::from_utf8(listed.stdout).unwrap()), documented());
    }
}
