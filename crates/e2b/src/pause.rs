//! Timeouts, pause and connect.
//!
//! ```text
//!   pause    the end is removed ─► hibernated (`memory: false`: stopped)
//!   connect  woken, started or left running ─► ends `timeout` from now
//! ```
//!
//! A key that is bound to the sandbox may be inside it. It can move the sandbox's end forward and never delay it: a
//! later end is rejected, connecting keeps the earlier of both, and pausing does not remove the end.
//!
//! A sandbox that was not created by an E2B client has no timeout. If an E2B client sets one, the sandbox is put to
//! sleep at the timeout, not deleted, because its creator did not agree to a deletion.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use burrow_api::defaults;
use burrow_catalog::SandboxRow;
use burrow_engine::{Engine, LeaseChange, UpdateOptions};
use burrow_model::{AtTimeout, Lease, SandboxId, State as SandboxState, TenantId};
use http::StatusCode;
use serde::Deserialize;
use tokio::time::Instant;

use super::body::{E2bExtractor, JsonInput, UnknownFields};
use super::error::Refusal;
use super::sandbox_path::Path;
use super::show::{self, Host};
use burrow_gateway::e2b::reach::state;
use burrow_http::app::App;
use burrow_http::auth::Executor;
use burrow_http::convert;
use burrow_http::error::ApiError;
use burrow_http::input::Segments;
use burrow_http::metrics::ProcessOperation;

const CONNECT_SECONDS: u64 = 300;

#[derive(Debug, Deserialize)]
pub(super) struct Connect {
    timeout: Option<u64>,
    /// False: start from the files alone.
    memory: Option<bool>,
    /// An older name of the field, used by `resume`.
    #[serde(rename = "autoPause")]
    auto_pause: Option<bool>,
    #[serde(flatten)]
    unknown: UnknownFields,
}

pub(super) async fn connect(
    app: State<Arc<App>>,
    caller: E2bExtractor<Executor>,
    host: Host,
    path: E2bExtractor<Segments<Path>>,
    body: JsonInput<Connect>,
) -> Result<Response, Refusal> {
    open(app, caller, host, path, body, LaterEnd::Kept).await
}

/// The older name of `connect`; running sandboxes are rejected.
pub(super) async fn resume(
    app: State<Arc<App>>,
    caller: E2bExtractor<Executor>,
    host: Host,
    path: E2bExtractor<Segments<Path>>,
    body: JsonInput<Connect>,
) -> Result<Response, Refusal> {
    let row = path.0.0.row(&app, &caller.0).await?;
    if state(&row) == "running" {
        return Err(Refusal::new(StatusCode::CONFLICT, format!("sandbox `{}` is running", row.id)));
    }
    open(app, caller, host, path, body, LaterEnd::Shortened).await
}

/// What happens if the current end is later than the requested one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LaterEnd {
    /// Connecting never shortens the time of a running sandbox.
    Kept,
    Shortened,
}

async fn open(
    State(app): State<Arc<App>>,
    E2bExtractor(caller): E2bExtractor<Executor>,
    host: Host,
    E2bExtractor(Segments(path)): E2bExtractor<Segments<Path>>,
    body: JsonInput<Connect>,
    later_end: LaterEnd,
) -> Result<Response, Refusal> {
    body.value.unknown.refuse()?;
    let row = path.row(&app, &caller).await?;
    let was_up = state(&row) == "running";
    let fresh = body.value.memory == Some(false);
    let seconds = body.value.timeout.unwrap_or(CONNECT_SECONDS);
    let now_ms = app.engine.now_ms();
    let mut expires_ms = convert::expires("timeout", Some(seconds.max(1)), now_ms)?;
    if later_end == LaterEnd::Kept && was_up {
        expires_ms = expires_ms.max(row.spec.lifetime.expires_ms());
    }
    let mut lease = leased(&row, seconds.saturating_mul(1000));
    if body.value.auto_pause == Some(true) {
        lease.then = AtTimeout::Hibernate;
    }
    let mut change = LeaseChange { lease, expires_ms };
    if caller.bound_to().is_some() {
        change = no_later(&row, change, now_ms);
    }
    let (engine, tenant) = (app.engine.clone(), caller.tenant().clone());
    let work = async move {
        let id = row.id;
        // Before the wake, so that the sandbox does not wake with its old expiry.
        engine.update(&tenant, &id, changing(change)).await?;
        let row = match (fresh, row.state) {
            (true, SandboxState::Hibernated) => engine.start_fresh(&tenant, &id).await,
            (true | false, _) => engine.start_sandbox(&tenant, &id).await,
        };
        Ok(row?)
    };
    let row = app.carry_out(work).await?;
    let status = if was_up { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Json(show::opened(&app, &host, &row).await?)).into_response())
}

