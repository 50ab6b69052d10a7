//! Requests inside of decrypted connections: what the server behind our own reading of HTTP/1 sees, targets, hosts.
#![no_main]

use burrow_egress::fuzz;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &str, &[u8])| {
    let (step, name, bytes) = input;
    fuzz::guard(bytes, step);
    if let Ok(text) = std::str::from_utf8(bytes) {
        fuzz::target(text, name);
        for line in text.lines() {
            fuzz::target(line, "a.example");
        }
    }
});
