//! The tree of sandboxes and snapshots, and garbage collection.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use burrow_api::{CollectGarbage, GarbageReport, Tree, defaults};
use burrow_engine::{GcOptions, TreeItem, TreeNode};
use burrow_model::{SandboxId, TenantId};
use serde::Deserialize;
use utoipa::IntoParams;

use burrow_http::app::App;
use burrow_http::auth::{Admin, Reader};
use burrow_http::convert;
use burrow_http::error::ApiError;
use burrow_http::input::{JsonBody, NoParams, Params};
use burrow_http::refusals::{Common, WithBody};

#[utoipa::path(
    get, path = "/v1/tree", tag = "snapshots",
    responses((status = 200, description = "Sandboxes and snapshots by descent", body = Tree), Common),
)]
pub(crate) async fn tree(
    State(app): State<Arc<App>>,
    caller: Reader,
    _: NoParams,
) -> Result<Json<Tree>, ApiError> {
    let nodes = app.engine.tree(caller.tenant()).await?;
    let nodes = match caller.bound_to() {
        Some(bound) => only(nodes, bound),
        None => nodes,
    };
    Ok(Json(Tree { nodes: nodes.into_iter().map(convert::tree_node).collect() }))
}

/// What a key that is bound to one sandbox may see: that sandbox and its snapshots.
fn only(nodes: Vec<TreeNode>, bound: &SandboxId) -> Vec<TreeNode> {
    let own = |node: &TreeNode| match &node.what {
        TreeItem::Sandbox(row) => row.id == *bound,
        TreeItem::Snapshot(snapshot) => snapshot.sandbox == *bound,
    };
    let mut places: Vec<Option<usize>> = Vec::with_capacity(nodes.len());
    let mut kept: Vec<TreeNode> = Vec::new();
    for node in nodes {
        let place = own(&node).then_some(kept.len());
        if place.is_some() {
            // Parents come first, so their new positions are known.
            let parent = node.parent.and_then(|parent| places.get(parent).copied().flatten());
            kept.push(TreeNode { what: node.what, parent });
        }
        places.push(place);
    }
    kept
}

/// Which objects count as stale.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct StaleParams {
    /// Objects that were not used for this long; 30 days when absent.
    unused_for_seconds: Option<u64>,
}

#[utoipa::path(
    get, path = "/v1/gc", tag = "snapshots", params(StaleParams),
    responses((status = 200, description = "Stale objects, and what would be done with them", body = GarbageReport), Common),
)]
pub(crate) async fn stale(
    State(app): State<Arc<App>>,
    caller: Reader,
    Params(params): Params<StaleParams>,
) -> Result<Json<GarbageReport>, ApiError> {
    caller.unbound()?;
    gc(&app, caller.tenant(), params.unused_for_seconds, false).await
}

#[utoipa::path(
    post, path = "/v1/gc", tag = "snapshots", request_body = CollectGarbage,
    responses((status = 200, description = "Stale objects, and what was done with them", body = GarbageReport),
        Common, WithBody),
)]
pub(crate) async fn collect(
    State(app): State<Arc<App>>,
    caller: Admin,
    _: NoParams,
    body: JsonBody<CollectGarbage>,
) -> Result<Json<GarbageReport>, ApiError> {
    gc(&app, caller.tenant(), body.value.unused_for_seconds, true).await
}

async fn gc(
    app: &Arc<App>,
    tenant: &TenantId,
    unused_for_seconds: Option<u64>,
    apply: bool,
) -> Result<Json<GarbageReport>, ApiError> {
    let unused_for_seconds = unused_for_seconds.unwrap_or(defaults::GC_UNUSED_SECONDS);
    // A very large value saturates: then nothing is stale.
    let options = GcOptions { apply, unused_for_ms: unused_for_seconds.saturating_mul(1000) };
    let (engine, tenant) = (app.engine.clone(), tenant.clone());
    let report = app.carry_out(async move { Ok(engine.gc(&tenant, options).await?) }).await?;
    let items = report.items.into_iter().map(convert::garbage_item).collect();
    Ok(Json(GarbageReport { applied: apply, unused_for_seconds, items }))
}
