//! A client's requests and the answers, byte by byte.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::*;

/// A request as bytes.
fn request(kind: u8, id: u32, parts: &[&[u8]]) -> Vec<u8> {
    let mut body = vec![kind];
    body.extend(id.to_be_bytes());
    body.extend(parts.concat());
    let mut packet = u32::try_from(body.len()).unwrap().to_be_bytes().to_vec();
    packet.extend(body);
    packet
}

fn text(text: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(text.len()).unwrap().to_be_bytes().to_vec();
    bytes.extend(text);
    bytes
}

fn path(path: &std::path::Path) -> Vec<u8> {
    text(path.to_str().unwrap().as_bytes())
}

/// The answers to these requests: kind, id, and the rest of each.
fn answers(requests: &[Vec<u8>]) -> Vec<(u8, u32, Vec<u8>)> {
    let mut output = Vec::new();
    converse(&requests.concat()[..], &mut output).unwrap();
    let mut found = Vec::new();
    let mut rest = &output[..];
    while !rest.is_empty() {
        let length = u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize;
        let id = u32::from_be_bytes(rest[5..9].try_into().unwrap());
        found.push((rest[4], id, rest[9..4 + length].to_vec()));
        rest = &rest[4 + length..];
    }
    found
}

/// The code of a status.
#[track_caller]
fn status(answer: &(u8, u32, Vec<u8>)) -> u32 {
    assert_eq!(answer.0, 101, "{answer:?}");
    u32::from_be_bytes(answer.2[..4].try_into().unwrap())
}

const NO_ATTRIBUTES: [u8; 4] = [0; 4];
const FIRST: [u8; 8] = [0, 0, 0, 4, 0, 0, 0, 0];

#[test]
fn files_are_written_read_and_described() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a file");
    let (write, create) = (2u32, 8u32);
    let mode = [&4u32.to_be_bytes()[..], &0o640u32.to_be_bytes()].concat();
    let done = answers(&[
        request(1, 3, &[]),
        request(3, 1, &[&path(&file), &(write | create).to_be_bytes(), &mode]),
        request(6, 2, &[&FIRST, &6u64.to_be_bytes(), &text(b"world")]),
        request(6, 3, &[&FIRST, &0u64.to_be_bytes(), &text(b"hello ")]),
        request(4, 4, &[&FIRST]),
        request(3, 5, &[&path(&file), &1u32.to_be_bytes(), &NO_ATTRIBUTES]),
        request(5, 6, &[&FIRST, &3u64.to_be_bytes(), &100u32.to_be_bytes()]),
        request(5, 7, &[&FIRST, &11u64.to_be_bytes(), &100u32.to_be_bytes()]),
        request(17, 8, &[&path(&file)]),
        request(6, 9, &[&FIRST, &0u64.to_be_bytes(), &text(b"x")]),
    ]);
    assert_eq!(fs::read(&file).unwrap(), b"hello world");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!((done[0].0, done[0].1), (2, 3));
    assert!(String::from_utf8_lossy(&done[0].2).contains("limits@openssh.com"));
    assert_eq!((done[1].0, &done[1].2[..]), (102, &FIRST[..]));
    assert_eq!([status(&done[2]), status(&done[3]), status(&done[4])], [0, 0, 0]);
    assert_eq!((done[6].0, &done[6].2[..]), (103, &text(b"lo world")[..]));
    assert_eq!(status(&done[7]), 1, "the end of the file");
    assert_eq!(done[8].0, 105);
    assert_eq!(done[8].2[4..12], 11u64.to_be_bytes());
    assert_eq!(status(&done[9]), 4, "it was opened for reading");
}

#[test]
fn directories_links_and_paths_are_handled() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("one"), "1").unwrap();
    fs::write(at("two"), "2").unwrap();
    let done = answers(&[
        request(14, 1, &[&path(&at("sub")), &NO_ATTRIBUTES]),
        request(18, 2, &[&path(&at("one")), &path(&at("two"))]),
        request(200, 3, &[&text(b"posix-rename@openssh.com"), &path(&at("one")), &path(&at("two"))]),
        request(20, 4, &[&text(b"two"), &path(&at("link"))]),
        request(19, 5, &[&path(&at("link"))]),
        request(16, 6, &[&path(&at("sub/../sub/./new"))]),
        request(11, 7, &[&path(folder.path())]),
        request(12, 8, &[&FIRST]),
        request(12, 9, &[&FIRST]),
        request(15, 10, &[&path(&at("sub"))]),
        request(13, 11, &[&path(&at("nothing"))]),
        request(99, 12, &[]),
        request(3, 13, &[&text(b"a\0b"), &1u32.to_be_bytes(), &NO_ATTRIBUTES]),
        request(5, 14, &[&text(b"nonsense"), &0u64.to_be_bytes(), &9u32.to_be_bytes()]),
        request(5, 15, &[]),
    ]);
    assert_eq!([status(&done[0]), status(&done[1]), status(&done[2]), status(&done[3])], [0, 4, 0, 0]);
    assert_eq!(fs::read(at("two")).unwrap(), b"1");
    let text_in = |answer: &(u8, u32, Vec<u8>)| String::from_utf8_lossy(&answer.2).into_owned();
    assert!(text_in(&done[4]).contains("two"));
    assert!(text_in(&done[5]).contains(at("sub/new").to_str().unwrap()), "{}", text_in(&done[5]));
    let listed = text_in(&done[7]);
    for name in ["two", "link", "sub"] {
        assert!(listed.contains(name), "{listed}");
    }
    assert!(listed.contains("lrwxrwxrwx") && listed.contains("drwx"), "{listed}");
    assert_eq!(done[7].2[..4], 3u32.to_be_bytes());
    assert_eq!(status(&done[8]), 1);
    let rest: Vec<u32> = done[9..].iter().map(status).collect();
    assert_eq!(rest, [0, 2, 8, 5, 4, 5]);
}

#[test]
fn a_packet_with_an_invalid_length_ends_the_connection() {
    for length in [0, 1 << 20, u32::MAX] {
        let mut bytes = length.to_be_bytes().to_vec();
        bytes.extend([5; 64]);
        assert!(converse(&bytes[..], Vec::new()).is_err(), "{length}");
    }
    assert!(converse(&[0, 0, 0, 9, 1][..], Vec::new()).is_err(), "half a packet");
    assert!(converse(&[][..], Vec::new()).is_ok());
}

#[test]
fn the_number_of_handles_is_limited() {
    let folder = tempfile::tempdir().unwrap();
    let one = request(11, 0, &[&path(folder.path())]);
    let done = answers(&vec![one; 1030]);
    let opened = done.iter().filter(|answer| answer.0 == 102).count();
    assert_eq!(opened, 1024);
    assert_eq!(status(&done[1029]), 4);
}
