//! The parts of a policy that are expensive to compute: what is searched for in requests and responses.

use std::sync::Arc;

use burrow_model::{PLACEHOLDER_MARK, SecretBytes, Slot};
use zeroize::Zeroizing;

use super::scrub::Forms;
use crate::Grant;
use crate::policy::Policy;

/// The parts of a policy that are expensive to compute.
#[derive(Debug)]
pub(super) struct CompiledPolicy {
    /// The sandbox's own placeholders.
    pub(super) own: Forms,
    /// The sandbox's own placeholders, and the mark that every placeholder contains (E-S7).
    pub(super) placeholders: Forms,
    /// The forms of all granted secrets and of their former values; the owner of a form is an index into `owners`.
    /// `None` if there are no grants.
    pub(super) secrets: Option<Forms>,
    /// Each granted secret, and then each again for its former values.
    pub(super) owners: Arc<[FormOwner]>,
}

/// The secret that a form belongs to.
#[derive(Debug)]
pub(super) struct FormOwner {
    pub(super) name: String,
    /// Whether it is a form of a former value of the secret.
    pub(super) former: bool,
}

impl CompiledPolicy {
    pub(super) fn of(policy: &Policy) -> Self {
        let grants = policy.directives().map_or(&[][..], |directives| &directives.grants);
        let own = grants
            .iter()
            .filter_map(|grant| grant.placeholder.as_ref())
            .map(burrow_model::SecretBytes::expose);
        let values = grants.iter().map(values_of);
        let values: Vec<_> = values.chain(grants.iter().map(former_values_of)).collect();
        let owner =
            |former| grants.iter().map(move |grant| FormOwner { name: grant.name.to_string(), former });
        Self {
            own: Forms::any_case(own.clone()),
            placeholders: Forms::any_case(own.chain([PLACEHOLDER_MARK.as_bytes()])),
            secrets: Some(Forms::of_each(&values)).filter(|forms| !forms.is_empty()),
            owners: owner(false).chain(owner(true)).collect(),
        }
    }
}

/// The values of a grant to search for in responses. The key of a client certificate is sent to no host, so no host
/// can return it.
fn values_of(grant: &Grant) -> Vec<Zeroizing<Vec<u8>>> {
    match &grant.slot {
        Slot::ClientCert => Vec::new(),
        Slot::Basic { .. } | Slot::Header { .. } | Slot::GrpcMetadata { .. } | Slot::Query { .. } => {
            as_sent(&grant.slot, &grant.value)
        }
    }
}

/// The former values of a grant to search for in responses. They may have been sent in another slot.
fn former_values_of(grant: &Grant) -> Vec<Zeroizing<Vec<u8>>> {
    grant.former.iter().flat_map(|value| as_sent(&grant.slot, value)).collect()
}

fn as_sent(slot: &Slot, value: &SecretBytes) -> Vec<Zeroizing<Vec<u8>>> {
    let plain = Zeroizing::new(value.expose().to_vec());
    match slot {
        Slot::Basic { user } => {
            let pair = Zeroizing::new([user.as_str().as_bytes(), b":", value.expose()].concat());
            vec![plain, Zeroizing::new(data_encoding::BASE64.encode(&pair).into_bytes())]
        }
        Slot::ClientCert | Slot::Header { .. } | Slot::GrpcMetadata { .. } | Slot::Query { .. } => {
            vec![plain]
        }
    }
}
