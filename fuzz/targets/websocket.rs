//! Frames of WebSocket, of programs and of hosts.
#![no_main]

use burrow_egress::fuzz::{self, Part};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Vec<(u8, Part)>, u8, &[u8])| {
    let (messages, step, bytes) = input;
    fuzz::frames(bytes, step);
    fuzz::messages(b"token-12345", &messages, step);
    fuzz::messages(b"kkkkkkkkkk", &messages, step);
});
