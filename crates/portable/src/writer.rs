//! Writes a file as a stream.
//!
//! Small files are grouped: their entries in one frame, their contents in one chunk after it. A large file has its own
//! chunks, so that a repeated chunk, in this file or another, is written as its hash only.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use crate::chunks::{FinishedFrame, Job, SeenChunks, Workers};
use crate::entry::{EXTENTS_MAX, Entry, Extent, Kind, TreePath};
use crate::frame::{Compression, END, FrameHeader, FrameKind, HashingStream};
use crate::{CHUNK_BYTES, FORMAT_VERSION, Header, Identity, MAGIC, PortableError, Section, Signature};

/// A file with more content than this has its own chunks.
const SMALL_BYTES: u64 = 128 << 10;

/// Contents and entries that are collected before they are written.
const GATHERED_BYTES: usize = CHUNK_BYTES - SMALL_BYTES as usize;
const GATHERED_ENTRIES_BYTES: usize = 512 << 10;

/// Buffers kept for reuse.
const SPARE_MAX: usize = 8;

#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Threads that hash and compress.
    pub threads: usize,
    /// The compression level of zstd.
    pub level: i32,
}

/// The result of writing a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    pub identity: Identity,
    /// The size of the file in bytes.
    pub bytes: u64,
    /// Bytes of all content, without holes.
    pub content_bytes: u64,
    pub entries: u64,
    /// Bytes of this content in repeated chunks.
    pub repeated_bytes: u64,
}

/// The last frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// The number of preceding frames.
    pub(crate) frames: u64,
    pub(crate) entries: u64,
    pub(crate) content_bytes: u64,
    /// The identity, in hexadecimal.
    pub(crate) root: String,
    pub(crate) signature: Option<Signature>,
}

#[derive(Debug)]
pub struct Writer<W: Write> {
    out: HashingStream<W>,
    workers: Workers,
    seen: SeenChunks,
    root: blake3::Hasher,
    frames: u64,
    entries: u64,
    content_bytes: u64,
    repeated_bytes: u64,
    section: Option<Section>,
    last: Option<TreePath>,
    /// Entries and contents that are not written yet.
    gathered: Vec<u8>,
    contents: Vec<u8>,
    spare: Vec<Vec<u8>>,
}

impl<W: Write> Writer<W> {
    pub fn begin(out: W, header: &Header, options: Options) -> Result<Self, PortableError> {
        let seen = SeenChunks::default();
        let workers = Workers::start(options.threads, options.level, &seen)?;
        let mut out = HashingStream::new(out);
        out.put(&MAGIC)?;
        out.put(&FORMAT_VERSION.to_le_bytes())?;
        let mut writer = Self {
            out,
            workers,
            seen,
            root: blake3::Hasher::new(),
            frames: 0,
            entries: 0,
            content_bytes: 0,
            repeated_bytes: 0,
            section: None,
            last: None,
            gathered: Vec::new(),
            contents: Vec::new(),
            spare: Vec::new(),
        };
        writer.submit(FrameKind::Header, header.to_json()?, false)?;
        // Written first, so that a reader can decide before any content is produced.
        writer.drain()?;
        Ok(writer)
    }

    /// Begins a section. Each occurs once, in order.
    pub fn section(&mut self, section: Section) -> Result<(), PortableError> {
        if self.section.is_some_and(|before| before >= section) {
            return Err(PortableError::refused("its sections are out of order"));
        }
        self.flush()?;
        self.section = Some(section);
        self.last = None;
        self.submit(FrameKind::Section, vec![section.number()], false)
    }

