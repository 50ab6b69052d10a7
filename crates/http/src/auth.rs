//! Authentication, and the rights of the caller's key.
//!
//! A handler that takes a [`Reader`], an [`Executor`] or an [`Admin`] cannot run without a key of that scope. A key that is
//! bound to one sandbox sees only that sandbox: the answer for any other is the same as for one that does not exist. Such a
//! key may be inside its sandbox, so it cannot change the sandbox's boundaries: those handlers take an [`UnboundExecutor`].
//! `tests/access/table.txt` lists the rights of each kind of key for every route.

use std::ops::Deref;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use burrow_api::ErrorCode;
use burrow_catalog::{CatalogError, KeyRow, PageRequest, SandboxRow, SnapshotFilter};
use burrow_engine::{EngineError, ObjectKind};
use burrow_model::{KeyId, SandboxId, Scope, ScopeSet, Snapshot, SnapshotId, TenantId};
use http::header::AUTHORIZATION;
use http::request::Parts;

use super::within::RecognisedClient;
use crate::app::App;
use crate::audit::Trace;
use crate::error::ApiError;
use crate::hints;

/// Names of sandboxes that a mistyped name is compared with.
const NAMES_MAX: u32 = 1_000;

/// The owner of a usable key, or of a token that has the same rights as a key bound to its sandbox.
#[derive(Clone, Debug)]
pub struct Caller {
    tenant: TenantId,
    scope: Scope,
    /// The only sandbox that it may see, if it is bound to one.
    bound: Option<SandboxId>,
    /// `None` for the token of a sandbox.
    key: Option<KeyId>,
    /// Collects what the audit log records about this call, if the call is recorded.
    trace: Option<Trace>,
}

macro_rules! scoped {
    ($(#[$doc:meta])* $name:ident, $scope:expr $(, $also:expr)?) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name(Caller);

        impl Deref for $name {
            type Target = Caller;

            fn deref(&self) -> &Caller {
                &self.0
            }
        }

        impl FromRequestParts<Arc<App>> for $name {
            type Rejection = ApiError;

            async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
                let caller = authenticate(parts, app)?.needs($scope)?;
                $($also(&caller)?;)?
                Ok(Self(caller))
            }
        }
    };
}

scoped! {
    /// May list and inspect.
    Reader, Scope::Read
}
scoped! {
    /// May also create, run, change and delete sandboxes.
    Executor, Scope::Exec
}
scoped! {
    /// The same, for a key that is not bound to one sandbox. A bound key may be inside its sandbox, so everything that
    /// widens the rights or the lifetime of the sandbox, or affects others, requires this.
    UnboundExecutor, Scope::Exec, Caller::unbound
}
scoped! {
    /// May also manage keys, configuration, images and backups.
    Admin, Scope::Admin
}

impl Caller {
    fn of(key: KeyRow, trace: Option<Trace>) -> Self {
        let KeyRow { id, tenant, scope, sandbox, .. } = key;
        Self { tenant, scope, bound: sandbox, key: Some(id), trace }
    }

    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// The id of the key. Objects that belong to a key cannot be created with the token of a sandbox.
    pub fn key_id(&self) -> Result<&KeyId, ApiError> {
        self.key
            .as_ref()
            .ok_or_else(|| forbidden("this request needs an API key, not the token of a sandbox"))
    }

    /// Collects further details about this call for the audit log.
    pub fn trace(&self) -> Option<&Trace> {
        self.trace.as_ref()
    }

    /// The only sandbox that it may see, if it is bound to one.
    pub fn bound_to(&self) -> Option<&SandboxId> {
        self.bound.as_ref()
    }

    /// Rejects keys that are bound to one sandbox.
    pub fn unbound(&self) -> Result<(), ApiError> {
        match self.bound {
            None => Ok(()),
            Some(_) => Err(forbidden("this key is bound to one sandbox")),
        }
    }

