//! `POST /v1/images`: creates an image from packages, a registry, a build file, a Dockerfile or a sandbox.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use burrow_api::{BuildImage, BuildProgress, ErrorCode, ImageConfigChange, ImageFrom};
use burrow_engine::{
    BuildContext, BuildOptions, BuildSource, CommitOptions, ConfigChange, DockerSource, EngineError,
    ObjectKind, PullOptions, packages_recipe,
};
use burrow_images::dockerfile::{self, PlanOptions};
use burrow_images::registry::Secret;
use burrow_images::{Platform, recipe};
use burrow_model::{ImageName, TenantId};
use futures_util::stream;

use super::work::{Work, finished};
use burrow_http::app::App;
use burrow_http::auth::Admin;
use burrow_http::convert;
use burrow_http::error::ApiError;
use burrow_http::input::{JsonBody, NoParams};
use burrow_http::refusals::{Common, SandboxRefusals, WithBody};
use burrow_http::stream::lines;

/// Maximum length of a registry's user name or password.
const CREDENTIAL_LENGTH_MAX: usize = 16 << 10;

#[utoipa::path(
    post, path = "/v1/images", tag = "images", request_body = BuildImage,
    responses(
        (status = 200, description = "One `BuildProgress` per line; the last is `done` or `error`", body = BuildProgress,
         content_type = "application/x-ndjson"),
        (status = 502, description = "The registry failed or sent an invalid response", body = burrow_api::ErrorBody),
        Common, SandboxRefusals, WithBody,
    ),
)]
pub(crate) async fn make(
    State(app): State<Arc<App>>,
    caller: Admin,
    _: NoParams,
    body: JsonBody<BuildImage>,
) -> Result<Response, ApiError> {
    start(&app, caller.tenant(), &caller, body.value, None).await
}

/// Checks the request and starts the work.
pub(super) async fn start(
    app: &Arc<App>,
    tenant: &TenantId,
    caller: &Admin,
    request: BuildImage,
    context: Option<BuildContext>,
) -> Result<Response, ApiError> {
    check_fields(&request)?;
    let name = request.name.as_deref().map(|name| convert::image_name("name", name)).transpose()?;
    match request.from {
        ImageFrom::Default => default(app, tenant, name, request.rebuild).await,
        ImageFrom::Pull => pull(app, tenant, name, request).await,
        ImageFrom::Packages | ImageFrom::Recipe | ImageFrom::Dockerfile => {
            build(app, tenant, name, request, context).await
        }
        ImageFrom::Sandbox => commit(app, tenant, caller, name, request).await,
    }
}

/// Fields of another kind of image are rejected, not ignored.
fn check_fields(request: &BuildImage) -> Result<(), ApiError> {
    let from = request.from;
    let is_file = matches!(from, ImageFrom::Recipe | ImageFrom::Dockerfile);
    let given = [
        ("rebuild", request.rebuild, from == ImageFrom::Default),
        ("reference", request.reference.is_some(), from == ImageFrom::Pull),
        ("platform", request.platform.is_some(), from == ImageFrom::Pull),
        ("credentials", request.credentials.is_some(), from == ImageFrom::Pull),
        ("insecure", request.insecure, from == ImageFrom::Pull),
        ("packages", !request.packages.is_empty(), from == ImageFrom::Packages),
        ("base", request.base.is_some(), from == ImageFrom::Packages),
        ("recipe", request.recipe.is_some(), from == ImageFrom::Recipe),
        ("dockerfile", request.dockerfile.is_some(), from == ImageFrom::Dockerfile),
        ("build_args", !request.build_args.is_empty(), from == ImageFrom::Dockerfile),
        ("target", request.target.is_some(), from == ImageFrom::Dockerfile),
        ("network", request.network.is_some(), is_file),
        ("no_cache", request.no_cache, is_file || from == ImageFrom::Packages),
        ("sandbox", request.sandbox.is_some(), from == ImageFrom::Sandbox),
        ("config", request.config.is_some(), from == ImageFrom::Sandbox),
    ];
    match given.into_iter().find(|(_, given, belongs)| *given && !belongs) {
        Some((field, ..)) => Err(ApiError::invalid(format!("`{field}` cannot be used with this `from`"))),
        None => Ok(()),
    }
}

fn needed<T>(field: &str, value: Option<T>) -> Result<T, ApiError> {
    value.ok_or_else(|| ApiError::invalid(format!("`{field}` is missing")))
}

