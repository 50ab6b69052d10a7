//! The defaults that a user may rely on, each defined once. The reference is generated from them.

/// Port of the daemon.
pub const PORT: u16 = 7700;
pub const URL: &str = "http://127.0.0.1:7700";
pub const IMAGE: &str = "debian";
/// `microvm` where the processor can run them, else `container`.
pub const DRIVER: &str = "auto";
pub const RAM_MIB: u32 = 1024;
pub const CPU_MILLIS: u32 = 2000;
pub const PIDS: u32 = 1024;
pub const DISK_MIB: u32 = 10 * 1024;
/// Bytes of output kept per exec for re-attaching.
pub const RING_BYTES: u32 = 1 << 20;
/// Bytes of output returned for an exec that the client waited for, per stream.
pub const RUN_OUTPUT_BYTES: usize = 1 << 20;
/// How long `stop` waits for processes to end by themselves.
pub const STOP_GRACE_MS: u64 = 5_000;
/// Entries of a page: the default, and the maximum.
pub const PAGE_LIMIT: u32 = 100;
pub const PAGE_LIMIT_MAX: u32 = 1_000;
/// Maximum entries of a directory listing.
pub const LIST_ENTRIES_MAX: u32 = 100_000;
/// Lifetime of a link to a port: the default (an hour), and the maximum (thirty days).
pub const PORT_URL_SECONDS: u32 = 3_600;
pub const PORT_URL_SECONDS_MAX: u32 = 30 * 24 * 3_600;
/// Largest JSON body.
pub const JSON_BODY_BYTES_MAX: usize = 1 << 20;
/// Snapshots that a policy keeps by default.
pub const SNAPSHOT_KEEP: u32 = 10;
/// Maximum children of one fork.
pub const FORK_MAX: u32 = 64;
/// How long an object must be unused to be stale, by default: thirty days.
pub const GC_UNUSED_SECONDS: u64 = 30 * 24 * 3_600;
/// Default kind and importance of a memory entry.
pub const MEMORY_KIND: &str = "note";
pub const MEMORY_IMPORTANCE: f32 = 0.5;
/// Hits of a memory search: the default, and the maximum.
pub const MEMORY_HITS: u32 = 10;
pub const MEMORY_HITS_MAX: u32 = 200;
/// Tokens of a block for a prompt: the default, the minimum and the maximum.
pub const CONTEXT_TOKENS: u32 = 1_000;
pub const CONTEXT_TOKENS_MIN: u32 = 64;
pub const CONTEXT_TOKENS_MAX: u32 = 32_000;
/// Maximum entries, and maximum operations of working memory, in one request.
pub const MEMORY_BATCH_MAX: usize = 1_000;
pub const KV_BATCH_MAX: usize = 256;
/// Largest JSON body of a memory request: a batch of entries is larger than other requests.
pub const MEMORY_BODY_BYTES_MAX: usize = 16 << 20;
