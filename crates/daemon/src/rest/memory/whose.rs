//! Whose memory a request is about, who asks, and how far they may go.
//!
//! ```text
//!   key ────────► a sandbox or a space of its tenant       bound to a sandbox: that sandbox alone
//!   own door ───► `self`: the sandbox whose door it is
//!                    │
//!                    ▼
//!   scope: primary space (read, write) · attached spaces (read, or write by name) ── as_of ──► the same, back then
//! ```
//!
//! Invariant: what is foreign and what is not there answer alike, in status, code and words.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use burrow_api::ErrorCode;
use burrow_engine::{EngineError, MemoryScope, ScopedView};
use burrow_memory::AsOf;
use burrow_memory::recall::Labelled;
use burrow_model::{SandboxId, SpaceAccess, TenantId};
use http::request::Parts;
use serde::Deserialize;
use tokio::sync::Semaphore;
use utoipa::IntoParams;

use super::super::App;
use super::super::auth::{Caller, Executor, Reader, check_reference, snapshot_within};
use super::super::error::ApiError;
use super::log_limit::LogLimit;
use super::moment::{Moment, moment};
use super::rate::Rate;

/// What names the primary space wherever spaces are named.
const OWN: &str = "own";

/// What the sandbox calls itself on its own door.
const SELF: &str = "self";

/// Requests of one sandbox at once, watches included.
const DOOR_REQUESTS_MAX: usize = 64;

/// Those of them that are worked on at once; the others wait for their turn. Half of the reads a host does at once, so that
/// whoever else asks meanwhile is answered.
const DOOR_TURNS_MAX: usize = 8;

/// The sandbox that a request came from, by the door it came through. Set by the door's router and by nobody else.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    pub(crate) tenant: TenantId,
    pub(crate) sandbox: SandboxId,
    /// Requests at once through this door.
    pub(crate) slots: Arc<Semaphore>,
    /// Of them, those that are worked on at once.
    pub(crate) turns: Arc<Semaphore>,
    /// And how often.
    pub(crate) rate: Arc<Rate>,
    /// How many lines of the operator's log its failures may be.
    pub(crate) log: Arc<LogLimit>,
}

impl Door {
    pub(crate) fn new(tenant: TenantId, sandbox: SandboxId, now_ms: u64) -> Self {
        Self {
            tenant,
            sandbox,
            slots: Arc::new(Semaphore::new(DOOR_REQUESTS_MAX)),
            turns: Arc::new(Semaphore::new(DOOR_TURNS_MAX)),
            rate: Arc::new(Rate::full(now_ms)),
            log: Arc::default(),
        }
    }
}

/// Who asks.
#[derive(Clone, Debug)]
pub(crate) enum Principal {
    Key(Caller),
    /// A process in the sandbox: no key, no name but `self`.
    Sandbox(Door),
}

/// May look at memory.
#[derive(Clone, Debug)]
pub(crate) struct Recaller(pub(crate) Principal);

/// May also change it.
#[derive(Clone, Debug)]
pub(crate) struct Rememberer(pub(crate) Principal);

impl FromRequestParts<Arc<App>> for Recaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        if let Some(door) = parts.extensions.get::<Door>() {
            return Ok(Self(Principal::Sandbox(door.clone())));
        }
        let reader = Reader::from_request_parts(parts, app).await?;
        Ok(Self(Principal::Key(Caller::clone(&reader))))
    }
}

impl FromRequestParts<Arc<App>> for Rememberer {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        if let Some(door) = parts.extensions.get::<Door>() {
            return Ok(Self(Principal::Sandbox(door.clone())));
        }
        let executor = Executor::from_request_parts(parts, app).await?;
        Ok(Self(Principal::Key(Caller::clone(&executor))))
    }
}

/// Names whose memory.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct OfPath {
    /// A sandbox or a space: its id, a unique beginning of its id, or its name. A sandbox first; `sandbox:NAME` and
    /// `space:NAME` say which.
    #[param(pattern = "^((sandbox|space):)?[a-z0-9-]{1,63}$")]
    pub(super) of: String,
}

