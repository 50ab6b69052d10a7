//! What PID 1 gives up before it becomes the agent, and with it all that will ever run in the machine.

#![expect(
    unsafe_code,
    reason = "the bounding set has no safe interface that knows capabilities of later kernels"
)]

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

use super::message::{At as _, Failure};
use crate::container::seccomp::{self, Instruction};

/// What root inside may do, to what belongs to its user namespace: be root to its own files, users and processes, and
/// serve on low ports. No raw packets, no devices, no mounts, no tracing of what it could not trace anyway.
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

/// Open files of one process, until it asks for more; a bound rather than whatever the daemon happened to have.
const OPEN_FILES_SOFT: u64 = 65_536;
const OPEN_FILES_HARD: u64 = 1 << 20;

/// A soft limit of exactly one byte is what makes the kernel skip the program of a piped `core_pattern`, which it runs as
/// the host's root. With 0 it runs it. The filter keeps processes inside from changing the limit.
const CORE_BYTES: u64 = 1;

pub(super) fn load_filter(filter: &[Instruction]) -> Result<(), Failure> {
    seccomp::enter(filter).at("load the system call filter")
}

/// From the bounding set first, since that takes a capability which goes with the second step. No later program gains
/// any of them back, whatever its owner or mode.
pub(super) fn drop_capabilities() -> Result<(), Failure> {
    drop_bounding_set(KEPT)?;
    let sets = CapabilitySets { effective: KEPT, permitted: KEPT, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).at("give up capabilities")
}

/// All but `kept`.
pub(super) fn drop_bounding_set(kept: CapabilitySet) -> Result<(), Failure> {
    for number in 0..u64::BITS {
        if kept.bits() >> number & 1 == 1 {
            continue;
        }
        // SAFETY: changes a set of this process; takes no pointers.
        let result = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(number), 0, 0, 0) };
        let error = if result == 0 { None } else { Some(io::Error::last_os_error()) };
        match error {
            // This kernel has no capability of that number, nor any above it.
            Some(error) if error.raw_os_error() == Some(libc::EINVAL) => break,
            Some(error) => return Err(error).at("give up a capability for good"),
            None => {}
        }
    }
    Ok(())
}

pub(super) fn set_resource_limits() -> Result<(), Failure> {
    // Limits can be lowered by anybody; where the daemon's own are lower already, those stay.
    let hard = getrlimit(Resource::Nofile).maximum.map_or(OPEN_FILES_HARD, |hard| hard.min(OPEN_FILES_HARD));
    let files = Rlimit { current: Some(OPEN_FILES_SOFT.min(hard)), maximum: Some(hard) };
    setrlimit(Resource::Nofile, files).at("limit open files")?;
    // Fails where the hard limit is 0, see `raise_core_limit`: better no machine than one whose crashes run as root.
    let core = Rlimit { current: Some(CORE_BYTES), maximum: Some(CORE_BYTES) };
    setrlimit(Resource::Core, core).at("limit core dumps")
}

/// Lets machines have a core limit of one byte where this process was started with none (`LimitCORE=0`): once in a
/// user namespace, neither a new machine nor a restored one can raise its hard limit.
pub(crate) fn raise_core_limit() -> io::Result<()> {
    let limit = getrlimit(Resource::Core);
    if limit.maximum != Some(0) {
        return Ok(());
    }
    Ok(setrlimit(Resource::Core, Rlimit { current: limit.current, maximum: Some(CORE_BYTES) })?)
}
