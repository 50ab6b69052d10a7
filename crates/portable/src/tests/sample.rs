//! Files for tests, written and read in RAM.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use serde_json::json;

use crate::{
    Ancestor, Entry, Extent, Header, HostRequirements, Image, Item, Kind, Limits, Lineage, Meta, Options,
    PortableError, Processes, Reader, Section, Sink, Summary, Time, TreePath, VerifiedFile, Writer,
};

/// The content of the extents of a file, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Content(pub(super) Vec<u8>);

pub(super) type Tree = Vec<(Section, Vec<(Entry, Content)>)>;

#[derive(Debug)]
pub(super) struct KeptFile {
    pub(super) header: Header,
    pub(super) found: Tree,
    pub(super) proven: VerifiedFile,
}

impl Content {
    pub(super) fn read(&mut self, entry: &Entry, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let Kind::File { extents, .. } = &entry.kind else { return Err(io::ErrorKind::InvalidInput.into()) };
        let mut before = 0;
        for extent in extents {
            if (extent.offset..extent.offset + extent.bytes).contains(&offset) {
                let start = usize::try_from(before + offset - extent.offset).unwrap();
                buffer.copy_from_slice(&self.0[start..start + buffer.len()]);
                return Ok(());
            }
            before += extent.bytes;
        }
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

pub(super) fn header() -> Header {
    Header {
        made_by: "burrow 0.1.0".to_owned(),
        needs: HostRequirements {
            features: Vec::new(),
            driver: "container".to_owned(),
            processes: Some(Processes { about: "{}".to_owned(), signer: None }),
            memory: Some(2),
            base: None,
        },
        lineage: Lineage {
            snapshot: "snpaaaaaaaaaaaaaaaaaaaa".to_owned(),
            name: Some("before".to_owned()),
            description: "as it was".to_owned(),
            labels: BTreeMap::from([("team".to_owned(), "blue".to_owned())]),
            kind: "manual".to_owned(),
            created_ms: 1_700_000_000_000,
            sandbox: "sbxaaaaaaaaaaaaaaaaaaaa".to_owned(),
            sandbox_name: None,
            ancestors: vec![Ancestor {
                snapshot: "snpbbbbbbbbbbbbbbbbbbbb".to_owned(),
                name: None,
                created_ms: 1_600_000_000_000,
            }],
        },
        spec: json!({ "driver": "container" }),
        image: Image { id: "imgaaaaaaaaaaaaaaaaaaaa".to_owned(), config: json!({ "env": {} }) },
        content_bytes: 1000,
    }
}

pub(super) fn meta() -> Meta {
    Meta {
        mode: 0o644,
        uid: 1000,
        gid: 1000,
        mtime: Time { seconds: 1_700_000_000, nanoseconds: 5 },
        attributes: vec![(b"user.note".to_vec(), b"hello".to_vec())],
    }
}

pub(super) fn file(name: &str, content: &[u8]) -> (Entry, Content) {
    let size = content.len() as u64;
    let extents = if size == 0 { Vec::new() } else { vec![Extent { offset: 0, bytes: size }] };
    let path = TreePath::new(name.as_bytes()).unwrap();
    (Entry { path, kind: Kind::file(meta(), size, extents) }, Content(content.to_vec()))
}

pub(super) fn other(name: &str, kind: Kind) -> (Entry, Content) {
    (Entry { path: TreePath::new(name.as_bytes()).unwrap(), kind }, Content::default())
}

/// Bytes that do not compress, the same each time.
pub(super) fn noise(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().update(b"noise").finalize_xof().fill(&mut bytes);
    bytes
}

/// One entry of each kind, in each section.
pub(super) fn tree() -> Tree {
    let plain = Meta { attributes: Vec::new(), mode: 0o4755, ..meta() };
    vec![
        (
            Section::Files,
            vec![
                other("", Kind::Directory(plain.clone())),
                other("bin", Kind::Symlink { meta: plain.clone(), target: b"/usr/../bin".to_vec() }),
                file("empty", b""),
                other("home", Kind::Directory(meta())),
                file("home/a", b"some text, some text, some text"),
                other("home/b", Kind::HardLink { target: TreePath::new(b"home/a").unwrap() }),
                file("home/large", &noise(300_000)),
                other("pipe", Kind::Fifo(plain.clone())),
                other("socket", Kind::Socket(plain)),
                file("z", b"last"),
            ],
        ),
        (Section::Processes, vec![file("about", b"{}"), file("pages-1.img", &[0; 8192])]),
        (Section::Memory, vec![file("rows/000001", b"{\"line\":1}\n")]),
    ]
}

pub(super) fn put<W: Write>(writer: &mut Writer<W>, tree: &Tree) {
    for (section, entries) in tree {
        writer.section(*section).unwrap();
        for (entry, content) in entries {
            let mut content = content.clone();
            writer.entry(entry, &mut |buffer, offset| content.read(entry, buffer, offset)).unwrap();
        }
    }
}

pub(super) fn written(header: &Header, tree: &Tree) -> (Vec<u8>, Summary) {
    let mut writer = Writer::begin(Vec::new(), header, Options { threads: 2, level: 1 }).unwrap();
    put(&mut writer, tree);
    let (summary, bytes) = writer.finish(|_| None).unwrap();
    (bytes, summary)
}

pub(super) fn read_all(bytes: &[u8]) -> Result<KeptFile, PortableError> {
    read_within(bytes, Limits { entries: 1000, bytes: 64 << 20 })
}

pub(super) fn read_within(bytes: &[u8], limits: Limits) -> Result<KeptFile, PortableError> {
    let (header, mut reader) = Reader::open(bytes, limits)?;
    let mut found: Tree = Vec::new();
    let mut chunks = HashMap::new();
    while let Some(item) = reader.item()? {
        match item {
            Item::Section(section) => found.push((section, Vec::new())),
            Item::Entry(entry) => {
                let mut taken = TakenContent { content: Vec::new(), chunks: &mut chunks, expects: None };
                reader.content(&mut taken)?;
                let content = Content(taken.content);
                let (_, entries) = found.last_mut().expect("entries are in sections");
                entries.push((entry, content));
            }
        }
    }
    let proven = reader.proven().expect("it was read to its end").clone();
    Ok(KeptFile { header, found, proven })
}

struct TakenContent<'c> {
    content: Vec<u8>,
    chunks: &'c mut HashMap<[u8; 32], Vec<u8>>,
    expects: Option<([u8; 32], usize)>,
}

impl Sink for TakenContent<'_> {
    fn piece(&mut self, _: u64, bytes: &[u8]) -> io::Result<()> {
        if let Some((hash, length)) = self.expects.take()
            && bytes.len() >= length
        {
            self.chunks.insert(hash, bytes[..length].to_vec());
        }
        self.content.extend_from_slice(bytes);
        Ok(())
    }

    fn chunk(&mut self, hash: &[u8; 32], _: u64, bytes: u64) {
        self.expects = Some((*hash, usize::try_from(bytes).unwrap()));
    }

    fn again(&mut self, hash: &[u8; 32], _: u64) -> io::Result<Option<Vec<u8>>> {
        Ok(self.chunks.get(hash).cloned())
    }
}
