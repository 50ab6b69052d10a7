//! Hostile files that no exporter writes: they are refused before they have an effect.

use super::sample::{file, header, meta, read_all};
use crate::frame::{Compression, END, FrameHeader, FrameKind};
use crate::writer::Manifest;
use crate::{Entry, Extent, Header, Identity, Kind, MAGIC, TreePath};

/// A file that is assembled by hand, with a valid end.
struct ForgedFile {
    bytes: Vec<u8>,
    root: blake3::Hasher,
    frames: u64,
    entries: u64,
    content_bytes: u64,
}

impl ForgedFile {
    fn new(header: &Header) -> Self {
        let mut forged = Self {
            bytes: MAGIC.to_vec(),
            root: blake3::Hasher::new(),
            frames: 0,
            entries: 0,
            content_bytes: 0,
        };
        forged.bytes.extend_from_slice(&1u32.to_le_bytes());
        forged.frame(FrameKind::Header, &header.to_json().unwrap())
    }

    fn raw_frame(mut self, header: FrameHeader, stored: &[u8]) -> Self {
        self.bytes.extend_from_slice(&header.to_bytes());
        self.bytes.extend_from_slice(stored);
        if header.kind != FrameKind::Manifest {
            header.bind(&mut self.root);
            self.frames += 1;
        }
        self
    }

    fn frame(self, kind: FrameKind, raw: &[u8]) -> Self {
        let length = u32::try_from(raw.len()).unwrap();
        let hash = *blake3::hash(raw).as_bytes();
        let header = FrameHeader { kind, compression: Compression::None, stored: length, raw: length, hash };
        self.raw_frame(header, raw)
    }

    fn section(self, number: u8) -> Self {
        self.frame(FrameKind::Section, &[number])
    }

    fn entries(mut self, entries: &[Entry]) -> Self {
        let mut raw = Vec::new();
        for entry in entries {
            entry.write(&mut raw).unwrap();
            self.entries += 1;
            self.content_bytes += entry.content_bytes();
        }
        self.frame(FrameKind::Entries, &raw)
    }

    fn data(self, raw: &[u8]) -> Self {
        self.frame(FrameKind::Data, raw)
    }

    fn end(self) -> Vec<u8> {
        let manifest = Manifest {
            frames: self.frames,
            entries: self.entries,
            content_bytes: self.content_bytes,
            root: Identity(*self.root.finalize().as_bytes()).to_string(),
            signature: None,
        };
        let mut bytes = self.frame(FrameKind::Manifest, &serde_json::to_vec(&manifest).unwrap()).bytes;
        bytes.extend_from_slice(&END);
        let all = *blake3::hash(&bytes).as_bytes();
        bytes.extend_from_slice(&all);
        bytes
    }
}

fn whole() -> ForgedFile {
    ForgedFile::new(&header()).section(1)
}

fn named(name: &str, kind: Kind) -> Entry {
    Entry { path: TreePath::new(name.as_bytes()).unwrap(), kind }
}

#[track_caller]
fn refused(forged: ForgedFile, why: &str) {
    let error = read_all(&forged.end()).unwrap_err().to_string();
    assert!(error.contains(why), "{error}");
}

/// The bytes of an entry with a path that [`TreePath`] does not accept.
fn entry_at(path: &[u8]) -> Vec<u8> {
    let mut raw = Vec::new();
    named("x", Kind::Directory(meta())).write(&mut raw).unwrap();
    let mut forged = vec![raw[0]];
    forged.extend_from_slice(&u16::try_from(path.len()).unwrap().to_le_bytes());
    forged.extend_from_slice(path);
    forged.extend_from_slice(&raw[4..]);
    forged
}

#[test]
fn the_hand_made_file_without_changes_is_valid() {
    let (entry, content) = file("a", b"content");
    read_all(&whole().entries(&[entry]).data(&content.0).end()).unwrap();
}

#[test]
fn paths_that_lead_elsewhere_are_refused() {
    for path in [&b"/etc/passwd"[..], b"../up", b"a/../../b", b"a/./b", b"a//b", b"a\0b", b"a/", b".."] {
        let error = read_all(&whole().frame(FrameKind::Entries, &entry_at(path)).end()).unwrap_err();
        assert!(error.to_string().contains("the file is refused"), "{error}");
    }
}

#[test]
fn repeated_and_unsorted_entries_are_refused() {
    let directory = |name| named(name, Kind::Directory(meta()));
    refused(whole().entries(&[directory("a"), directory("a")]), "is repeated or out of order");
    refused(whole().entries(&[directory("b"), directory("a")]), "is repeated or out of order");
    refused(whole().entries(&[directory("a")]).entries(&[directory("a")]), "is repeated or out of order");
    refused(whole().section(1), "out of order");
    refused(ForgedFile::new(&header()).section(3).section(2), "out of order");
    refused(ForgedFile::new(&header()).section(9), "unknown kind");
    refused(ForgedFile::new(&header()).entries(&[directory("a")]), "outside a section");
    refused(whole().frame(FrameKind::Header, &header().to_json().unwrap()), "second header");
}

