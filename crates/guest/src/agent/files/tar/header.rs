//! Reads the entries of a tar stream, trusting nothing in it.
//!
//! Reads ustar, GNU long names and PAX. Whatever programs would interpret differently is refused, since archives can
//! hide files that way: a PAX size that contradicts the header's, several extensions for one entry, sparse files.

use std::io::{self, Read};

use tar::Header;

use crate::agent::failure::{fail, invalid};
use crate::protocol::{ErrorCode, RequestError};

const BLOCK_BYTES: usize = 512;

/// Type flags of entries that only describe the next one.
const LONG_NAME: u8 = b'L';
const LONG_LINK: u8 = b'K';
const PAX: u8 = b'x';
const PAX_GLOBAL: u8 = b'g';

/// The kernel's limit for names.
const NAME_BYTES_MAX: u64 = 4096;

/// All PAX records of one entry together.
const PAX_BYTES_MAX: u64 = 64 * 1024;

/// From this size on the header's own field is too small, and only PAX holds the size.
const USTAR_SIZE_END: u64 = 1 << 33;

/// One entry, with all its extensions applied.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) kind: Kind,
    pub(super) name: Vec<u8>,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mtime: i64,
    /// Bytes of content that follow the header.
    pub(super) size: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    Symlink { target: Vec<u8> },
    HardLink { target: Vec<u8> },
}

/// Extensions seen since the last entry.
#[derive(Default)]
struct Extensions {
    long_name: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
    pax: Option<Pax>,
}

#[derive(Default)]
struct Pax {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u32>,
    gid: Option<u32>,
    mtime: Option<i64>,
}

pub(super) struct Entries<'r, R> {
    source: &'r mut R,
}

impl<'r, R: Read> Entries<'r, R> {
    pub(super) fn new(source: &'r mut R) -> Self {
        Self { source }
    }

