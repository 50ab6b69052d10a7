//! Reads the entries of a tar stream, trusting nothing in it.
//!
//! Reads ustar, GNU long names, PAX and all forms of sparse files. Whatever programs would interpret differently is
//! refused, since archives can hide files that way: a PAX size that contradicts the header's, the same extension
//! twice for one entry, names in records for all entries.

mod pax;
mod sparse;

use std::io::{self, BufRead};

use ::tar::Header;

use self::pax::Pax;
pub(crate) use self::sparse::SparseMap;

pub(crate) const BLOCK_BYTES: usize = 512;

/// The kernel's limit for names.
pub(crate) const NAME_BYTES_MAX: usize = 4095;

/// All PAX records of one entry together: a dozen extended attributes of the largest size.
const PAX_BYTES_MAX: u64 = 1024 * 1024;

/// From this size on the header's own field is too small, and only PAX holds the size.
const USTAR_SIZE_END: u64 = 1 << 33;

/// Type flags of entries that only describe the next one.
const LONG_NAME: u8 = b'L';
const LONG_LINK: u8 = b'K';
const PAX: u8 = b'x';
const PAX_GLOBAL: u8 = b'g';
const GNU_SPARSE: u8 = b'S';

/// One entry, with all its extensions applied.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    pub(crate) name: Vec<u8>,
    pub(crate) mode: u32,
    pub(crate) uid: u64,
    pub(crate) gid: u64,
    pub(crate) mtime: Time,
    /// Bytes of content that follow in the stream.
    pub(crate) size: u64,
    /// Where the content belongs in the file, if it has holes.
    pub(crate) sparse: Option<SparseMap>,
    /// Extended attributes, by name.
    pub(crate) attributes: Vec<(Vec<u8>, Vec<u8>)>,
    /// Attributes in formats that are not supported.
    pub(crate) attributes_unread: u64,
}

/// Since the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Time {
    pub(crate) seconds: i64,
    pub(crate) nanoseconds: u32,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    Symlink { target: Vec<u8> },
    HardLink { target: Vec<u8> },
    Fifo,
    Device,
}

