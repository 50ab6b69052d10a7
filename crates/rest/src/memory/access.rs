//! Access to memory: whose memory a request refers to, and what its caller may do.
//!
//! ```text
//!   key ────────► a sandbox or a space of its tenant       bound to a sandbox: that sandbox alone
//!   own listener ► `self`: the sandbox that owns the listener
//!                    │
//!                    ▼
//!   scope: primary space (read, write) · attached spaces (read, or write by name) ── as_of ──► the same, at that time
//! ```
//!
//! Invariant: the answers for foreign and for missing objects are the same, in status, code and text.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use burrow_api::ErrorCode;
use burrow_engine::{EngineError, MemoryScope, ObjectKind, ScopedView};
use burrow_memory::AsOf;
use burrow_memory::recall::LabelledView;
use burrow_model::{SpaceAccess, TenantId};
use http::request::Parts;
use serde::Deserialize;
use utoipa::IntoParams;

use super::moment::{Moment, moment};
use burrow_http::app::App;
use burrow_http::auth::{Caller, Executor, Reader, check_reference, snapshot_within};
use burrow_http::error::ApiError;
use burrow_http::own_listener::OwnListener;

/// The name of the primary space wherever spaces are named.
const OWN: &str = "own";

/// The name of the sandbox on its own listener.
const SELF: &str = "self";

/// The caller.
#[derive(Clone, Debug)]
pub(crate) enum Principal {
    Key(Caller),
    /// A process in the sandbox: it has no key, and its only name is `self`.
    Sandbox(OwnListener),
}

/// May read memory.
#[derive(Clone, Debug)]
pub(crate) struct MemoryReader(pub(crate) Principal);

/// May also change it.
#[derive(Clone, Debug)]
pub(crate) struct MemoryWriter(pub(crate) Principal);

impl FromRequestParts<Arc<App>> for MemoryReader {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        if let Some(listener) = parts.extensions.get::<OwnListener>() {
            return Ok(Self(Principal::Sandbox(listener.clone())));
        }
        let reader = Reader::from_request_parts(parts, app).await?;
        Ok(Self(Principal::Key(Caller::clone(&reader))))
    }
}

impl FromRequestParts<Arc<App>> for MemoryWriter {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        if let Some(listener) = parts.extensions.get::<OwnListener>() {
            return Ok(Self(Principal::Sandbox(listener.clone())));
        }
        let executor = Executor::from_request_parts(parts, app).await?;
        Ok(Self(Principal::Key(Caller::clone(&executor))))
    }
}

/// Names the sandbox or the space whose memory is meant.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct MemoryPath {
    /// A sandbox or a space: its id, a unique prefix of its id, or its name. A sandbox takes precedence; use
    /// `sandbox:NAME` or `space:NAME` to be explicit.
    #[param(pattern = "^((sandbox|space):)?[a-z0-9-]{1,63}$")]
    pub(super) of: String,
}

/// Which space to read, and at which time.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadParams {
    /// The state at that time: a number of the log, a time (RFC 3339, or milliseconds since the Unix epoch), or a snapshot.
    #[param(max_length = 64)]
    pub(super) as_of: Option<String>,
    /// The name or id of an attached space; the space that the sandbox writes to when absent.
    #[param(max_length = 64)]
    pub(super) space: Option<String>,
}

/// At which time, for requests that read several spaces.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct AsOfParams {
    /// The state at that time: a number of the log, a time (RFC 3339, or milliseconds since the Unix epoch), or a snapshot.
    #[param(max_length = 64)]
    pub(super) as_of: Option<String>,
}

/// Which space to write to.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct WriteParams {
    /// The name or id of a space that is attached read-write; the space that the sandbox writes to when absent.
    #[param(max_length = 64)]
    pub(super) space: Option<String>,
}

impl Principal {
    pub(super) fn tenant(&self) -> &TenantId {
        match self {
            Self::Key(caller) => caller.tenant(),
            Self::Sandbox(listener) => &listener.tenant,
        }
    }