    /// The next entry. Its content must be read with [`Self::content`] before the entry after it.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, RequestError> {
        let mut extensions = Extensions::default();
        loop {
            let Some(header) = self.header()? else {
                return if extensions.is_empty() { Ok(None) } else { Err(truncated()) };
            };
            let size = header.size().map_err(|_| refused("the size in a header is not a number"))?;
            match header.entry_type().as_byte() {
                LONG_NAME if extensions.long_name.is_none() => {
                    extensions.long_name = Some(self.long_name(size)?);
                }
                LONG_LINK if extensions.long_link.is_none() => {
                    extensions.long_link = Some(self.long_name(size)?);
                }
                PAX if extensions.pax.is_none() => {
                    let records = self.small_content(size, PAX_BYTES_MAX)?;
                    extensions.pax = Some(Pax::parse(&records)?);
                }
                PAX_GLOBAL => {
                    let records = self.small_content(size, PAX_BYTES_MAX)?;
                    Pax::parse(&records)?.refuse_global()?;
                }
                LONG_NAME | LONG_LINK | PAX => {
                    return Err(refused("an entry has the same extension twice"));
                }
                kind => return finish(kind, &header, size, extensions).map(Some),
            }
        }
    }

    /// Passes on the content of an entry in pieces, and skips its padding.
    pub(super) fn content(
        &mut self,
        size: u64,
        buffer: &mut [u8],
        mut take: impl FnMut(&[u8]) -> Result<(), RequestError>,
    ) -> Result<(), RequestError> {
        let mut rest = size;
        while rest > 0 {
            let wanted = buffer.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
            let count = match self.source.read(&mut buffer[..wanted]) {
                Ok(0) => return Err(truncated()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return Err(truncated()),
            };
            take(&buffer[..count])?;
            rest -= count as u64;
        }
        let padding =
            usize::try_from(size.next_multiple_of(BLOCK_BYTES as u64) - size).expect("less than a block");
        self.source.read_exact(&mut [0; BLOCK_BYTES][..padding]).map_err(|_| truncated())
    }

    /// Reads to the end of the stream: the bytes after the archive are padding.
    pub(super) fn finish(&mut self, buffer: &mut [u8]) -> Result<(), RequestError> {
        loop {
            match self.source.read(buffer) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(truncated()),
            }
        }
    }

    /// The next header; `None` at the block of zeros that ends an archive, or at the end of the stream.
    fn header(&mut self) -> Result<Option<Header>, RequestError> {
        let mut block = [0; BLOCK_BYTES];
        let mut filled = 0;
        while filled < BLOCK_BYTES {
            match self.source.read(&mut block[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => return Err(truncated()),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(truncated()),
            }
        }
        if block.iter().all(|&byte| byte == 0) {
            return Ok(None);
        }
        let header = Header::from_byte_slice(&block).clone();
        let sum: u32 = block[..148].iter().chain(&block[156..]).map(|&byte| u32::from(byte)).sum();
        if header.cksum().ok() != Some(sum + 8 * u32::from(b' ')) {
            return Err(refused("a header's checksum is wrong"));
        }
        Ok(Some(header))
    }

    fn long_name(&mut self, size: u64) -> Result<Vec<u8>, RequestError> {
        let mut name = self.small_content(size, NAME_BYTES_MAX + 1)?;
        if name.last() == Some(&0) {
            name.pop();
        }
        Ok(name)
    }

    fn small_content(&mut self, size: u64, limit: u64) -> Result<Vec<u8>, RequestError> {
        if size > limit {
            return Err(fail(ErrorCode::TooLarge, "the archive is refused: a name or extension is too long"));
        }
        let mut content = Vec::new();
        self.content(size, &mut [0; BLOCK_BYTES], |piece| {
            content.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(content)
    }
}

impl Extensions {
    fn is_empty(&self) -> bool {
        self.long_name.is_none() && self.long_link.is_none() && self.pax.is_none()
    }
}

fn finish(kind: u8, header: &Header, size: u64, extensions: Extensions) -> Result<Entry, RequestError> {
    let pax = extensions.pax.unwrap_or_default();
    let name = one_of(extensions.long_name, pax.path)?.unwrap_or_else(|| header.path_bytes().into_owned());
    let link = one_of(extensions.long_link, pax.link)?
        .or_else(|| header.link_name_bytes().map(std::borrow::Cow::into_owned));
    let size = match pax.size {
        None => size,
        Some(pax) if pax == size || pax >= USTAR_SIZE_END => pax,
        Some(_) => return Err(refused("an entry has two different sizes")),
    };
    let link = || link.ok_or_else(|| refused("a link has no target"));
    let is_directory = name.ends_with(b"/");
    let kind = match kind {
        // Old archives mark directories only by their names.
        b'0' if is_directory && size == 0 => Kind::Directory,
        b'0' | b'7' => Kind::File,
        b'5' => Kind::Directory,
        b'2' => Kind::Symlink { target: link()? },
        b'1' => Kind::HardLink { target: link()? },
        b'3' | b'4' | b'6' => {
            return Err(refused("it contains a device or a FIFO"));
        }
        _ => return Err(refused("it contains an entry of an unknown type")),
    };
    // Some programs write a size for links and directories without content; others would read content there.
    if kind != Kind::File && size != 0 {
        return Err(refused("a link or directory has a size"));
    }
    let number = |value: io::Result<u64>| value.ok().and_then(|value| u32::try_from(value).ok());
    Ok(Entry {
        kind,
        name,
        mode: header.mode().map_err(|_| refused("the mode of an entry is not a number"))?,
        uid: pax
            .uid
            .or_else(|| number(header.uid()))
            .ok_or_else(|| refused("the user id of an entry is not a number"))?,
        gid: pax
            .gid
            .or_else(|| number(header.gid()))
            .ok_or_else(|| refused("the group id of an entry is not a number"))?,
        mtime: pax.mtime.unwrap_or_else(|| i64::try_from(header.mtime().unwrap_or(0)).unwrap_or(0)),
        size,
    })
}

fn one_of(gnu: Option<Vec<u8>>, pax: Option<Vec<u8>>) -> Result<Option<Vec<u8>>, RequestError> {
    match (gnu, pax) {
        (Some(gnu), Some(pax)) if gnu != pax => Err(refused("an entry has two different names")),
        (gnu, pax) => Ok(gnu.or(pax)),
    }
}

impl Pax {
    /// `<length> <key>=<value>\n`, repeated.
    fn parse(mut records: &[u8]) -> Result<Self, RequestError> {
        let broken = || refused("a PAX record is malformed");
        let mut pax = Self::default();
        while !records.is_empty() {
            let space = records.iter().position(|&byte| byte == b' ').ok_or_else(broken)?;
            let length: usize = std::str::from_utf8(&records[..space])
                .ok()
                .and_then(|text| text.parse().ok())
                .ok_or_else(broken)?;
            if length <= space + 1 || length > records.len() || records[length - 1] != b'\n' {
                return Err(broken());
            }
            let record = &records[space + 1..length - 1];
            let equals = record.iter().position(|&byte| byte == b'=').ok_or_else(broken)?;
            pax.note(&record[..equals], &record[equals + 1..])?;
            records = &records[length..];
        }
        Ok(pax)
    }

    fn note(&mut self, key: &[u8], value: &[u8]) -> Result<(), RequestError> {
        let text =
            || std::str::from_utf8(value).map_err(|_| refused("a number in a PAX record is malformed"));
        fn number<T: std::str::FromStr>(text: &str) -> Result<T, RequestError> {
            text.parse().map_err(|_| refused("a number in a PAX record is malformed"))
        }
        match key {
            b"path" => self.path = Some(value.to_vec()),
            b"linkpath" => self.link = Some(value.to_vec()),
            b"size" => self.size = Some(number(text()?)?),
            b"uid" => self.uid = Some(number(text()?)?),
            b"gid" => self.gid = Some(number(text()?)?),
            b"mtime" => {
                let whole = text()?.split('.').next().unwrap_or("0");
                self.mtime = Some(number(whole)?);
            }
            _ if key.starts_with(b"GNU.sparse") => return Err(refused("it contains a sparse file")),
            // Comments, extended attributes, other times: none of them affects where bytes are written.
            _ => {}
        }
        Ok(())
    }

    /// Some programs apply a global record to every later entry, others to none.
    fn refuse_global(&self) -> Result<(), RequestError> {
        if self.path.is_some() || self.link.is_some() || self.size.is_some() {
            return Err(refused("a global PAX record sets a name or size"));
        }
        Ok(())
    }
}

pub(super) fn refused(why: &str) -> RequestError {
    invalid(format_args!("the archive is refused: {why}"))
}

fn truncated() -> RequestError {
    refused("it is truncated")
}
