//! Whether the requests of a sandbox are intercepted.

use burrow_catalog::SandboxRow;
use burrow_model::network::RuleMode;

/// Whether any of a sandbox's traffic is decrypted, so that it must trust its lineage's authority.
pub(crate) fn intercepts(row: &SandboxRow) -> bool {
    let network = &row.spec.network;
    network.transforms.is_some() || network.requests.iter().any(|rule| rule.mode == RuleMode::Intercept)
}