    /// Rejects keys without the scope `admin`.
    pub fn manages(&self) -> Result<(), ApiError> {
        self.clone().needs(Scope::Admin).map(drop)
    }

    /// Whether it may run programs, and may therefore receive credentials of a sandbox.
    pub fn executes(&self) -> bool {
        ScopeSet::new(self.scope).allows(Scope::Exec)
    }

    fn needs(self, scope: Scope) -> Result<Self, ApiError> {
        if !ScopeSet::new(self.scope).allows(scope) {
            let message =
                format!("this key has the scope `{}`, but this request needs `{scope}`", self.scope);
            return Err(forbidden(&message));
        }
        // The scope `admin` covers the whole host.
        if scope == Scope::Admin {
            self.unbound()?;
        }
        Ok(self)
    }

    /// The sandbox that `text` names: an id, a prefix of an id, or a name.
    pub async fn sandbox(&self, app: &App, text: &str) -> Result<SandboxId, ApiError> {
        let found = self.find_sandbox(app, text).await?;
        if let Some(trace) = &self.trace {
            trace.about(&found);
        }
        Ok(found)
    }

    async fn find_sandbox(&self, app: &App, text: &str) -> Result<SandboxId, ApiError> {
        check_reference(text)?;
        let unknown =
            || ApiError::from(EngineError::NotFound { kind: ObjectKind::Sandbox, what: text.to_owned() });
        let Some(bound) = self.bound_to() else {
            // A full id needs no look-up: the operation itself finds out whether it exists.
            return match text.parse() {
                Ok(id) => Ok(id),
                Err(_) => match app.engine.resolve(self.tenant(), text).await {
                    Ok(row) => Ok(row.id),
                    Err(EngineError::NotFound { .. }) => {
                        Err(self.hint_at_similar(app, text, unknown()).await)
                    }
                    Err(error) => Err(error.into()),
                },
            };
        };
        if bound.as_str() == text {
            return Ok(bound.clone());
        }
        // Names and prefixes are compared with the one sandbox only: even "ambiguous" would reveal that others exist.
        let row = app.engine.get(self.tenant(), bound).await.map_err(|_| unknown())?;
        if is_meant(&row, text) { Ok(row.id) } else { Err(unknown()) }
    }

    async fn hint_at_similar(&self, app: &App, text: &str, error: ApiError) -> ApiError {
        let names = app.engine.catalog().sandbox_names(self.tenant(), NAMES_MAX).await;
        match hints::similar(text, names.unwrap_or_default()) {
            Some(name) => error.hint(format!("did you mean `{name}`? `burrow ls` lists the sandboxes")),
            None => error,
        }
    }

    /// The snapshot that `text` names: an id, a prefix of an id, or a name.
    pub async fn snapshot(&self, app: &App, text: &str) -> Result<Snapshot, ApiError> {
        let found = snapshot_within(app, self.tenant(), self.bound_to(), text).await?;
        if let Some(trace) = &self.trace {
            trace.target(found.id.as_str());
        }
        Ok(found)
    }
}

/// The snapshot that `text` names; with `bound`, among those of that sandbox only.
pub async fn snapshot_within(
    app: &App,
    tenant: &TenantId,
    bound: Option<&SandboxId>,
    text: &str,
) -> Result<Snapshot, ApiError> {
    check_reference(text)?;
    let Some(bound) = bound else {
        return Ok(app.engine.find_snapshot(tenant, text).await?);
    };
    // As with sandboxes: only the snapshots of the one sandbox are compared, so the answer reveals nothing about others.
    let filter = SnapshotFilter { sandbox: Some(bound.clone()), ..SnapshotFilter::default() };
    let all = PageRequest { cursor: None, limit: burrow_catalog::PAGE_LIMIT_MAX };
    let own = app.engine.snapshots(tenant, filter, all).await?.rows;
    let named = |snapshot: &&Snapshot| {
        let named = snapshot.name.as_ref().is_some_and(|name| name.as_str() == text);
        named || (text.len() > SnapshotId::PREFIX.len() && snapshot.id.as_str().starts_with(text))
    };
    let mut fitting = own.iter().filter(named);
    match (fitting.next(), fitting.next()) {
        // Looked up again, because lists omit some fields.
        (Some(one), None) => Ok(app.engine.find_snapshot(tenant, one.id.as_str()).await?),
        (Some(one), Some(other)) => {
            let candidates = vec![one.id.clone(), other.id.clone()];
            Err(CatalogError::AmbiguousSnapshot { candidates }.into())
        }
        (None, _) => Err(EngineError::NotFound { kind: ObjectKind::Snapshot, what: text.to_owned() }.into()),
    }
}