/// Why a stream is refused.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The name of the entry, if it is known.
    Because(&'static str),
    At(Vec<u8>, &'static str),
    Read(io::Error),
}

/// Where a tar is read from.
pub(crate) trait Source: BufRead {
    /// Skips bytes. The default implementation reads them.
    fn skip(&mut self, mut count: u64) -> io::Result<()> {
        while count > 0 {
            let available = self.fill_buf()?.len();
            if available == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let taken = available.min(usize::try_from(count).unwrap_or(usize::MAX));
            self.consume(taken);
            count -= taken as u64;
        }
        Ok(())
    }
}

/// The entries of one stream.
#[derive(Debug)]
pub(crate) struct Entries<S> {
    source: S,
    /// Bytes read from the source so far.
    position: u64,
}

/// Extensions seen since the last entry.
#[derive(Default)]
struct Extensions {
    long_name: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
    pax: Option<Pax>,
}

impl<S: Source> Entries<S> {
    pub(crate) fn new(source: S) -> Self {
        Self { source, position: 0 }
    }

    /// The position of the next byte: after [`Self::next`], the first byte of the content.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The next entry. Its content must be read with [`Self::content`], or skipped with [`Self::skip`], before the
    /// next one.
    pub(crate) fn next(&mut self) -> Result<Option<Entry>, Refusal> {
        let mut extensions = Extensions::default();
        loop {
            let Some(header) = self.header()? else {
                return if extensions.is_empty() { Ok(None) } else { Err(truncated()) };
            };
            // For a sparse file, this is the stored size, not the size of the file.
            let size = lenient(header.entry_size(), &header.as_old().size)
                .ok_or(Refusal::Because("the size in a header is not a number"))?;
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
                    return Err(Refusal::Because("an entry has the same extension twice"));
                }
                _ => return self.finish(&header, size, extensions).map(Some),
            }
        }
    }

    /// Passes on the content of an entry in pieces, and skips its padding.
    pub(crate) fn content<E: From<Refusal>>(
        &mut self,
        size: u64,
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rest = size;
        while rest > 0 {
            let available = match self.source.fill_buf() {
                Ok([]) => return Err(truncated().into()),
                Ok(available) => available,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Refusal::Read(error).into()),
            };
            let count = available.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
            take(&available[..count])?;
            self.source.consume(count);
            self.position += count as u64;
            rest -= count as u64;
        }
        self.skip_exactly(padding(size)).map_err(E::from)
    }

    /// Skips the content of an entry.
    pub(crate) fn skip(&mut self, size: u64) -> Result<(), Refusal> {
        let padded = size.checked_add(padding(size)).ok_or(Refusal::Because("an entry is too large"))?;
        self.skip_exactly(padded)
    }

    fn skip_exactly(&mut self, count: u64) -> Result<(), Refusal> {
        self.source.skip(count).map_err(|error| match error.kind() == io::ErrorKind::UnexpectedEof {
            true => truncated(),
            false => Refusal::Read(error),
        })?;
        self.position += count;
        Ok(())
    }

    /// The next header; `None` at the block of zeros that ends an archive, or at the end of the stream.
    fn header(&mut self) -> Result<Option<Header>, Refusal> {
        let mut block = [0; BLOCK_BYTES];
        if !self.block(&mut block)? || block.iter().all(|&byte| byte == 0) {
            return Ok(None);
        }
        let header = Header::from_byte_slice(&block).clone();
        let around = || block[..148].iter().chain(&block[156..]);
        let sum: u32 = around().map(|&byte| u32::from(byte)).sum::<u32>() + 8 * u32::from(b' ');
        // Some old programs summed signed bytes.
        let signed: i64 =
            around().map(|&byte| i64::from(byte.cast_signed())).sum::<i64>() + 8 * i64::from(b' ');
        match header.cksum() {
            Ok(found) if found == sum || i64::from(found) == signed => Ok(Some(header)),
            Ok(_) | Err(_) => Err(Refusal::Because("a header's checksum is wrong")),
        }
    }

    /// Reads one whole block; `false` at the end of the stream.
    fn block(&mut self, block: &mut [u8; BLOCK_BYTES]) -> Result<bool, Refusal> {
        let mut filled = 0;
        while filled < BLOCK_BYTES {
            match self.source.read(&mut block[filled..]) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => return Err(truncated()),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Refusal::Read(error)),
            }
        }
        self.position += BLOCK_BYTES as u64;
        Ok(true)
    }

    fn long_name(&mut self, size: u64) -> Result<Vec<u8>, Refusal> {
        let mut name = self.small_content(size, NAME_BYTES_MAX as u64 + 1)?;
        while name.last() == Some(&0) {
            name.pop();
        }
        Ok(name)
    }

    fn small_content(&mut self, size: u64, limit: u64) -> Result<Vec<u8>, Refusal> {
        if size > limit {
            return Err(Refusal::Because("a name or extension is too long"));
        }
        let mut content = Vec::new();
        self.content(size, |piece| {
            content.extend_from_slice(piece);
            Ok::<_, Refusal>(())
        })?;
        Ok(content)
    }

    fn finish(&mut self, header: &Header, size: u64, extensions: Extensions) -> Result<Entry, Refusal> {
        let mut pax = extensions.pax.unwrap_or_default();
        let name = one_of(extensions.long_name, pax.path.take(), "an entry has two different names")?
            .unwrap_or_else(|| header.path_bytes().into_owned());
        // Sparse files in PAX format have a made-up name; the real one is in a record.
        let name = pax.sparse.name.take().unwrap_or(name);
        let named = |reason| Refusal::At(name.clone(), reason);
        let link = one_of(extensions.long_link, pax.link.take(), "a link has two different targets")?
            .or_else(|| header.link_name_bytes().map(std::borrow::Cow::into_owned));
        let mut size = match pax.size {
            None => size,
            Some(pax) if pax == size || pax >= USTAR_SIZE_END => pax,
            Some(_) => return Err(named("it has two different sizes")),
        };
        let type_flag = header.entry_type().as_byte();
        let kind = kind(type_flag, link, name.ends_with(b"/")).map_err(named)?;
        let sparse = match (&kind, type_flag) {
            (_, GNU_SPARSE) => Some(self.gnu_sparse(header, size).map_err(|error| error.at(&name))?),
            (Kind::File, _) if pax.sparse.is_some() => {
                let (sparse, rest) = self.pax_sparse(&pax.sparse, size).map_err(|error| error.at(&name))?;
                size = rest;
                Some(sparse)
            }
            (_, _) => None,
        };
        // Some programs write a size for links and directories without content; others would read content there.
        if kind != Kind::File && size != 0 {
            return Err(named("a link, directory or device has a size"));
        }
        let old = header.as_old();
        let seconds = lenient(header.mtime(), &old.mtime).and_then(|seconds| i64::try_from(seconds).ok());
        let mtime = Time { seconds: seconds.unwrap_or(0), nanoseconds: 0 };
        let mode = lenient(header.mode().map(u64::from), &old.mode);
        let mode = mode
            .and_then(|mode| u32::try_from(mode).ok())
            .ok_or_else(|| named("the mode is not a number"))?;
        let uid = pax.uid.or_else(|| lenient(header.uid(), &old.uid));
        let gid = pax.gid.or_else(|| lenient(header.gid(), &old.gid));
        Ok(Entry {
            kind,
            mode: mode & 0o7777,
            uid: uid.ok_or_else(|| named("the user id is not a number"))?,
            gid: gid.ok_or_else(|| named("the group id is not a number"))?,
            mtime: pax.mtime.unwrap_or(mtime),
            size,
            sparse,
            attributes: pax.attributes,
            attributes_unread: pax.attributes_unread,
            name,
        })
    }
}

