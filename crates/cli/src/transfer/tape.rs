//! Reads a tar archive from a stranger: plain entries only, everything bounded.
//!
//! The `tar` library joins long names and extended headers by itself, but reads them whole, whatever size they claim.
//! So entries are taken raw here and joined with bounds. An extended header that changes an entry's size is refused:
//! readers that disagree about sizes see different entries in one archive.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the library's kinds of entries are open-ended, and every one not named is refused"
)]

use std::io::{self, Read};

use tar::{Archive, Entry, EntryType, PaxExtensions};

/// A long name, link target or extended header: a path is at most 4 KiB, and archivers add a few attributes.
const EXTENSION_BYTES_MAX: u64 = 1 << 20;
/// Entries of one archive. A tree of this many files is no accident.
const ENTRIES_MAX: u64 = 5_000_000;
pub(crate) const PATH_BYTES_MAX: usize = 4096;

/// Why an archive is not unpacked.
#[derive(Debug)]
pub(crate) enum TapeError {
    /// It could not be read.
    Read(io::Error),
    /// It could, and should not be.
    Refused { path: String, why: &'static str },
    /// A local disk or directory did not take it.
    Write { path: String, error: io::Error },
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    Symlink {
        target: Vec<u8>,
    },
    /// To an earlier entry of the same archive.
    Hardlink {
        target: Vec<u8>,
    },
}

/// One entry with its name put together.
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

/// Names collected from the entries in front of the one they belong to.
#[derive(Debug, Default)]
struct Extensions {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
}

/// Calls `visit` with each entry and a reader of its content.
pub(crate) fn read(
    archive: impl Read,
    mut visit: impl FnMut(Head, &mut dyn Read) -> Result<(), TapeError>,
) -> Result<(), TapeError> {
    let mut archive = Archive::new(archive);
    let mut extensions = Extensions::default();
    let entries = archive.entries().map_err(TapeError::Read)?.raw(true);
    for (count, entry) in entries.enumerate() {
        let mut entry = entry.map_err(TapeError::Read)?;
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
    /// Whether the entry was one of those that only say something about the next.
    fn take(&mut self, entry: &mut Entry<'_, impl Read>) -> Result<bool, TapeError> {
        let kind = entry.header().entry_type();
        match kind {
            EntryType::GNULongName => self.path = Some(name(entry)?),
            EntryType::GNULongLink => self.link = Some(name(entry)?),
            EntryType::XHeader => {
                let bytes = bounded(entry)?;
                for record in PaxExtensions::new(&bytes) {
                    let record = record.map_err(TapeError::Read)?;
                    match record.key_bytes() {
                        b"path" => self.path = Some(record.value_bytes().to_vec()),
                        b"linkpath" => self.link = Some(record.value_bytes().to_vec()),
                        b"size" => self.size = record.value().ok().and_then(|size| size.parse().ok()),
                        _ => {}
                    }
                }
            }
            // Comments and defaults of a whole archive, such as git writes.
            EntryType::XGlobalHeader => drop(bounded(entry)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn head(self, entry: &Entry<'_, impl Read>) -> Result<Head, TapeError> {
        let header = entry.header();
        let size = header.entry_size().map_err(TapeError::Read)?;
        if self.size.is_some_and(|claimed| claimed != size) {
            return Err(refused(entry, "its size is given twice, differently"));
        }
        let path = self.path.unwrap_or_else(|| header.path_bytes().into_owned());
        let link = self.link.or_else(|| header.link_name_bytes().map(|link| link.into_owned()));
        let link = || {
            link.clone().filter(|link| !link.is_empty()).ok_or_else(|| refused(entry, "a link to nowhere"))
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
            mode: header.mode().map_err(TapeError::Read)?,
            modified: header.mtime().unwrap_or_default(),
        })
    }
}

fn name(entry: &mut Entry<'_, impl Read>) -> Result<Vec<u8>, TapeError> {
    let mut bytes = bounded(entry)?;
    // GNU tar ends names with a NUL byte.
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    Ok(bytes)
}

fn bounded(entry: &mut Entry<'_, impl Read>) -> Result<Vec<u8>, TapeError> {
    if entry.header().entry_size().map_err(TapeError::Read)? > EXTENSION_BYTES_MAX {
        return Err(refused(entry, "its extended header is too long"));
    }
    let mut bytes = Vec::new();
    entry.read_to_end(&mut bytes).map_err(TapeError::Read)?;
    Ok(bytes)
}

fn refused(entry: &Entry<'_, impl Read>, why: &'static str) -> TapeError {
    TapeError::Refused { path: String::from_utf8_lossy(&entry.header().path_bytes()).into_owned(), why }
}
