//! Reading headers, as far as the tests of layers do not cover it.

use std::io::BufReader;

use ::tar::EntryType;

use super::*;
use crate::testing::{Raw, Tar};

impl<R: std::io::Read> Source for BufReader<R> {}

fn read(tar: &[u8]) -> Result<Vec<Entry>, Refusal> {
    // One byte at a time: pieces may end anywhere.
    let mut entries = Entries::new(BufReader::with_capacity(1, tar));
    let mut found = Vec::new();
    while let Some(entry) = entries.next()? {
        entries.skip(entry.size)?;
        found.push(entry);
    }
    Ok(found)
}

#[test]
fn extensions_override_names_and_numbers_of_the_header() {
    let long = "n".repeat(300);
    let tar = Tar::default()
        .raw(&Raw {
            pax: &[("path", long.as_bytes()), ("uid", b"77"), ("mtime", b"12.5"), ("comment", b"x")],
            uid: 1,
            ..Raw::new(EntryType::Regular, "short")
        })
        .raw(&Raw {
            content: format!("{long}\0").as_bytes(),
            ..Raw::new(EntryType::GNULongName, "././@LongLink")
        })
        .file("short", "content")
        .end();
    let found = read(&tar).unwrap();
    assert_eq!((found[0].name.as_slice(), found[0].uid), (long.as_bytes(), 77));
    assert_eq!(found[0].mtime, Time { seconds: 12, nanoseconds: 500_000_000 });
    assert_eq!((found[1].name.as_slice(), found[1].size), (long.as_bytes(), 7));
}

#[test]
fn a_trailing_slash_marks_a_directory_in_old_archives() {
    let tar = Tar::default().raw(&Raw::new(EntryType::Regular, "folder/")).end();
    assert_eq!(read(&tar).unwrap()[0].kind, Kind::Directory);
}

#[test]
fn stray_and_repeated_extensions_are_refused() {
    let name = || Raw { content: b"a\0", ..Raw::new(EntryType::GNULongName, "l") };
    assert!(read(&Tar::default().raw(&name()).end()).is_err());
    assert!(read(&Tar::default().raw(&name()).raw(&name()).file("b", "").end()).is_err());
    let huge = Raw { size: Some(1 << 40), ..Raw::new(EntryType::GNULongName, "l") };
    assert!(read(&Tar::default().raw(&huge).end()).is_err());
    let two = Tar::default()
        .raw(&name())
        .raw(&Raw { pax: &[("path", b"other")], ..Raw::new(EntryType::Regular, "b") })
        .end();
    assert!(read(&two).is_err());
}

#[test]
fn an_archive_may_end_without_its_blocks_of_zeros() {
    let mut tar = Tar::default().file("a", "x").end();
    tar.truncate(tar.len() - 1024);
    assert_eq!(read(&tar).unwrap().len(), 1);
    assert_eq!(read(&[]).unwrap().len(), 0);
}
