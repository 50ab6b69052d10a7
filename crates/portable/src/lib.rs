//! The file format of exported snapshots: written and read as a stream, and verified frame by frame.
//!
//! ```text
//!  magic, version │ header │ section │ entries │ data … │ entries │ data … │ section … │ manifest │ end
//!                   └─ frames: kind, lengths, BLAKE3 of the content, the content (zstd) ─┘          └─ BLAKE3 of it all
//! ```
//!
//! [`Writer`] compresses on its own threads; [`Reader`] needs neither seeking nor more RAM than one frame. The requirements
//! for a host are in the [`Header`], which is read first. The [`Identity`] of a file binds every frame's hash:
//! a host that has a snapshot with some identity has exactly that content, which incremental files rely on.
//!
//! `docs/export-format.md` describes the format field by field; `tests/` contains a file that freezes it.
//!
//! Absent: sources and destinations of content, encryption, policy. Nothing in a file is trusted:
//! every length, count, path and order is checked before it is used.

mod chunks;
mod entry;
mod error;
mod frame;
mod header;
mod reader;
mod signing;
#[cfg(test)]
mod tests;
mod writer;

pub use entry::{Entry, Extent, Kind, Meta, PATH_BYTES_MAX, Time, TreePath};
pub use error::PortableError;
pub use header::{Ancestor, Base, Header, HostRequirements, Image, Lineage, Processes};
pub use reader::{Item, Limits, Reader, Sink, VerifiedFile};
pub use signing::{ExportKey, PublicKey, Signature};
pub use writer::{Options, Summary, Writer};

/// The version this program writes, and the newest it reads.
pub const FORMAT_VERSION: u32 = 1;

/// The beginning of a file. The first byte is not text, the last two reveal a transfer in text mode.
pub const MAGIC: [u8; 8] = *b"\x89BRWEX\r\n";

/// The raw size of one chunk: fixed, since a changed file is exported as a whole, and equal files are split equally.
pub const CHUNK_BYTES: usize = 1 << 20;

/// The sections of a file, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Section {
    /// The sandbox's files.
    Files,
    /// Processes as dumped by the driver.
    Processes,
    /// The memory branch: rows, then contents of artifacts.
    Memory,
}

impl Section {
    fn number(self) -> u8 {
        match self {
            Self::Files => 1,
            Self::Processes => 2,
            Self::Memory => 3,
        }
    }

    fn of(number: u8) -> Option<Self> {
        [Self::Files, Self::Processes, Self::Memory].into_iter().find(|section| section.number() == number)
    }
}

/// The identity of a file in 32 bytes: BLAKE3 over kind, length and hash of all its frames. The same snapshot exported in the
/// same way has the same identity, regardless of compression.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity([u8; 32]);

impl Identity {
    /// Parses 64 hexadecimal digits in lower case.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != 64 || text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return None;
        }
        blake3::Hash::from_hex(text).ok().map(|hash| Self(*hash.as_bytes()))
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(blake3::Hash::from_bytes(self.0).to_hex().as_str())
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}
