//! Images of strangers: references, manifests, configurations, recipes.
#![no_main]

use burrow_images::{Reference, manifest, recipe};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = manifest::parse(bytes, "an image", None);
    let _ = manifest::parse_config(bytes, "an image");
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = Reference::parse(text);
        let _ = recipe::parse(text);
    }
});
