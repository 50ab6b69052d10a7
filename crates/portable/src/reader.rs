//! Reads a file as a stream, without trusting it.
//!
//! ```text
//!  open ─► header ─► next ─► section │ entry ─► content ─► … ─► next ─► end: manifest and hash of the file are compared
//! ```
//!
//! A frame is verified before any of it is passed on. All content that was passed on is correct, but only the end proves that it is
//! complete: until [`Reader::item`] has returned `None`, no part of a file may become visible.
//!
//! RAM: one frame and its entries. A repeated chunk is requested from the sink that received it, and verified again.

use std::collections::VecDeque;
use std::io::{self, Read};

use crate::entry::{Entry, Kind, TreePath};
use crate::frame::{Compression, END, FRAME_HEADER_BYTES, FrameHeader, FrameKind, HashingStream, fill};
use crate::writer::Manifest;
use crate::{FORMAT_VERSION, Header, Identity, MAGIC, PortableError, Section, Signature};

/// The beginning of a file that is encrypted with age.
const AGE: &[u8; 8] = b"age-encr";
const AGE_ARMORED: &[u8; 8] = b"-----BEG";

/// Bytes of the last frame: the signature and the counts.
const MANIFEST_BYTES_MAX: u32 = 4096;

/// The limits of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub entries: u64,
    /// Bytes of content, without holes.
    pub bytes: u64,
}

/// The next item of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    Section(Section),
    /// Its content, if it has any, must be read with [`Reader::content`] before the next item.
    Entry(Entry),
}

/// Receives the content of one file.
pub trait Sink {
    /// Bytes at an offset of the file. Pieces arrive in order.
    fn piece(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Announces that the next `bytes` bytes, from this offset of the file on, are one chunk that may be repeated.
    fn chunk(&mut self, hash: &[u8; 32], offset: u64, bytes: u64);

    /// Returns an earlier chunk, if the sink still has it. The result is verified before it is used.
    fn again(&mut self, hash: &[u8; 32], bytes: u64) -> io::Result<Option<Vec<u8>>>;
}

#[derive(Debug)]
pub struct Reader<R> {
    input: HashingStream<R>,
    limits: Limits,
    root: blake3::Hasher,
    frames: u64,
    entries: u64,
    content_bytes: u64,
    incremental: bool,
    section: Option<Section>,
    last: Option<TreePath>,
    /// Entries of the last list, whose contents follow.
    waiting: VecDeque<Entry>,
    /// The entry whose content is next.
    open: Option<Entry>,
    /// The frame that is being passed on, and the position in it.
    chunk: Vec<u8>,
    position: usize,
    /// A buffer that is reused between frames.
    stored: Vec<u8>,
    proven: Option<VerifiedFile>,
}

/// The result of reading a file to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedFile {
    pub identity: Identity,
    /// The signature. The caller decides whether its key is trusted.
    pub signature: Option<Signature>,
    pub entries: u64,
    pub content_bytes: u64,
    /// The size of the file in bytes.
    pub bytes: u64,
}

impl<R: Read> Reader<R> {
    /// Reads up to the header, which contains the requirements for the rest.
    pub fn open(input: R, limits: Limits) -> Result<(Header, Self), PortableError> {
        let mut reader = Self {
            input: HashingStream::new(input),
            limits,
            root: blake3::Hasher::new(),
            frames: 0,
            entries: 0,
            content_bytes: 0,
            incremental: false,
            section: None,
            last: None,
            waiting: VecDeque::new(),
            open: None,
            chunk: Vec::new(),
            position: 0,
            stored: Vec::new(),
            proven: None,
        };
        let mut magic = [0; 8];
        reader.input.fill(&mut magic).map_err(|error| {
            if matches!(error, PortableError::Truncated) { PortableError::NotAnExport } else { error }
        })?;
        match &magic {
            AGE | AGE_ARMORED => return Err(PortableError::Encrypted),
            _ if magic != MAGIC => return Err(PortableError::NotAnExport),
            _ => {}
        }
        let mut version = [0; 4];
        reader.input.fill(&mut version)?;
        let found = u32::from_le_bytes(version);
        if found == 0 {
            return Err(PortableError::damaged("its version is invalid"));
        }
        if found > FORMAT_VERSION {
            return Err(PortableError::TooNew { found, known: FORMAT_VERSION });
        }
        let first = reader.frame_header()?;
        if first.kind != FrameKind::Header {
            return Err(PortableError::damaged("it does not begin with a header"));
        }
        reader.load(first)?;
        let header = Header::read(&reader.chunk)?;
        reader.position = reader.chunk.len();
        reader.incremental = header.needs.base.is_some();
        Ok((header, reader))
    }

