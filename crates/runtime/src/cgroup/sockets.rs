//! Limits the internet sockets of a sandbox on hosts where cgroup v1 counts RAM.
//!
//! v1 charges the buffers of sockets separately from other RAM, and the kernel accepts the first message of each
//! connection even beyond that limit ([`super::limits`]). The number of sockets therefore has a limit too. The kernel
//! has no such limit: two BPF programs, attached to the sandbox's v2 directory, count its sockets.
//!
//! ```text
//!   socket() ──► count + 1; over the limit: count - 1 and ENOBUFS        close() ──► count - 1
//! ```
//!
//! Count and limit are in a storage that the kernel keeps per directory. The kernel detaches the programs when the
//! directory is removed, so nothing is left behind, and keeps them attached when the daemon ends.
//!
//! Sockets created by `accept` are not counted by the kernel's hook. Of each connection of a sandbox to itself, the
//! other end is counted.

#![expect(unsafe_code, reason = "bpf(2) has no safe interface")]

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Sockets per MiB of the RAM limit. Beyond the limit of buffers each connection uses about 75 KiB, so all of them
/// together use less than a third of the RAM limit.
const SOCKETS_PER_MIB: u64 = 4;

/// The minimum for a small sandbox.
const SOCKETS_MIN: u64 = 256;

const MAP_CREATE: libc::c_long = 0;
const MAP_LOOKUP: libc::c_long = 1;
const MAP_UPDATE: libc::c_long = 2;
const PROGRAM_LOAD: libc::c_long = 5;
const PROGRAM_ATTACH: libc::c_long = 8;

const MAP_TYPE_CGROUP_STORAGE: u32 = 19;
const PROGRAM_TYPE_CGROUP_SOCK: u32 = 9;
const ATTACH_SOCKET_CREATE: u32 = 2;
const ATTACH_SOCKET_RELEASE: u32 = 34;

const HELPER_GET_LOCAL_STORAGE: i32 = 81;
const HELPER_SET_RETVAL: i32 = 187;

/// The loaded programs, for all sandboxes of this daemon.
#[derive(Debug)]
pub(super) struct SocketLimit {
    storage: OwnedFd,
    create: OwnedFd,
    release: OwnedFd,
}

/// The kernel's storage per directory. The programs read both fields by their offsets.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Storage {
    /// Negative if sockets were opened before the programs were attached.
    count: i64,
    /// Zero: no limit.
    limit: u64,
}

impl SocketLimit {
    /// Fails on kernels before 5.18 and where BPF is forbidden.
    pub(super) fn load() -> io::Result<Self> {
        let storage = open(
            MAP_CREATE,
            &mut MapCreate {
                kind: MAP_TYPE_CGROUP_STORAGE,
                // The key is only the directory's id, so both programs share the storage.
                key_bytes: size_of::<u64>() as u32,
                value_bytes: size_of::<Storage>() as u32,
                entries: 0,
            },
        )?;
        let create = load(&count_up(storage.as_raw_fd()), ATTACH_SOCKET_CREATE)?;
        let release = load(&count_down(storage.as_raw_fd()), ATTACH_SOCKET_RELEASE)?;
        Ok(Self { storage, create, release })
    }

    /// Counts the sockets that the processes in this v2 directory open from now on. A repeat changes nothing; programs of an
    /// earlier daemon are replaced.
    pub(super) fn count(&self, directory: &Path) -> io::Result<()> {
        let directory = File::open(directory)?;
        for (program, kind) in [(&self.create, ATTACH_SOCKET_CREATE), (&self.release, ATTACH_SOCKET_RELEASE)]
        {
            bpf(
                PROGRAM_ATTACH,
                &mut ProgramAttach {
                    target: directory.as_raw_fd(),
                    program: program.as_raw_fd(),
                    kind,
                    flags: 0,
                },
            )?;
        }
        Ok(())
    }

    /// Sets the limit for this much RAM.
    pub(super) fn set(&self, directory: &Path, ram_mib: u32) -> io::Result<()> {
        self.count(directory)?;
        let key = fs::metadata(directory)?.ino();
        let mut value = Storage::default();
        let mut element = MapElement {
            map: self.storage.as_raw_fd(),
            key: (&raw const key).expose_provenance() as u64,
            value: (&raw mut value).expose_provenance() as u64,
            flags: 0,
        };
        bpf(MAP_LOOKUP, &mut element)?;
        value.limit = sockets_max(ram_mib);
        element.value = (&raw mut value).expose_provenance() as u64;
        bpf(MAP_UPDATE, &mut element).map(drop)
    }
}

