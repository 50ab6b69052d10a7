//! The kernel's btrfs and loop device calls, each as one safe function.
//!
//! Numbers and layouts are those of `linux/btrfs.h` and `linux/loop.h`. By ioctl and not by `btrfs`, since a process
//! start costs more than a snapshot, and because btrfs-progs before 6.7 cannot enable simple quotas.
#![expect(unsafe_code, reason = "rustix has neither the btrfs nor the loop device ioctls")]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

const SUBVOL_CREATE_V2: u64 = 0x5000_9418;
const SNAP_CREATE_V2: u64 = 0x5000_9417;
const SNAP_DESTROY_V2: u64 = 0x5000_943f;
const RESIZE: u64 = 0x5000_9403;
const INO_LOOKUP: u64 = 0xd000_9412;
const TREE_SEARCH: u64 = 0xd000_9411;
const FS_INFO: u64 = 0x8400_941f;
const START_SYNC: u64 = 0x8008_9418;
const WAIT_SYNC: u64 = 0x4008_9416;
const QUOTA_CTL: u64 = 0xc010_9428;
const QGROUP_CREATE: u64 = 0x4010_942a;
const QGROUP_LIMIT: u64 = 0x8030_942b;
const LOOP_CTL_GET_FREE: u64 = 0x4c82;
const LOOP_CONFIGURE: u64 = 0x4c0a;
const LOOP_SET_CAPACITY: u64 = 0x4c07;

const SUBVOL_RDONLY: u64 = 1 << 1;
const SUBVOL_QGROUP_INHERIT: u64 = 1 << 2;
const SUBVOL_SPEC_BY_ID: u64 = 1 << 4;
const QUOTA_CTL_ENABLE_SIMPLE: u64 = 4;
const QGROUP_LIMIT_MAX_RFER: u64 = 1;
const LO_FLAGS_AUTOCLEAR: u32 = 4;

/// Object id of the first inode of every subvolume.
pub(super) const FIRST_FREE_OBJECT_ID: u64 = 256;
/// The tree that lists subvolumes.
pub(super) const ROOT_TREE: u64 = 1;
/// The tree that holds quota groups.
pub(super) const QUOTA_TREE: u64 = 8;
/// Key type of "this subvolume contains that one".
pub(super) const ROOT_REF_KEY: u32 = 156;
/// Key type of a subvolume itself.
pub(super) const ROOT_ITEM_KEY: u32 = 132;
/// Key type of "this quota group belongs to that one", stored in both directions.
pub(super) const QGROUP_RELATION_KEY: u32 = 246;

const NAME_BYTES: usize = 4040;

#[repr(C)]
struct VolArgsV2 {
    fd: i64,
    transid: u64,
    flags: u64,
    /// With `SUBVOL_QGROUP_INHERIT`: size and address of a `QgroupInherit`.
    inherit_bytes: u64,
    inherit: u64,
    unused: [u64; 2],
    name: [u8; NAME_BYTES],
}

impl VolArgsV2 {
    fn new(fd: i64, flags: u64) -> Self {
        Self { fd, transid: 0, flags, inherit_bytes: 0, inherit: 0, unused: [0; 2], name: [0; NAME_BYTES] }
    }

    fn named(fd: i64, flags: u64, name: &str) -> io::Result<Self> {
        let mut args = Self::new(fd, flags);
        copy_name(&mut args.name, name)?;
        Ok(args)
    }
}

#[repr(C)]
struct QgroupInherit {
    flags: u64,
    count: u64,
    ref_copies: u64,
    excl_copies: u64,
    limit: [u64; 5],
    qgroup: u64,
}

/// Copies `name` with its closing zero byte.
fn copy_name(into: &mut [u8], name: &str) -> io::Result<()> {
    let bytes = name.as_bytes();
    if bytes.len() >= into.len() || bytes.contains(&0) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    into[..bytes.len()].copy_from_slice(bytes);
    Ok(())
}

/// Calls an ioctl whose argument is a pointer to `argument`, and returns its (non-negative) result.
fn call<T>(fd: impl AsFd, request: u64, argument: &mut T) -> io::Result<i32> {
    // SAFETY: every caller in this file passes the `repr(C)` type that `request` is defined for, so the kernel reads
    // and writes within `argument`, which lives across the call.
    let result =
        unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), request as libc::Ioctl, std::ptr::from_mut(argument)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Calls an ioctl whose argument is a number, or which takes none.
