//! Converts secrets between the API and the model.

use burrow_api as api;
use burrow_engine::SecretStatus;
use burrow_model::network::{Method, PathPattern, RequestScope, SCOPE_ITEMS_MAX};
use burrow_model::{Format, Name, PlaceholderSpec, SecretSpec, Slot};

use crate::error::ApiError;

/// The default port of HTTPS.
const PORT: u16 = 443;

pub fn secret_spec(
    name: Name,
    allow: Vec<api::SecretScope>,
    slot: api::SecretSlot,
    placeholder: Option<api::SecretPlaceholder>,
) -> Result<SecretSpec, ApiError> {
    let allow = allow.into_iter().map(scope).collect::<Result<_, _>>()?;
    let placeholder = placeholder.map(|given| PlaceholderSpec { env: given.env, prefix: given.prefix });
    let spec = SecretSpec { name, allow, slot: self::slot(slot)?, placeholder };
    spec.check().map_err(|error| ApiError::invalid(error.to_string()))?;
    Ok(spec)
}

fn scope(given: api::SecretScope) -> Result<RequestScope, ApiError> {
    let refused =
        |field: &str, error: &dyn std::error::Error| ApiError::invalid(format!("`{field}`: {error}"));
    if given.methods.len() > SCOPE_ITEMS_MAX || given.paths.len() > SCOPE_ITEMS_MAX {
        let message = format!("a scope has at most {SCOPE_ITEMS_MAX} methods and {SCOPE_ITEMS_MAX} paths");
        return Err(ApiError::invalid(message));
    }
    let methods = given.methods.iter().map(|method| method.parse::<Method>());
    let paths = given.paths.iter().map(|path| path.parse::<PathPattern>());
    Ok(RequestScope {
        host: given.host.parse().map_err(|error| refused("allow.host", &error))?,
        port: match given.port {
            Some(0) => return Err(ApiError::invalid("`allow.port` must be from 1 to 65535")),
            port => port.unwrap_or(PORT),
        },
        methods: methods.collect::<Result<_, _>>().map_err(|error| refused("allow.methods", &error))?,
        paths: paths.collect::<Result<_, _>>().map_err(|error| refused("allow.paths", &error))?,
    })
}

fn slot(given: api::SecretSlot) -> Result<Slot, ApiError> {
    let refused = |error: burrow_model::SecretError| ApiError::invalid(format!("`slot`: {error}"));
    let format = |text: Option<String>| text.map_or_else(|| Ok(Format::plain()), |text| text.parse());
    let slot = match given {
        api::SecretSlot::Header { name, format: text } => {
            Slot::Header { name: name.parse().map_err(refused)?, format: format(text).map_err(refused)? }
        }
        api::SecretSlot::GrpcMetadata { name, format: text } => Slot::GrpcMetadata {
            name: name.parse().map_err(refused)?,
            format: format(text).map_err(refused)?,
        },
        api::SecretSlot::Query { name } => Slot::Query { name: name.parse().map_err(refused)? },
        api::SecretSlot::Basic { user } => Slot::Basic { user: user.parse().map_err(refused)? },
        api::SecretSlot::ClientCert => Slot::ClientCert,
    };
    Ok(slot)
}

pub fn secret(status: SecretStatus) -> api::Secret {
    let SecretStatus { row, used_by } = status;
    let user = |user: burrow_engine::SecretUser| api::SecretUser {
        id: user.id.to_string(),
        name: user.name.map(String::from),
    };
    api::Secret {
        name: row.spec.name.to_string(),
        version: row.version,
        allow: row.spec.allow.iter().map(shown_scope).collect(),
        slot: shown_slot(&row.spec.slot),
        placeholder: row
            .spec
            .placeholder
            .map(|placeholder| api::SecretPlaceholder { env: placeholder.env, prefix: placeholder.prefix }),
        created_ms: row.created_ms,
        changed_ms: row.changed_ms,
        used_by: used_by.into_iter().map(user).collect(),
    }
}

fn shown_scope(scope: &RequestScope) -> api::SecretScope {
    api::SecretScope {
        host: scope.host.to_string(),
        port: Some(scope.port).filter(|port| *port != PORT),
        methods: scope.methods.iter().map(ToString::to_string).collect(),
        paths: scope.paths.iter().map(ToString::to_string).collect(),
    }
}

fn shown_slot(slot: &Slot) -> api::SecretSlot {
    let format = |format: &Format| Some(format.as_str().to_owned()).filter(|text| text != "{}");
    match slot {
        Slot::Header { name, format: text } => {
            api::SecretSlot::Header { name: name.as_str().to_owned(), format: format(text) }
        }
        Slot::GrpcMetadata { name, format: text } => {
            api::SecretSlot::GrpcMetadata { name: name.as_str().to_owned(), format: format(text) }
        }
        Slot::Query { name } => api::SecretSlot::Query { name: name.as_str().to_owned() },
        Slot::Basic { user } => api::SecretSlot::Basic { user: user.as_str().to_owned() },
        Slot::ClientCert => api::SecretSlot::ClientCert,
    }
}
