//! Create, inspect, kill.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use burrow_api::CreateSandbox;
use burrow_catalog::{Idempotency, SandboxRow};
use burrow_engine::{CreateOptions, FromSnapshot, LeaseChange};
use burrow_model::network::SealedTransforms;
use burrow_model::{AtTimeout, Image, Lease, Lifetime, NetworkPolicy, SleepPolicy, Snapshot, VolumeMount};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use super::body::{E2bExtractor, JsonInput, UnknownFields, asks};
use super::error::Refusal;
use super::network::NetworkConfig;
use super::sandbox_path::Path;
use super::show::{self, Host};
use super::template_name::{TemplateTarget, find};
use super::{envd, mcp, starts};
use burrow_gateway::e2b::reach::{self, LabelSettings};
use burrow_http::app::App;
use burrow_http::auth::{Caller, Executor, Reader, UnboundExecutor};
use burrow_http::convert;
use burrow_http::input::{Segments, idempotency_key};

/// The default of each generation of paths.
const TIMEOUT_SECONDS_V1: u64 = 15;
const TIMEOUT_SECONDS_V2: u64 = 300;

/// Limits of a client's metadata of one sandbox: as many entries as labels, and their total size.
const METADATA_MAX: usize = 1_000;
const METADATA_BYTES_MAX: usize = 64 << 10;

#[derive(Debug, Deserialize)]
pub(super) struct NewSandbox {
    #[serde(rename = "templateID")]
    template: String,
    timeout: Option<u64>,
    #[serde(rename = "autoPause", default)]
    auto_pause: Option<bool>,
    #[serde(rename = "autoPauseMemory")]
    auto_pause_memory: Option<bool>,
    /// Whether a use wakes it after its timeout has paused it.
    #[serde(rename = "autoResume")]
    auto_resume: Option<Value>,
    /// Always true in Burrow.
    #[serde(rename = "secure")]
    _secure: Option<bool>,
    #[serde(alias = "allowInternetAccess")]
    allow_internet_access: Option<bool>,
    network: Option<NetworkConfig>,
    metadata: Option<BTreeMap<String, String>>,
    #[serde(rename = "envVars")]
    variables: Option<BTreeMap<String, String>>,
    mcp: Option<Value>,
    iam: Option<Value>,
    #[serde(rename = "volumeMounts")]
    volumes: Option<Vec<super::volumes::Mount>>,
    #[serde(flatten)]
    unknown: UnknownFields,
}

pub(super) async fn create_v1(
    app: State<Arc<App>>,
    caller: E2bExtractor<UnboundExecutor>,
    host: Host,
    headers: HeaderMap,
    body: JsonInput<NewSandbox>,
) -> Result<Response, Refusal> {
    create(app, caller, host, headers, body, TIMEOUT_SECONDS_V1).await
}

pub(super) async fn create_v2(
    app: State<Arc<App>>,
    caller: E2bExtractor<UnboundExecutor>,
    host: Host,
    headers: HeaderMap,
    body: JsonInput<NewSandbox>,
) -> Result<Response, Refusal> {
    create(app, caller, host, headers, body, TIMEOUT_SECONDS_V2).await
}

async fn create(
    State(app): State<Arc<App>>,
    E2bExtractor(caller): E2bExtractor<UnboundExecutor>,
    host: Host,
    headers: HeaderMap,
    body: JsonInput<NewSandbox>,
    timeout_seconds: u64,
) -> Result<Response, Refusal> {
    let began = Instant::now();
    let mut wish = body.value;
    refuse_absent(&wish)?;
    let volumes = super::volumes::mounts(&app, &caller, wish.volumes.take().unwrap_or_default()).await?;
    let transforms = wish.network.as_ref().map(NetworkConfig::transforms).transpose()?.unwrap_or_default();
    let transforms = super::transforms::seal(&app, &caller, &transforms).await?;
    let mut asked =
        CheckedRequest { volumes, transforms, ..CheckedRequest::of(wish, &app, timeout_seconds)? };
    let idempotency = idempotency_key(&headers)?.map(|key| Idempotency::of(&key, &body.bytes));
    let found = find(&app, &caller, &asked.template).await?;
    if let TemplateTarget::Image(name) = &found {
        asked.mcp |= mcp::is_replaced(&asked.template, name);
    }
    let created = match found {
        TemplateTarget::Image(name) => {
            let image = app.engine.find_image(caller.tenant(), &name).await?;
            match starts::snapshot(&app, caller.tenant(), &image).await? {
                Some(snapshot) => from_snapshot(&app, &caller, asked, snapshot, idempotency).await?,
                None => from_image(&app, &caller, asked, (name, image), idempotency).await?,
            }
        }
        TemplateTarget::Snapshot(snapshot) => {
            from_snapshot(&app, &caller, asked, *snapshot, idempotency).await?
        }
    };
    if let Some(trace) = caller.trace() {
        trace.about(&created.id);
    }
    app.metrics.created(began.elapsed());
    Ok((StatusCode::CREATED, Json(show::opened(&app, &host, &created).await?)).into_response())
}

