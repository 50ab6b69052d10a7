//! Work that the daemon does by itself, until it ends.

pub(crate) mod audit;
pub(crate) mod audit_feed;
pub(crate) mod memory;
