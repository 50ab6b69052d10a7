//! The kernel's btrfs and loop device calls, each as one safe function.
//!
//! Numbers and layouts are those of `linux/btrfs.h` and `linux/loop.h`. The program `btrfs` is not used, because starting
//! a process takes longer than a snapshot, and because btrfs-progs before 6.7 cannot enable simple quotas.
#![expect(unsafe_code, reason = "rustix has neither the btrfs nor the loop device ioctls")]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

const SUBVOL_CREATE_V2: u64 = 0x5000_9418;
const SNAP_CREATE_V2: u64 = 0x5000_9417;
const SNAP_DESTROY_V2: u64 = 0x5000_943f;
const RESIZE: u64 = 0x5000_9403;
const INO_LOOKUP: u64 = 0xd000_9412;
const TREE_SEARCH: u64 = 0xd000_9411;
const TREE_SEARCH_V2: u64 = 0xc070_9411;
const GET_SUBVOL_INFO: u64 = 0x81f8_943c;
const INO_PATHS: u64 = 0xc038_9423;
const SEND: u64 = 0x4048_9426;
const FIEMAP: u64 = 0xc020_660b;
const FS_INFO: u64 = 0x8400_941f;
const START_SYNC: u64 = 0x8008_9418;
const WAIT_SYNC: u64 = 0x4008_9416;
const QUOTA_CTL: u64 = 0xc010_9428;
const QGROUP_CREATE: u64 = 0x4010_942a;
const QGROUP_LIMIT: u64 = 0x8030_942b;
const LOOP_CTL_GET_FREE: u64 = 0x4c82;
const LOOP_CONFIGURE: u64 = 0x4c0a;
const LOOP_SET_CAPACITY: u64 = 0x4c07;
const LOOP_SET_DIRECT_IO: u64 = 0x4c08;

const SUBVOL_RDONLY: u64 = 1 << 1;
const SUBVOL_QGROUP_INHERIT: u64 = 1 << 2;
const SUBVOL_SPEC_BY_ID: u64 = 1 << 4;
const QUOTA_CTL_ENABLE_SIMPLE: u64 = 4;
const QGROUP_LIMIT_MAX_RFER: u64 = 1;
const SEND_FLAG_NO_FILE_DATA: u64 = 1;
const FIEMAP_FLAG_SYNC: u32 = 1;
const LO_FLAGS_AUTOCLEAR: u32 = 4;

/// Object id of the first inode of every subvolume.
pub(super) const FIRST_FREE_OBJECT_ID: u64 = 256;
/// The tree that lists subvolumes.
pub(super) const ROOT_TREE: u64 = 1;
/// The tree that maps UUIDs to subvolumes.
const UUID_TREE: u64 = 9;
/// Key type of "the subvolume with this UUID is that one".
const UUID_KEY: u32 = 251;
/// The tree of quota groups.
pub(super) const QUOTA_TREE: u64 = 8;
/// Key type of "this subvolume contains that one".
pub(super) const ROOT_REF_KEY: u32 = 156;
/// Key type of a file itself.
pub(super) const INODE_ITEM_KEY: u32 = 1;
/// Key type of "this file has this name in that directory".
pub(super) const INODE_REF_KEY: u32 = 12;
/// Key type of a name in a directory, in order of creation.
pub(super) const DIR_INDEX_KEY: u32 = 96;
/// Key type of a piece of a file's content.
pub(super) const EXTENT_DATA_KEY: u32 = 108;
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
    // SAFETY: the requests used with this function take their argument by value and access no memory of this process.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), request as libc::Ioctl, argument) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Creates an empty subvolume in the directory `parent`.
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

/// Removes the subvolume `name` of the directory `parent`. Fails with `ENOTEMPTY` if it contains other subvolumes.
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

/// The file system's UUID, which is also the name of its directory under `/sys/fs/btrfs`.
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

/// Waits until everything done before this call is committed.
pub(super) fn commit(directory: impl AsFd) -> io::Result<()> {
    let mut transaction = 0u64;
    call(&directory, START_SYNC, &mut transaction)?;
    call(&directory, WAIT_SYNC, &mut transaction).map(drop)
}