fn is_meant(row: &SandboxRow, text: &str) -> bool {
    let named = row.name.as_ref().is_some_and(|name| name.as_str() == text);
    named || (text.len() > SandboxId::PREFIX.len() && row.id.as_str().starts_with(text))
}

/// Checks the form of an id, a prefix of an id, or a name, before it is used in a message or a look-up.
pub fn check_reference(text: &str) -> Result<(), ApiError> {
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if (1..=63).contains(&text.len()) && text.bytes().all(good) {
        return Ok(());
    }
    let message = "an id or a name is 1 to 63 lower-case letters, digits and hyphens";
    Err(ApiError::invalid(message))
}

fn authenticate(parts: &Parts, app: &App) -> Result<Caller, ApiError> {
    if let Some(recognised) = parts.extensions.get::<RecognisedClient>() {
        return recognise(recognised, parts, app);
    }
    let key = secret(parts).and_then(|secret| app.engine.catalog().authenticate(secret, app.engine.now_ms()));
    match key {
        Some(key) => {
            let trace = parts.extensions.get::<Trace>().cloned();
            if let Some(trace) = &trace {
                trace.asked_by(&key);
            }
            Ok(Caller::of(key, trace))
        }
        None => Err(unauthorized(secret(parts).is_some())),
    }
}

/// A client that another protocol has authenticated. Keys are looked up for every request, so that a key that was revoked
/// in the meantime is rejected. A token was checked with the request that this one is a part of.
fn recognise(recognised: &RecognisedClient, parts: &Parts, app: &App) -> Result<Caller, ApiError> {
    let trace = parts.extensions.get::<Trace>().cloned();
    match recognised {
        RecognisedClient::Key { key, by } => {
            let key = app.engine.catalog().usable_key(key, app.engine.now_ms());
            let key = key.ok_or_else(|| unauthorized(true))?;
            if let Some(trace) = &trace {
                trace.asked_by(&key);
                trace.by_way_of(by);
            }
            Ok(Caller::of(key, trace))
        }
        RecognisedClient::Sandbox { tenant, sandbox, by } => {
            if let Some(trace) = &trace {
                trace.asked_inside(tenant, sandbox, true);
                trace.by_way_of(by);
            }
            let (tenant, bound) = (tenant.clone(), Some(sandbox.clone()));
            Ok(Caller { tenant, scope: Scope::Exec, bound, key: None, trace })
        }
    }
}

pub fn secret(parts: &Parts) -> Option<&str> {
    if let Some(value) = parts.headers.get("x-api-key") {
        return value.to_str().ok();
    }
    bearer(parts)
}

/// The token in the header `Authorization: Bearer`.
pub fn bearer(parts: &Parts) -> Option<&str> {
    let (scheme, secret) = parts.headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| secret.trim())
}

fn unauthorized(given: bool) -> ApiError {
    let message = if given { "the API key is unknown, expired or revoked" } else { "no API key was given" };
    let hint = "send `X-API-Key: e2b_…` or `Authorization: Bearer e2b_…`; the CLI reads BURROW_API_KEY";
    ApiError::new(ErrorCode::Unauthorized, message).hint(hint)
}

fn forbidden(message: &str) -> ApiError {
    ApiError::new(ErrorCode::Forbidden, message).hint("`burrow key ls` shows what each key may do")
}