fn call_with_number(fd: impl AsFd, request: u64, argument: libc::c_ulong) -> io::Result<i32> {
    // SAFETY: the requests used with this function take their argument by value and touch no memory of ours.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), request as libc::Ioctl, argument) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Makes an empty subvolume in the directory `parent`.
pub(super) fn create_subvolume(parent: impl AsFd, name: &str) -> io::Result<()> {
    call(parent, SUBVOL_CREATE_V2, &mut VolArgsV2::named(0, 0, name)?).map(drop)
}

/// Whether a snapshot may be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    ReadOnly,
    Writable,
}

/// Snapshots the subvolume `source` into the directory `parent`, in one committed transaction with its membership of
/// `qgroup`, so that no crash can leave a snapshot without its limit.
pub(super) fn snapshot(
    parent: impl AsFd,
    name: &str,
    source: impl AsFd,
    access: Access,
    qgroup: Option<u64>,
) -> io::Result<()> {
    let flags = match access {
        Access::ReadOnly => SUBVOL_RDONLY,
        Access::Writable => 0,
    };
    let mut args = VolArgsV2::named(i64::from(source.as_fd().as_raw_fd()), flags, name)?;
    let mut inherit =
        QgroupInherit { flags: 0, count: 1, ref_copies: 0, excl_copies: 0, limit: [0; 5], qgroup: 0 };
    if let Some(qgroup) = qgroup {
        inherit.qgroup = qgroup;
        args.flags |= SUBVOL_QGROUP_INHERIT;
        args.inherit_bytes = size_of::<QgroupInherit>() as u64;
        args.inherit = std::ptr::from_mut(&mut inherit) as u64;
    }
    call(parent, SNAP_CREATE_V2, &mut args).map(drop)
}

/// Removes the subvolume `name` of the directory `parent`. One that holds others answers `ENOTEMPTY`.
pub(super) fn destroy_subvolume(parent: impl AsFd, name: &str) -> io::Result<()> {
    call(parent, SNAP_DESTROY_V2, &mut VolArgsV2::named(0, 0, name)?).map(drop)
}

/// Removes a subvolume by its id, so that no path inside a hostile tree is walked.
pub(super) fn destroy_subvolume_by_id(pool: impl AsFd, id: u64) -> io::Result<()> {
    let mut args = VolArgsV2::new(0, SUBVOL_SPEC_BY_ID);
    args.name[..8].copy_from_slice(&id.to_ne_bytes());
    call(pool, SNAP_DESTROY_V2, &mut args).map(drop)
}

/// The id of the subvolume that `directory` is in.
pub(super) fn subvolume_id(directory: impl AsFd) -> io::Result<u64> {
    #[repr(C)]
    struct InoLookup {
        tree_id: u64,
        object_id: u64,
        name: [u8; 4080],
    }
    let mut args = InoLookup { tree_id: 0, object_id: FIRST_FREE_OBJECT_ID, name: [0; 4080] };
    call(directory, INO_LOOKUP, &mut args)?;
    Ok(args.tree_id)
}

/// The file system's UUID, as its directory under `/sys/fs/btrfs` is called.
pub(super) fn filesystem_uuid(directory: impl AsFd) -> io::Result<String> {
    #[repr(C)]
    struct FsInfo {
        max_id: u64,
        devices: u64,
        uuid: [u8; 16],
        rest: [u8; 992],
    }
    let mut info = FsInfo { max_id: 0, devices: 0, uuid: [0; 16], rest: [0; 992] };
    call(directory, FS_INFO, &mut info)?;
    let mut text = String::with_capacity(36);
    for (i, byte) in info.uuid.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    Ok(text)
}

/// Waits until all that was done before this call is committed.
pub(super) fn commit(directory: impl AsFd) -> io::Result<()> {
    let mut transaction = 0u64;
    call(&directory, START_SYNC, &mut transaction)?;
    call(&directory, WAIT_SYNC, &mut transaction).map(drop)
}

/// Lets the file system use all of its (grown) device.
pub(super) fn resize_to_device(directory: impl AsFd) -> io::Result<()> {
    #[repr(C)]
    struct VolArgs {
        fd: i64,
        name: [u8; 4088],
    }
    let mut args = VolArgs { fd: 0, name: [0; 4088] };
    copy_name(&mut args.name, "max")?;
    call(directory, RESIZE, &mut args).map(drop)
}

/// Turns simple quotas on. Already on (of either kind): nothing to do.
pub(super) fn enable_simple_quotas(directory: impl AsFd) -> io::Result<()> {
    call(directory, QUOTA_CTL, &mut [QUOTA_CTL_ENABLE_SIMPLE, 0u64]).map(drop)
}

