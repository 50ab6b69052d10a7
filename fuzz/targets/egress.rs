//! What a sandbox sends to the network: questions to the resolver, TLS hellos, heads of HTTP requests.
#![no_main]

use burrow_egress::dns::message::Query;
use burrow_egress::http_head::{self, Framer};
use burrow_egress::{dns, hello};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = Query::parse(bytes);
    let _ = dns::message::format_error(u16::from(bytes.first().copied().unwrap_or_default()));
    let _ = hello::read(bytes);
    let _ = http_head::detect(bytes);
    // A request that comes in pieces of whatever size.
    let mut framer = Framer::new();
    for end in [bytes.len() / 3, bytes.len() / 2, bytes.len()] {
        if framer.next(&bytes[..end]).is_err() {
            return;
        }
    }
});
