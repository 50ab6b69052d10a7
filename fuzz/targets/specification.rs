//! The specification of a sandbox, as a person writes it in YAML and as the API takes it in JSON.
#![no_main]

use burrow_api::{CreateExec, CreateSandbox, UpdateSandbox};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = serde_json::from_slice::<CreateExec>(bytes);
    let _ = serde_json::from_slice::<UpdateSandbox>(bytes);
    if let Ok(request) = serde_json::from_slice::<CreateSandbox>(bytes) {
        let again = serde_json::to_string(&request).expect("what was read can be written");
        assert_eq!(serde_json::from_str::<CreateSandbox>(&again).expect("and read again"), request);
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = serde_norway::from_str::<CreateSandbox>(text);
    }
});