    /// The next item. `None` at the end, if the whole file is valid.
    pub fn item(&mut self) -> Result<Option<Item>, PortableError> {
        if let Some(open) = &self.open {
            let (path, reason) = (open.path.shown(), "its content was not read");
            return Err(PortableError::Entry { path, reason });
        }
        if self.proven.is_some() {
            return Ok(None);
        }
        loop {
            if let Some(entry) = self.waiting.pop_front() {
                self.admit(&entry)?;
                if entry.content_bytes() > 0 {
                    self.open = Some(entry.clone());
                }
                return Ok(Some(Item::Entry(entry)));
            }
            if self.position < self.chunk.len() {
                return Err(PortableError::refused("there is content without an entry"));
            }
            let header = self.frame_header()?;
            match header.kind {
                FrameKind::Section => {
                    self.load(header)?;
                    return self.begin_section().map(|section| Some(Item::Section(section)));
                }
                FrameKind::Entries => self.list(header)?,
                FrameKind::Manifest => {
                    self.end(header)?;
                    return Ok(None);
                }
                FrameKind::Header => return Err(PortableError::refused("there is a second header")),
                FrameKind::Data | FrameKind::Again => {
                    return Err(PortableError::refused("there is content without an entry"));
                }
            }
        }
    }

    /// The content of the last entry that [`Self::item`] returned.
    pub fn content(&mut self, sink: &mut dyn Sink) -> Result<(), PortableError> {
        let Some(entry) = self.open.take() else { return Ok(()) };
        let Kind::File { extents, .. } = &entry.kind else { return Ok(()) };
        let placed = |source| PortableError::Place { path: entry.path.shown(), source };
        let total = entry.content_bytes();
        let mut done = 0;
        for extent in extents {
            let (mut offset, end) = (extent.offset, extent.offset + extent.bytes);
            while offset < end {
                if self.position == self.chunk.len() {
                    self.next_chunk(offset, total - done, sink, &entry)?;
                }
                let available = &self.chunk[self.position..];
                let length = usize::try_from(end - offset).unwrap_or(usize::MAX).min(available.len());
                sink.piece(offset, &available[..length]).map_err(placed)?;
                self.position += length;
                offset += length as u64;
                done += length as u64;
            }
        }
        Ok(())
    }

    /// The result, after the end was verified.
    pub fn proven(&self) -> Option<&VerifiedFile> {
        self.proven.as_ref()
    }

    /// Bytes of the file that were read so far.
    pub fn bytes(&self) -> u64 {
        self.input.bytes
    }

    fn begin_section(&mut self) -> Result<Section, PortableError> {
        let section = match self.chunk.as_slice() {
            [number] => Section::of(*number),
            _ => None,
        };
        self.position = self.chunk.len();
        let section = section.ok_or_else(|| PortableError::refused("there is a section of unknown kind"))?;
        if self.section.is_some_and(|before| before >= section) {
            return Err(PortableError::refused("its sections are out of order"));
        }
        (self.section, self.last) = (Some(section), None);
        Ok(section)
    }

    fn list(&mut self, header: FrameHeader) -> Result<(), PortableError> {
        self.load(header)?;
        let mut rest = self.chunk.as_slice();
        while !rest.is_empty() {
            self.waiting.push_back(Entry::read(&mut rest)?);
        }
        self.position = self.chunk.len();
        if self.waiting.is_empty() {
            return Err(PortableError::refused("there is an empty list of entries"));
        }
        Ok(())
    }

    /// Checks an entry in its context.
    fn admit(&mut self, entry: &Entry) -> Result<(), PortableError> {
        let refuse = |reason| Err(PortableError::Entry { path: entry.path.shown(), reason });
        let Some(section) = self.section else { return refuse("it is outside a section") };
        if self.last.as_ref().is_some_and(|last| *last >= entry.path) {
            return refuse("it is repeated or out of order");
        }
        let is_file = matches!(entry.kind, Kind::File { .. });
        if section != Section::Files && !is_file {
            return refuse("only files are allowed here");
        }
        if entry.kind == Kind::Gone && !self.incremental {
            return refuse("a full export cannot contain removed entries");
        }
        self.last = Some(entry.path.clone());
        self.entries += 1;
        if self.entries > self.limits.entries {
            return Err(PortableError::TooLarge { limit: self.limits.entries, unit: "entries" });
        }
        self.content_bytes = self.content_bytes.saturating_add(entry.content_bytes());
        if self.content_bytes > self.limits.bytes {
            return Err(PortableError::TooLarge { limit: self.limits.bytes, unit: "bytes of content" });
        }
        Ok(())
    }

