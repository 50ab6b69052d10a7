//! Valid files are read as they were written; other files and truncated ones are refused.

mod damage;
mod hostile;
mod sample;

use proptest::prelude::*;

use crate::{
    CHUNK_BYTES, Entry, ExportKey, Extent, Identity, Kind, Limits, Options, PublicKey, Reader, Section,
    Signature, TreePath, Writer,
};
use sample::{Content, KeptFile, file, header, meta, read_all, written};

#[test]
fn a_file_is_read_as_it_was_written() {
    let tree = sample::tree();
    let (bytes, summary) = written(&header(), &tree);
    let kept = read_all(&bytes).unwrap();
    assert_eq!(kept.header, header());
    assert_eq!(kept.found, tree);
    assert_eq!(kept.proven.identity, summary.identity);
    assert_eq!((kept.proven.entries, kept.proven.content_bytes), (summary.entries, summary.content_bytes));
    assert_eq!(kept.proven.bytes, bytes.len() as u64);
    assert_eq!(summary.bytes, bytes.len() as u64);
}

#[test]
fn the_identity_does_not_depend_on_compression() {
    let tree = sample::tree();
    let with = |threads, level| {
        let mut writer = Writer::begin(Vec::new(), &header(), Options { threads, level }).unwrap();
        sample::put(&mut writer, &tree);
        writer.finish(|_| None).unwrap().0.identity
    };
    let first = with(1, 1);
    assert_eq!(with(3, 1), first);
    assert_eq!(with(2, 9), first);
    let mut other = header();
    other.lineage.created_ms += 1;
    assert_ne!(written(&other, &tree).1.identity, first);
}

#[test]
fn a_repeated_chunk_is_written_once() {
    let noise = sample::noise(3 * CHUNK_BYTES + 77);
    let tree = vec![(Section::Files, vec![file("a", &noise), file("b", &noise), file("c/d", &noise)])];
    let (bytes, summary) = written(&header(), &tree);
    assert!(bytes.len() < noise.len() + (64 << 10), "{} bytes", bytes.len());
    // The last, short chunks of both are equal, too.
    assert_eq!(summary.repeated_bytes, 2 * noise.len() as u64);
    assert_eq!(read_all(&bytes).unwrap().found, tree);
}

#[test]
fn holes_are_neither_written_nor_filled() {
    let extents = vec![Extent { offset: 1 << 30, bytes: 5 }, Extent { offset: 3 << 30, bytes: 3 }];
    let path = TreePath::new(b"sparse").unwrap();
    let kind = Kind::file(meta(), 4 << 30, extents);
    let tree = vec![(Section::Files, vec![(Entry { path, kind }, Content(b"12345678".to_vec()))])];
    let (bytes, summary) = written(&header(), &tree);
    assert!(bytes.len() < 4096);
    assert_eq!(summary.content_bytes, 8);
    assert_eq!(read_all(&bytes).unwrap().found, tree);
}

#[test]
fn a_file_with_too_many_holes_is_written_as_one_piece() {
    let extents = (0..70_000).map(|at| Extent { offset: at * 2, bytes: 1 }).collect();
    let Kind::File { extents, .. } = Kind::file(meta(), 200_000, extents) else { unreachable!() };
    assert_eq!(extents, [Extent { offset: 0, bytes: 139_999 }]);
}

#[test]
fn paths_are_in_the_order_of_a_walk() {
    let path = |text: &str| TreePath::new(text.as_bytes()).unwrap();
    // Sorted as bytes, `a-b` would be between `a` and the content of `a`.
    let order = ["", "a", "a/b", "a/b/c", "a-b", "a.txt", "b"].map(path);
    let mut sorted = order.to_vec();
    sorted.reverse();
    sorted.sort();
    assert_eq!(sorted, order);
    for bad in ["/", "/a", "a/", "a//b", ".", "a/.", "..", "a/../b", "a\0b"] {
        assert!(TreePath::new(bad.as_bytes()).is_err(), "{bad:?}");
    }
    assert!(TreePath::new(&[b'a'; 256]).is_err());
    assert!(TreePath::new("a/".repeat(256).trim_end_matches('/').as_bytes()).is_ok());
    assert!(TreePath::new("a/".repeat(257).trim_end_matches('/').as_bytes()).is_err());
}

