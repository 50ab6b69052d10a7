//! Requests inside of decrypted connections: what the server behind our own reading of HTTP/1 sees, targets, hosts.
#![no_main]

use burrow_egress::fuzz;
use libfuzzer_sys::fuzz_target;

/// What requests are made of, so that many inputs are nearly good ones.
const WORDS: [&str; 32] = [
    "",
    "GET / HTTP/1.1\r\nHost: a.example\r\n",
    "POST /a HTTP/1.1\r\nHost: a.example\r\n",
    "GET ",
    "/",
    " HTTP/1.1\r\n",
    " HTTP/1.0\r\n",
    "Host: a.example\r\n",
    "Host: b.example:443\r\n",
    "Content-Length: 5\r\n",
    "Content-Length: ",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: ",
    "Connection: keep-alive\r\n",
    "Connection: Upgrade\r\nUpgrade: websocket\r\n",
    "Expect: 100-continue\r\n",
    "Trailer: x\r\n",
    "\r\n",
    "\n",
    "\r",
    " ",
    "\t",
    ":",
    ",",
    "5\r\nhello\r\n",
    "0\r\n\r\n",
    "5;a=b\r\n",
    "hello",
    "..",
    "%2e",
    "%25",
    ";",
];

fuzz_target!(|input: (u8, &str, Vec<(u8, &[u8])>)| {
    let (step, name, parts) = input;
    let mut bytes = Vec::new();
    for (word, other) in parts {
        bytes.extend_from_slice(WORDS[usize::from(word) % WORDS.len()].as_bytes());
        bytes.extend_from_slice(other);
    }
    fuzz::guard(&bytes, step);
    if let Ok(text) = std::str::from_utf8(&bytes) {
        fuzz::target(text, name);
        for line in text.lines() {
            fuzz::target(line, "a.example");
        }
    }
});
