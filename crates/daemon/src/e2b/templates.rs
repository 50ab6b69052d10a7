//! Templates by name: our images, and snapshots.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use burrow_engine::EngineError;
use burrow_model::{Image, Snapshot};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::body::{By, Given, Unknown};
use super::error::Refusal;
use super::{ENVD_VERSION, absent, branches, builds, copies, show, starts};
use crate::convert;
use crate::rest::auth::{Admin, Caller, Executor, Reader};
use crate::rest::error::ApiError;
use crate::rest::routes::{Routes, get, patch, post, put};
use crate::rest::{App, Segments};

/// What E2B calls the template of those who do not say.
const BASE: &str = "base";

/// What E2B calls the template of those who run code, and the image that has what it takes here.
const INTERPRETER: &str = "code-interpreter-v1";
const INTERPRETER_IMAGE: &str = "python-interpreter";

/// What E2B adds to a name without a tag.
const DEFAULT_TAG: &str = ":default";

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

/// What a template is here.
#[derive(Debug)]
pub(super) enum Found {
    /// Its name.
    Image(String),
    Snapshot(Box<Snapshot>),
}

/// An image's name or id; `base`, which is the operator's default; a snapshot's id or name.
pub(super) async fn find(app: &App, caller: &Caller, text: &str) -> Result<Found, Refusal> {
    let plain = text.strip_suffix(DEFAULT_TAG).unwrap_or(text);
    for name in [text, plain] {
        if convert::image_reference("templateID", name).is_err() {
            continue;
        }
        match app.engine.find_image(caller.tenant(), name).await {
            Ok(_) => return Ok(Found::Image(name.to_owned())),
            Err(EngineError::ImageNotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if plain == BASE {
        return Ok(Found::Image(app.config.defaults.image.clone()));
    }
    if plain == INTERPRETER {
        return match app.engine.find_image(caller.tenant(), INTERPRETER_IMAGE).await {
            Ok(_) => Ok(Found::Image(INTERPRETER_IMAGE.to_owned())),
            Err(EngineError::ImageNotFound { .. }) => Err(without_interpreter()),
            Err(error) => Err(error.into()),
        };
    }
    let stored = branches::stored_name(plain).map(|(name, _)| name.to_string());
    match caller.snapshot(app, stored.as_deref().unwrap_or(plain)).await {
        Ok(snapshot) => Ok(Found::Snapshot(Box::new(snapshot))),
        Err(_) => Err(unknown(text)),
    }
}

/// The name that sandboxes of a template have for it.
pub(super) fn image<'a>(app: &'a App, template: &'a str) -> &'a str {
    match template.strip_suffix(DEFAULT_TAG).unwrap_or(template) {
        BASE => &app.config.defaults.image,
        INTERPRETER => INTERPRETER_IMAGE,
        plain => plain,
    }
}

fn without_interpreter() -> Refusal {
    let message = format!(
        "template `{INTERPRETER}` is the image `{INTERPRETER_IMAGE}` here, which nobody has made yet: `burrow image build --ready \
         {INTERPRETER_IMAGE}` does"
    );
    Refusal::new(StatusCode::NOT_FOUND, message)
}

fn unknown(text: &str) -> Refusal {
    let shown: String = text.chars().filter(|c| !c.is_control()).take(128).collect();
    let message = format!(
        "template `{shown}` not found: a template is an image of this daemon (`burrow image ls`; `burrow image pull` gets \
         more), a snapshot, or `{BASE}`"
    );
    Refusal::new(StatusCode::NOT_FOUND, message)
}

#[derive(Debug, Deserialize)]
pub(super) struct Path {
    template: String,
}

async fn list(State(app): State<Arc<App>>, By(caller): By<Reader>) -> Result<Json<Value>, Refusal> {
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
    By(caller): By<Reader>,
    By(Segments(path)): By<Segments<Path>>,
) -> Result<Json<Value>, Refusal> {
    caller.unbound()?;
    let Found::Image(name) = find(&app, &caller, &path.template).await? else {
        return Err(Refusal::absent("a snapshot has no builds; `GET /snapshots` lists it"));
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

/// Names of the same image with a tag.
async fn tags(
    State(app): State<Arc<App>>,
    By(caller): By<Reader>,
    By(Segments(path)): By<Segments<Path>>,
) -> Result<Json<Value>, Refusal> {
    caller.unbound()?;
    let Found::Image(name) = find(&app, &caller, &path.template).await? else {
        return Err(Refusal::absent("a snapshot has no tags"));
    };
    let image = app.engine.find_image(caller.tenant(), &name).await?;
    let build = builds::uuid(image.id.as_str().as_bytes());
    let tagged = image.names.iter().filter_map(|name| name.as_str().rsplit_once(':'));
    let tags = tagged.filter(|(_, tag)| !tag.contains('/'));
    let made = show::time(image.created_ms);
    Ok(Json(tags.map(|(_, tag)| json!({ "tag": tag, "buildID": build, "createdAt": made })).collect()))
}

async fn alias(
    State(app): State<Arc<App>>,
    By(caller): By<Reader>,
    By(Segments(path)): By<Segments<Path>>,
) -> Result<Json<Value>, Refusal> {
    let id = match find(&app, &caller, &path.template).await? {
        Found::Image(name) => name,
        Found::Snapshot(snapshot) => snapshot.id.to_string(),
    };
    Ok(Json(json!({ "templateID": id, "public": false })))
}

#[derive(Debug, Deserialize)]
struct Change {
    #[serde(rename = "public")]
    _public: Option<bool>,
    #[serde(flatten)]
    unknown: Unknown,
}

/// Publishing a template changes nothing: all keys of this daemon see its templates already.
async fn change(
    State(app): State<Arc<App>>,
    By(caller): By<Admin>,
    By(Segments(path)): By<Segments<Path>>,
    body: Given<Change>,
) -> Result<Json<Value>, Refusal> {
    body.value.unknown.refuse()?;
    let names = match find(&app, &caller, &path.template).await? {
        Found::Image(name) => vec![name],
        Found::Snapshot(snapshot) => snapshot.name.iter().map(ToString::to_string).collect(),
    };
    Ok(Json(json!({ "names": names })))
}

/// Snapshots go with the scope of those who took them; images are the whole host's.
async fn remove(
    State(app): State<Arc<App>>,
    By(caller): By<Executor>,
    admin: Result<By<Admin>, Refusal>,
    By(Segments(path)): By<Segments<Path>>,
) -> Result<StatusCode, Refusal> {
    let (engine, tenant, whole) = (app.engine.clone(), caller.tenant().clone(), app.clone());
    let work = match find(&app, &caller, &path.template).await? {
        Found::Snapshot(snapshot) => {
            app.carry_out(async move { Ok(engine.delete_snapshot(&tenant, &snapshot.id).await?) }).await
        }
        Found::Image(name) => {
            admin?;
            let app = app.clone();
            let work = async move {
                let image = engine.find_image(&tenant, &name).await?;
                engine.remove_image(&tenant, &name).await?;
                starts::forget(&app, &tenant, &image).await;
                Ok::<_, ApiError>(())
            };
            whole.see_through(work).await
        }
    };
    work?;
    Ok(StatusCode::NO_CONTENT)
}