fn refuse_absent(wish: &NewSandbox) -> Result<(), Refusal> {
    let given = |value: &Option<Value>| value.as_ref().is_some_and(asks);
    if given(&wish.iam) {
        return Err(Refusal::absent(
            "Burrow has no workload identity; insert a secret with a request rule (`burrow secret`) instead: it is added to requests \
             without ever being in the sandbox",
        ));
    }
    wish.unknown.refuse()
}

/// A validated create request.
struct CheckedRequest {
    template: String,
    variables: BTreeMap<String, String>,
    lease: Lease,
    expires_ms: u64,
    network: Option<NetworkPolicy>,
    /// Headers that are set on requests, encrypted.
    transforms: Option<SealedTransforms>,
    volumes: Vec<VolumeMount>,
    settings: LabelSettings,
    /// Whether it has an MCP address.
    mcp: bool,
}

impl CheckedRequest {
    fn of(wish: NewSandbox, app: &App, timeout_seconds: u64) -> Result<Self, Refusal> {
        let metadata = wish.metadata.unwrap_or_default();
        let bytes: usize = metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
        if metadata.len() > METADATA_MAX || bytes > METADATA_BYTES_MAX {
            let message =
                format!("`metadata` has more than {METADATA_MAX} entries or {METADATA_BYTES_MAX} bytes");
            return Err(Refusal::invalid(message));
        }
        let seconds = wish.timeout.unwrap_or(timeout_seconds);
        let expires_ms = convert::expires("timeout", Some(seconds), app.engine.now_ms())?.unwrap_or_default();
        let then = match (wish.auto_pause.unwrap_or(false), wish.auto_pause_memory.unwrap_or(true)) {
            (false, _) => AtTimeout::Delete,
            (true, true) => AtTimeout::Hibernate,
            (true, false) => AtTimeout::Stop,
        };
        let wants_connect = reach::wants_connect(wish.auto_pause.unwrap_or(false), wish.auto_resume.as_ref());
        let asked = wish.network.as_ref().and_then(|network| network.allow_public_traffic);
        let public = asked.unwrap_or(app.config.gateway.e2b_public_ports);
        let network = super::network::policy(wish.allow_internet_access, wish.network.as_ref())?;
        let mask = wish.network.as_ref().map(NetworkConfig::mask).transpose()?.flatten();
        let https_ports = wish.network.as_ref().map(NetworkConfig::https_ports).transpose()?;
        let settings = LabelSettings { wants_connect, mask, https_ports: https_ports.unwrap_or_default() };
        let mcp = mcp::is_given(wish.mcp.as_ref());
        Ok(Self {
            template: wish.template,
            variables: wish.variables.unwrap_or_default(),
            lease: Lease { timeout_ms: seconds.saturating_mul(1000), then, public, metadata },
            expires_ms,
            network,
            // Transforms have to be encrypted first, and volumes looked up.
            transforms: None,
            volumes: Vec::new(),
            settings,
            mcp,
        })
    }

    fn labels(&self) -> BTreeMap<String, String> {
        let mut labels = self.settings.labels();
        labels.extend(mcp::labels(self.mcp));
        labels
    }

    fn label_change(&self) -> BTreeMap<String, Option<String>> {
        let mut change = self.settings.label_change();
        change.extend(mcp::label_change(self.mcp));
        change
    }
}

