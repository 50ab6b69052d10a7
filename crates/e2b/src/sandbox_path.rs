//! The sandbox that the path of a request names.

use burrow_api::ErrorCode;
use burrow_catalog::SandboxRow;
use burrow_engine::{EngineError, ObjectKind};
use burrow_model::{SandboxId, State};
use serde::Deserialize;

use super::error::Refusal;
use burrow_http::app::App;
use burrow_http::auth::Caller;

/// The sandbox in a path.
#[derive(Debug, Deserialize)]
pub(super) struct Path {
    sandbox: String,
}

impl Path {
    pub(super) fn to(sandbox: String) -> Self {
        Self { sandbox }
    }

    /// Some client versions send `<sandbox>-<client>`.
    pub(super) async fn resolve(&self, app: &App, caller: &Caller) -> Result<SandboxId, Refusal> {
        let first = self.sandbox.split('-').next().unwrap_or_default();
        let text = if first.parse::<SandboxId>().is_ok() { first } else { &self.sandbox };
        caller.sandbox(app, text).await.map_err(|error| {
            if error.code() == ErrorCode::NotFound { unknown(&self.sandbox) } else { error.into() }
        })
    }

    pub(super) async fn row(&self, app: &App, caller: &Caller) -> Result<SandboxRow, Refusal> {
        let id = self.resolve(app, caller).await?;
        let row = app.engine.get(caller.tenant(), &id).await?;
        // Requests to its ports already respond that it does not exist.
        if row.state == State::Deleting {
            return Err(unknown(&self.sandbox));
        }
        Ok(row)
    }
}

fn unknown(text: &str) -> Refusal {
    EngineError::NotFound { kind: ObjectKind::Sandbox, what: text.to_owned() }.into()
}