/// Lets the file system use all of its (grown) device.
pub(super) fn resize_to_device(directory: impl AsFd) -> io::Result<()> {
    resize(directory, "max")
}

/// Resizes the file system to `size_bytes`.
pub(super) fn resize_to(directory: impl AsFd, size_bytes: u64) -> io::Result<()> {
    resize(directory, &size_bytes.to_string())
}

fn resize(directory: impl AsFd, size: &str) -> io::Result<()> {
    #[repr(C)]
    struct VolArgs {
        fd: i64,
        name: [u8; 4088],
    }
    let mut args = VolArgs { fd: 0, name: [0; 4088] };
    copy_name(&mut args.name, size)?;
    call(directory, RESIZE, &mut args).map(drop)
}

/// Enables simple quotas. Does nothing if quotas of either kind are enabled already.
pub(super) fn enable_simple_quotas(directory: impl AsFd) -> io::Result<()> {
    call(directory, QUOTA_CTL, &mut [QUOTA_CTL_ENABLE_SIMPLE, 0u64]).map(drop)
}

/// Creates a quota group.
pub(super) fn create_qgroup(directory: impl AsFd, qgroup: u64) -> io::Result<()> {
    call(directory, QGROUP_CREATE, &mut [1u64, qgroup]).map(drop)
}

/// Removes a quota group; fails with `EBUSY` while data is still charged to it.
pub(super) fn remove_qgroup(directory: impl AsFd, qgroup: u64) -> io::Result<()> {
    call(directory, QGROUP_CREATE, &mut [0u64, qgroup]).map(drop)
}

/// Limits how much may be charged to a quota group.
pub(super) fn limit_qgroup(directory: impl AsFd, qgroup: u64, bytes: u64) -> io::Result<()> {
    call(directory, QGROUP_LIMIT, &mut [qgroup, QGROUP_LIMIT_MAX_RFER, bytes, 0, 0, 0]).map(drop)
}

/// The offsets of the keys `(object, kind, *)` of a tree, starting at `first`: at most one buffer full. For the rest, the
/// caller repeats the call, starting after the last offset, until the result is empty.
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

/// The kernel's data about a subvolume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SubvolumeInfo {
    pub(super) id: u64,
    pub(super) uuid: [u8; 16],
    /// The subvolume that this is a snapshot of; zero if it is not a snapshot.
    pub(super) parent_uuid: [u8; 16],
    /// The transaction that created it.
    pub(super) made_in: u64,
    /// The last transaction that changed it, or changed its origin before the snapshot.
    pub(super) changed_in: u64,
    pub(super) read_only: bool,
}

/// Flag of a read-only subvolume.
const ROOT_READ_ONLY: u64 = 1;

pub(super) fn subvolume_info(directory: impl AsFd) -> io::Result<SubvolumeInfo> {
    #[repr(C)]
    struct SubvolInfo {
        id: u64,
        name: [u8; 256],
        parent_id: u64,
        directory_id: u64,
        generation: u64,
        flags: u64,
        uuid: [u8; 16],
        parent_uuid: [u8; 16],
        received_uuid: [u8; 16],
        changed_in: u64,
        made_in: u64,
        rest: [u64; 18],
    }
    let mut info = SubvolInfo {
        id: 0,
        name: [0; 256],
        parent_id: 0,
        directory_id: 0,
        generation: 0,
        flags: 0,
        uuid: [0; 16],
        parent_uuid: [0; 16],
        received_uuid: [0; 16],
        changed_in: 0,
        made_in: 0,
        rest: [0; 18],
    };
    const { assert!(size_of::<SubvolInfo>() == 0x1f8) };
    call(directory, GET_SUBVOL_INFO, &mut info)?;
    Ok(SubvolumeInfo {
        id: info.id,
        uuid: info.uuid,
        parent_uuid: info.parent_uuid,
        made_in: info.made_in,
        changed_in: info.changed_in,
        read_only: info.flags & ROOT_READ_ONLY != 0,
    })
}