/// Its lease with another length; a new lease for a sandbox without one.
fn leased(row: &SandboxRow, timeout_ms: u64) -> Lease {
    match &row.spec.lease {
        Some(lease) => Lease { timeout_ms, ..lease.clone() },
        None => Lease { timeout_ms, then: AtTimeout::Hibernate, public: false, metadata: Default::default() },
    }
}

/// A change of the lease that delays nothing: neither when the sandbox ends, nor how long it runs when its time starts
/// again, nor the action after it.
fn no_later(row: &SandboxRow, change: LeaseChange, now_ms: u64) -> LeaseChange {
    let end_ms = row.spec.lifetime.expires_ms();
    let mut lease = change.lease;
    let longest_ms = match &row.spec.lease {
        Some(before) => {
            lease.then = before.then;
            before.timeout_ms
        }
        None => {
            // Without a lease, a sandbox is deleted at its end.
            if end_ms.is_some() {
                lease.then = AtTimeout::Delete;
            }
            u64::MAX
        }
    };
    lease.timeout_ms = lease.timeout_ms.min(longest_ms);
    let latest_ms = end_ms.unwrap_or(now_ms.saturating_add(longest_ms));
    LeaseChange {
        lease,
        expires_ms: Some(change.expires_ms.map_or(latest_ms, |end_ms| end_ms.min(latest_ms))),
    }
}

/// A change of the lease only.
fn changing(change: LeaseChange) -> UpdateOptions {
    let nothing = convert::update_options(burrow_api::UpdateSandbox::default());
    let nothing = nothing.expect("no change is a change that fits");
    UpdateOptions { lease: Some(change), ..nothing }
}

#[derive(Debug, Deserialize)]
pub(super) struct Timeout {
    timeout: u64,
}

pub(super) async fn timeout(
    State(app): State<Arc<App>>,
    E2bExtractor(caller): E2bExtractor<Executor>,
    E2bExtractor(Segments(path)): E2bExtractor<Segments<Path>>,
    body: JsonInput<Timeout>,
) -> Result<StatusCode, Refusal> {
    let row = path.row(&app, &caller).await?;
    let (seconds, now_ms) = (body.value.timeout, app.engine.now_ms());
    // A timeout of 0 ends it immediately.
    let expires_ms = match seconds {
        0 => Some(now_ms),
        _ => convert::expires("timeout", Some(seconds), now_ms)?,
    };
    extend(&app, &caller, &row, seconds, expires_ms).await
}

#[derive(Debug, Deserialize)]
pub(super) struct Refresh {
    duration: Option<u64>,
}

/// An older form of `timeout`, which never shortens the time.
pub(super) async fn refresh(
    State(app): State<Arc<App>>,
    E2bExtractor(caller): E2bExtractor<Executor>,
    E2bExtractor(Segments(path)): E2bExtractor<Segments<Path>>,
    body: JsonInput<Refresh>,
) -> Result<StatusCode, Refusal> {
    let row = path.row(&app, &caller).await?;
    let seconds = body.value.duration.unwrap_or(15);
    let expires_ms = convert::expires("duration", Some(seconds), app.engine.now_ms())?;
    extend(&app, &caller, &row, seconds, expires_ms.max(row.spec.lifetime.expires_ms())).await
}

