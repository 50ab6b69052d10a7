//! The limits of memory, each with its reason. Reaching one is an error that names it.

/// Longest text of one entry. Longer texts belong in an artifact that the entry links to.
pub const TEXT_BYTES_MAX: usize = 64 * 1024;

/// Metadata is for filters, and is read for every row that a filter examines.
pub const METADATA_BYTES_MAX: usize = 16 * 1024;

/// Entries of one `add`: more would not make a commit more efficient, and other writers would wait longer.
pub const BATCH_MAX: usize = 1000;

/// A kind is a word (`note`, `decision`).
pub const KIND_BYTES_MAX: usize = 64;

/// Sources, sessions, users, agents and idempotency keys are names, not texts.
pub const LABEL_BYTES_MAX: usize = 512;

/// Ids, artifacts and links that one entry may name.
pub const LINKS_MAX: usize = 256;

/// Ids of one request.
pub const IDS_MAX: usize = 10_000;

/// Ids that the result of forgetting or erasing lists; it also has the total count.
pub const FORGOTTEN_SHOWN_MAX: usize = 1000;

/// Conditions on metadata in one filter.
pub const CONDITIONS_MAX: usize = 32;

/// Entries of one space: scanning their signs takes less than 20 ms, and a row number fits in 32 bits.
pub const ENTRIES_MAX: u64 = 5_000_000;

/// The resources of a host that memory may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Spaces that are kept open: each has a few open files and its arena.
    pub open_spaces_max: usize,
    /// Bytes of RAM of all arenas together; above it, idle spaces are closed.
    pub arena_bytes_max: u64,
    /// A space that is unused for this long is closed.
    pub idle_ms: u64,
    /// Concurrent reads on this host; others wait.
    pub readers_max: usize,
    /// Bytes of artifacts of one space, including all its branches and versions.
    pub space_artifact_bytes_max: u64,
    /// Bytes of the file of one space.
    pub space_bytes_max: u64,
}

impl Limits {
    /// Suitable for a host with a few cores.
    pub const fn usual() -> Self {
        Self {
            open_spaces_max: 256,
            arena_bytes_max: 1 << 30,
            idle_ms: 10 * 60 * 1000,
            readers_max: 16,
            space_artifact_bytes_max: 10 << 30,
            space_bytes_max: 16 << 30,
        }
    }
}