async fn default(
    app: &Arc<App>,
    tenant: &TenantId,
    name: Option<ImageName>,
    rebuild: bool,
) -> Result<Response, ApiError> {
    let name = match name {
        Some(name) => name,
        None => convert::image_name("defaults.image", &app.config.defaults.image)?,
    };
    if !rebuild {
        match app.engine.find_image(tenant, name.as_str()).await {
            Ok(image) => return Ok(lines(stream::iter([finished(vec![image])]))),
            Err(EngineError::NotFound { kind: ObjectKind::Image, .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let tenant = tenant.clone();
    let work =
        Work::spawn(
            app,
            |engine, tell| async move { Ok(vec![engine.build_image(&tenant, name, tell).await?]) },
        );
    work.answer().await
}

async fn pull(
    app: &Arc<App>,
    tenant: &TenantId,
    name: Option<ImageName>,
    request: BuildImage,
) -> Result<Response, ApiError> {
    let reference = needed("reference", request.reference)?;
    if let Some(credentials) = &request.credentials {
        let fits = |text: &str| text.len() <= CREDENTIAL_LENGTH_MAX && !text.contains(['\r', '\n', '\0']);
        if !fits(&credentials.username) || !fits(&credentials.password) || credentials.username.contains(':')
        {
            return Err(ApiError::invalid(
                "`credentials` is invalid: the user name or password is too long or contains forbidden characters",
            ));
        }
    }
    let credentials = request.credentials.map(|given| (given.username, Secret(given.password)));
    let options =
        PullOptions { reference, name, credentials, insecure: request.insecure, platform: request.platform };
    let tenant = tenant.clone();
    let work =
        Work::spawn(
            app,
            |engine, tell| async move { Ok(vec![engine.pull_image(&tenant, options, tell).await?]) },
        );
    work.answer().await
}

async fn build(
    app: &Arc<App>,
    tenant: &TenantId,
    name: Option<ImageName>,
    request: BuildImage,
    context: Option<BuildContext>,
) -> Result<Response, ApiError> {
    let source = if request.from == ImageFrom::Packages {
        let base = request.base.unwrap_or_else(|| app.config.defaults.image.clone());
        convert::image_reference("base", &base)?;
        BuildSource::Recipe(packages_recipe(base, request.packages)?)
    } else if request.from == ImageFrom::Dockerfile {
        let text = needed("dockerfile", request.dockerfile)?;
        BuildSource::Dockerfile(docker_source(&text, request.build_args, request.target)?)
    } else {
        BuildSource::Recipe(recipe::parse(&needed("recipe", request.recipe)?).map_err(EngineError::from)?)
    };
    let usual = app.engine.default_network();
    let network = match request.network {
        // A build runs no agent's program, so it gets access to hosts, but no secrets.
        Some(network) if network.requests.is_some() => {
            return Err(ApiError::invalid("`network.requests` is not supported for builds"));
        }
        Some(network) => convert::network_policy(network, usual)?,
        None => usual.clone(),
    };
    let options = BuildOptions { source, context, name, no_cache: request.no_cache, network, limits: None };
    let tenant = tenant.clone();
    let work = Work::spawn(app, |engine, tell| async move {
        Ok(vec![engine.build_recipe(&tenant, options, tell).await?])
    });
    work.answer().await
}

/// A Dockerfile with its arguments. Errors in the text are found before the work starts.
fn docker_source(
    text: &str,
    arguments: BTreeMap<String, String>,
    target: Option<String>,
) -> Result<DockerSource, ApiError> {
    if arguments.values().any(|value| value.contains('\0')) {
        return Err(ApiError::invalid("`build_args` contains a NUL byte"));
    }
    let file = dockerfile::parse(text).map_err(EngineError::from)?;
    let options =
        PlanOptions { arguments: &arguments, target: target.as_deref(), platform: &Platform::host() };
    file.plan(&options).map_err(EngineError::from)?;
    Ok(DockerSource { file, arguments, target })
}

async fn commit(
    app: &Arc<App>,
    tenant: &TenantId,
    caller: &Admin,
    name: Option<ImageName>,
    request: BuildImage,
) -> Result<Response, ApiError> {
    let sandbox = caller.sandbox(app, &needed("sandbox", request.sandbox)?).await?;
    let change = config_change(request.config.unwrap_or_default())?;
    let options = CommitOptions { sandbox, name, change };
    let tenant = tenant.clone();
    let work = Work::spawn(app, |engine, tell| async move {
        Ok(vec![engine.commit_image(&tenant, options, tell).await?])
    });
    work.answer().await
}

fn config_change(change: ImageConfigChange) -> Result<ConfigChange, ApiError> {
    convert::check_image_config(&change)?;
    let ImageConfigChange { env, labels, user, workdir, entrypoint, cmd } = change;
    Ok(ConfigChange { env, labels, user, workdir, entrypoint, cmd })
}

/// Parses a request inside an archive in the same way as the body of a request.
pub(super) fn parse_request(bytes: &[u8], bytes_max: usize) -> Result<BuildImage, ApiError> {
    if bytes.len() > bytes_max {
        return Err(ApiError::new(
            ErrorCode::TooLarge,
            "could not read the build request in the archive: it is too large",
        ));
    }
    burrow_http::input::parse(bytes)
}

/// The type of a build's response, for the OpenAPI document.
pub(super) type Progress = BuildProgress;
