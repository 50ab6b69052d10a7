//! The REST API under `/v1`, one file per noun.
//!
//! Handlers translate requests and call the engine, which decides what is allowed. Streams are polled directly from the
//! guest's connection, so a slow client holds one frame and nothing else.

pub(crate) mod attach;
pub(crate) mod audit;
pub(crate) mod backup;
pub(crate) mod contexts;
pub(crate) mod diff;
pub(crate) mod egress;
pub(crate) mod events;
pub(crate) mod execs;
pub(crate) mod files;
pub(crate) mod host;
pub(crate) mod images;
pub(crate) mod keys;
pub(crate) mod lineage;
pub(crate) mod listing;
pub(crate) mod memory;
pub(crate) mod merges;
pub(crate) mod moving;
pub mod openapi;
pub(crate) mod output;
pub(crate) mod ports;
pub(crate) mod power;
pub(crate) mod races;
pub(crate) mod sandboxes;
pub(crate) mod sdk;
pub(crate) mod secrets;
pub(crate) mod services;
pub(crate) mod snapshots;
pub(crate) mod ssh;
pub mod ssh_link;
pub(crate) mod tar;
pub(crate) mod volume_files;
pub(crate) mod volumes;
pub(crate) mod watch;

use std::sync::Arc;

use burrow_http::app::App;
use burrow_http::routes::{Routes, delete, get, post, put};

pub use memory::{own_listener_router, own_routes};
pub use openapi::openapi;

/// All routes under `/v1`, those for monitoring, and the packages of the SDKs.
pub fn routes() -> Routes<Arc<App>> {
    let open = Routes::new()
        .route("/healthz", get(host::health))
        .route("/readyz", get(host::ready))
        .route("/metrics", get(host::metrics))
        .route("/v1/version", get(host::version))
        .route("/v1/openapi.json", get(host::openapi))
        .route("/sdk/python", get(sdk::python))
        .route("/sdk/typescript", get(sdk::typescript));
    let daemon = Routes::new()
        .route("/v1/host", get(host::host))
        .route("/v1/config", get(host::config))
        .route("/v1/backup", get(backup::backup))
        .route("/v1/events", get(events::events))
        .route("/v1/keys", get(keys::list).post(keys::create))
        .route("/v1/keys/{key}", get(keys::get).delete(keys::revoke))
        .route("/v1/ssh", get(ssh::show))
        .route("/v1/ssh/keys", get(ssh::list).post(ssh::add))
        .route("/v1/ssh/keys/{key}", delete(ssh::remove))
        .route("/v1/egress/sets", get(egress::sets))
        .route("/v1/secrets", get(secrets::list))
        .route("/v1/secrets/{secret}", get(secrets::get).put(secrets::set).delete(secrets::remove))
        .route("/v1/secrets/{secret}/rotate", post(secrets::rotate));
    open.merge(daemon)
        .merge(sandbox_routes())
        .merge(snapshot_routes())
        .merge(exec_routes())
        .merge(code_routes())
        .merge(file_routes())
        .merge(volume_routes())
        .merge(image_routes())
        .merge(memory::routes())
        .merge(audit_routes())
}

fn sandbox_routes() -> Routes<Arc<App>> {
    const ONE: &str = "/v1/sandboxes/{sandbox}";
    let under = |rest: &str| format!("{ONE}/{rest}");
    Routes::new()
        .route("/v1/sandboxes", get(sandboxes::list).post(sandboxes::create))
        .route(ONE, get(sandboxes::get).patch(sandboxes::update).delete(sandboxes::delete))
        .route(&under("start"), post(power::start))
        .route(&under("stop"), post(power::stop))
        .route(&under("pause"), post(power::pause))
        .route(&under("resume"), post(power::resume))
        .route(&under("hibernate"), post(power::hibernate))
        .route(&under("wake"), post(power::wake))
        .route(&under("snapshots"), post(snapshots::create))
        .route(&under("restore"), post(snapshots::restore))
        .route(&under("fork"), post(snapshots::fork))
        .route(&under("merge"), post(merges::merge))
        .route(&under("merges"), get(merges::list))
        .route(&under("stats"), get(sandboxes::stats))
        .route(&under("revoke-tokens"), post(keys::revoke_tokens))
        .route(&under("ports"), get(ports::list))
        .route(&under("ports/{port}"), put(ports::publish).delete(ports::unpublish))
        .route(&under("ports/{port}/url"), post(ports::url))
        .route(&under("ports/{port}/connect"), get(ports::connect))
        .route(&under("egress"), get(egress::show))
        .route(&under("egress/log"), get(egress::log))
        .route(&under("egress/explain"), post(egress::explain::explain))
        .route(&under("egress/policy"), put(egress::policy::replace))
        .route(&under("egress/approvals"), get(egress::approvals::list))
        .route(&under("egress/approvals/{approval}"), post(egress::approvals::answer))
        .route(&under("egress/test"), post(egress::test))
        .route(&under("services"), get(services::list))
        .route(&under("services/{name}"), put(services::set).delete(services::remove))
        .route(&under("services/{name}/restart"), post(services::restart))
}