#[test]
fn a_writer_refuses_entries_out_of_order() {
    let mut writer = Writer::begin(Vec::new(), &header(), Options { threads: 1, level: 1 }).unwrap();
    let put = |writer: &mut Writer<Vec<u8>>, name: &str| {
        let (entry, mut content) = file(name, b"x");
        writer.entry(&entry, &mut |buffer, offset| content.read(&entry, buffer, offset))
    };
    assert!(put(&mut writer, "a").is_err(), "before any section");
    writer.section(Section::Processes).unwrap();
    assert!(writer.section(Section::Files).is_err());
    put(&mut writer, "b").unwrap();
    assert!(put(&mut writer, "b").is_err());
    assert!(put(&mut writer, "a").is_err());
    put(&mut writer, "c").unwrap();
}

#[test]
fn a_signature_is_of_one_key_and_one_identity() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("moving.key");
    let key = ExportKey::open(&path).unwrap();
    assert_eq!(ExportKey::open(&path).unwrap().public(), key.public(), "it is made once");
    let public: PublicKey = key.public().to_string().parse().unwrap();
    let (identity, other) = (Identity([7; 32]), Identity([8; 32]));
    let signature = key.sign(&identity);
    assert_eq!(signature.verify(&identity), Some(public));
    assert_eq!(signature.verify(&other), None);
    let forged = Signature { key: ExportKey::from_seed(&[1; 32]).unwrap().public().to_string(), ..signature };
    assert_eq!(forged.verify(&identity), None);
    assert!("burrow-export+AAAA".parse::<PublicKey>().is_err());
    std::fs::write(&path, "short").unwrap();
    assert!(ExportKey::open(&path).is_err());
}

#[test]
fn identities_are_read_as_they_are_written() {
    let identity = Identity([0xab; 32]);
    assert_eq!(Identity::parse(&identity.to_string()), Some(identity));
    assert_eq!(Identity::parse(&identity.to_string().to_uppercase()), None);
    assert_eq!(Identity::parse("ab"), None);
}

#[test]
fn limits_are_enforced() {
    let (bytes, summary) = written(&header(), &sample::tree());
    let enough = Limits { entries: summary.entries, bytes: summary.content_bytes };
    assert!(sample::read_within(&bytes, enough).is_ok());
    for tight in [
        Limits { entries: summary.entries - 1, ..enough },
        Limits { bytes: summary.content_bytes - 1, ..enough },
    ] {
        let error = sample::read_within(&bytes, tight).unwrap_err().to_string();
        assert!(error.contains("has more than"), "{error}");
    }
}

/// Names and contents for a directory of files.
fn names() -> impl Strategy<Value = Vec<(String, Vec<u8>)>> {
    let name = "[a-c]{1,3}(/[a-c]{1,2}){0,2}";
    proptest::collection::btree_map(name, proptest::collection::vec(any::<u8>(), 0..200_000), 0..8)
        .prop_map(|map| map.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_files_come_back(files in names()) {
        let mut entries: Vec<_> = files.iter().map(|(name, content)| file(name, content)).collect();
        entries.sort_by(|a, b| a.0.path.cmp(&b.0.path));
        let tree = vec![(Section::Files, entries)];
        let (bytes, _) = written(&header(), &tree);
        let KeptFile { found, .. } = read_all(&bytes).unwrap();
        prop_assert_eq!(found, tree);
    }

    #[test]
    fn nonsense_is_refused_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let limits = Limits { entries: 10, bytes: 10 };
        prop_assert!(Reader::open(bytes.as_slice(), limits).is_err());
    }
}