impl Extensions {
    fn is_empty(&self) -> bool {
        self.long_name.is_none() && self.long_link.is_none() && self.pax.is_none()
    }
}

impl Refusal {
    fn at(self, name: &[u8]) -> Self {
        match self {
            Self::Because(reason) => Self::At(name.to_vec(), reason),
            other @ (Self::At(..) | Self::Read(_)) => other,
        }
    }
}

/// A number in a header. An empty field is 0, because some programs leave irrelevant numbers empty.
fn lenient(read: io::Result<u64>, field: &[u8]) -> Option<u64> {
    read.ok().or_else(|| field.iter().all(|&byte| byte == 0 || byte == b' ').then_some(0))
}

fn kind(type_flag: u8, link: Option<Vec<u8>>, named_as_directory: bool) -> Result<Kind, &'static str> {
    let target = || link.filter(|link| !link.is_empty()).ok_or("a link has no target");
    match type_flag {
        // Old archives mark directories only by their names.
        b'0' | 0 if named_as_directory => Ok(Kind::Directory),
        b'0' | 0 | b'7' | GNU_SPARSE => Ok(Kind::File),
        b'1' => Ok(Kind::HardLink { target: target()? }),
        b'2' => Ok(Kind::Symlink { target: target()? }),
        b'3' | b'4' => Ok(Kind::Device),
        b'5' => Ok(Kind::Directory),
        b'6' => Ok(Kind::Fifo),
        _ => Err("it has an unknown type"),
    }
}

fn one_of(
    gnu: Option<Vec<u8>>,
    pax: Option<Vec<u8>>,
    reason: &'static str,
) -> Result<Option<Vec<u8>>, Refusal> {
    match (gnu, pax) {
        (Some(gnu), Some(pax)) if gnu != pax => Err(Refusal::Because(reason)),
        (gnu, pax) => Ok(gnu.or(pax)),
    }
}

/// The bytes from the end of the content to the next block.
pub(crate) fn padding(size: u64) -> u64 {
    (BLOCK_BYTES as u64 - size % BLOCK_BYTES as u64) % BLOCK_BYTES as u64
}

pub(crate) fn truncated() -> Refusal {
    Refusal::Because("it is truncated")
}

#[cfg(test)]
mod tests;
