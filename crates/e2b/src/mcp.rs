//! The `mcp` option of sandboxes: a URL of the sandbox where Burrow's own MCP server answers for that sandbox.
//!
//! ```text
//!   client: create with `mcp` ─► `mcp-gateway --config …` as root, with a token in GATEWAY_ACCESS_TOKEN
//!             ├── daemon: keeps the mark of that token in a label of the sandbox
//!             └── the program of [`PROGRAM`]: writes the token to /etc/mcp-gateway/.token
//!   50005-<sandbox>.<domain>/mcp, Authorization: Bearer <token> ─► `daemon/src/mcp.rs`, bound to that sandbox
//! ```
//!
//! The mark is an HMAC of the sandbox's id and the token, so requests are checked without reading inside the sandbox: a
//! sleeping sandbox is not woken by requests with a wrong token, and a child of the sandbox does not accept the token
//! of its parent.
//!
//! Not included: a gateway inside sandboxes, and the servers that the option names. They are not started.

use std::collections::BTreeMap;

use burrow_engine::{EngineError, ObjectKind};
use burrow_model::{SandboxId, TenantId};
use serde_json::Value;

use burrow_gateway::e2b::tokens;
use burrow_http::app::App;
use burrow_http::convert;
use burrow_http::error::ApiError;

/// The port of `get_mcp_url()`, and its path.
pub const MCP_PORT: u16 = 50005;
pub const MCP_PATH: &str = "/mcp";

/// The template that clients ask for when the option is given without a template.
pub(super) const TEMPLATE: &str = "mcp-gateway";

/// The label of a sandbox that was created with the option. Its value is `true`.
const LABEL: &str = "e2b/mcp";

/// The label with the mark of the sandbox's token.
const MARK_LABEL: &str = "e2b/mcp-token";

/// The variable with the token, and the program that receives it.
const TOKEN_VARIABLE: &str = "GATEWAY_ACCESS_TOKEN";
const NAME: &str = "mcp-gateway";

/// Clients send UUIDs. Much shorter tokens could be guessed.
const TOKEN_BYTES: std::ops::RangeInclusive<usize> = 32..=128;

/// Where [`PROGRAM`] is installed.
pub(super) const PROGRAM_PATH: &str = "/usr/local/bin/mcp-gateway";

/// What clients run in a sandbox with the option.
pub(super) const PROGRAM: &str = r#"#!/bin/sh
# Installed by Burrow: stores the token of the sandbox's MCP address for later clients.
set -eu
if [ -z "${GATEWAY_ACCESS_TOKEN:-}" ]; then
    echo "mcp-gateway: GATEWAY_ACCESS_TOKEN is not set" >&2
    exit 2
fi
umask 077
mkdir -p /etc/mcp-gateway
rm -f /etc/mcp-gateway/.token
printf '%s' "$GATEWAY_ACCESS_TOKEN" > /etc/mcp-gateway/.token
echo "the MCP address of this sandbox serves Burrow's own tools; servers named in the \`mcp\` option are not started"
"#;

/// Whether a create request has the option. An empty object counts, as with E2B's clients.
pub(super) fn is_given(option: Option<&Value>) -> bool {
    option.is_some_and(|value| !value.is_null() && *value != Value::Bool(false))
}

/// Whether the default image is used instead of the gateway's template. Clients leave an empty option out, and send
/// this template's name.
pub(super) fn is_replaced(template: &str, image: &str) -> bool {
    let is_gateway = |name: &str| name.split(':').next() == Some(TEMPLATE);
    is_gateway(template) && !is_gateway(image)
}

/// The labels of a sandbox that was created with the option.
pub(super) fn labels(given: bool) -> BTreeMap<String, String> {
    given.then(|| (LABEL.to_owned(), "true".to_owned())).into_iter().collect()
}

/// The same as a change of labels: a sandbox made from a snapshot inherits neither the option nor the token of its
/// parent.
pub(super) fn label_change(given: bool) -> BTreeMap<String, Option<String>> {
    [(LABEL.to_owned(), given.then(|| "true".to_owned())), (MARK_LABEL.to_owned(), None)].into()
}

