//! A file that was truncated or changed is refused, wherever that happened.

use super::sample::{file, header, read_all, tree, written};
use crate::{FORMAT_VERSION, PortableError, Section};

fn small() -> Vec<u8> {
    let mut small = tree();
    // Small enough to flip every bit.
    for (_, entries) in &mut small {
        entries.retain(|(entry, _)| entry.content_bytes() < 100);
    }
    small[1].1.push(file("pages-1.img", &[7; 50]));
    written(&header(), &small).0
}

#[test]
fn a_file_cut_off_anywhere_is_refused() {
    let bytes = small();
    read_all(&bytes).unwrap();
    for length in 0..bytes.len() {
        let error = read_all(&bytes[..length]).unwrap_err();
        let expected = if length < 8 { "not an exported snapshot" } else { "ends too early" };
        assert!(error.to_string().contains(expected), "at {length}: {error}");
    }
}

#[test]
fn a_bit_flipped_anywhere_is_refused() {
    let bytes = small();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            assert!(read_all(&changed).is_err(), "bit {bit} of byte {at} of {}", bytes.len());
        }
    }
}

#[test]
fn data_after_the_end_is_refused() {
    let mut bytes = small();
    bytes.push(0);
    assert!(read_all(&bytes).unwrap_err().to_string().contains("data after its end"));
}

#[test]
fn a_newer_version_is_distinguished_from_damage() {
    let mut bytes = small();
    bytes[8..12].copy_from_slice(&(FORMAT_VERSION + 1).to_le_bytes());
    let error = read_all(&bytes).unwrap_err();
    assert!(matches!(error, PortableError::TooNew { found: 2, known: 1 }), "{error}");
    assert!(error.hint().unwrap().contains("upgrade"));
    let mut newer = header();
    newer.needs.features.push("teleport".to_owned());
    let error = read_all(&written(&newer, &Vec::new()).0).unwrap_err();
    assert!(error.to_string().contains("requires the feature `teleport`"), "{error}");
}

#[test]
fn an_encrypted_file_is_distinguished_from_other_files() {
    for text in [&b"age-encryption.org/v1\n"[..], b"-----BEGIN AGE ENCRYPTED FILE-----"] {
        assert!(matches!(read_all(text), Err(PortableError::Encrypted)));
    }
    assert!(matches!(read_all(b"something else entirely"), Err(PortableError::NotAnExport)));
    assert!(matches!(read_all(b""), Err(PortableError::NotAnExport)));
}

#[test]
fn exchanged_chunks_are_refused() {
    // Two chunks of equal length, each valid on its own: only the identity reveals the exchange.
    let one = super::sample::noise(1 << 20);
    let mut other = one.clone();
    other.reverse();
    let tree = vec![(Section::Files, vec![file("a", &[one.clone(), other.clone()].concat())])];
    let swapped = vec![(Section::Files, vec![file("a", &[other, one].concat())])];
    let (bytes, _) = written(&header(), &tree);
    let (like, _) = written(&header(), &swapped);
    assert_eq!(bytes.len(), like.len());
    let end = bytes.len() - 400;
    // The content of one file with the manifest and end of the other.
    let mixed = [&like[..end], &bytes[end..]].concat();
    assert!(read_all(&mixed).is_err());
}
