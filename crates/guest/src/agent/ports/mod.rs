//! The sandbox's TCP ports: the list of listening ones, and byte pipes to them.

mod listening;
mod relay;

pub(super) use self::listening::list;
pub(super) use self::relay::{Relays, connect};