fn sockets_max(ram_mib: u32) -> u64 {
    (u64::from(ram_mib) * SOCKETS_PER_MIB).max(SOCKETS_MIN)
}

// === the programs ===

/// One instruction: operation, registers, offset, immediate value.
type Instruction = [u8; 8];

const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;

fn instruction(operation: u8, target: u8, source: u8, offset: i16, immediate: i32) -> Instruction {
    let [offset0, offset1] = offset.to_ne_bytes();
    let [byte0, byte1, byte2, byte3] = immediate.to_ne_bytes();
    [operation, target | source << 4, offset0, offset1, byte0, byte1, byte2, byte3]
}

fn set(target: u8, value: i32) -> Instruction {
    instruction(0xb7, target, 0, 0, value)
}

fn read(target: u8, from: u8, offset: i16) -> Instruction {
    instruction(0x79, target, from, offset, 0)
}

fn add_at(target: u8, source: u8) -> Instruction {
    instruction(0xdb, target, source, 0, 0)
}

fn call(helper: i32) -> Instruction {
    instruction(0x85, 0, 0, 0, helper)
}

fn exit_with(value: i32) -> [Instruction; 2] {
    [set(R0, value), instruction(0x95, 0, 0, 0, 0)]
}

/// `r0` is the storage of the directory that the socket belongs to.
fn get_storage(map: RawFd) -> [Instruction; 4] {
    // A 64-bit constant takes two instructions; source 1 marks it as a map.
    [instruction(0x18, R1, 1, 0, map), [0; 8], set(R2, 0), call(HELPER_GET_LOCAL_STORAGE)]
}

fn count_up(map: RawFd) -> Vec<Instruction> {
    let refuse =
        [&[set(R1, -1), add_at(R0, R1), set(R1, -libc::ENOBUFS), call(HELPER_SET_RETVAL)][..], &exit_with(0)]
            .concat();
    let past_refuse = refuse.len() as i16;
    let judge = [
        set(R1, 1),
        add_at(R0, R1),
        read(R1, R0, 0),
        read(R2, R0, 8),
        // Without a limit, or below it, the refusal is skipped.
        instruction(0x15, R2, 0, past_refuse + 1, 0),
        instruction(0xdd, R1, R2, past_refuse, 0),
    ];
    [&get_storage(map)[..], &judge, &refuse, &exit_with(1)].concat()
}

fn count_down(map: RawFd) -> Vec<Instruction> {
    [&get_storage(map)[..], &[set(R1, -1), add_at(R0, R1)], &exit_with(1)].concat()
}

// === bpf(2) ===

#[repr(C)]
struct MapCreate {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
}

#[repr(C)]
struct MapElement {
    map: RawFd,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgramLoad {
    kind: u32,
    instructions_count: u32,
    instructions: u64,
    license: u64,
    /// The verifier's log, which is not read, and a kernel version, which this kind of program does not need.
    unused: [u32; 6],
    name: [u8; 16],
    interface: u32,
    expected_attach_kind: u32,
}

#[repr(C)]
struct ProgramAttach {
    target: RawFd,
    program: RawFd,
    kind: u32,
    flags: u32,
}

fn load(instructions: &[Instruction], expected_attach_kind: u32) -> io::Result<OwnedFd> {
    open(
        PROGRAM_LOAD,
        &mut ProgramLoad {
            kind: PROGRAM_TYPE_CGROUP_SOCK,
            instructions_count: instructions.len() as u32,
            instructions: instructions.as_ptr().expose_provenance() as u64,
            license: c"GPL".as_ptr().expose_provenance() as u64,
            unused: [0; 6],
            name: *b"burrow_sockets\0\0",
            interface: 0,
            expected_attach_kind,
        },
    )
}

/// For commands that return a descriptor.
fn open<T>(command: libc::c_long, attributes: &mut T) -> io::Result<OwnedFd> {
    let descriptor = RawFd::try_from(bpf(command, attributes)?).map_err(io::Error::other)?;
    // SAFETY: the kernel has just opened it for this caller, close-on-exec as all BPF descriptors.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn bpf<T>(command: libc::c_long, attributes: &mut T) -> io::Result<libc::c_long> {
    // SAFETY: the attributes have the command's layout, and everything they point to outlives the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_follows_the_ram_and_has_a_minimum() {
        assert_eq!([1, 64, 512, 4096].map(sockets_max), [256, 256, 2048, 16384]);
    }
}
