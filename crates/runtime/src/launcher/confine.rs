//! The privileges that PID 1 drops before it becomes the agent, for itself and every later process of the machine.

#![expect(
    unsafe_code,
    reason = "the bounding set has no safe interface that knows capabilities of later kernels"
)]

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

use super::message::{AtStep as _, Failure};
use crate::container::seccomp::{self, Instruction};

/// The capabilities that root keeps inside, limited to its user namespace: to act as root on its own files, users and
/// processes, and to serve on low ports. No raw packets, no devices, no mounts, no tracing of processes that it could
/// not trace anyway.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SYS_CHROOT)
    .union(CapabilitySet::AUDIT_WRITE)
    .union(CapabilitySet::SETFCAP);

/// The soft limit of open files per process; a fixed value instead of the daemon's own.
const OPEN_FILES_SOFT: u64 = 65_536;
const OPEN_FILES_HARD: u64 = 1 << 20;

/// A soft limit of exactly one byte makes the kernel skip the program of a piped `core_pattern`, which it would run as
/// the host's root. With 0 it runs the program. The filter prevents processes inside from changing the limit.
const CORE_BYTES: u64 = 1;

pub(super) fn load_filter(filter: &[Instruction]) -> Result<(), Failure> {
    seccomp::enter(filter).at("load the system call filter")
}

/// The bounding set first, since changing it takes a capability that the second step drops. No later program gains any
/// of them back, whatever its owner or mode.
pub(super) fn drop_capabilities() -> Result<(), Failure> {
    drop_bounding_set(KEPT)?;
    let sets = CapabilitySets { effective: KEPT, permitted: KEPT, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).at("drop capabilities")
}

/// Drops all capabilities but `kept` from the bounding set.
pub(super) fn drop_bounding_set(kept: CapabilitySet) -> Result<(), Failure> {
    for number in 0..u64::BITS {
        if kept.bits() >> number & 1 == 1 {
            continue;
        }
        // SAFETY: changes a set of this process; takes no pointers.
        let result = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(number), 0, 0, 0) };
        let error = if result == 0 { None } else { Some(io::Error::last_os_error()) };
        match error {
            // This kernel has no capability with this number or a higher one.
            Some(error) if error.raw_os_error() == Some(libc::EINVAL) => break,
            Some(error) => return Err(error).at("drop a capability from the bounding set"),
            None => {}
        }
    }
    Ok(())
}

pub(super) fn set_resource_limits() -> Result<(), Failure> {
    // Any process can lower limits; if the daemon's own are lower already, they remain.
    let hard = getrlimit(Resource::Nofile).maximum.map_or(OPEN_FILES_HARD, |hard| hard.min(OPEN_FILES_HARD));
    let files = Rlimit { current: Some(OPEN_FILES_SOFT.min(hard)), maximum: Some(hard) };
    setrlimit(Resource::Nofile, files).at("limit open files")?;
    // Fails if the hard limit is 0, see `raise_core_limit`. The machine then does not start, because its crashes would
    // run a program as root.
    let core = Rlimit { current: Some(CORE_BYTES), maximum: Some(CORE_BYTES) };
    setrlimit(Resource::Core, core).at("limit core dumps")
}

/// Allows machines a core limit of one byte if this process was started with zero (`LimitCORE=0`): inside a user
/// namespace, neither a new machine nor a restored one can raise its hard limit.
pub(crate) fn raise_core_limit() -> io::Result<()> {
    let limit = getrlimit(Resource::Core);
    if limit.maximum != Some(0) {
        return Ok(());
    }
    Ok(setrlimit(Resource::Core, Rlimit { current: limit.current, maximum: Some(CORE_BYTES) })?)
}