/// Of which space, and when.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadParams {
    /// As it was then: a number of the log, a time (RFC 3339, or milliseconds since the Unix epoch), or a snapshot.
    #[param(max_length = 64)]
    pub(super) as_of: Option<String>,
    /// An attached space by name or id; the one the sandbox remembers in when absent.
    #[param(max_length = 64)]
    pub(super) space: Option<String>,
}

/// When, for those who look in several spaces.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct WhenParams {
    /// As it was then: a number of the log, a time (RFC 3339, or milliseconds since the Unix epoch), or a snapshot.
    #[param(max_length = 64)]
    pub(super) as_of: Option<String>,
}

/// To which space.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct WriteParams {
    /// An attached space, read-write, by name or id; the one the sandbox remembers in when absent.
    #[param(max_length = 64)]
    pub(super) space: Option<String>,
}

impl Principal {
    pub(super) fn tenant(&self) -> &TenantId {
        match self {
            Self::Key(caller) => caller.tenant(),
            Self::Sandbox(door) => &door.tenant,
        }
    }

    /// All the memory that `of` names.
    pub(super) async fn scope(&self, app: &App, of: &str) -> Result<MemoryScope, ApiError> {
        let unknown = || ApiError::from(EngineError::MemoryNotFound { what: of.to_owned() });
        let sandbox = match self {
            Self::Sandbox(door) => {
                if of != SELF {
                    return Err(unknown());
                }
                door.sandbox.clone()
            }
            Self::Key(caller) => {
                let name = of.strip_prefix("sandbox:").or_else(|| of.strip_prefix("space:")).unwrap_or(of);
                check_reference(name)?;
                if caller.bound_to().is_none() {
                    let found = app.engine.memory_of(caller.tenant(), of).await;
                    return found.map_err(|error| if is_absence(&error) { unknown() } else { error.into() });
                }
                // Of a bound key every other sandbox, and every space but through its own, is as one that is not there.
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

    /// The same as it was then.
    async fn scope_at(&self, app: &App, of: &str, as_of: Option<&str>) -> Result<MemoryScope, ApiError> {
        let scope = self.scope(app, of).await?;
        let Some(text) = as_of else { return Ok(scope) };
        Ok(match moment(text)? {
            Moment::Seq(seq) => app.engine.memory_at(scope, &AsOf::Seq(seq)).await?,
            Moment::TimeMs(time) => app.engine.memory_at(scope, &AsOf::TimeMs(time)).await?,
            Moment::Snapshot(name) => {
                let bound = match self {
                    Self::Key(caller) => caller.bound_to(),
                    Self::Sandbox(door) => Some(&door.sandbox),
                };
                let snapshot = snapshot_within(app, self.tenant(), bound, &name).await?;
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
                    .hint("`burrow update SANDBOX --attach SPACE:rw` lets it be written to"))
            }
        }
    }

    /// One space to add to: refused where it, or the disk, holds enough.
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

    /// All spaces to look in, or those of them that are named.
    pub(super) async fn searching(
        &self,
        app: &App,
        of: &str,
        as_of: Option<&str>,
        spaces: &[String],
    ) -> Result<Vec<Labelled>, ApiError> {
        let scope = self.scope_at(app, of, as_of).await?;
        let label = |scoped: &ScopedView| Labelled { label: scoped.label.clone(), view: scoped.view.clone() };
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

/// Whichever way it is not there.
fn is_absence(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::SpaceNotFound { .. } | EngineError::NotFound { .. } | EngineError::Gone { .. }
    )
}

fn pick(scope: &MemoryScope, space: Option<&str>) -> Result<ScopedView, ApiError> {
    let found = match space {
        None | Some(OWN) => Some(&scope.primary),
        Some(name) => scope.find(name),
    };
    found.cloned().ok_or_else(|| {
        EngineError::SpaceNotFound { what: space.unwrap_or_default().chars().take(64).collect() }.into()
    })
}
