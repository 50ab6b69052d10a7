//! Tables of the packet filter, written into one batch, which the kernel applies as a whole or not at all.

use super::expression::Rule;
use super::netlink::{APPEND, Attributes, Batch, CREATE, ENSURE};

// From <linux/netfilter/nfnetlink.h> and <linux/netfilter.h>.
const NFPROTO_INET: u8 = 1;
const NFNL_SUBSYS_NFTABLES: u16 = 10;
const NFNL_MSG_BATCH_BEGIN: u16 = 16;
const NFNL_MSG_BATCH_END: u16 = 17;
pub(super) const NF_DROP: u32 = 0;
pub(super) const NF_ACCEPT: u32 = 1;

// From <linux/netfilter/nf_tables.h>.
const NFT_MSG_NEWTABLE: u16 = 0;
const NFT_MSG_DELTABLE: u16 = 2;
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

/// The point on a packet's way at which a chain is evaluated.
#[derive(Clone, Copy, Debug)]
pub(super) enum Hook {
    Prerouting,
    Forward,
    Output,
}

impl Hook {
    fn number(self) -> u32 {
        match self {
            Self::Prerouting => 0,
            Self::Forward => 2,
            Self::Output => 3,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    pub(super) name: &'static str,
    pub(super) hook: Hook,
    /// Chains at one hook are evaluated in ascending order of this number.
    pub(super) priority: i32,
    /// The verdict for packets that no rule decides about.
    pub(super) policy: u32,
}

/// A table that is being built.
#[derive(Debug)]
pub(super) struct Table {
    name: &'static str,
    step: &'static str,
    batch: Batch,
}

impl Table {
    /// A table that does not exist yet. `step` names all of it in errors.
    pub(super) fn fresh(name: &'static str, step: &'static str) -> Self {
        let mut table = Self::begin(name, step);
        table.add_itself(NFT_MSG_NEWTABLE, CREATE);
        table
    }

    /// The same, replacing a table that may exist.
    pub(super) fn replacing(name: &'static str, step: &'static str) -> Self {
        let mut table = Self::removing(name, step);
        table.add_itself(NFT_MSG_NEWTABLE, CREATE);
        table
    }

    /// Removes such a table, whether it exists or not.
    pub(super) fn removing(name: &'static str, step: &'static str) -> Self {
        let mut table = Self::begin(name, step);
        // A missing table cannot be removed, so it is created first.
        table.add_itself(NFT_MSG_NEWTABLE, ENSURE);
        table.add_itself(NFT_MSG_DELTABLE, 0);
        table
    }

    pub(super) fn chain(&mut self, chain: Chain) {
        let table = self.name;
        self.add(NFT_MSG_NEWCHAIN, CREATE, |attributes| {
            attributes.put_text(NFTA_CHAIN_TABLE, table);
            attributes.put_text(NFTA_CHAIN_NAME, chain.name);
            attributes.nest(NFTA_CHAIN_HOOK, |hook| {
                hook.put_be32(NFTA_HOOK_HOOKNUM, chain.hook.number());
                hook.put(NFTA_HOOK_PRIORITY, &chain.priority.to_be_bytes());
            });
            attributes.put_be32(NFTA_CHAIN_POLICY, chain.policy);
            attributes.put_text(NFTA_CHAIN_TYPE, "filter");
        });
    }

    /// Adds a rule after the existing rules of its chain.
    pub(super) fn rule(&mut self, chain: Chain, describe: impl FnOnce(Rule<'_, '_>)) {
        let table = self.name;
        self.add(NFT_MSG_NEWRULE, APPEND, |rule| {
            rule.put_text(NFTA_RULE_TABLE, table);
            rule.put_text(NFTA_RULE_CHAIN, chain.name);
            rule.nest(NFTA_RULE_EXPRESSIONS, |list| describe(Rule::new(list)));
        });
    }

    /// For a netfilter socket of the namespace.
    pub(super) fn finish(mut self) -> Batch {
        self.batch.bracket(self.step, NFNL_MSG_BATCH_END, &bracket());
        self.batch
    }

    fn begin(name: &'static str, step: &'static str) -> Self {
        let mut batch = Batch::default();
        batch.bracket(step, NFNL_MSG_BATCH_BEGIN, &bracket());
        Self { name, step, batch }
    }

    fn add_itself(&mut self, message: u16, flags: u16) {
        let name = self.name;
        self.add(message, flags, |table| table.put_text(NFTA_TABLE_NAME, name));
    }

    fn add(&mut self, message: u16, flags: u16, attributes: impl FnOnce(&mut Attributes<'_>)) {
        let kind = (NFNL_SUBSYS_NFTABLES << 8) | message;
        self.batch.add(self.step, kind, flags, &[NFPROTO_INET, 0, 0, 0], attributes);
    }
}

/// A begin or end message names the subsystem of the batch, in network byte order.
fn bracket() -> Vec<u8> {
    [&[0, 0][..], &NFNL_SUBSYS_NFTABLES.to_be_bytes()].concat()
}
