//! Policy documents, as people write them in YAML and as the API takes them in JSON.
#![no_main]

use burrow_api::policy::{PolicyDocument, RuleDocument, check};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for document in [
        serde_json::from_str::<PolicyDocument>(text).ok(),
        serde_norway::from_str::<PolicyDocument>(text).ok(),
    ] {
        let Some(document) = document else { continue };
        let Ok(checked) = check::document(&document) else { continue };
        let Some(network) = checked.network else { continue };
        assert_eq!(network.requests.len(), checked.places.len());
        // What was accepted is told as it is written, and accepted again.
        let told: Vec<RuleDocument> = network.requests.iter().map(RuleDocument::from).collect();
        let again = serde_json::to_string(&told).expect("what was read can be written");
        let again: Vec<RuleDocument> = serde_json::from_str(&again).expect("and read again");
        assert_eq!(check::rules(&again, &[]).expect("and makes sense again"), network.requests);
        // Nothing fits a ceiling that is not there, and a rule always fits a ceiling of itself.
        for rule in &network.requests {
            assert!(!rule.scope.fits(&[]));
            assert!(rule.scope.fits(std::slice::from_ref(&rule.scope)));
        }
    }
});
