//! The sandbox as a whole: what it uses, and what its `/proc/meminfo` shows.

mod meminfo;
mod processes;
mod stats;

pub(super) use self::meminfo::Meminfo;
pub(super) use self::stats::stats;
