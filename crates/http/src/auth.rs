//! Authentication, and the rights of the caller's key.
//!
//! A handler that takes a [`Reader`], an [`Executor`] or an [`Admin`] cannot run without a key of that scope. A key that is
//! bound to one sandbox sees only that sandbox: the answer for any other is the same as for one that does not exist. Such a
//! key may be inside its sandbox, so it cannot change the sandbox's boundaries: those handlers take an [`UnboundExecutor`].
//! A key that is bound with its forks also sees the forks of that sandbox. It can create, merge and delete them
//! ([`ForkingExecutor`]), and has no other right that a bound key has not.
//! `tests/access/table.txt` lists the rights of each kind of key for every route.

use std::ops::Deref;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use burrow_api::ErrorCode;
use burrow_catalog::{CatalogError, FAMILY_MAX, KeyRow, PageRequest, SandboxRow, SnapshotFilter};
use burrow_engine::{EngineError, ObjectKind};
use burrow_model::{KeyId, SandboxId, Scope, ScopeSet, Snapshot, SnapshotId, TenantId};
use http::header::AUTHORIZATION;
use http::request::Parts;

use super::within::{Fence, RecognisedClient};
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
    bound: Option<Binding>,
    /// `None` for the token of a sandbox.
    key: Option<KeyId>,
    /// Collects what the audit log records about this call, if the call is recorded.
    trace: Option<Trace>,
}

/// The only sandbox that a caller may see, or that sandbox and its forks.
#[derive(Clone, Debug)]
struct Binding {
    sandbox: SandboxId,
    forks: bool,
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
    /// The same, or a key that is bound to one sandbox with its forks: for requests that affect these sandboxes only.
    ForkingExecutor, Scope::Exec, Caller::forks
}
scoped! {
    /// May also manage keys, configuration, images and backups.
    Admin, Scope::Admin
}

impl Caller {
    fn of(key: KeyRow, trace: Option<Trace>) -> Self {
        let KeyRow { id, tenant, scope, sandbox, forks, .. } = key;
        let bound = sandbox.map(|sandbox| Binding { sandbox, forks });
        Self { tenant, scope, bound, key: Some(id), trace }
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

    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// Collects further details about this call for the audit log.
    pub fn trace(&self) -> Option<&Trace> {
        self.trace.as_ref()
    }

    /// The sandbox that it is bound to. Unless it also [reaches forks](Self::reaches_forks), it sees no other.
    pub fn bound_to(&self) -> Option<&SandboxId> {
        self.bound.as_ref().map(|bound| &bound.sandbox)
    }

    /// Whether it is bound to a sandbox with its forks.
    pub fn reaches_forks(&self) -> bool {
        self.bound.as_ref().is_some_and(|bound| bound.forks)
    }

    /// Restricts it to a sandbox and its forks. A bound caller keeps its own, narrower or equal, restriction.
    fn fenced(mut self, fence: &Fence) -> Self {
        self.bound.get_or_insert_with(|| Binding { sandbox: fence.0.clone(), forks: true });
        self
    }

    /// The sandboxes that it may see, newest first, if it is bound.
    pub async fn reach(&self, app: &App) -> Result<Option<Vec<SandboxRow>>, ApiError> {
        Ok(match &self.bound {
            None => None,
            Some(Binding { sandbox, forks: true }) => {
                Some(app.engine.catalog().family(self.tenant(), sandbox).await?)
            }
            Some(Binding { sandbox, forks: false }) => {
                Some(vec![app.engine.get(self.tenant(), sandbox).await?])
            }
        })
    }

    /// Their ids. Does not fail if the sandbox was deleted, because its snapshots may still exist.
    pub async fn reached_ids(&self, app: &App) -> Result<Option<Vec<SandboxId>>, ApiError> {
        let Some(bound) = &self.bound else { return Ok(None) };
        let mut ids = vec![bound.sandbox.clone()];
        if bound.forks {
            let family = app.engine.catalog().family(self.tenant(), &bound.sandbox).await?;
            ids.extend(family.into_iter().map(|row| row.id).filter(|id| *id != bound.sandbox));
        }
        Ok(Some(ids))
    }

    /// Whether it may see this sandbox of its tenant.
    pub async fn sees(&self, app: &App, id: &SandboxId) -> Result<bool, ApiError> {
        match &self.bound {
            None => Ok(true),
            Some(bound) if bound.sandbox == *id => Ok(true),
            Some(Binding { forks: false, .. }) => Ok(false),
            Some(Binding { sandbox, forks: true }) => is_in_family(app, self.tenant(), sandbox, id).await,
        }
    }

    /// Rejects callers that are bound to one sandbox without its forks.
    pub fn forks(&self) -> Result<(), ApiError> {
        if self.reaches_forks() { Ok(()) } else { self.unbound() }
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
        // Names and prefixes are compared with these sandboxes only: even "ambiguous" would reveal that others exist.
        let rows = self.reach(app).await.map_err(|_| unknown())?.unwrap_or_default();
        let named = |row: &&SandboxRow| row.name.as_ref().is_some_and(|name| name.as_str() == text);
        if let Some(row) = rows.iter().find(named) {
            return Ok(row.id.clone());
        }
        let mut fitting = rows.iter().filter(|row| is_prefix(row, text));
        match (fitting.next(), fitting.next()) {
            (Some(row), None) => Ok(row.id.clone()),
            (Some(one), Some(other)) => {
                let candidates = vec![one.id.clone(), other.id.clone()];
                Err(CatalogError::Ambiguous { candidates }.into())
            }
            (None, _) => Err(unknown()),
        }
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
        let reach = self.reached_ids(app).await?;
        let found = snapshot_within(app, self.tenant(), reach.as_deref(), text).await?;
        if let Some(trace) = &self.trace {
            trace.target(found.id.as_str());
        }
        Ok(found)
    }
}

/// Whether a sandbox is a fork of `root`, or of its forks.
pub async fn is_in_family(
    app: &App,
    tenant: &TenantId,
    root: &SandboxId,
    id: &SandboxId,
) -> Result<bool, ApiError> {
    Ok(app.engine.catalog().family(tenant, root).await?.iter().any(|row| row.id == *id))
}

/// The snapshot that `text` names; with `bound`, among those of these sandboxes only.
pub async fn snapshot_within(
    app: &App,
    tenant: &TenantId,
    bound: Option<&[SandboxId]>,
    text: &str,
) -> Result<Snapshot, ApiError> {
    check_reference(text)?;
    let Some(bound) = bound else {
        return Ok(app.engine.find_snapshot(tenant, text).await?);
    };
    // As with sandboxes: only the snapshots of these sandboxes are compared, so the answer reveals nothing about others.
    let mut own = Vec::new();
    for sandbox in bound.iter().take(FAMILY_MAX) {
        let filter = SnapshotFilter { sandbox: Some(sandbox.clone()), ..SnapshotFilter::default() };
        let all = PageRequest { cursor: None, limit: burrow_catalog::PAGE_LIMIT_MAX };
        own.extend(app.engine.snapshots(tenant, filter, all).await?.rows);
    }
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

fn is_prefix(row: &SandboxRow, text: &str) -> bool {
    text.len() > SandboxId::PREFIX.len() && row.id.as_str().starts_with(text)
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
    let caller = identify(parts, app)?;
    Ok(match parts.extensions.get::<Fence>() {
        Some(fence) => caller.fenced(fence),
        None => caller,
    })
}

fn identify(parts: &Parts, app: &App) -> Result<Caller, ApiError> {
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
            let (tenant, bound) = (tenant.clone(), Some(Binding { sandbox: sandbox.clone(), forks: false }));
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
