//! Reads the stream that the kernel's `send` writes: commands that turn one tree into another.
//!
//! ```text
//!   "btrfs-stream\0", version: u32, then commands:
//!   length: u32, kind: u16, checksum: u32, then attributes of together `length` bytes:
//!   kind: u16, length: u16, value
//! ```
//!
//! All numbers are little-endian. The checksum is ignored, because the stream comes from this host's kernel through a
//! pipe. Its names were chosen inside a sandbox, so they are untrusted bytes. Unknown commands are refused: a skipped
//! command could be a missed change.

use std::io::{self, Read};

const MAGIC: &[u8; 13] = b"btrfs-stream\0";

/// The newest version whose commands are known here. The kernel writes the first unless asked for another.
const VERSION_MAX: u32 = 3;

/// The kernel builds a command in 64 KiB, or in 16 KiB more with compressed data, which is never requested.
const COMMAND_BYTES_MAX: usize = 256 << 10;

const COMMAND_HEADER_BYTES: usize = 10;

/// The effect of one command on the tree, as far as names and changes are concerned. Paths are relative to the subvolume,
/// and valid at that point of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// A new file, directory, link, pipe, socket or device, often under a temporary name.
    Make {
        path: Vec<u8>,
    },
    Rename {
        from: Vec<u8>,
        to: Vec<u8>,
    },
    /// One more name for a file.
    Link {
        path: Vec<u8>,
    },
    /// Removes a name of a file, or an empty directory.
    Remove {
        path: Vec<u8>,
    },
    /// Owner, mode, extended attributes or other metadata have changed.
    Change {
        path: Vec<u8>,
    },
    /// Content was written.
    Write {
        path: Vec<u8>,
    },
    /// Sets the size. Also sent for files whose size has not changed.
    Resize {
        path: Vec<u8>,
    },
    /// The times have changed, possibly only that of the last access.
    Times {
        path: Vec<u8>,
    },
    /// No effect on files: the heading.
    Nothing,
}

/// The commands of a stream, one after the other, until its end.
#[derive(Debug)]
pub(super) struct Commands<R> {
    input: R,
    buffer: Vec<u8>,
    ended: bool,
}

impl<R: Read> Commands<R> {
    /// Reads the stream's heading.
    pub(super) fn new(mut input: R) -> io::Result<Self> {
        let mut heading = [0; MAGIC.len() + 4];
        input.read_exact(&mut heading)?;
        let (magic, version) = heading.split_at(MAGIC.len());
        let version = u32::from_le_bytes(version.try_into().expect("four bytes are left"));
        if magic != MAGIC || !(1..=VERSION_MAX).contains(&version) {
            return Err(invalid("the stream does not begin as one"));
        }
        Ok(Self { input, buffer: Vec::new(), ended: false })
    }

    /// The next command; `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<Command>> {
        if self.ended {
            return Ok(None);
        }
        let mut header = [0; COMMAND_HEADER_BYTES];
        self.input.read_exact(&mut header)?;
        let length =
            u32::from_le_bytes(header[..4].try_into().expect("the range is four bytes long")) as usize;
        let kind = u16::from_le_bytes(header[4..6].try_into().expect("the range is two bytes long"));
        if length > COMMAND_BYTES_MAX {
            return Err(invalid("a command is longer than any can be"));
        }
        self.buffer.resize(length, 0);
        self.input.read_exact(&mut self.buffer)?;
        let command = command(kind, &self.buffer)?;
        self.ended = command.is_none();
        Ok(command)
    }
}

/// Decodes a command; `None` for the one that ends the stream.
fn command(kind: u16, attributes: &[u8]) -> io::Result<Option<Command>> {
    /// The attribute with a path, and the one with the second path.
    const PATH: u16 = 15;
    const PATH_TO: u16 = 16;
    let path = || attribute(attributes, PATH);
    Ok(Some(match kind {
        // The subvolume's or snapshot's own name and id.
        1 | 2 => Command::Nothing,
        // File, directory, device, pipe, socket, symbolic link.
        3..=8 => Command::Make { path: path()? },
        9 => Command::Rename { from: path()?, to: attribute(attributes, PATH_TO)? },
        10 => Command::Link { path: path()? },
        // Unlink, rmdir.
        11 | 12 => Command::Remove { path: path()? },
        // Extended attribute set, removed.
        13 | 14 => Command::Change { path: path()? },
        // Write, clone; data that is not included; data in compressed form.
        15 | 16 | 22 | 25 => Command::Write { path: path()? },
        17 => Command::Resize { path: path()? },
        // Mode, owner.
        18 | 19 => Command::Change { path: path()? },
        20 => Command::Times { path: path()? },
        21 => return Ok(None),
        // Of later versions: preallocation, flags, verity.
        23 | 24 | 26 => Command::Change { path: path()? },
        _ => return Err(invalid("the stream has a command that is not known")),
    }))
}

