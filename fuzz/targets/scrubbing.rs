//! Answers of hosts with secrets in them: however they are encoded and cut, none comes through.
#![no_main]

use burrow_egress::fuzz::{self, Part};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&[u8], Vec<Part>, u8)| {
    let (secret, parts, step) = input;
    // Long enough to be one, and of what one may hold, so that few inputs are for nothing.
    let mut secret: Vec<u8> = secret.iter().take(64).map(|b| b' ' + b % 95).collect();
    secret.resize(secret.len().max(8), b'k');
    fuzz::scrub(&secret, &parts, step);
    if let [(_, _, before), (_, _, behind), ..] = parts.as_slice() {
        fuzz::encoded(before, &secret, behind, step);
    }
});