#[test]
fn links_to_later_entries_and_devices_are_refused() {
    let mut link = Vec::new();
    named("b", Kind::HardLink { target: TreePath::new(b"a").unwrap() }).write(&mut link).unwrap();
    *link.last_mut().unwrap() = b'c';
    refused(whole().frame(FrameKind::Entries, &link), "a later entry");
    for kind in [0, 8, 200] {
        let mut device = entry_at(b"dev");
        device[0] = kind;
        refused(whole().frame(FrameKind::Entries, &device), "unknown kind");
    }
    let mut root = entry_at(b"");
    root[0] = 5;
    refused(whole().frame(FrameKind::Entries, &root), "only a directory");
    refused(
        ForgedFile::new(&header()).section(2).entries(&[named("a", Kind::Fifo(meta()))]),
        "only files are allowed here",
    );
    refused(whole().entries(&[named("a", Kind::Gone)]), "cannot contain removed entries");
}

#[test]
fn content_that_does_not_match_its_entry_is_refused() {
    let (entry, content) = file("a", b"content");
    let with = || whole().entries(std::slice::from_ref(&entry));
    refused(with(), "ends too early");
    refused(with().data(&content.0[..3]), "ends too early");
    refused(with().data(b"content and more"), "content without an entry");
    refused(with().data(&content.0).data(b"more"), "content without an entry");
    refused(whole().data(b"more"), "content without an entry");
    refused(with().data(b"").data(&content.0), "an empty chunk");
}

#[test]
fn references_to_unknown_chunks_are_refused() {
    let (entry, content) = file("a", b"content");
    let hash = *blake3::hash(&content.0).as_bytes();
    let again =
        |raw| FrameHeader { kind: FrameKind::Again, compression: Compression::None, stored: 0, raw, hash };
    refused(
        whole().entries(std::slice::from_ref(&entry)).raw_frame(again(7), &[]),
        "a chunk that does not exist",
    );
    refused(whole().entries(&[entry]).raw_frame(again(8), &[]), "is invalid here");
}

#[test]
fn decompression_bombs_are_refused() {
    let zeros = vec![0; 4 << 20];
    let stored = zstd::bulk::compress(&zeros, 19).unwrap();
    let header_of = |raw: u32| FrameHeader {
        kind: FrameKind::Data,
        compression: Compression::Zstd,
        stored: u32::try_from(stored.len()).unwrap(),
        raw,
        hash: *blake3::hash(&zeros).as_bytes(),
    };
    let entry = named("a", Kind::file(meta(), 4 << 20, vec![Extent { offset: 0, bytes: 4 << 20 }]));
    let with = || whole().entries(std::slice::from_ref(&entry));
    read_all(&with().raw_frame(header_of(4 << 20), &stored).end()).unwrap();
    // It decompresses to more than its header says, or claims more than the maximum.
    refused(with().raw_frame(header_of(1 << 20), &stored), "does not decompress");
    refused(with().raw_frame(header_of((4 << 20) + 1), &stored), "exceeds the maximum length");
    refused(with().raw_frame(header_of(u32::MAX), &stored), "exceeds the maximum length");
    let many = named("b", Kind::file(meta(), 1 << 40, vec![Extent { offset: 0, bytes: 1 << 40 }]));
    refused(whole().entries(&[many]), "bytes of content");
}

#[test]
fn invalid_sizes_and_extents_are_refused() {
    let extent = |offset, bytes| Extent { offset, bytes };
    let sized = |size, extents| named("a", Kind::File { meta: meta(), size, extents });
    let overlapping = sized(10, vec![extent(0, 6), extent(5, 2)]);
    refused(whole().entries(&[overlapping]), "overlap or exceed its size");
    refused(whole().entries(&[sized(10, vec![extent(8, 3)])]), "overlap or exceed its size");
    refused(whole().entries(&[sized(10, vec![extent(u64::MAX, 2)])]), "overlap or exceed its size");
    refused(whole().entries(&[sized(10, vec![extent(3, 0)])]), "overlap or exceed its size");
    let mut raw = Vec::new();
    sized(10, Vec::new()).write(&mut raw).unwrap();
    let at = raw.len() - 12;
    raw[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
    refused(whole().frame(FrameKind::Entries, &raw), "too large");
    refused(whole().frame(FrameKind::Entries, &raw[..20]), "in the middle of one");
    refused(whole().frame(FrameKind::Entries, &[]), "empty list of entries");
}

#[test]
fn a_manifest_that_does_not_match_is_refused() {
    let (entry, content) = file("a", b"content");
    let mut forged = whole().entries(std::slice::from_ref(&entry)).data(&content.0);
    forged.entries += 1;
    refused(forged, "does not match its chunks");
    let mut forged = whole().entries(&[entry]).data(&content.0);
    forged.root = blake3::Hasher::new();
    refused(forged, "does not match its chunks");
}
