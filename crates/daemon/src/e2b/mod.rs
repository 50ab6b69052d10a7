//! The surface that E2B's clients speak, in front of the same engine.
//!
//! ```text
//!   /sandboxes, /v2/sandboxes, …  ─► control plane: keys as everywhere, errors in E2B's form
//!   /volumecontent/<volume>/…     ─► files of volumes, by the volume's own token; see [`volumes`]
//!   e2b-sandbox-id: …             ─┐
//!   49983-<sandbox>.<domain>      ─┴► envd: files and processes, by the sandbox's own token; see [`envd`]
//!   49999-<sandbox>.<domain>      ──► code, the same way; see [`interpreter`]
//! ```
//!
//! Two generations of paths are served alike. What a client may ask for and Burrow does not have is refused in words; nothing
//! that was asked for is left out in silence.
//!
//! Absent: anything that sandboxes do. Handlers translate, and call the engine as those of `rest` do.

mod absent;
pub(crate) mod access;
mod body;
mod branches;
pub(crate) mod builds;
pub(crate) mod copies;
pub(crate) mod envd;
mod error;
pub(crate) mod interpreter;
mod list;
mod logs;
pub(crate) mod metrics;
mod network;
mod pause;
pub(crate) mod reach;
mod sandboxes;
mod show;
mod starts;
mod steps;
mod templates;
mod volumes;

use std::sync::Arc;

use crate::rest::App;
use crate::rest::routes::{Routes, get, post, put};

/// Where an agent of E2B's would listen inside. Nothing is forwarded to it: this daemon answers in its place.
pub(crate) const ENVD_PORT: u16 = 49983;

/// Clients ask for this before they use what came later. What that version has and we do not is refused where it is asked for.
const ENVD_VERSION: &str = "0.6.4";

/// The control plane.
pub(crate) fn routes() -> Routes<Arc<App>> {
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
