//! Images of strangers: references, manifests, configurations, recipes, Dockerfiles.
#![no_main]

use std::collections::BTreeMap;

use burrow_images::dockerfile::{self, PlanOptions};
use burrow_images::{Platform, Reference, manifest, recipe};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = manifest::parse(bytes, "an image", None);
    let _ = manifest::parse_config(bytes, "an image");
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = Reference::parse(text);
        let _ = recipe::parse(text);
        let options = PlanOptions { arguments: &BTreeMap::new(), target: None, platform: &Platform::host() };
        if let Ok(plan) = dockerfile::parse(text).and_then(|file| file.plan(&options)) {
            let _ = plan.lower(&BTreeMap::new());
        }
    }
});
