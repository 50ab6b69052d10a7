//! The file a snapshot travels in: written and read as a stream, verified piece by piece.
//!
//! ```text
//!  magic, version │ header │ section │ entries │ data … │ entries │ data … │ section … │ manifest │ end
//!                   └─ frames: kind, lengths, BLAKE3 of the content, the content (zstd) ─┘          └─ BLAKE3 of it all
//! ```
//!
//! [`Writer`] compresses on threads of its own, [`Reader`] needs neither seeking nor more RAM than one frame. What a host
//! must have is said by the [`Header`], the first thing read. The [`Identity`] of a file binds every frame's hash;
//! whoever has a snapshot of some identity has exactly that content, which is what an incremental file goes by.
//!
//! `docs/export-format.md` describes the format field by field; `tests/` hold a file that freezes it.
//!
//! What is absent: where content comes from and goes to, encryption, policy. Everything a file says is a stranger's word:
//! every length, count, path and order is checked before it is believed.

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
pub use header::{Ancestor, Base, Header, Image, Lineage, Needs, Processes};
pub use reader::{Item, Limits, Proven, Reader, Sink};
pub use signing::{ExportKey, PublicKey, Signature};
pub use writer::{Options, Summary, Writer};

/// The version this program writes, and the newest it reads.
pub const FORMAT_VERSION: u32 = 1;

/// What a file begins with. The first byte is no text, the last two show what a text-mode transfer does to a file.
pub const MAGIC: [u8; 8] = *b"\x89BRWEX\r\n";

/// Content of one chunk: fixed, since a file that changed is sent whole, and equal files are cut alike.
pub const CHUNK_BYTES: usize = 1 << 20;

/// The parts of a file, in the order they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Section {
    /// The sandbox's files.
    Files,
    /// Processes as the driver wrote them down.
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

/// What a file is, in 32 bytes: BLAKE3 over kind, length and hash of all its frames. The same snapshot exported in the
/// same way has the same identity, however it was compressed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity([u8; 32]);

impl Identity {
    /// Of 64 hexadecimal digits in lower case.
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
