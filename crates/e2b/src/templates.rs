//! Templates by name: images and snapshots of Burrow.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use burrow_model::Image;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::body::{E2bExtractor, JsonInput, UnknownFields};
use super::error::Refusal;
use super::show::{self, ENVD_VERSION};
use super::template_name::{DEFAULT_TAG, TemplateTarget, find};
use super::{absent, builds, copies, starts};
use burrow_http::app::App;
use burrow_http::auth::{Admin, Executor, Reader};
use burrow_http::error::ApiError;
use burrow_http::input::Segments;
use burrow_http::routes::{Routes, get, patch, post, put};

pub(super) fn routes() -> Routes<Arc<App>> {
    const ONE: &str = "/templates/{template}";
    Routes::new()
        .route("/templates", get(list).post(absent::builds))
        .route("/v2/templates", get(list).post(builds::request))
        .route("/v3/templates", post(builds::request))
        .route("/templates/aliases/{template}", get(alias))
        .route("/templates/tags", post(builds::tag).delete(builds::untag))
        .route(ONE, get(one).delete(remove).patch(change).post(absent::builds))
        .route("/v2/templates/{template}", patch(change))
        .route("/templates/{template}/tags", get(tags))
        .route("/templates/uploads/{upload}", put(copies::upload))
        .route("/templates/{template}/files/{hash}", get(copies::place))
        .route("/v2/templates/{template}/builds/{build}", post(builds::start))
        .route("/templates/{template}/builds/{build}", post(absent::builds))
        .route("/templates/{template}/builds/{build}/status", get(builds::status))
        .route("/templates/{template}/builds/{build}/logs", get(builds::logs))
}

#[derive(Debug, Deserialize)]
pub(super) struct Path {
    template: String,
}

async fn list(
    State(app): State<Arc<App>>,
    E2bExtractor(caller): E2bExtractor<Reader>,
) -> Result<Json<Value>, Refusal> {
    caller.unbound()?;
    let images = app.engine.images(caller.tenant()).await?;
    Ok(Json(images.iter().map(|image| shown(&app, image)).collect()))
}

fn shown(app: &App, image: &Image) -> Value {
    let names: Vec<String> = image.names.iter().map(ToString::to_string).collect();
    let limits = starts::Sizes::of(image).apply(app.config.defaults.limits);
    let made = show::time(image.created_ms);
    json!({
        "templateID": names.first().cloned().unwrap_or_else(|| image.id.to_string()),
        "buildID": builds::uuid(image.id.as_str().as_bytes()),
        "cpuCount": limits.cpu_millis.div_ceil(1000),
        "memoryMB": limits.ram_mib,
        "diskSizeMB": limits.disk_mib,
        "public": false,
        "aliases": names,
        "names": names,
        "createdAt": made,
        "updatedAt": made,
        "createdBy": null,
        "lastSpawnedAt": null,
        "spawnCount": 0,
        "buildCount": 1,
        "buildStatus": "ready",
        "envdVersion": ENVD_VERSION,
    })
}

async fn one(
    State(app): State<Arc<App>>,
    E2bExtractor(caller): E2bExtractor<Reader>,
    E2bExtractor(Segments(path)): E2bExtractor<Segments<Path>>,
) -> Result<Json<Value>, Refusal> {
    caller.unbound()?;
    let TemplateTarget::Image(name) = find(&app, &caller, &path.template).await? else {
        return Err(Refusal::absent("snapshots have no builds; list them with `GET /snapshots`"));
    };
    let image = app.engine.find_image(caller.tenant(), &name).await?;
    let mut one = shown(&app, &image);
    let build = json!({
        "buildID": builds::uuid(image.id.as_str().as_bytes()),
        "status": "ready",
        "createdAt": one["createdAt"],
        "updatedAt": one["updatedAt"],
        "finishedAt": one["updatedAt"],
        "cpuCount": one["cpuCount"],
        "memoryMB": one["memoryMB"],
        "diskSizeMB": one["diskSizeMB"],
        "envdVersion": ENVD_VERSION,
    });
    one["builds"] = json!([build]);
    Ok(Json(one))
}

/// The tags of a name, which may belong to several images. A name may exist with tags only.
async fn tags(
    State(app): State<Arc<App>>,
    E2bExtractor(caller): E2bExtractor<Reader>,
    E2bExtractor(Segments(path)): E2bExtractor<Segments<Path>>,
) -> Result<Json<Value>, Refusal> {
    caller.unbound()?;
    let images = app.engine.images(caller.tenant()).await?;
    let own = tags_of(&images, untagged(&path.template));
    if !own.is_empty() {
        return Ok(Json(own.into()));
    }
    // `base` and ids are names of Burrow.
    match find(&app, &caller, &path.template).await? {
        TemplateTarget::Image(name) => {
            let image = app.engine.find_image(caller.tenant(), &name).await?;
            let names = image.names.iter().map(|name| untagged(name.as_str()));
            let names: BTreeSet<&str> = names.collect();
            Ok(Json(names.into_iter().flat_map(|name| tags_of(&images, name)).collect()))
        }
        TemplateTarget::Snapshot(_) => Err(Refusal::absent("snapshots have no tags")),
    }
}