async fn from_image(
    app: &Arc<App>,
    caller: &Caller,
    asked: CheckedRequest,
    (name, image): (String, Image),
    idempotency: Option<Idempotency>,
) -> Result<SandboxRow, Refusal> {
    let usual = CreateSandbox {
        image: Some(name),
        user: starts::user(&image),
        labels: asked.labels(),
        env: asked.variables,
        ..CreateSandbox::default()
    };
    let defaults = &app.config.defaults;
    let options =
        convert::create_options(usual, defaults, app.engine.default_network(), app.engine.now_ms())?;
    let memory = convert::memory_spec(&app.engine, caller.tenant(), None, app.config.memory.remember).await?;
    let network = match (asked.network, asked.transforms) {
        (network, None) => network,
        (network, transforms) => {
            let network = network.unwrap_or_else(|| app.engine.default_network().clone());
            Some(NetworkPolicy { transforms, ..network })
        }
    };
    let options = CreateOptions {
        limits: starts::Sizes::of(&image).apply(options.limits),
        lifetime: Lifetime::Persistent { expires_ms: Some(asked.expires_ms) },
        network,
        lease: Some(asked.lease),
        // The client decides how long it runs: its processes are not frozen before the timeout.
        sleep: SleepPolicy::never(),
        memory,
        volumes: asked.volumes,
        idempotency,
        ..options
    };
    let (engine, tenant) = (app.engine.clone(), caller.tenant().clone());
    let created = app.run_to_completion(async move { Ok(engine.create(&tenant, options).await?) }).await?;
    Ok(created.row)
}

/// The requested settings apply before the first process of the snapshot runs.
async fn from_snapshot(
    app: &Arc<App>,
    caller: &Caller,
    asked: CheckedRequest,
    snapshot: Snapshot,
    idempotency: Option<Idempotency>,
) -> Result<SandboxRow, Refusal> {
    if !asked.volumes.is_empty() {
        return Err(Refusal::absent(
            "a sandbox made from a snapshot has the volumes of the snapshot's sandbox, read-only; use `volumeMounts` with a template",
        ));
    }
    let lifetime = Some(Lifetime::Persistent { expires_ms: Some(asked.expires_ms) });
    let labels = asked.label_change();
    let change = LeaseChange { lease: asked.lease, expires_ms: Some(asked.expires_ms) };
    let mut update = convert::update_options(burrow_api::UpdateSandbox {
        env: asked.variables.into_iter().map(|(name, value)| (name, Some(value))).collect(),
        labels,
        ..burrow_api::UpdateSandbox::default()
    })?;
    update.lease = Some(change);
    update.network = match (asked.network, asked.transforms) {
        (Some(network), transforms) => {
            Some(super::network::replacing(NetworkPolicy { transforms, ..network }))
        }
        (None, Some(transforms)) => Some(super::transforms::adding(transforms)?),
        (None, None) => None,
    };
    let change = Some(Box::new(update));
    let options = FromSnapshot { name: None, files_only: false, labels: None, lifetime, change, idempotency };
    let (engine, tenant) = (app.engine.clone(), caller.tenant().clone());
    let work = async move { Ok(engine.create_from_snapshot(&tenant, &snapshot.id, options).await?.row) };
    let row = app.carry_out(work).await?;
    envd::mark(app, &row.tenant, &row.id).await;
    Ok(row)
}

pub(super) async fn get(
    State(app): State<Arc<App>>,
    E2bExtractor(caller): E2bExtractor<Reader>,
    host: Host,
    E2bExtractor(Segments(path)): E2bExtractor<Segments<Path>>,
) -> Result<Json<Value>, Refusal> {
    let row = path.row(&app, &caller).await?;
    Ok(Json(show::detail(&app, &host, &caller, &row).await?))
}

pub(super) async fn kill(
    State(app): State<Arc<App>>,
    E2bExtractor(caller): E2bExtractor<Executor>,
    E2bExtractor(Segments(path)): E2bExtractor<Segments<Path>>,
) -> Result<StatusCode, Refusal> {
    let id = path.resolve(&app, &caller).await?;
    let (engine, tenant) = (app.engine.clone(), caller.tenant().clone());
    app.carry_out(async move { Ok(engine.delete(&tenant, &id).await?) }).await?;
    Ok(StatusCode::NO_CONTENT)
}
