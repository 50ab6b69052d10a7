//! What an import reads: the file a snapshot travels in, as it comes and with a proper beginning.
#![no_main]

use std::collections::HashMap;
use std::io;

use burrow_portable::{FORMAT_VERSION, Item, Limits, MAGIC, Reader, Sink};
use libfuzzer_sys::fuzz_target;

/// Small, so that whatever grows beyond what was checked shows.
const LIMITS: Limits = Limits { entries: 1000, bytes: 8 << 20 };

/// A file that version 1 wrote: to be changed.
const WHOLE: &[u8] = include_bytes!("../../crates/portable/tests/fixtures/v1.burrow");

fuzz_target!(|bytes: &[u8]| {
    read(bytes);
    read(&[&MAGIC[..], &FORMAT_VERSION.to_le_bytes(), bytes].concat());
    // The first two bytes say where the rest goes into a file that is sound.
    if let [low, high, rest @ ..] = bytes {
        let mut changed = WHOLE.to_vec();
        let at = usize::from(u16::from_le_bytes([*low, *high])) % changed.len();
        let length = rest.len().min(changed.len() - at);
        changed[at..at + length].copy_from_slice(&rest[..length]);
        let differs = changed != WHOLE;
        assert!(!(read(&changed) && differs), "a changed file was taken for a whole one");
    }
});

/// Whether it was read to its end.
fn read(bytes: &[u8]) -> bool {
    let Ok((_, mut reader)) = Reader::open(bytes, LIMITS) else { return false };
    let mut taken = TakenContent { chunks: HashMap::new(), bytes: 0, chunk: None };
    loop {
        match reader.item() {
            Ok(Some(Item::Section(_))) => {}
            Ok(Some(Item::Entry(entry))) => {
                assert!(!entry.path.as_bytes().starts_with(b"/"), "an absolute path");
                assert!(!entry.path.as_bytes().split(|b| *b == b'/').any(|part| part == b".."), "a path upwards");
                if reader.content(&mut taken).is_err() {
                    return false;
                }
            }
            Ok(None) => return reader.proven().is_some(),
            Err(_) => return false,
        }
    }
}

struct TakenContent {
    chunks: HashMap<[u8; 32], Vec<u8>>,
    bytes: u64,
    chunk: Option<([u8; 32], usize)>,
}

impl Sink for TakenContent {
    fn piece(&mut self, _: u64, bytes: &[u8]) -> io::Result<()> {
        self.bytes += bytes.len() as u64;
        assert!(self.bytes <= LIMITS.bytes, "more than the limit was handed out");
        if let Some((hash, length)) = self.chunk.take().filter(|(_, length)| *length <= bytes.len()) {
            self.chunks.insert(hash, bytes[..length].to_vec());
        }
        Ok(())
    }

    fn chunk(&mut self, hash: &[u8; 32], _: u64, bytes: u64) {
        self.chunk = usize::try_from(bytes).ok().map(|bytes| (*hash, bytes));
    }

    fn again(&mut self, hash: &[u8; 32], _: u64) -> io::Result<Option<Vec<u8>>> {
        Ok(self.chunks.get(hash).cloned())
    }
}
