//! The sandbox's TCP ports: which of them listen, and byte pipes into them.

mod listening;
mod relay;

pub(super) use self::listening::list;
pub(super) use self::relay::{Relays, connect};
