//! Certificates: of authorities, and those that somebody hands in as a client's.
#![no_main]

use burrow_egress::fuzz;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    fuzz::certificate(bytes);
    let _ = burrow_vault::check_client_certificate(&burrow_model::SecretBytes::new(bytes.to_vec()));
});
