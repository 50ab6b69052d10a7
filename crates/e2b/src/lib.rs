//! The API surface for E2B's clients, on top of the same engine.
//!
//! ```text
//!   /sandboxes, /v2/sandboxes, …  ─► control plane: keys as everywhere, errors in E2B's form
//!   /volumecontent/<volume>/…     ─► files of volumes, by the volume's own token; see [`volumes`]
//!   e2b-sandbox-id: …             ─┐
//!   49983-<sandbox>.<domain>      ─┴► envd: files and processes, by the sandbox's own token; see [`envd`]
//!   49999-<sandbox>.<domain>      ──► code, the same way; see [`interpreter`]
//!   50005-<sandbox>.<domain>/mcp  ──► Burrow's MCP server for that sandbox, by a token of its own; see [`mcp`]
//! ```
//!
//! Two generations of paths are supported. Options that Burrow does not support are rejected with an explanation; no
//! option is ignored silently.
//!
//! Not included: the behaviour of sandboxes. Handlers translate, and call the engine as those of `rest` do.

mod absent;
mod body;
mod branches;
pub mod builds;
pub mod copies;
mod copy_step;
pub mod envd;
mod error;
pub mod interpreter;
mod list;
mod logs;
pub mod mcp;
pub mod metrics;
mod network;
mod pause;
mod sandbox_path;
mod sandboxes;
mod show;
mod starts;
mod steps;
mod template_name;
mod templates;
mod transforms;
mod volumes;

use std::sync::Arc;

use burrow_http::app::App;
use burrow_http::routes::{Routes, get, post, put};

/// The control plane.
pub fn routes() -> Routes<Arc<App>> {
    const ONE: &str = "/sandboxes/{sandbox}";
    let under = |rest: &str| format!("{ONE}/{rest}");
    Routes::new()
        .route("/sandboxes", get(list::list).post(sandboxes::create_v1))
        .route("/v2/sandboxes", get(list::list).post(sandboxes::create_v2))
        .route("/sandboxes/metrics", get(metrics::of_many))
        .route(ONE, get(sandboxes::get).delete(sandboxes::kill))
        .route(&under("connect"), post(pause::connect))
        .route("/v2/sandboxes/{sandbox}/connect", post(pause::connect))
        .route(&under("resume"), post(pause::resume))
        .route(&under("pause"), post(pause::pause))
        .route(&under("timeout"), post(pause::timeout))
        .route(&under("refreshes"), post(pause::refresh))
        .route(&under("network"), put(network::replace))
        .route(&under("metrics"), get(metrics::of_one))
        .route(&under("fork"), post(branches::fork))
        .route(&under("snapshots"), post(branches::snapshot))
        .route(&under("logs"), get(logs::lines))
        .route("/v2/sandboxes/{sandbox}/logs", get(logs::list))
        .route("/snapshots", get(branches::list))
        .merge(templates::routes())
        .merge(volumes::routes())
        .merge(absent::routes())
}
