//! Secrets that a policy file declares. Their values are read on the client and sent to the daemon as secrets.

use std::collections::HashMap;

use burrow_api::policy::SecretSource;
use burrow_api::{Secret, SecretPlaceholder, SecretScope, SecretSlot, SetSecret};
use burrow_model::network::RequestScope;
use burrow_model::{Name, SecretBytes, SecretSpec, Slot};

use crate::commands::prelude::*;
use crate::commands::secret::value::ValueSource;

/// Declared secrets with the sources of their values.
type DeclaredSecrets = [(SecretSpec, Option<SecretSource>)];

/// The tenant's secrets by name.
pub(super) async fn known(client: &Client) -> Result<HashMap<Name, Secret>, Stop> {
    let secrets = client.secrets().await.or_fail("could not list secrets")?;
    let named = |secret: Secret| Some((secret.name.parse().ok()?, secret));
    Ok(secrets.into_iter().filter_map(named).collect())
}

/// The ceiling of a secret. A scope that this program cannot parse allows nothing here; the daemon checks it too.
pub(super) fn ceiling(secret: &Secret) -> Vec<RequestScope> {
    let scope = |scope: &SecretScope| {
        let of = RequestScope::of(scope.host.parse().ok()?);
        Some(RequestScope {
            port: scope.port.unwrap_or(of.port),
            methods: scope.methods.iter().map(|method| method.parse().ok()).collect::<Option<_>>()?,
            paths: scope.paths.iter().map(|path| path.parse().ok()).collect::<Option<_>>()?,
            ..of
        })
    };
    secret.allow.iter().filter_map(scope).collect()
}

/// How applying the policy changes a secret.
pub(super) fn action(
    known: Option<&Secret>,
    spec: &SecretSpec,
    source: Option<&SecretSource>,
) -> &'static str {
    match (known, source) {
        (None, _) => "set",
        (Some(known), _) if !same(known, spec) => "updated",
        (Some(_), Some(_)) => "set if its value differs",
        (Some(_), None) => "unchanged",
    }
}

fn same(known: &Secret, spec: &SecretSpec) -> bool {
    let (allow, slot, placeholder) = parts(spec);
    known.allow == allow && known.slot == slot && known.placeholder == placeholder
}

/// The values, in order; `None` where the file has none, which is allowed for a secret that stays unchanged.
pub(super) fn values(
    declared: &DeclaredSecrets,
    known: &HashMap<Name, Secret>,
) -> Result<Vec<Option<SecretBytes>>, Stop> {
    let value = |(spec, source): &(SecretSpec, Option<SecretSource>)| {
        let name = &spec.name;
        let Some(source) = source else {
            if known.get(name).is_some_and(|known| same(known, spec)) {
                return Ok(None);
            }
            return fail(
                format!("secret `{name}` does not exist as declared, and has no `from`"),
                "add the source of its value: `from: { env: VARIABLE }`, or `file`, or `command`",
            );
        };
        let what = format!("value of secret `{name}`");
        ValueSource::of(source).read(&what, spec.slot == Slot::ClientCert).map(Some)
    };
    declared.iter().map(value).collect()
}

/// Sets the declared secrets that have a value. Setting the same value again changes nothing.
pub(super) async fn set(
    client: &Client,
    declared: &DeclaredSecrets,
    values: Vec<Option<SecretBytes>>,
) -> Result<(), Stop> {
    for ((spec, _), value) in declared.iter().zip(values) {
        let Some(value) = value else { continue };
        let (allow, slot, placeholder) = parts(spec);
        let secret = SetSecret { allow, slot, placeholder, value };
        let what = || format!("could not set secret `{}`", spec.name);
        client.set_secret(spec.name.as_str(), &secret).await.or_fail(what)?;
    }
    Ok(())
}

/// A declaration as the API takes it.
fn parts(spec: &SecretSpec) -> (Vec<SecretScope>, SecretSlot, Option<SecretPlaceholder>) {
    let scope = |scope: &RequestScope| SecretScope {
        host: scope.host.to_string(),
        port: Some(scope.port).filter(|port| *port != RequestScope::of(scope.host.clone()).port),
        methods: scope.methods.iter().map(ToString::to_string).collect(),
        paths: scope.paths.iter().map(ToString::to_string).collect(),
    };
    let format = |format: &burrow_model::Format| Some(format.as_str().to_owned()).filter(|text| text != "{}");
    let slot = match &spec.slot {
        Slot::Header { name, format: text } => {
            SecretSlot::Header { name: name.as_str().to_owned(), format: format(text) }
        }
        Slot::GrpcMetadata { name, format: text } => {
            SecretSlot::GrpcMetadata { name: name.as_str().to_owned(), format: format(text) }
        }
        Slot::Query { name } => SecretSlot::Query { name: name.as_str().to_owned() },
        Slot::Basic { user } => SecretSlot::Basic { user: user.as_str().to_owned() },
        Slot::ClientCert => SecretSlot::ClientCert,
    };
    let placeholder = spec.placeholder.as_ref().map(|placeholder| SecretPlaceholder {
        env: placeholder.env.clone(),
        prefix: placeholder.prefix.clone(),
    });
    (spec.allow.iter().map(scope).collect(), slot, placeholder)
}