/// A name without its tag. A colon before a slash belongs to a registry's port.
fn untagged(name: &str) -> &str {
    match name.rsplit_once(':') {
        Some((plain, tag)) if !tag.contains('/') => plain,
        Some(_) | None => name,
    }
}

/// The tags of images with this name. The name without a tag has E2B's default tag.
fn tags_of(images: &[Image], plain: &str) -> Vec<Value> {
    let of_image = |image: &Image| {
        let shown = |tag: &str| {
            json!({
                "tag": tag,
                "buildID": builds::uuid(image.id.as_str().as_bytes()),
                "createdAt": show::time(image.created_ms),
            })
        };
        let own = image.names.iter().map(|name| name.as_str()).filter(|name| untagged(name) == plain);
        let tag = |name: &str| shown(name.strip_prefix(plain).unwrap_or_default().trim_start_matches(':'));
        own.map(|name| if name == plain { shown(DEFAULT_TAG.trim_start_matches(':')) } else { tag(name) })
            .collect::<Vec<Value>>()
    };
    images.iter().flat_map(of_image).collect()
}

async fn alias(
    State(app): State<Arc<App>>,
    E2bExtractor(caller): E2bExtractor<Reader>,
    E2bExtractor(Segments(path)): E2bExtractor<Segments<Path>>,
) -> Result<Json<Value>, Refusal> {
    let id = match find(&app, &caller, &path.template).await? {
        TemplateTarget::Image(name) => name,
        TemplateTarget::Snapshot(snapshot) => snapshot.id.to_string(),
    };
    Ok(Json(json!({ "templateID": id, "public": false })))
}

#[derive(Debug, Deserialize)]
struct Change {
    #[serde(rename = "public")]
    _public: Option<bool>,
    #[serde(flatten)]
    unknown: UnknownFields,
}

/// Publishing has no effect: all keys of this daemon can see its templates already.
async fn change(
    State(app): State<Arc<App>>,
    E2bExtractor(caller): E2bExtractor<Admin>,
    E2bExtractor(Segments(path)): E2bExtractor<Segments<Path>>,
    body: JsonInput<Change>,
) -> Result<Json<Value>, Refusal> {
    body.value.unknown.refuse()?;
    let names = match find(&app, &caller, &path.template).await? {
        TemplateTarget::Image(name) => vec![name],
        TemplateTarget::Snapshot(snapshot) => snapshot.name.iter().map(ToString::to_string).collect(),
    };
    Ok(Json(json!({ "names": names })))
}

/// Removing a snapshot requires the scope of a key that may create it; images belong to the whole host.
async fn remove(
    State(app): State<Arc<App>>,
    E2bExtractor(caller): E2bExtractor<Executor>,
    admin: Result<E2bExtractor<Admin>, Refusal>,
    E2bExtractor(Segments(path)): E2bExtractor<Segments<Path>>,
) -> Result<StatusCode, Refusal> {
    let (engine, tenant, whole) = (app.engine.clone(), caller.tenant().clone(), app.clone());
    let work = match find(&app, &caller, &path.template).await? {
        TemplateTarget::Snapshot(snapshot) => {
            app.carry_out(async move { Ok(engine.delete_snapshot(&tenant, &snapshot.id).await?) }).await
        }
        TemplateTarget::Image(name) => {
            admin?;
            let app = app.clone();
            let work = async move {
                let image = engine.find_image(&tenant, &name).await?;
                engine.remove_image(&tenant, &name).await?;
                starts::forget(&app, &tenant, &image).await;
                Ok::<_, ApiError>(())
            };
            whole.run_to_completion(work).await
        }
    };
    work?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_of_a_name_are_found_even_without_an_untagged_image() {
        let image = |names: &[&str]| Image {
            id: burrow_model::ImageId::generate(),
            names: names.iter().map(|name| name.parse().unwrap()).collect(),
            config: burrow_model::ImageConfig::default(),
            origin: burrow_model::ImageOrigin::default(),
            layer: None,
            size_bytes: 1,
            created_ms: 1,
        };
        let images = [image(&["app:v1", "app:next", "other:v1"]), image(&["app:v2", "web", "web:v1"])];
        let tags = |name: &str| {
            let shown = tags_of(&images, name);
            let tag = |one: &Value| one["tag"].as_str().unwrap().to_owned();
            let tags: Vec<String> = shown.iter().map(tag).collect();
            (tags, shown.iter().map(|one| one["buildID"].to_string()).collect::<BTreeSet<_>>().len())
        };
        let owned = |tags: &[&str]| tags.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>();
        assert_eq!(tags("app"), (owned(&["v1", "next", "v2"]), 2), "a tag may belong to another build");
        assert_eq!(tags("web"), (owned(&["default", "v1"]), 1));
        assert_eq!(tags("ap"), (owned(&[]), 0));
        assert_eq!(untagged("localhost:5000/app"), "localhost:5000/app");
        assert_eq!(untagged("localhost:5000/app:v1"), "localhost:5000/app");
    }
}
