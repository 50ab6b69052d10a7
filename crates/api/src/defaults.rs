//! The defaults a user may rely on, each written once; the reference is generated from here.

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
/// Bytes of output returned by a waited-for exec, per stream.
pub const RUN_OUTPUT_BYTES: usize = 1 << 20;
/// How long `stop` lets processes end by themselves.
pub const STOP_GRACE_MS: u64 = 5_000;
/// Entries of a page when the caller does not say, and at most.
pub const PAGE_LIMIT: u32 = 100;
pub const PAGE_LIMIT_MAX: u32 = 1_000;
/// Entries of a directory listing at most.
pub const LIST_ENTRIES_MAX: u32 = 100_000;
/// How long a link to a port opens it when the caller does not say, and at most: an hour, and thirty days.
pub const PORT_URL_SECONDS: u32 = 3_600;
pub const PORT_URL_SECONDS_MAX: u32 = 30 * 24 * 3_600;
/// Largest JSON body.
pub const JSON_BODY_BYTES_MAX: usize = 1 << 20;
/// Snapshots that a policy keeps when it does not say.
pub const SNAPSHOT_KEEP: u32 = 10;
/// Children of one fork at most.
pub const FORK_MAX: u32 = 64;
/// What nobody used for this long is stale when the caller does not say: thirty days.
pub const GC_UNUSED_SECONDS: u64 = 30 * 24 * 3_600;
/// Kind and importance of an entry of memory that does not say.
pub const MEMORY_KIND: &str = "note";
pub const MEMORY_IMPORTANCE: f32 = 0.5;
/// Hits of a search in memory when the caller does not say, and at most.
pub const MEMORY_HITS: u32 = 10;
pub const MEMORY_HITS_MAX: u32 = 200;
/// Tokens of a block for a prompt when the caller does not say, and the least and the most.
pub const CONTEXT_TOKENS: u32 = 1_000;
pub const CONTEXT_TOKENS_MIN: u32 = 64;
pub const CONTEXT_TOKENS_MAX: u32 = 32_000;
/// Entries and operations of working memory in one request.
pub const MEMORY_BATCH_MAX: usize = 1_000;
pub const KV_BATCH_MAX: usize = 256;
/// Largest JSON body of a request to memory: a batch of entries is larger than other requests.
pub const MEMORY_BODY_BYTES_MAX: usize = 16 << 20;
