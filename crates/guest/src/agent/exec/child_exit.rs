//! How one child of the agent ended.

#[derive(Clone, Copy, Debug)]
pub(in crate::agent) struct ChildExit {
    pub(in crate::agent) pid: i32,
    pub(in crate::agent) status: i32,
    pub(in crate::agent) cpu_us: u64,
    pub(in crate::agent) ram_max_bytes: u64,
    /// When, by CLOCK_BOOTTIME.
    pub(in crate::agent) boot_us: u64,
}