/// The same for the subvolume with a UUID, wherever it is; `None` if it does not exist any more.
pub(super) fn subvolume_by_uuid(directory: impl AsFd, uuid: [u8; 16]) -> io::Result<Option<SubvolumeInfo>> {
    let (first, second) = uuid.split_at(8);
    let half = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).unwrap_or_default();
    let key = (half(first), UUID_KEY, half(second));
    let found = items_since(&directory, UUID_TREE, key, 0)?.into_iter().next();
    let found = found.filter(|item| (item.object, item.kind, item.offset) == key);
    let Some(id) = found.and_then(|item| number(&item.data, 0)) else { return Ok(None) };
    let found = items_since(&directory, ROOT_TREE, (id, ROOT_ITEM_KEY, 0), 0)?.into_iter().next();
    let Some(item) = found.filter(|item| (item.object, item.kind) == (id, ROOT_ITEM_KEY)) else {
        return Ok(None);
    };
    Ok(root_item(id, &item.data))
}

/// `ROOT_ITEM`: an inode (160 bytes), six numbers (u64), flags (u64), others (31 bytes); its UUID, that of its origin if
/// it is a snapshot, that of its source if it was received (16 bytes each); the transactions that changed and created it (u64); more.
fn root_item(id: u64, data: &[u8]) -> Option<SubvolumeInfo> {
    let uuid = |at: usize| data.get(at..at + 16)?.try_into().ok();
    Some(SubvolumeInfo {
        id,
        uuid: uuid(247)?,
        parent_uuid: uuid(263)?,
        made_in: number(data, 303)?,
        changed_in: number(data, 295)?,
        read_only: number(data, 208)? & ROOT_READ_ONLY != 0,
    })
}

fn number(data: &[u8], at: usize) -> Option<u64> {
    data.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}

/// One item of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) object: u64,
    pub(super) kind: u32,
    pub(super) offset: u64,
    pub(super) data: Vec<u8>,
}

/// The items of a tree, starting at the key `first`, in blocks written in transaction `since` or later: at most one buffer
/// full. For the rest, the caller repeats the call, starting after the last item, until the result is empty.
pub(super) fn items_since(
    directory: impl AsFd,
    tree: u64,
    first: (u64, u32, u64),
    since: u64,
) -> io::Result<Vec<Item>> {
    const BUFFER_BYTES: usize = 64 << 10;
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
        buffer_bytes: u64,
        buffer: [u8; BUFFER_BYTES],
    }
    let mut args = Box::new(SearchArgs {
        tree,
        min_object: first.0,
        max_object: u64::MAX,
        min_offset: first.2,
        max_offset: u64::MAX,
        min_transid: since,
        max_transid: u64::MAX,
        min_kind: first.1,
        max_kind: u32::MAX,
        items: u32::MAX,
        unused: 0,
        unused_too: [0; 4],
        buffer_bytes: BUFFER_BYTES as u64,
        buffer: [0; BUFFER_BYTES],
    });
    call(directory, TREE_SEARCH_V2, &mut *args)?;
    let number = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("the range is eight bytes long"));
    let small = |bytes: &[u8]| u32::from_ne_bytes(bytes.try_into().expect("the range is four bytes long"));
    let mut found = Vec::new();
    let mut rest = &args.buffer[..];
    for _ in 0..args.items {
        let Some((header, after)) = rest.split_at_checked(HEADER_BYTES) else { break };
        let Some((data, after)) = after.split_at_checked(small(&header[28..32]) as usize) else { break };
        found.push(Item {
            object: number(&header[8..16]),
            offset: number(&header[16..24]),
            kind: small(&header[24..28]),
            data: data.to_vec(),
        });
        rest = after;
    }
    Ok(found)
}

/// All paths of an inode in the subvolume `directory`, relative to its root. Paths beyond what the kernel returns in one
/// call (4 KiB) are left out.
pub(super) fn paths_of(directory: impl AsFd, inode: u64) -> io::Result<Vec<Vec<u8>>> {
    const BUFFER_BYTES: usize = 4096;
    const HEADER_BYTES: usize = 16;
    #[repr(C)]
    struct InoPaths {
        inode: u64,
        bytes: u64,
        reserved: [u64; 4],
        buffer: u64,
    }
    // Numbers, because the kernel writes offsets of eight bytes there.
    let mut buffer = [0u64; BUFFER_BYTES / 8];
    let address = std::ptr::from_mut(&mut buffer) as u64;
    let mut args = InoPaths { inode, bytes: BUFFER_BYTES as u64, reserved: [0; 4], buffer: address };
    call(directory, INO_PATHS, &mut args)?;
    let bytes: Vec<u8> = buffer.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let count = u32::from_ne_bytes(bytes[8..12].try_into().expect("the range is four bytes long"));
    let mut paths = Vec::new();
    // The offsets count from the end of the header, where the offsets themselves begin.
    for offset in buffer[HEADER_BYTES / 8..].iter().take(count as usize) {
        let rest = usize::try_from(*offset).ok().and_then(|offset| bytes[HEADER_BYTES..].get(offset..));
        let Some(path) = rest.and_then(|rest| rest.split(|byte| *byte == 0).next()) else { break };
        paths.push(path.to_vec());
    }
    Ok(paths)
}

