//! Reads an untrusted tar archive: plain entries only, everything bounded.
//!
//! The `tar` library joins long names and extended headers, but without a limit on their size. So this module reads raw
//! entries and joins them with limits. An extended header that changes the size of an entry is rejected: readers that
//! disagree about sizes see different entries in one archive.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the library's kinds of entries are open-ended, and every one not named is refused"
)]

use std::io::{self, Read};

use tar::{Archive, Entry, EntryType, PaxExtensions};

/// A long name, link target or extended header: a path is at most 4 KiB, and archivers add a few attributes.
const EXTENSION_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of entries of an archive; real trees are smaller.
const ENTRIES_MAX: u64 = 5_000_000;
pub(crate) const PATH_BYTES_MAX: usize = 4096;

/// Why an archive was not unpacked.
#[derive(Debug)]
pub(crate) enum ArchiveError {
    /// It could not be read.
    Read(io::Error),
    /// It was read, and rejected.
    Refused { path: String, why: &'static str },
    /// It could not be written to the local disk.
    Write { path: String, error: io::Error },
}

/// The kind of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    Symlink {
        target: Vec<u8>,
    },
    /// A link to an earlier entry of the same archive.
    Hardlink {
        target: Vec<u8>,
    },
}

/// An entry with its complete name.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) path: Vec<u8>,
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    pub(crate) modified: u64,
}

impl Head {
    pub(crate) fn shown(&self) -> String {
        String::from_utf8_lossy(&self.path).into_owned()
    }
}

/// Names from the entries that precede the one they belong to.
#[derive(Debug, Default)]
struct Extensions {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
}

/// Calls `visit` with each entry and a reader of its content.
pub(crate) fn read(
    archive: impl Read,
    mut visit: impl FnMut(Head, &mut dyn Read) -> Result<(), ArchiveError>,
) -> Result<(), ArchiveError> {
    let mut archive = Archive::new(archive);
    let mut extensions = Extensions::default();
    let entries = archive.entries().map_err(ArchiveError::Read)?.raw(true);
    for (count, entry) in entries.enumerate() {
        let mut entry = entry.map_err(ArchiveError::Read)?;
        if count as u64 >= ENTRIES_MAX {
            return Err(refused(&entry, "the archive has too many entries"));
        }
        if extensions.take(&mut entry)? {
            continue;
        }
        let head = std::mem::take(&mut extensions).head(&entry)?;
        visit(head, &mut entry)?;
    }
    Ok(())
}

impl Extensions {
    /// Whether the entry only describes the next one.
    fn take(&mut self, entry: &mut Entry<'_, impl Read>) -> Result<bool, ArchiveError> {
        let kind = entry.header().entry_type();
        match kind {
            EntryType::GNULongName => self.path = Some(name(entry)?),
            EntryType::GNULongLink => self.link = Some(name(entry)?),
            EntryType::XHeader => {
                let bytes = bounded(entry)?;
                for record in PaxExtensions::new(&bytes) {
                    let record = record.map_err(ArchiveError::Read)?;
                    match record.key_bytes() {
                        b"path" => self.path = Some(record.value_bytes().to_vec()),
                        b"linkpath" => self.link = Some(record.value_bytes().to_vec()),
                        b"size" => self.size = record.value().ok().and_then(|size| size.parse().ok()),
                        _ => {}
                    }
                }
            }
            // Comments and defaults of the whole archive, as written by git.
            EntryType::XGlobalHeader => drop(bounded(entry)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn head(self, entry: &Entry<'_, impl Read>) -> Result<Head, ArchiveError> {
        let header = entry.header();
        let size = header.entry_size().map_err(ArchiveError::Read)?;
        if self.size.is_some_and(|claimed| claimed != size) {
            return Err(refused(entry, "it has two different sizes"));
        }
        let path = self.path.unwrap_or_else(|| header.path_bytes().into_owned());
        let link = self.link.or_else(|| header.link_name_bytes().map(|link| link.into_owned()));
        let link = || {
            link.clone()
                .filter(|link| !link.is_empty())
                .ok_or_else(|| refused(entry, "a link without a target"))
        };
        let kind = match header.entry_type() {
            EntryType::Regular | EntryType::Continuous => Kind::File,
            EntryType::Directory => Kind::Directory,
            EntryType::Symlink => Kind::Symlink { target: link()? },
            EntryType::Link => Kind::Hardlink { target: link()? },
            EntryType::Char | EntryType::Block => return Err(refused(entry, "a device")),
            EntryType::Fifo => return Err(refused(entry, "a named pipe")),
            _ => return Err(refused(entry, "an entry of an unknown kind")),
        };
        if path.len() > PATH_BYTES_MAX {
            return Err(refused(entry, "its path is too long"));
        }
        Ok(Head {
            path,
            kind,
            mode: header.mode().map_err(ArchiveError::Read)?,
            modified: header.mtime().unwrap_or_default(),
        })
    }
}

fn name(entry: &mut Entry<'_, impl Read>) -> Result<Vec<u8>, ArchiveError> {
    let mut bytes = bounded(entry)?;
    // GNU tar ends names with a NUL byte.
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    Ok(bytes)
}

fn bounded(entry: &mut Entry<'_, impl Read>) -> Result<Vec<u8>, ArchiveError> {
    if entry.header().entry_size().map_err(ArchiveError::Read)? > EXTENSION_BYTES_MAX {
        return Err(refused(entry, "its extended header is too long"));
    }
    let mut bytes = Vec::new();
    entry.read_to_end(&mut bytes).map_err(ArchiveError::Read)?;
    Ok(bytes)
}

fn refused(entry: &Entry<'_, impl Read>, why: &'static str) -> ArchiveError {
    ArchiveError::Refused { path: String::from_utf8_lossy(&entry.header().path_bytes()).into_owned(), why }
}
