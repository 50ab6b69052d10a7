//! Frames of the host–guest protocol: whatever comes is taken, refused or waited for, and what is taken can be sent
//! again. Fed in two pieces, since that is how bytes come from a network.
#![no_main]

use burrow_guest::protocol::{FRAME_BYTES_MAX, Frame};
use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (usize, Vec<u8>)| {
    let (cut, bytes) = input;
    let (first, second) = bytes.split_at(cut.min(bytes.len()));
    let mut buffer = BytesMut::from(first);
    let mut taken = Vec::new();
    for piece in [second, &[]] {
        loop {
            match Frame::decode(&mut buffer) {
                Ok(Some(frame)) => taken.push(frame),
                Ok(None) => break,
                Err(_) => return,
            }
        }
        buffer.extend_from_slice(piece);
    }
    let mut again = BytesMut::new();
    for frame in &taken {
        frame.encode(&mut again);
    }
    assert!(again.len() <= bytes.len(), "more comes out than went in");
    for frame in taken {
        match Frame::decode(&mut again) {
            Ok(Some(same)) => assert_eq!(frame, same),
            other => panic!("a frame of at most {FRAME_BYTES_MAX} bytes came back as {other:?}"),
        }
    }
});