/// Writes the differences of the read-only subvolume `subvolume` from the one with the id `parent` into `pipe`, without
/// file contents. Returns when everything is written, so another thread has to read.
pub(super) fn send_without_data(subvolume: impl AsFd, parent: u64, pipe: impl AsFd) -> io::Result<()> {
    #[repr(C)]
    struct SendArgs {
        pipe: i64,
        clone_sources: u64,
        clone_sources_at: u64,
        parent: u64,
        flags: u64,
        version: u32,
        reserved: [u8; 28],
    }
    const { assert!(size_of::<SendArgs>() == 72) };
    let mut args = SendArgs {
        pipe: i64::from(pipe.as_fd().as_raw_fd()),
        clone_sources: 0,
        clone_sources_at: 0,
        parent,
        flags: SEND_FLAG_NO_FILE_DATA,
        version: 0,
        reserved: [0; 28],
    };
    call(subvolume, SEND, &mut args).map(drop)
}

/// Writes a file's data to disk and waits until the file system's tree refers to it, so that the next commit makes it
/// durable. Many files then need one commit; an fsync of each file would cost as much as that commit.
pub(super) fn flush(file: impl AsFd) -> io::Result<()> {
    #[repr(C)]
    struct Fiemap {
        start: u64,
        length: u64,
        flags: u32,
        mapped: u32,
        room: u32,
        reserved: u32,
    }
    let mut map =
        Fiemap { start: 0, length: u64::MAX, flags: FIEMAP_FLAG_SYNC, mapped: 0, room: 0, reserved: 0 };
    call(file, FIEMAP, &mut map).map(drop)
}

/// Tells the kernel to start writing a range of a file to disk. Does not wait and guarantees nothing.
pub(super) fn start_writing(file: impl AsFd, first: u64, bytes: u64) -> io::Result<()> {
    let fd = file.as_fd().as_raw_fd();
    let (first, bytes) = (first.cast_signed(), bytes.cast_signed());
    // SAFETY: the call takes numbers only and accesses no memory of this process.
    let result = unsafe { libc::sync_file_range(fd, first, bytes, libc::SYNC_FILE_RANGE_WRITE) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The number of a free loop device, created if there is none.
pub(super) fn free_loop_device(control: impl AsFd) -> io::Result<u32> {
    call_with_number(control, LOOP_CTL_GET_FREE, 0).map(i32::cast_unsigned)
}

/// Backs the loop device by `file`. The device detaches by itself at the last close, so no crash can leave it behind.
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

/// Makes a loop device bypass the page cache, if the file system of its file supports that.
pub(super) fn bypass_page_cache(device: impl AsFd) -> io::Result<()> {
    call_with_number(device, LOOP_SET_DIRECT_IO, 1).map(drop)
}

/// Tells the loop device that the size of its file has changed.
pub(super) fn refresh_loop_capacity(device: impl AsFd) -> io::Result<()> {
    call_with_number(device, LOOP_SET_CAPACITY, 0).map(drop)
}

/// Stops an ext4 file system as a power failure would: unwritten data is lost.
#[cfg(test)]
pub(super) fn cut_power_of_ext4(directory: impl AsFd) -> io::Result<()> {
    const EXT4_SHUTDOWN: u64 = 0x8004_587d;
    const WITHOUT_FLUSHING_THE_LOG: u32 = 2;
    call(directory, EXT4_SHUTDOWN, &mut { WITHOUT_FLUSHING_THE_LOG }).map(drop)
}