/// The value of the first attribute of that kind.
fn attribute(mut attributes: &[u8], wanted: u16) -> io::Result<Vec<u8>> {
    while let Some((header, rest)) = attributes.split_at_checked(4) {
        let kind = u16::from_le_bytes([header[0], header[1]]);
        let length = usize::from(u16::from_le_bytes([header[2], header[3]]));
        let Some((value, rest)) = rest.split_at_checked(length) else {
            return Err(invalid("an attribute is longer than its command"));
        };
        if kind == wanted {
            return Ok(value.to_vec());
        }
        attributes = rest;
    }
    Err(invalid("a command lacks its path"))
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute_of(kind: u16, value: &[u8]) -> Vec<u8> {
        [&kind.to_le_bytes()[..], &(value.len() as u16).to_le_bytes(), value].concat()
    }

    fn command_of(kind: u16, attributes: &[u8]) -> Vec<u8> {
        [&(attributes.len() as u32).to_le_bytes()[..], &kind.to_le_bytes(), &[0; 4], attributes].concat()
    }

    fn stream_of(commands: &[Vec<u8>]) -> Vec<u8> {
        [&MAGIC[..], &1u32.to_le_bytes(), &commands.concat()].concat()
    }

    fn read(bytes: &[u8]) -> io::Result<Vec<Command>> {
        let mut commands = Commands::new(bytes)?;
        let mut all = Vec::new();
        while let Some(command) = commands.next()? {
            all.push(command);
        }
        Ok(all)
    }

    fn sample() -> Vec<u8> {
        stream_of(&[
            command_of(2, &[attribute_of(15, b"snap"), attribute_of(1, &[7; 16])].concat()),
            command_of(3, &[attribute_of(15, b"o257-8-0"), attribute_of(3, &257u64.to_le_bytes())].concat()),
            command_of(9, &[attribute_of(15, b"o257-8-0"), attribute_of(16, b"rootfs/\xff")].concat()),
            command_of(22, &[attribute_of(15, b"rootfs/\xff"), attribute_of(18, &[0; 8])].concat()),
            command_of(17, &[attribute_of(15, b"rootfs/\xff"), attribute_of(4, &[0; 8])].concat()),
            command_of(20, &attribute_of(15, b"rootfs")),
            command_of(12, &attribute_of(15, b"rootfs/gone")),
            command_of(21, &[]),
        ])
    }

    #[test]
    fn commands_are_read_in_their_order() {
        let name = || b"rootfs/\xff".to_vec();
        let expected = [
            Command::Nothing,
            Command::Make { path: b"o257-8-0".to_vec() },
            Command::Rename { from: b"o257-8-0".to_vec(), to: name() },
            Command::Write { path: name() },
            Command::Resize { path: name() },
            Command::Times { path: b"rootfs".to_vec() },
            Command::Remove { path: b"rootfs/gone".to_vec() },
        ];
        assert_eq!(read(&sample()).unwrap(), expected);
    }

    #[test]
    fn a_stream_cut_short_anywhere_is_an_error() {
        let whole = sample();
        for length in 0..whole.len() {
            assert!(read(&whole[..length]).is_err(), "cut at {length}");
        }
    }

    #[test]
    fn no_byte_changed_makes_the_reader_panic_or_wait() {
        let whole = sample();
        for at in 0..whole.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = whole.clone();
                changed[at] = value;
                // Accepted or refused, but it never reads beyond its input.
                let _ = read(&changed);
            }
        }
    }

    #[test]
    fn unknown_commands_are_refused() {
        let refused = [
            b"btrfs-strean\0\x01\0\0\0".to_vec(),
            [&MAGIC[..], &4u32.to_le_bytes()].concat(),
            stream_of(&[command_of(99, &attribute_of(15, b"x"))]),
            stream_of(&[command_of(11, &attribute_of(16, b"x"))]),
            stream_of(&[[&u32::MAX.to_le_bytes()[..], &[11, 0, 0, 0, 0, 0]].concat()]),
        ];
        for stream in refused {
            assert_eq!(read(&stream).unwrap_err().kind(), io::ErrorKind::InvalidData, "{stream:?}");
        }
    }
}