    fn next_chunk(
        &mut self,
        offset: u64,
        left: u64,
        sink: &mut dyn Sink,
        entry: &Entry,
    ) -> Result<(), PortableError> {
        let header = self.frame_header()?;
        if header.raw == 0 {
            return Err(PortableError::refused("there is an empty chunk"));
        }
        match header.kind {
            FrameKind::Data => {
                self.load(header)?;
                if u64::from(header.raw) <= left {
                    sink.chunk(&header.hash, offset, u64::from(header.raw));
                }
                Ok(())
            }
            FrameKind::Again => {
                if u64::from(header.raw) > left || header.stored != 0 || self.section != Some(Section::Files)
                {
                    return Err(PortableError::refused("a repeated chunk is invalid here"));
                }
                let placed = |source| PortableError::Place { path: entry.path.shown(), source };
                let known = sink.again(&header.hash, u64::from(header.raw)).map_err(placed)?;
                let chunk = known
                    .ok_or_else(|| PortableError::refused("a reference names a chunk that does not exist"))?;
                self.accept(header, chunk)
            }
            FrameKind::Header | FrameKind::Section | FrameKind::Entries | FrameKind::Manifest => {
                let (path, reason) = (entry.path.shown(), "its content ends too early");
                Err(PortableError::Entry { path, reason })
            }
        }
    }

    fn frame_header(&mut self) -> Result<FrameHeader, PortableError> {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        self.input.fill(&mut bytes)?;
        FrameHeader::read(&bytes)
    }

    /// Reads a frame's content, and verifies its hash before it is used.
    fn load(&mut self, header: FrameHeader) -> Result<(), PortableError> {
        self.stored.resize(header.stored as usize, 0);
        self.input.fill(&mut self.stored)?;
        let mut chunk = std::mem::take(&mut self.chunk);
        match header.compression {
            Compression::None => {
                chunk.clear();
                chunk.extend_from_slice(&self.stored);
            }
            Compression::Zstd => {
                // Limited to the announced length, so the result cannot grow beyond what was checked.
                chunk.resize(header.raw as usize, 0);
                let length =
                    zstd::bulk::decompress_to_buffer(&self.stored, chunk.as_mut_slice()).map_err(|_| {
                        PortableError::damaged(format!("chunk {} does not decompress", self.frames))
                    })?;
                chunk.truncate(length);
            }
        }
        self.accept(header, chunk)
    }

    fn accept(&mut self, header: FrameHeader, chunk: Vec<u8>) -> Result<(), PortableError> {
        if chunk.len() != header.raw as usize || *blake3::hash(&chunk).as_bytes() != header.hash {
            return Err(PortableError::damaged(format!("chunk {} does not match its checksum", self.frames)));
        }
        (self.chunk, self.position) = (chunk, 0);
        header.bind(&mut self.root);
        self.frames += 1;
        Ok(())
    }

    fn end(&mut self, header: FrameHeader) -> Result<(), PortableError> {
        let root = Identity(*self.root.finalize().as_bytes());
        let frames = self.frames;
        if header.raw > MANIFEST_BYTES_MAX || header.compression != Compression::None {
            return Err(PortableError::damaged("its manifest is not in canonical form"));
        }
        self.load(header)?;
        self.position = self.chunk.len();
        let manifest: Manifest = serde_json::from_slice(&self.chunk)
            .map_err(|_| PortableError::damaged("its manifest is unreadable"))?;
        let mut end = [0; END.len()];
        self.input.fill(&mut end)?;
        let all = *self.input.hasher.finalize().as_bytes();
        let mut written = [0; 32];
        fill(&mut self.input.inner, &mut written)?;
        if end != END || all != written {
            return Err(PortableError::damaged("its checksum does not match"));
        }
        let found = (frames, self.entries, self.content_bytes, root.to_string());
        if found != (manifest.frames, manifest.entries, manifest.content_bytes, manifest.root) {
            return Err(PortableError::damaged("its manifest does not match its chunks"));
        }
        let mut more = [0; 1];
        let read = self.input.inner.read(&mut more).map_err(|source| PortableError::Read { source })?;
        if read != 0 {
            return Err(PortableError::refused("there is data after its end"));
        }
        self.proven = Some(VerifiedFile {
            identity: root,
            signature: manifest.signature,
            entries: self.entries,
            content_bytes: self.content_bytes,
            bytes: self.input.bytes + written.len() as u64,
        });
        Ok(())
    }
}
