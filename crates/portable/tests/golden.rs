//! Freezes the format: every later version reads a file that version 1 wrote, with the same result.
//!
//! `tests/fixtures/v1.burrow` is never written again. A new version of the format adds another file with its own test.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail by panicking")]

use std::collections::HashMap;
use std::io;

use burrow_portable::{ExportKey, Item, Kind, Limits, Reader, Section, Sink, Time};

const V1: &[u8] = include_bytes!("fixtures/v1.burrow");

/// The identity of the file. If its computation changed, incremental exports would not find their base.
const V1_IDENTITY: &str = "ebc1f64401601d9e12678ea8ddb315c91986c945217215e54e33071cbd099f39";

#[derive(Default)]
struct Contents {
    chunks: HashMap<[u8; 32], (u64, usize)>,
    file: Vec<u8>,
    earlier: Vec<u8>,
}

impl Sink for Contents {
    fn piece(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let (start, end) = (usize::try_from(offset).unwrap(), usize::try_from(offset).unwrap() + bytes.len());
        self.file.resize(self.file.len().max(end), 0);
        self.file[start..end].copy_from_slice(bytes);
        Ok(())
    }

    fn chunk(&mut self, hash: &[u8; 32], offset: u64, bytes: u64) {
        self.chunks.insert(*hash, (offset, usize::try_from(bytes).unwrap()));
    }

    fn again(&mut self, hash: &[u8; 32], _: u64) -> io::Result<Option<Vec<u8>>> {
        let found = self.chunks.get(hash);
        Ok(found.map(|(offset, bytes)| {
            let start = usize::try_from(*offset).unwrap();
            self.earlier[start..start + bytes].to_vec()
        }))
    }
}

#[test]
fn a_file_of_version_1_is_read() {
    let limits = Limits { entries: 100, bytes: 1 << 20 };
    let (header, mut reader) = Reader::open(V1, limits).unwrap();
    assert_eq!(header.made_by, "burrow 0.1.0");
    assert_eq!(header.needs.driver, "container");
    assert_eq!(header.needs.memory, Some(2));
    assert_eq!(header.needs.processes.unwrap().about, r#"{"format":1}"#);
    let base = header.needs.base.unwrap();
    assert_eq!((base.snapshot.as_str(), base.identities.len()), ("snpbbbbbbbbbbbbbbbbbbbb", 1));
    assert_eq!(header.lineage.snapshot, "snpaaaaaaaaaaaaaaaaaaaa");
    assert_eq!(header.lineage.labels["team"], "blue");
    assert_eq!(header.lineage.ancestors[0].snapshot, "snpbbbbbbbbbbbbbbbbbbbb");
    assert_eq!(header.spec["env"]["LANG"], "C");
    assert_eq!(header.image.config["workdir"], "/work");

    let mut found = Vec::new();
    let mut contents = Contents::default();
    let mut section = None;
    while let Some(item) = reader.item().unwrap() {
        match item {
            Item::Section(began) => section = Some(began),
            Item::Entry(entry) => {
                contents.file.clear();
                reader.content(&mut contents).unwrap();
                if !contents.file.is_empty() {
                    contents.earlier.clone_from(&contents.file);
                }
                let path = String::from_utf8(entry.path.as_bytes().to_vec()).unwrap();
                found.push((section.unwrap(), path, entry.kind, contents.file.clone()));
            }
        }
    }
    let names: Vec<_> = found.iter().map(|(section, path, ..)| (*section, path.as_str())).collect();
    let expected = [
        (Section::Files, ""),
        (Section::Files, "etc"),
        (Section::Files, "etc/hosts"),
        (Section::Files, "etc/link"),
        (Section::Files, "etc/old"),
        (Section::Files, "etc/second"),
        (Section::Files, "large"),
        (Section::Files, "large-too"),
        (Section::Files, "pipe"),
        (Section::Files, "socket"),
        (Section::Files, "sparse"),
        (Section::Processes, "about"),
        (Section::Processes, "pages-1.img"),
        (Section::Memory, "artifacts/00"),
        (Section::Memory, "rows/000001"),
    ];
    assert_eq!(names, expected);
    let kind = |path: &str| found.iter().find(|(_, name, ..)| name == path).unwrap();
    let (.., Kind::File { meta, size, .. }, content) = kind("etc/hosts") else { panic!("it is a file") };
    assert_eq!((meta.mode, meta.uid, meta.gid, *size), (0o644, 0, 42, 20));
    assert_eq!(meta.mtime, Time { seconds: 1_700_000_000, nanoseconds: 123_456_789 });
    assert_eq!(meta.attributes, [(b"user.note".to_vec(), b"kept".to_vec())]);
    assert_eq!(content, b"127.0.0.1 localhost\n");
    assert!(matches!(kind("etc/link"), (.., Kind::Symlink { target, .. }, _) if target == b"/etc/hosts"));
    assert!(
        matches!(kind("etc/second"), (.., Kind::HardLink { target }, _) if target.as_bytes() == b"etc/hosts")
    );
    assert_eq!(kind("etc/old").2, Kind::Gone);
    assert!(matches!(kind("pipe").2, Kind::Fifo(_)) && matches!(kind("socket").2, Kind::Socket(_)));
    assert_eq!(kind("large").3, vec![b'x'; 200_000]);
    assert_eq!(kind("large-too").3, kind("large").3, "its chunk came before");
    let (.., Kind::File { size, extents, .. }, _) = kind("sparse") else { panic!("it is a file") };
    assert_eq!((*size, extents[0].offset, extents[0].bytes), (1 << 30, 4096, 3));

    let proven = reader.proven().unwrap();
    assert_eq!(proven.identity.to_string(), V1_IDENTITY);
    let signer = proven.signature.as_ref().unwrap().verify(&proven.identity).unwrap();
    assert_eq!(signer, ExportKey::from_seed(&[7; 32]).unwrap().public());
}