fn snapshot_routes() -> Routes<Arc<App>> {
    const ONE: &str = "/v1/snapshots/{snapshot}";
    Routes::new()
        .route("/v1/snapshots", get(snapshots::list).post(moving::import))
        .route(ONE, get(snapshots::get).delete(snapshots::delete))
        .route(&format!("{ONE}/sandboxes"), post(snapshots::become_sandbox))
        .route("/v1/diff", get(diff::get).post(diff::post))
        .route("/v1/races", get(races::list).post(races::start))
        .route("/v1/races/{race}", get(races::get).delete(races::remove))
        .route("/v1/races/{race}/merge", post(races::merge))
        .route(&format!("{ONE}/export"), get(moving::export))
        .route("/v1/tree", get(lineage::tree))
        .route("/v1/gc", get(lineage::stale).post(lineage::collect))
}

fn volume_routes() -> Routes<Arc<App>> {
    const ONE: &str = "/v1/volumes/{volume}";
    let under = |rest: &str| format!("{ONE}/{rest}");
    let files = get(volume_files::read).put(volume_files::write).delete(volume_files::remove);
    Routes::new()
        .route("/v1/volumes", get(volumes::list).post(volumes::create))
        .route(ONE, get(volumes::get).delete(volumes::remove))
        .route(&under("snapshots"), get(volumes::snapshots).post(volumes::snapshot))
        .route(&under("snapshots/{snapshot}"), delete(volumes::remove_snapshot))
        .route(&under("restore"), post(volumes::restore))
        .route(&under("revoke-tokens"), post(keys::revoke_volume_tokens))
        .route(&under("files"), files)
        .route(&under("files/list"), get(volume_files::list))
}

fn image_routes() -> Routes<Arc<App>> {
    const ONE: &str = "/v1/images/{image}";
    let under = |rest: &str| format!("{ONE}/{rest}");
    Routes::new()
        .route("/v1/images", get(images::list).post(images::make::make))
        .route("/v1/images/import", put(images::upload::import))
        .route("/v1/images/build", put(images::upload::build))
        .route("/v1/images/prune", post(images::prune))
        .route(ONE, get(images::get).delete(images::remove))
        .route(&under("export"), get(images::export::export))
        .route(&under("tags"), post(images::tag))
        .route(&under("tags/{tag}"), delete(images::untag))
}

fn audit_routes() -> Routes<Arc<App>> {
    Routes::new()
        .route("/v1/audit", get(audit::list))
        .route("/v1/audit/follow", get(audit::follow))
        .route("/v1/audit/checkpoint", get(audit::checkpoint))
        .route("/v1/audit/proof/inclusion", get(audit::inclusion))
        .route("/v1/audit/proof/consistency", get(audit::consistency))
        .route("/v1/audit/export", get(audit::export))
}

fn exec_routes() -> Routes<Arc<App>> {
    const ALL: &str = "/v1/sandboxes/{sandbox}/execs";
    let under = |rest: &str| format!("{ALL}/{{exec}}{rest}");
    Routes::new()
        .route("/v1/execs/{exec}", get(execs::find))
        .route(ALL, get(execs::list).post(execs::create))
        .route(&under(""), get(execs::get))
        .route(&under("/wait"), get(execs::wait))
        .route(&under("/signal"), post(execs::signal))
        .route(&under("/resize"), post(execs::resize))
        .route(&under("/stdin"), post(execs::stdin))
        .route(&under("/output"), get(output::output))
        .route(&under("/attach"), get(attach::attach))
}

fn code_routes() -> Routes<Arc<App>> {
    const ALL: &str = "/v1/sandboxes/{sandbox}/contexts";
    let under = |rest: &str| format!("{ALL}/{{context}}{rest}");
    Routes::new()
        .route(ALL, get(contexts::list).post(contexts::create))
        .route(&under(""), get(contexts::get).delete(contexts::remove))
        .route(&under("/interrupt"), post(contexts::interrupt))
        .route(&under("/restart"), post(contexts::restart))
        .route(&under("/run"), post(contexts::run))
}

fn file_routes() -> Routes<Arc<App>> {
    const FILES: &str = "/v1/sandboxes/{sandbox}/files";
    let under = |rest: &str| format!("{FILES}/{rest}");
    Routes::new()
        .route(FILES, get(files::read).put(files::write).delete(files::remove))
        .route(&under("stat"), get(files::stat))
        .route(&under("list"), get(listing::list))
        .route(&under("mkdir"), post(files::make_directory))
        .route(&under("move"), post(files::rename))
        .route(&under("chmod"), post(files::change_mode))
        .route(&under("tar"), get(tar::download).put(tar::upload))
        .route(&under("watch"), get(watch::watch))
}
