//! The attributes of a file, as sent to and by clients.

use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};

use rustix::fs::{AtFlags, CWD, Gid, Mode, Timespec, Timestamps, Uid};

use super::packet::{Fields, MalformedPacket, Packet};

const SIZE: u32 = 1;
const OWNER: u32 = 2;
const MODE: u32 = 4;
const TIMES: u32 = 8;
const EXTENDED: u32 = 0x8000_0000;

/// The limit of extensions in a request; none of them is used.
const EXTENSIONS_MAX: u32 = 64;

/// The attributes that a request sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Attributes {
    pub(super) size: Option<u64>,
    pub(super) owner: Option<(u32, u32)>,
    pub(super) mode: Option<u32>,
    /// Of the last access and the last change, in seconds.
    pub(super) times: Option<(u32, u32)>,
}

impl Attributes {
    pub(super) fn read(fields: &mut Fields<'_>) -> Result<Self, MalformedPacket> {
        let flags = fields.number()?;
        let mut attributes = Self::default();
        if flags & SIZE != 0 {
            attributes.size = Some(fields.long()?);
        }
        if flags & OWNER != 0 {
            attributes.owner = Some((fields.number()?, fields.number()?));
        }
        if flags & MODE != 0 {
            attributes.mode = Some(fields.number()? & 0o7777);
        }
        if flags & TIMES != 0 {
            attributes.times = Some((fields.number()?, fields.number()?));
        }
        if flags & EXTENDED != 0 {
            let count = fields.number()?;
            if count > EXTENSIONS_MAX {
                return Err(MalformedPacket);
            }
            for _ in 0..2 * count {
                fields.text()?;
            }
        }
        Ok(attributes)
    }

    /// Changes an open file.
    pub(super) fn apply(&self, file: &File) -> io::Result<()> {
        if let Some(size) = self.size {
            file.set_len(size)?;
        }
        if let Some(mode) = self.mode {
            file.set_permissions(Permissions::from_mode(mode))?;
        }
        if let Some((uid, gid)) = self.owner {
            fchown(file, Some(uid), Some(gid))?;
        }
        if let Some(times) = self.times {
            rustix::fs::futimens(file, &timestamps(times))?;
        }
        Ok(())
    }

    /// Changes the file at `path`; `follow`: the target of a link rather than the link.
    pub(super) fn apply_at(&self, path: &std::path::Path, follow: bool) -> io::Result<()> {
        let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        if let Some(size) = self.size {
            OpenOptions::new().write(true).open(path)?.set_len(size)?;
        }
        if let Some(mode) = self.mode {
            rustix::fs::chmodat(CWD, path, Mode::from_raw_mode(mode), flags)?;
        }
        if let Some((uid, gid)) = self.owner {
            let owner = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
            rustix::fs::chownat(CWD, path, owner.0, owner.1, flags)?;
        }
        if let Some(times) = self.times {
            rustix::fs::utimensat(CWD, path, &timestamps(times), flags)?;
        }
        Ok(())
    }
}

fn timestamps((accessed, modified): (u32, u32)) -> Timestamps {
    let at = |seconds: u32| Timespec { tv_sec: i64::from(seconds), tv_nsec: 0 };
    Timestamps { last_access: at(accessed), last_modification: at(modified) }
}

pub(super) fn write(metadata: &Metadata, packet: &mut Packet) {
    // The protocol's times are from 1970 to 2106.
    let seconds = |time: i64| u32::try_from(time.max(0)).unwrap_or(u32::MAX);
    packet.number(SIZE | OWNER | MODE | TIMES);
    packet.long(metadata.size());
    packet.number(metadata.uid());
    packet.number(metadata.gid());
    packet.number(metadata.mode());
    packet.number(seconds(metadata.atime()));
    packet.number(seconds(metadata.mtime()));
}

/// The attributes of a file that was listed but no longer exists.
pub(super) fn write_none(packet: &mut Packet) {
    packet.number(0);
}
