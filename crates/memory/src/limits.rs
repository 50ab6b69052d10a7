//! How much of everything: each with its reason, and all of them clear errors when met.

/// Longest text of one entry. More is a document, which belongs in an artifact that the entry links to.
pub const TEXT_BYTES_MAX: usize = 64 * 1024;

/// Metadata is for filters, and is read for every row a filter looks at.
pub const METADATA_BYTES_MAX: usize = 16 * 1024;

/// Entries of one `add`: more than a commit gains by, few enough that others do not wait long behind it.
pub const BATCH_MAX: usize = 1000;

/// A kind is a word (`note`, `decision`).
pub const KIND_BYTES_MAX: usize = 64;

/// Sources, sessions, users, agents and idempotency keys are names, not texts.
pub const LABEL_BYTES_MAX: usize = 512;

/// Ids, artifacts and links one entry may name: an entry is one thing, not a list of the space.
pub const LINKS_MAX: usize = 256;

/// Ids of one request.
pub const IDS_MAX: usize = 10_000;

/// Ids that an answer lists of what it forgot; the count tells the rest.
pub const FORGOTTEN_SHOWN_MAX: usize = 1000;

/// Conditions on metadata in one filter.
pub const CONDITIONS_MAX: usize = 32;

/// Entries of one space: the scan of their signs stays under 20 ms, and a row number fits 32 bits.
pub const ENTRIES_MAX: u64 = 5_000_000;

/// What a host gives to memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Spaces that are kept open: each holds a few files and its arena.
    pub open_spaces_max: usize,
    /// Bytes of RAM that all arenas together may take before the idle ones are closed.
    pub arena_bytes_max: u64,
    /// A space nobody used for this long is closed.
    pub idle_ms: u64,
    /// Reads that run at once on this host; others wait for a place.
    pub readers_max: usize,
    /// Bytes of artifacts of one space, all its branches and versions included.
    pub space_artifact_bytes_max: u64,
}

impl Limits {
    /// What suits a machine of a few cores.
    pub const fn usual() -> Self {
        Self {
            open_spaces_max: 256,
            arena_bytes_max: 1 << 30,
            idle_ms: 10 * 60 * 1000,
            readers_max: 16,
            space_artifact_bytes_max: 10 << 30,
        }
    }
}