/// Makes a quota group.
pub(super) fn create_qgroup(directory: impl AsFd, qgroup: u64) -> io::Result<()> {
    call(directory, QGROUP_CREATE, &mut [1u64, qgroup]).map(drop)
}

/// Removes a quota group; `EBUSY` while something is still charged to it.
pub(super) fn remove_qgroup(directory: impl AsFd, qgroup: u64) -> io::Result<()> {
    call(directory, QGROUP_CREATE, &mut [0u64, qgroup]).map(drop)
}

/// Limits what a quota group may have charged to it.
pub(super) fn limit_qgroup(directory: impl AsFd, qgroup: u64, bytes: u64) -> io::Result<()> {
    call(directory, QGROUP_LIMIT, &mut [qgroup, QGROUP_LIMIT_MAX_RFER, bytes, 0, 0, 0]).map(drop)
}

/// The offsets of the keys `(object, kind, *)` of a tree from `first` on: at most one buffer full, so that a caller
/// asks again from the last one plus one until the answer is empty.
pub(super) fn search(
    directory: impl AsFd,
    tree: u64,
    object: u64,
    kind: u32,
    first: u64,
) -> io::Result<Vec<u64>> {
    const BUFFER_BYTES: usize = 4096 - 104;
    const HEADER_BYTES: usize = 32;
    #[repr(C)]
    struct SearchArgs {
        tree: u64,
        min_object: u64,
        max_object: u64,
        min_offset: u64,
        max_offset: u64,
        min_transid: u64,
        max_transid: u64,
        min_kind: u32,
        max_kind: u32,
        items: u32,
        unused: u32,
        unused_too: [u64; 4],
        buffer: [u8; BUFFER_BYTES],
    }
    let mut args = SearchArgs {
        tree,
        min_object: object,
        max_object: object,
        min_offset: first,
        max_offset: u64::MAX,
        min_transid: 0,
        max_transid: u64::MAX,
        min_kind: kind,
        max_kind: kind,
        items: u32::MAX,
        unused: 0,
        unused_too: [0; 4],
        buffer: [0; BUFFER_BYTES],
    };
    call(directory, TREE_SEARCH, &mut args)?;
    // Each item is a header (transid, object, offset: u64; kind, length: u32) and `length` bytes.
    let mut found = Vec::new();
    let mut rest = &args.buffer[..];
    for _ in 0..args.items {
        let Some((header, after)) = rest.split_at_checked(HEADER_BYTES) else { break };
        found.push(u64::from_ne_bytes(header[16..24].try_into().expect("the range is eight bytes long")));
        let length = u32::from_ne_bytes(header[28..32].try_into().expect("the range is four bytes long"));
        let Some(after) = after.get(length as usize..) else { break };
        rest = after;
    }
    Ok(found)
}

/// The number of a loop device nobody uses, made if there is none.
pub(super) fn free_loop_device(control: impl AsFd) -> io::Result<u32> {
    call_with_number(control, LOOP_CTL_GET_FREE, 0).map(i32::cast_unsigned)
}

/// Backs the loop device by `file`; it lets go by itself at the last close, so that no crash can leave it behind.
pub(super) fn configure_loop(device: impl AsFd, file: impl AsFd) -> io::Result<()> {
    const INFO_BYTES: usize = 232;
    const FLAGS_AT: usize = 52;
    #[repr(C)]
    struct LoopConfig {
        fd: u32,
        block_size: u32,
        info: [u8; INFO_BYTES],
        reserved: [u64; 8],
    }
    let fd = file.as_fd().as_raw_fd().cast_unsigned();
    let mut config = LoopConfig { fd, block_size: 4096, info: [0; INFO_BYTES], reserved: [0; 8] };
    config.info[FLAGS_AT..FLAGS_AT + 4].copy_from_slice(&LO_FLAGS_AUTOCLEAR.to_ne_bytes());
    call(device, LOOP_CONFIGURE, &mut config).map(drop)
}

/// Tells the loop device that its file has another size now.
pub(super) fn refresh_loop_capacity(device: impl AsFd) -> io::Result<()> {
    call_with_number(device, LOOP_SET_CAPACITY, 0).map(drop)
}

/// Stops an ext4 file system as a power cut would: what it had not yet written is lost.
#[cfg(test)]
pub(super) fn cut_power_of_ext4(directory: impl AsFd) -> io::Result<()> {
    const EXT4_SHUTDOWN: u64 = 0x8004_587d;
    const WITHOUT_FLUSHING_THE_LOG: u32 = 2;
    call(directory, EXT4_SHUTDOWN, &mut { WITHOUT_FLUSHING_THE_LOG }).map(drop)
}
