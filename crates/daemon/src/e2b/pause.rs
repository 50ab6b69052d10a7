//! Time and sleep: timeouts, pause, connect.
//!
//! ```text
//!   pause    no end while it sleeps ─► hibernated (`memory: false`: stopped)
//!   connect  woken, started or left running ─► ends `timeout` from now
//! ```
//!
//! A key that is bound to the sandbox may be inside it. It brings the sandbox's end nearer and never puts it off: a later end is
//! refused, connecting keeps the earlier of both, and pausing does not take the end away.
//!
//! A sandbox that no E2B client made has no timeout. Where one of them gives it one, what follows is sleep and not its end:
//! nobody who made it said that it may be deleted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use burrow_api::defaults;
use burrow_catalog::SandboxRow;
use burrow_engine::{Engine, LeaseChange, UpdateOptions};
use burrow_model::{AtTimeout, Lease, SandboxId, State as SandboxState, TenantId};
use http::StatusCode;
use serde::Deserialize;

use super::body::{By, Given, Unknown};
use super::error::Refusal;
use super::sandboxes::Path;
use super::show::{self, Host};
use crate::convert;
use crate::metrics::Move;
use crate::rest::auth::Executor;
use crate::rest::error::ApiError;
use crate::rest::{App, Segments};

const CONNECT_SECONDS: u64 = 300;

#[derive(Debug, Deserialize)]
pub(super) struct Connect {
    timeout: Option<u64>,
    /// False: from the files alone.
    memory: Option<bool>,
    /// An older word of `resume`.
    #[serde(rename = "autoPause")]
    auto_pause: Option<bool>,
    #[serde(flatten)]
    unknown: Unknown,
}

pub(super) async fn connect(
    app: State<Arc<App>>,
    caller: By<Executor>,
    host: Host,
    path: By<Segments<Path>>,
    body: Given<Connect>,
) -> Result<Response, Refusal> {
    open(app, caller, host, path, body, Shorter::Kept).await
}

/// The name it had before `connect`; sandboxes that run are refused.
pub(super) async fn resume(
    app: State<Arc<App>>,
    caller: By<Executor>,
    host: Host,
    path: By<Segments<Path>>,
    body: Given<Connect>,
) -> Result<Response, Refusal> {
    let row = path.0.0.row(&app, &caller.0).await?;
    if show::state(&row) == "running" {
        return Err(Refusal::new(StatusCode::CONFLICT, format!("sandbox `{}` is running", row.id)));
    }
    open(app, caller, host, path, body, Shorter::Taken).await
}

/// What becomes of an end that is later than the one asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shorter {
    /// Connecting never takes time from a sandbox that runs.
    Kept,
    Taken,
}

async fn open(
    State(app): State<Arc<App>>,
    By(caller): By<Executor>,
    host: Host,
    By(Segments(path)): By<Segments<Path>>,
    body: Given<Connect>,
    shorter: Shorter,
) -> Result<Response, Refusal> {
    body.value.unknown.refuse()?;
    let row = path.row(&app, &caller).await?;
    let was_up = show::state(&row) == "running";
    let fresh = body.value.memory == Some(false);
    let seconds = body.value.timeout.unwrap_or(CONNECT_SECONDS);
    let now_ms = app.engine.now_ms();
    let mut expires_ms = convert::expires("timeout", Some(seconds.max(1)), now_ms)?;
    if shorter == Shorter::Kept && was_up {
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
        // First: what is woken must not meet the end it had.
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

/// The lease it has, with another length; one of its own for a sandbox that had none.
fn leased(row: &SandboxRow, timeout_ms: u64) -> Lease {
    match &row.spec.lease {
        Some(lease) => Lease { timeout_ms, ..lease.clone() },
        None => Lease { timeout_ms, then: AtTimeout::Hibernate, public: false, metadata: Default::default() },
    }
}

/// A change of the lease that puts nothing off: neither when the sandbox ends, nor how long it runs when its time begins anew,
/// nor what follows.
fn no_later(row: &SandboxRow, change: LeaseChange, now_ms: u64) -> LeaseChange {
    let end_ms = row.spec.lifetime.expires_ms();
    let mut lease = change.lease;
    let longest_ms = match &row.spec.lease {
        Some(before) => {
            lease.then = before.then;
            before.timeout_ms
        }
        None => {
            // Without a lease, a sandbox whose time is up is deleted.
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

/// Nothing but the lease.
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
    By(caller): By<Executor>,
    By(Segments(path)): By<Segments<Path>>,
    body: Given<Timeout>,
) -> Result<StatusCode, Refusal> {
    let row = path.row(&app, &caller).await?;
    let (seconds, now_ms) = (body.value.timeout, app.engine.now_ms());
    // Nothing left is nothing left: its time is up at once.
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

/// An older word of `timeout`, which takes nothing away.
pub(super) async fn refresh(
    State(app): State<Arc<App>>,
    By(caller): By<Executor>,
    By(Segments(path)): By<Segments<Path>>,
    body: Given<Refresh>,
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
    /// A guest that does not answer cannot be dumped, so this is always so.
    #[serde(rename = "requireHealthyGuest", alias = "require_healthy_guest")]
    _require_healthy_guest: Option<bool>,
    #[serde(flatten)]
    unknown: Unknown,
}

pub(super) async fn pause(
    State(app): State<Arc<App>>,
    By(caller): By<Executor>,
    By(Segments(path)): By<Segments<Path>>,
    body: Given<Pause>,
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
        app.metrics.moved(Move::Hibernate, began.elapsed());
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Its end is taken away first: a crash in between leaves a sandbox that runs for longer, and never one that is deleted
/// while its owner takes it for paused. With a bound key the end stays.
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

/// A sandbox that sleeps has no end, whoever put it to sleep.
async fn endless(app: &Arc<App>, caller: &Executor, row: &SandboxRow) -> Result<(), Refusal> {
    let Some(lease) = row.spec.lease.clone().filter(|_| row.spec.lifetime.expires_ms().is_some()) else {
        return Ok(());
    };
    let change = LeaseChange { lease, expires_ms: None };
    let (engine, tenant, id) = (app.engine.clone(), caller.tenant().clone(), row.id.clone());
    app.carry_out(async move { Ok(engine.update(&tenant, &id, changing(change)).await?) }).await?;
    Ok(())
}
