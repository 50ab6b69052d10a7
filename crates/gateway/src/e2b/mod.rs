//! What the gateway and E2B's API share: tokens, and the answers for sandboxes that cannot be reached.

pub mod handed_out;
pub mod reach;
pub mod tokens;
pub mod variables;

pub use handed_out::Lookups;

/// The prefix of labels that hold settings of such clients.
pub const RESERVED_LABELS: &str = "e2b/";