async fn extend(
    app: &Arc<App>,
    caller: &Executor,
    row: &SandboxRow,
    seconds: u64,
    expires_ms: Option<u64>,
) -> Result<StatusCode, Refusal> {
    let mut change = LeaseChange { lease: leased(row, seconds.saturating_mul(1000)), expires_ms };
    if caller.bound_to().is_some() {
        let allowed = no_later(row, change.clone(), app.engine.now_ms());
        if allowed.expires_ms != change.expires_ms {
            caller.unbound()?;
        }
        change = allowed;
    }
    let (engine, tenant, id) = (app.engine.clone(), caller.tenant().clone(), row.id.clone());
    app.carry_out(async move { Ok(engine.update(&tenant, &id, changing(change)).await?) }).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize)]
pub(super) struct Pause {
    memory: Option<bool>,
    /// A guest that does not respond cannot be dumped, so this is always the case.
    #[serde(rename = "requireHealthyGuest", alias = "require_healthy_guest")]
    _require_healthy_guest: Option<bool>,
    #[serde(flatten)]
    unknown: UnknownFields,
}

pub(super) async fn pause(
    State(app): State<Arc<App>>,
    E2bExtractor(caller): E2bExtractor<Executor>,
    E2bExtractor(Segments(path)): E2bExtractor<Segments<Path>>,
    body: JsonInput<Pause>,
) -> Result<StatusCode, Refusal> {
    body.value.unknown.refuse()?;
    let began = Instant::now();
    let row = path.row(&app, &caller).await?;
    if matches!(row.state, SandboxState::Hibernated | SandboxState::Stopped) {
        if caller.bound_to().is_none() {
            endless(&app, &caller, &row).await?;
        }
        return Err(Refusal::new(StatusCode::CONFLICT, format!("sandbox `{}` is paused already", row.id)));
    }
    let keep = body.value.memory.unwrap_or(true);
    let (engine, tenant, bound) = (app.engine.clone(), caller.tenant().clone(), caller.bound_to().is_some());
    app.carry_out(async move { put_to_sleep(&engine, &tenant, row, keep, bound).await }).await?;
    if keep {
        app.metrics.moved(ProcessOperation::Hibernate, began.elapsed());
    }
    Ok(StatusCode::NO_CONTENT)
}

/// The expiry is removed first: a crash in between leaves a sandbox that runs longer, and never one that is deleted while
/// its owner believes it to be paused. With a bound key the end stays.
async fn put_to_sleep(
    engine: &Engine,
    tenant: &TenantId,
    row: SandboxRow,
    keep: bool,
    bound: bool,
) -> Result<(), ApiError> {
    let lease = row.spec.lease.clone().filter(|_| !bound);
    let timed = lease.map(|lease| (lease, row.spec.lifetime.expires_ms()));
    let id: SandboxId = row.id;
    if let Some((lease, _)) = &timed {
        let change = LeaseChange { lease: lease.clone(), expires_ms: None };
        engine.update(tenant, &id, changing(change)).await?;
    }
    let slept = match keep {
        true => engine.hibernate(tenant, &id).await,
        false => {
            let grace = Duration::from_millis(defaults::STOP_GRACE_MS);
            engine.stop_sandbox(tenant, &id, grace).await
        }
    };
    match (slept, timed) {
        (Ok(_), _) => Ok(()),
        (Err(error), Some((lease, expires_ms))) => {
            engine.update(tenant, &id, changing(LeaseChange { lease, expires_ms })).await?;
            Err(error.into())
        }
        (Err(error), None) => Err(error.into()),
    }
}

/// Removes the end of a sandbox that sleeps.
async fn endless(app: &Arc<App>, caller: &Executor, row: &SandboxRow) -> Result<(), Refusal> {
    let Some(lease) = row.spec.lease.clone().filter(|_| row.spec.lifetime.expires_ms().is_some()) else {
        return Ok(());
    };
    let change = LeaseChange { lease, expires_ms: None };
    let (engine, tenant, id) = (app.engine.clone(), caller.tenant().clone(), row.id.clone());
    app.carry_out(async move { Ok(engine.update(&tenant, &id, changing(change)).await?) }).await?;
    Ok(())
}