pub(super) fn is_labelled(labels: &BTreeMap<String, String>) -> bool {
    labels.get(LABEL).is_some_and(|value| value == "true")
}

/// The token in a command that starts the gateway.
pub(super) fn token<'a>(argv: &[String], env: &'a BTreeMap<String, String>) -> Option<&'a str> {
    let starts = argv.iter().any(|word| word.split_ascii_whitespace().next() == Some(NAME));
    let token = env.get(TOKEN_VARIABLE).filter(|_| starts)?;
    TOKEN_BYTES.contains(&token.len()).then_some(token)
}

/// Makes a token valid for the sandbox's MCP address. Requires the rights to run a command in the sandbox, and grants
/// no more than these.
pub async fn accept(app: &App, tenant: &TenantId, sandbox: &SandboxId, token: &str) -> Result<(), ApiError> {
    let mark = tokens::mcp_mark(app, sandbox, token).await?;
    let mut update = convert::update_options(burrow_api::UpdateSandbox::default())?;
    update.labels = [(MARK_LABEL.to_owned(), Some(mark))].into();
    app.engine.update(tenant, sandbox, update).await?;
    Ok(())
}

/// Whether Burrow serves the MCP address of this sandbox. Otherwise the port is an ordinary port.
pub async fn is_served(app: &App, sandbox: &str) -> bool {
    let Ok(id) = sandbox.parse::<SandboxId>() else { return false };
    let Some(tenant) = app.engine.owner(&id) else { return false };
    let row = app.engine.get(&tenant, &id).await;
    row.is_ok_and(|row| row.spec.lease.is_some() && is_labelled(&row.spec.labels))
}

/// The owner of a sandbox for whose MCP address a token is valid.
pub async fn opened(app: &App, sandbox: &SandboxId, token: &str) -> Result<Option<TenantId>, ApiError> {
    let Some(tenant) = app.engine.owner(sandbox) else { return Ok(None) };
    let row = match app.engine.get(&tenant, sandbox).await {
        Ok(row) => row,
        Err(EngineError::NotFound { kind: ObjectKind::Sandbox, .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if row.spec.lease.is_none() || !is_labelled(&row.spec.labels) || !TOKEN_BYTES.contains(&token.len()) {
        return Ok(None);
    }
    let Some(mark) = row.spec.labels.get(MARK_LABEL) else { return Ok(None) };
    Ok(tokens::is_mcp_mark(app, sandbox, token, mark).await?.then_some(tenant))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_empty_option_is_given_and_null_is_not() {
        assert!(is_given(Some(&json!({}))) && is_given(Some(&json!({ "time": {} }))));
        assert!(!is_given(None) && !is_given(Some(&Value::Null)) && !is_given(Some(&json!(false))));
    }

    #[test]
    fn the_gateway_template_means_the_option_unless_an_image_has_its_name() {
        assert!(is_replaced("mcp-gateway", "debian") && is_replaced("mcp-gateway:default", "debian"));
        assert!(!is_replaced("mcp-gateway", "mcp-gateway:latest") && !is_replaced("base", "debian"));
    }

    #[test]
    fn only_the_command_that_starts_the_gateway_sets_the_token() {
        let token_of = |command: &str, token: &str| {
            let argv = ["/bin/bash", "-l", "-c", command].map(str::to_owned);
            let env = [(TOKEN_VARIABLE.to_owned(), token.to_owned())].into();
            super::token(&argv, &env).map(str::to_owned)
        };
        let uuid = "3b241101-e2bb-4255-8caf-4136c566a962";
        assert_eq!(token_of("mcp-gateway --config '{}'", uuid).as_deref(), Some(uuid));
        assert_eq!(token_of("echo mcp-gateway", uuid), None);
        assert_eq!(token_of("mcp-gateway --config '{}'", "short"), None);
        assert_eq!(token_of("mcp-gateway --config '{}'", &"x".repeat(129)), None);
    }
}
