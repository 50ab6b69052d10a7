//! `Idempotency-Key`: a create that comes twice happens once, and is answered the same.
//!
//! Sandboxes have it built into their insertion; this is for the other creates. The work is seen through even if its
//! client hangs up, so that a key is never left "under way" by a client that gave up.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::response::{IntoResponse, Response};
use burrow_api::ErrorCode;
use burrow_catalog::{Begun, CatalogError, Idempotency};
use burrow_model::TenantId;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde::Serialize;

use super::App;
use super::error::ApiError;

/// What a create answers, and what is kept of it for a repeat.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Vec<u8>,
    /// When it must differ from `body`: secrets are not kept.
    pub(super) kept: Option<Vec<u8>>,
}

impl Answer {
    pub(super) fn json<T: Serialize>(status: StatusCode, value: &T) -> Result<Self, ApiError> {
        Ok(Self { status, body: to_json(value)?, kept: None })
    }
}

pub(super) fn to_json<T: Serialize>(value: &T) -> Result<Vec<u8>, ApiError> {
    serde_json::to_vec(value).map_err(|error| ApiError::internal("could not write the answer", error))
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        (self.status, [(CONTENT_TYPE, "application/json")], self.body).into_response()
    }
}

/// Where a request that is under way is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// In the catalog, before it begins: nothing else would tell a next daemon that it was done.
    Durably,
    /// Here: a repeat that meets a next daemon finds what the first one made by itself.
    Here,
}

/// Requests that are under way, or done and not in the catalog yet.
#[derive(Debug, Default)]
pub(super) struct UnderWay(Mutex<Requests>);

type Requests = HashMap<(TenantId, String), Known>;

/// What is known of one.
#[derive(Debug)]
struct Known {
    route: String,
    body_hash: [u8; 32],
    /// What it was answered, once it is done.
    reply: Option<(u16, Vec<u8>)>,
}

/// Takes a request off the list, however it ends.
struct Listed {
    app: Arc<App>,
    request: (TenantId, String),
}

impl UnderWay {
    fn list(&self) -> MutexGuard<'_, Requests> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known here of a request; one that is not is put on the list if it `begins`.
    fn look_up(&self, tenant: &TenantId, given: &Idempotency, scope: &str, begins: bool) -> Begun {
        match self.list().entry((tenant.clone(), given.key.clone())) {
            Entry::Occupied(entry) => match entry.get() {
                known if known.route != scope || known.body_hash != given.body_hash => Begun::Mismatch,
                Known { reply: Some((status, body)), .. } => {
                    Begun::Done { status: *status, body: body.clone() }
                }
                Known { reply: None, .. } => Begun::InFlight,
            },
            Entry::Vacant(entry) => {
                if begins {
                    let (route, body_hash) = (scope.to_owned(), given.body_hash);
                    entry.insert(Known { route, body_hash, reply: None });
                }
                Begun::Fresh
            }
        }
    }
}

impl Listed {
    /// It is done: repeats are answered from here until the catalog has it.
    fn done(&self, reply: (u16, Vec<u8>)) {
        if let Some(known) = self.app.under_way.list().get_mut(&self.request) {
            known.reply = Some(reply);
        }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.app.under_way.list().remove(&self.request);
    }
}

/// Does `work` once per key. `scope` tells creates on different things apart.
pub(super) async fn once(
    app: &Arc<App>,
    tenant: &TenantId,
    key: Option<String>,
    scope: &str,
    body: &[u8],
    begin: Begin,
    work: impl Future<Output = Result<Answer, ApiError>> + Send + 'static,
) -> Result<Answer, ApiError> {
    let Some(key) = key else { return work.await };
    let given = Idempotency::of(&key, body);
    let here = begin == Begin::Here;
    if let Some(answer) = repeated(app.under_way.look_up(tenant, &given, scope, here))? {
        return Ok(answer);
    }
    let listed = here.then(|| Listed { app: app.clone(), request: (tenant.clone(), key.clone()) });
    let catalog = app.engine.catalog().clone();
    let now_ms = app.engine.now_ms();
    let found = match begin {
        Begin::Durably => catalog.idempotency_begin(tenant, given.clone(), scope, now_ms).await?,
        Begin::Here => catalog.idempotency_find(tenant, given.clone(), scope, now_ms).await?,
    };
    if let Some(answer) = repeated(found)? {
        return Ok(answer);
    }
    let (app, tenant, scope) = (app.clone(), tenant.clone(), scope.to_owned());
    let seen_through = app.clone();
    seen_through
        .see_through(async move {
            let result = work.await;
            let reply = |answer: &Answer| {
                let kept = answer.kept.clone().unwrap_or_else(|| answer.body.clone());
                (answer.status.as_u16(), kept)
            };
            let settled = match (&result, begin) {
                (Ok(answer), Begin::Durably) => {
                    let (status, kept) = reply(answer);
                    catalog.idempotency_finish(&tenant, &key, status, kept).await
                }
                (Err(_), Begin::Durably) => catalog.idempotency_abandon(&tenant, &key).await,
                (Ok(answer), Begin::Here) => {
                    // Behind the caller's back: until it is written it is on the list.
                    let reply = reply(answer);
                    listed.iter().for_each(|listed| listed.done(reply.clone()));
                    app.tasks.spawn(async move {
                        let done = catalog.idempotency_record(&tenant, given, &scope, reply, now_ms).await;
                        warn_unless(done);
                        drop(listed);
                    });
                    Ok(())
                }
                (Err(_), Begin::Here) => Ok(()),
            };
            warn_unless(settled);
            result
        })
        .await
}

/// The work is done and said to be: only a repeat would find out.
fn warn_unless(settled: Result<(), CatalogError>) {
    if let Err(error) = settled {
        tracing::warn!(%error, "could not record the outcome of an idempotent request");
    }
}

/// What a repeat is answered; `None` for what is none.
fn repeated(found: Begun) -> Result<Option<Answer>, ApiError> {
    match found {
        Begun::Fresh => Ok(None),
        Begun::Done { status, body } => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
            Ok(Some(Answer { status, body, kept: None }))
        }
        Begun::InFlight => {
            let message = "a request with the same `Idempotency-Key` is under way";
            Err(ApiError::new(ErrorCode::IdempotencyInFlight, message).hint("ask again in a moment"))
        }
        Begun::Mismatch => Err(CatalogError::IdempotencyMismatch.into()),
    }
}