    /// Writes an entry. `read` is called for the extents of a file, in order, and must fill the whole buffer
    /// with the bytes from that offset on. Paths must be sorted, see [`TreePath`].
    pub fn entry(
        &mut self,
        entry: &Entry,
        read: &mut dyn FnMut(&mut [u8], u64) -> io::Result<()>,
    ) -> Result<(), PortableError> {
        if self.section.is_none() || self.last.as_ref().is_some_and(|last| *last >= entry.path) {
            let (path, reason) = (entry.path.shown(), "it is out of order");
            return Err(PortableError::Unexportable { path, reason });
        }
        self.last = Some(entry.path.clone());
        self.entries += 1;
        let bytes = entry.content_bytes();
        self.content_bytes += bytes;
        if bytes > SMALL_BYTES {
            self.flush()?;
        }
        entry.write(&mut self.gathered)?;
        let extents: &[Extent] = match &entry.kind {
            Kind::File { extents, .. } => extents,
            Kind::Directory(_)
            | Kind::Symlink { .. }
            | Kind::HardLink { .. }
            | Kind::Fifo(_)
            | Kind::Socket(_)
            | Kind::Gone => &[],
        };
        if bytes > SMALL_BYTES {
            self.flush()?;
            return self.large(entry, extents, read);
        }
        for extent in extents {
            let start = self.contents.len();
            let length = usize::try_from(extent.bytes).expect("it is small");
            self.contents.resize(start + length, 0);
            read(&mut self.contents[start..], extent.offset).map_err(failed(entry))?;
        }
        if self.contents.len() >= GATHERED_BYTES || self.gathered.len() >= GATHERED_ENTRIES_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Written in chunks, all full except the last.
    fn large(
        &mut self,
        entry: &Entry,
        extents: &[Extent],
        read: &mut dyn FnMut(&mut [u8], u64) -> io::Result<()>,
    ) -> Result<(), PortableError> {
        // The reader gets repeated chunks from the files that it has written, and only this section has files.
        let repeats = self.section == Some(Section::Files);
        let mut chunk = self.buffer();
        for extent in extents {
            let (mut offset, end) = (extent.offset, extent.offset + extent.bytes);
            while offset < end {
                let start = chunk.len();
                let room = (CHUNK_BYTES - start) as u64;
                let wanted = usize::try_from(room.min(end - offset)).expect("it is at most a chunk");
                chunk.resize(start + wanted, 0);
                read(&mut chunk[start..], offset).map_err(failed(entry))?;
                offset += wanted as u64;
                if chunk.len() == CHUNK_BYTES {
                    let next = self.buffer();
                    self.submit(FrameKind::Data, std::mem::replace(&mut chunk, next), repeats)?;
                }
            }
        }
        if !chunk.is_empty() {
            self.submit(FrameKind::Data, chunk, repeats)?;
        }
        Ok(())
    }

    /// Ends the file. `sign` receives its identity.
    pub fn finish(
        mut self,
        sign: impl FnOnce(&Identity) -> Option<Signature>,
    ) -> Result<(Summary, W), PortableError> {
        self.flush()?;
        self.drain()?;
        let identity = Identity(*self.root.finalize().as_bytes());
        let manifest = Manifest {
            frames: self.frames,
            entries: self.entries,
            content_bytes: self.content_bytes,
            root: identity.to_string(),
            signature: sign(&identity),
        };
        let raw = serde_json::to_vec(&manifest).expect("numbers and text are JSON");
        let length = u32::try_from(raw.len()).expect("it is a few hundred bytes");
        let hash = *blake3::hash(&raw).as_bytes();
        let (kind, compression) = (FrameKind::Manifest, Compression::None);
        let header = FrameHeader { kind, compression, stored: length, raw: length, hash };
        self.out.put(&header.to_bytes())?;
        self.out.put(&raw)?;
        self.out.put(&END)?;
        let all = *self.out.hasher.finalize().as_bytes();
        let failed = |source| PortableError::Write { source };
        self.out.inner.write_all(&all).map_err(failed)?;
        self.out.inner.flush().map_err(failed)?;
        let summary = Summary {
            identity,
            bytes: self.out.bytes + all.len() as u64,
            content_bytes: self.content_bytes,
            entries: self.entries,
            repeated_bytes: self.repeated_bytes,
        };
        Ok((summary, self.out.inner))
    }

    /// Bytes of content that were read so far.
    pub fn content_bytes(&self) -> u64 {
        self.content_bytes
    }

    fn flush(&mut self) -> Result<(), PortableError> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        let next = self.buffer();
        let entries = std::mem::replace(&mut self.gathered, next);
        self.submit(FrameKind::Entries, entries, false)?;
        if !self.contents.is_empty() {
            let next = self.buffer();
            let contents = std::mem::replace(&mut self.contents, next);
            self.submit(FrameKind::Data, contents, false)?;
        }
        Ok(())
    }

    fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    fn submit(&mut self, kind: FrameKind, raw: Vec<u8>, repeats: bool) -> Result<(), PortableError> {
        while self.workers.is_full() {
            self.put_one()?;
        }
        self.workers.submit(Job { kind, raw, repeats })
    }

    fn drain(&mut self) -> Result<(), PortableError> {
        while self.workers.waiting() > 0 {
            self.put_one()?;
        }
        Ok(())
    }

    fn put_one(&mut self) -> Result<(), PortableError> {
        let FinishedFrame { mut header, stored, repeats, mut raw } = self.workers.take()?;
        if repeats && self.seen.has(&header.hash) {
            (header.kind, header.compression, header.stored) = (FrameKind::Again, Compression::None, 0);
            self.repeated_bytes += u64::from(header.raw);
            self.out.put(&header.to_bytes())?;
        } else {
            if repeats {
                self.seen.add(header.hash);
            }
            self.out.put(&header.to_bytes())?;
            self.out.put(&stored)?;
        }
        header.bind(&mut self.root);
        self.frames += 1;
        if self.spare.len() < SPARE_MAX {
            raw.clear();
            self.spare.push(raw);
        }
        Ok(())
    }
}

/// Joins extents of a file that has too many holes to list.
pub(crate) fn bounded(extents: Vec<Extent>) -> Vec<Extent> {
    match (extents.first(), extents.last()) {
        (Some(first), Some(last)) if extents.len() > EXTENTS_MAX => {
            vec![Extent { offset: first.offset, bytes: last.offset + last.bytes - first.offset }]
        }
        _ => extents,
    }
}

impl Kind {
    /// A file; its extents are joined if there are too many.
    pub fn file(meta: crate::Meta, size: u64, extents: Vec<Extent>) -> Self {
        Self::File { meta, size, extents: bounded(extents) }
    }
}

fn failed(entry: &Entry) -> impl FnOnce(io::Error) -> PortableError {
    let path = entry.path.shown();
    move |source| PortableError::Content { path, source }
}
