//! `Idempotency-Key`: a create that is repeated is executed once, and gets the same response.
//!
//! Sandboxes have this built into their insertion; this is for the other creates. The work is completed even if its client
//! disconnects, so that no key remains "in progress" after its client gave up.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::response::{IntoResponse, Response};
use burrow_api::ErrorCode;
use burrow_catalog::{CatalogError, Idempotency, IdempotencyState};
use burrow_model::TenantId;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde::Serialize;

use crate::app::App;
use crate::error::ApiError;

/// The response to a create, and the version of it that is stored for a repeat.
#[derive(Debug)]
pub struct IdempotentResponse {
    pub status: StatusCode,
    pub body: Vec<u8>,
    /// If it must differ from `body`: secrets are not stored.
    pub kept: Option<Vec<u8>>,
}

impl IdempotentResponse {
    pub fn json<T: Serialize>(status: StatusCode, value: &T) -> Result<Self, ApiError> {
        Ok(Self { status, body: to_json(value)?, kept: None })
    }
}

pub fn to_json<T: Serialize>(value: &T) -> Result<Vec<u8>, ApiError> {
    serde_json::to_vec(value).map_err(|error| ApiError::internal("could not write the answer", error))
}

impl IntoResponse for IdempotentResponse {
    fn into_response(self) -> Response {
        (self.status, [(CONTENT_TYPE, "application/json")], self.body).into_response()
    }
}

/// Where a request in progress is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InProgressRecord {
    /// In the catalog, before it starts: otherwise the next daemon could not know that it was executed.
    Durably,
    /// In memory: a repeat that reaches the next daemon finds the result of the first request by itself.
    Here,
}

/// Requests that are in progress, or completed and not yet in the catalog.
#[derive(Debug, Default)]
pub struct IdempotentRequests(Mutex<Requests>);

type Requests = HashMap<(TenantId, String), RequestRecord>;

/// The state of one request.
#[derive(Debug)]
struct RequestRecord {
    route: String,
    body_hash: [u8; 32],
    /// Its response, once it is completed.
    reply: Option<(u16, Vec<u8>)>,
}

/// Removes a request from the list when dropped, whatever its outcome.
struct InProgressGuard {
    app: Arc<App>,
    request: (TenantId, String),
}

impl IdempotentRequests {
    fn list(&self) -> MutexGuard<'_, Requests> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks up a request in memory. If it is unknown, adds it to the list if it `begins`.
    fn look_up(&self, tenant: &TenantId, given: &Idempotency, scope: &str, begins: bool) -> IdempotencyState {
        match self.list().entry((tenant.clone(), given.key.clone())) {
            Entry::Occupied(entry) => match entry.get() {
                known if known.route != scope || known.body_hash != given.body_hash => {
                    IdempotencyState::Mismatch
                }
                RequestRecord { reply: Some((status, body)), .. } => {
                    IdempotencyState::Done { status: *status, body: body.clone() }
                }
                RequestRecord { reply: None, .. } => IdempotencyState::InFlight,
            },
            Entry::Vacant(entry) => {
                if begins {
                    let (route, body_hash) = (scope.to_owned(), given.body_hash);
                    entry.insert(RequestRecord { route, body_hash, reply: None });
                }
                IdempotencyState::Fresh
            }
        }
    }
}

impl InProgressGuard {
    /// Marks the request as completed: repeats are answered from memory until the catalog has it.
    fn done(&self, reply: (u16, Vec<u8>)) {
        if let Some(known) = self.app.idempotent_requests.list().get_mut(&self.request) {
            known.reply = Some(reply);
        }
    }
}

impl Drop for InProgressGuard {
    fn drop(&mut self) {
        self.app.idempotent_requests.list().remove(&self.request);
    }
}

/// Executes `work` once per key. `scope` distinguishes creates on different objects.
pub async fn once(
    app: &Arc<App>,
    tenant: &TenantId,
    key: Option<String>,
    scope: &str,
    body: &[u8],
    begin: InProgressRecord,
    work: impl Future<Output = Result<IdempotentResponse, ApiError>> + Send + 'static,
) -> Result<IdempotentResponse, ApiError> {
    let Some(key) = key else { return work.await };
    let given = Idempotency::of(&key, body);
    let here = begin == InProgressRecord::Here;
    if let Some(answer) = repeated(app.idempotent_requests.look_up(tenant, &given, scope, here))? {
        return Ok(answer);
    }
    let listed = here.then(|| InProgressGuard { app: app.clone(), request: (tenant.clone(), key.clone()) });
    let catalog = app.engine.catalog().clone();
    let now_ms = app.engine.now_ms();
    let found = match begin {
        InProgressRecord::Durably => catalog.idempotency_begin(tenant, given.clone(), scope, now_ms).await?,
        InProgressRecord::Here => catalog.idempotency_find(tenant, given.clone(), scope, now_ms).await?,
    };
    if let Some(answer) = repeated(found)? {
        return Ok(answer);
    }
    let (app, tenant, scope) = (app.clone(), tenant.clone(), scope.to_owned());
    let seen_through = app.clone();
    seen_through
        .run_to_completion(async move {
            let result = work.await;
            let reply = |answer: &IdempotentResponse| {
                let kept = answer.kept.clone().unwrap_or_else(|| answer.body.clone());
                (answer.status.as_u16(), kept)
            };
            let settled = match (&result, begin) {
                (Ok(answer), InProgressRecord::Durably) => {
                    let (status, kept) = reply(answer);
                    catalog.idempotency_finish(&tenant, &key, status, kept).await
                }
                (Err(_), InProgressRecord::Durably) => catalog.idempotency_abandon(&tenant, &key).await,
                (Ok(answer), InProgressRecord::Here) => {
                    // Recorded in the background: until then, the request stays on the list.
                    let reply = reply(answer);
                    listed.iter().for_each(|listed| listed.done(reply.clone()));
                    app.tasks.spawn(async move {
                        let done = catalog.idempotency_record(&tenant, given, &scope, reply, now_ms).await;
                        warn_unless(done);
                        drop(listed);
                    });
                    Ok(())
                }
                (Err(_), InProgressRecord::Here) => Ok(()),
            };
            warn_unless(settled);
            result
        })
        .await
}

/// The work is done, and the response is the same: only a repeat would notice.
fn warn_unless(settled: Result<(), CatalogError>) {
    if let Err(error) = settled {
        tracing::warn!(%error, "could not record the outcome of an idempotent request");
    }
}

/// The response to a repeated request; `None` for a new one.
fn repeated(found: IdempotencyState) -> Result<Option<IdempotentResponse>, ApiError> {
    match found {
        IdempotencyState::Fresh => Ok(None),
        IdempotencyState::Done { status, body } => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
            Ok(Some(IdempotentResponse { status, body, kept: None }))
        }
        IdempotencyState::InFlight => {
            let message = "a request with the same `Idempotency-Key` is in progress";
            Err(ApiError::new(ErrorCode::IdempotencyInFlight, message).hint("try again shortly"))
        }
        IdempotencyState::Mismatch => Err(CatalogError::IdempotencyMismatch.into()),
    }
}
