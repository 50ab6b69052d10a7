//! What the audit log reads: segments that the egress process wrote, lines of an export, checkpoints and keys that somebody
//! hands in.
#![no_main]

use std::fs;

use burrow_audit::note::{Checkpoint, PublicKey};
use burrow_audit::spool::{Reader, SegmentPart};
use burrow_audit::verify::Verifier;
use burrow_audit::{EVENT_BYTES_MAX, Event, export};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(event) = Event::from_bytes(bytes) {
        let again = event.to_bytes();
        assert!(again.len() <= EVENT_BYTES_MAX, "an event of {} bytes", again.len());
        assert_eq!(Event::from_bytes(&again).ok(), Some(event), "an event reads back");
    }
    let _ = export::parse_line(bytes);
    let mut verifier = Verifier::new(Vec::new());
    let good = bytes.split_inclusive(|byte| *byte == b'\n').all(|line| verifier.line(line).is_ok());
    if good {
        let _ = verifier.finish(None);
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = Checkpoint::read(text);
        let _ = text.parse::<PublicKey>();
    }
    segment(bytes);
});

/// As a segment, with and without a head that fits.
fn segment(bytes: &[u8]) {
    let path = std::env::temp_dir().join(format!("burrow-fuzz-audit-{}", std::process::id()));
    for head in [&b""[..], b"BSPOOL1\n"] {
        fs::write(&path, [head, bytes].concat()).expect("the temporary folder can be written");
        for part in [SegmentPart::Acknowledged, SegmentPart::All] {
            let Ok(mut reader) = Reader::open(&path, None) else { continue };
            while reader.read(part, 10).is_ok_and(|events| !events.is_empty()) {}
        }
    }
}
