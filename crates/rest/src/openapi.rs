//! The OpenAPI document, generated from the handlers and the wire types.

use burrow_api as api;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

use crate::{
    attach, audit, backup, contexts, diff, egress, events, execs, files, host, images, keys, lineage,
    listing, memory, merges, moving, output, ports, power, races, sandboxes, sdk, secrets, services,
    snapshots, ssh, tar, volume_files, volumes, watch,
};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Burrow",
        description = "Persistent sandboxes for AI agents. Times are milliseconds since the Unix epoch; sizes are in \
                       the unit that their name ends with. Requests with unknown fields or parameters are rejected; responses may \
                       gain fields.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    paths(
        host::health, host::ready, host::metrics, host::version, host::host, host::config, sdk::python, sdk::typescript,
        backup::backup, events::events,
        sandboxes::create, sandboxes::list, sandboxes::get, sandboxes::update, sandboxes::delete,
        power::start, power::stop, power::pause, power::resume, power::hibernate, power::wake, sandboxes::stats,
        snapshots::create, snapshots::list, snapshots::get, snapshots::delete, snapshots::restore,
        snapshots::become_sandbox, snapshots::fork, moving::export, moving::import, lineage::tree, lineage::stale, lineage::collect,
        diff::get, diff::post, merges::merge, merges::list,
        races::start, races::list, races::get, races::merge, races::remove,
        execs::create, execs::list, execs::get, execs::find, execs::wait, execs::signal, execs::resize, execs::stdin,
        output::output, attach::attach,
        contexts::create, contexts::list, contexts::get, contexts::remove, contexts::interrupt, contexts::restart,
        contexts::run,
        files::read, files::write, files::remove, files::stat, listing::list, files::make_directory, files::rename,
        files::change_mode, tar::download, tar::upload, watch::watch,
        volumes::create, volumes::list, volumes::get, volumes::remove, volumes::snapshot, volumes::snapshots,
        volumes::remove_snapshot, volumes::restore,
        volume_files::read, volume_files::write, volume_files::remove, volume_files::list,
        ports::list, ports::publish, ports::unpublish, ports::url, ports::connect,
        egress::sets, egress::show, egress::log, egress::explain::explain, egress::test, egress::policy::replace,
        egress::approvals::list, egress::approvals::answer,
        services::list, services::set, services::remove, services::restart,
        keys::create, keys::list, keys::get, keys::revoke, keys::revoke_tokens, keys::revoke_volume_tokens,
        ssh::show, ssh::add, ssh::list, ssh::remove,
        audit::list, audit::follow, audit::checkpoint, audit::inclusion, audit::consistency, audit::export,
        secrets::set, secrets::rotate, secrets::list, secrets::get, secrets::remove,
        images::list, images::make::make, images::get, images::remove, images::tag, images::untag, images::prune,
        images::upload::import, images::upload::build, images::export::export,
        memory::spaces::create, memory::spaces::list, memory::spaces::get, memory::spaces::update,
        memory::spaces::remove,
        memory::upkeep::stats, memory::upkeep::merge, memory::upkeep::consolidate, memory::upkeep::check,
        memory::upkeep::rebuild,
        memory::entries::add, memory::entries::list, memory::entries::get, memory::entries::update,
        memory::entries::remove, memory::entries::history, memory::entries::forget, memory::entries::erase,
        memory::entries::sessions,
        memory::search::search, memory::search::context, memory::search::recall, memory::search::turns,
        memory::transfer::export, memory::transfer::import,
        memory::kv::list, memory::kv::get, memory::kv::set, memory::kv::remove, memory::kv::history,
        memory::kv::batch, memory::kv::increment, memory::kv_watch::watch,
        memory::skills::put, memory::skills::list, memory::skills::get, memory::skills::versions,
        memory::skills::remove, memory::skills::search, memory::skills::outcome, memory::skills::promote,
        memory::skill_run::run,
        memory::artifacts::put, memory::artifacts::get, memory::artifacts::head, memory::artifacts::remove,
        memory::artifacts::list, memory::artifacts::versions,
    ),
    components(schemas(api::ErrorBody, api::AttachClientMessage, api::AttachServerMessage, api::PortMessage)),
    security(("key" = []), ("bearer" = [])),
    tags(
        (name = "sandboxes", description = "Sandboxes: isolated computers that keep their state"),
        (name = "snapshots", description = "Immutable points in the history of a sandbox, to restore or to continue from"),
        (name = "merges", description = "Merges of the changes of forks"),
        (name = "execs", description = "Processes in a sandbox"),
        (name = "code", description = "Running code in contexts that keep their variables"),
        (name = "files", description = "Files in a sandbox"),
        (name = "volumes", description = "Files that outlive sandboxes and are mounted into them"),
        (name = "ports", description = "Listening ports of a sandbox, and access to them"),
        (name = "egress", description = "Network access of a sandbox, and its log"),
        (name = "services", description = "Supervised processes of a sandbox"),
        (name = "keys", description = "API keys"),
        (name = "ssh", description = "SSH access to sandboxes"),
        (name = "audit", description = "The audit log, with proofs that nothing was changed"),
        (name = "secrets", description = "Values that sandboxes can use but never see"),
        (name = "images", description = "Root filesystems that sandboxes start from"),
        (name = "memory", description = "What agents remember: spaces, entries, working memory, skills, artifacts"),
        (name = "daemon", description = "The daemon and its host"),
    ),
    modifiers(&Security),
)]
struct Document;

struct Security;

impl Modify for Security {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let components = document.components.get_or_insert_default();
        let key = ApiKeyValue::with_description("X-API-Key", "`e2b_` and 40 hexadecimal digits");
        components.add_security_scheme("key", SecurityScheme::ApiKey(ApiKey::Header(key)));
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
    }
}

pub fn openapi() -> utoipa::openapi::OpenApi {
    Document::openapi()
}

/// The document as it is served and committed.
pub fn document() -> String {
    let mut text = openapi().to_pretty_json().expect("the document is JSON");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_documents_its_error_responses() {
        let document: serde_json::Value = serde_json::from_str(&document()).unwrap();
        assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
        let mut operations = 0;
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                operations += 1;
                let responses = operation["responses"].as_object().unwrap();
                if path.starts_with("/v1/") && path != "/v1/version" {
                    for status in ["400", "401", "403", "429", "500"] {
                        assert!(responses.contains_key(status), "{method} {path} lacks {status}");
                    }
                }
                if path.contains('{') {
                    assert!(responses.contains_key("404"), "{method} {path} lacks 404");
                }
            }
        }
        assert!(operations > 45, "{operations}");
    }
}
