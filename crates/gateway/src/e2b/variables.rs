//! The environment variables by which programs recognise an E2B sandbox.

use std::collections::BTreeMap;

use burrow_model::SandboxId;

/// The address of E2B's event service. Burrow has none: requests to it are refused.
const EVENTS_ADDRESS: &str = "http://192.0.2.1";

/// The variables for every command, and for every kernel that runs code.
pub fn variables(sandbox: &SandboxId, template: &str) -> BTreeMap<String, String> {
    let pairs = [
        ("E2B_SANDBOX", "true"),
        ("E2B_SANDBOX_ID", sandbox.as_str()),
        ("E2B_TEMPLATE_ID", template),
        ("E2B_EVENTS_ADDRESS", EVENTS_ADDRESS),
    ];
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}