    /// All memory that `of` names.
    pub(super) async fn scope(&self, app: &App, of: &str) -> Result<MemoryScope, ApiError> {
        let unknown = || {
            ApiError::from(EngineError::NotFound { kind: ObjectKind::SandboxOrSpace, what: of.to_owned() })
        };
        let sandbox = match self {
            Self::Sandbox(listener) => {
                if of != SELF {
                    return Err(unknown());
                }
                listener.sandbox.clone()
            }
            Self::Key(caller) => {
                let name = of.strip_prefix("sandbox:").or_else(|| of.strip_prefix("space:")).unwrap_or(of);
                check_reference(name)?;
                if caller.bound_to().is_none() {
                    let found = app.engine.memory_of(caller.tenant(), of).await;
                    return found.map_err(|error| if is_absence(&error) { unknown() } else { error.into() });
                }
                // For a bound key, every other sandbox, and every space that is not attached to its own, does not exist.
                if of.starts_with("space:") {
                    return Err(unknown());
                }
                caller.sandbox(app, name).await.map_err(|_| unknown())?
            }
        };
        let row = app.engine.get(self.tenant(), &sandbox).await;
        let row = row.map_err(|error| if is_absence(&error) { unknown() } else { error.into() })?;
        Ok(app.engine.memory_of_sandbox(row).await?)
    }

    /// The same, at a time in the past.
    async fn scope_at(&self, app: &App, of: &str, as_of: Option<&str>) -> Result<MemoryScope, ApiError> {
        let scope = self.scope(app, of).await?;
        let Some(text) = as_of else { return Ok(scope) };
        Ok(match moment(text)? {
            Moment::Seq(seq) => app.engine.memory_at(scope, &AsOf::Seq(seq)).await?,
            Moment::TimeMs(time) => app.engine.memory_at(scope, &AsOf::TimeMs(time)).await?,
            Moment::Snapshot(name) => {
                let bound = match self {
                    Self::Key(caller) => caller.reached_ids(app).await?,
                    Self::Sandbox(listener) => Some(vec![listener.sandbox.clone()]),
                };
                let snapshot = snapshot_within(app, self.tenant(), bound.as_deref(), &name).await?;
                app.engine.memory_at_snapshot(self.tenant(), scope, snapshot.id.as_str()).await?
            }
        })
    }

    /// One space to read.
    pub(super) async fn reading(
        &self,
        app: &App,
        of: &str,
        params: &ReadParams,
    ) -> Result<ScopedView, ApiError> {
        let scope = self.scope_at(app, of, params.as_of.as_deref()).await?;
        pick(&scope, params.space.as_deref())
    }

    /// One space to write to.
    pub(super) async fn writing(
        &self,
        app: &App,
        of: &str,
        params: &WriteParams,
    ) -> Result<ScopedView, ApiError> {
        let scope = self.scope(app, of).await?;
        let picked = pick(&scope, params.space.as_deref())?;
        match picked.access {
            SpaceAccess::ReadWrite => Ok(picked),
            SpaceAccess::Read => {
                let message = format!("space `{}` is attached read-only", picked.label);
                Err(ApiError::new(ErrorCode::Forbidden, message)
                    .hint("`burrow update SANDBOX --attach SPACE:rw` attaches it read-write"))
            }
        }
    }

    /// One space to add to. Rejected if the space or the disk is full.
    pub(super) async fn growing(
        &self,
        app: &App,
        of: &str,
        params: &WriteParams,
    ) -> Result<ScopedView, ApiError> {
        let space = self.writing(app, of, params).await?;
        app.memory.room()?;
        app.memory.room_in(&space.space)?;
        space.view.check_quota().await?;
        Ok(space)
    }

    /// All spaces to search, or the named ones.
    pub(super) async fn searching(
        &self,
        app: &App,
        of: &str,
        as_of: Option<&str>,
        spaces: &[String],
    ) -> Result<Vec<LabelledView>, ApiError> {
        let scope = self.scope_at(app, of, as_of).await?;
        let label =
            |scoped: &ScopedView| LabelledView { label: scoped.label.clone(), view: scoped.view.clone() };
        if spaces.is_empty() {
            return Ok(scope.views().map(label).collect());
        }
        let mut picked: Vec<ScopedView> = Vec::with_capacity(spaces.len());
        for space in spaces {
            let one = pick(&scope, Some(space))?;
            if picked.iter().all(|known| known.space != one.space) {
                picked.push(one);
            }
        }
        Ok(picked.iter().map(label).collect())
    }
}

/// Whether the error means that the object does not exist.
fn is_absence(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::NotFound { kind: ObjectKind::Space, .. }
            | EngineError::NotFound { kind: ObjectKind::Sandbox, .. }
            | EngineError::Gone { .. }
    )
}

fn pick(scope: &MemoryScope, space: Option<&str>) -> Result<ScopedView, ApiError> {
    let found = match space {
        None | Some(OWN) => Some(&scope.primary),
        Some(name) => scope.find(name),
    };
    found.cloned().ok_or_else(|| {
        EngineError::NotFound {
            kind: ObjectKind::Space,
            what: space.unwrap_or_default().chars().take(64).collect(),
        }
        .into()
    })
}
