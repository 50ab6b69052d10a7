//! Images: listing, inspecting, naming and removing them. Creating them is in [`make`].

pub(crate) mod export;
pub(crate) mod make;
mod progress;
pub(crate) mod upload;
mod work;

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use burrow_api::{Image, ImageDetail, Page, PruneReport, TagImage};
use http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use burrow_http::app::App;
use burrow_http::auth::{Admin, Reader};
use burrow_http::convert;
use burrow_http::error::ApiError;
use burrow_http::input::{JsonBody, NoParams, Params, Segments};
use burrow_http::pages::{PageParams, page_of_list};
use burrow_http::refusals::{Common, ObjectRefusals, WithBody};

/// Filters for images.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    /// Only the image with this name.
    #[param(max_length = 255)]
    name: Option<String>,
    /// `next_cursor` of the previous page.
    #[param(max_length = 256)]
    cursor: Option<String>,
    /// Maximum number of entries; 100 when absent.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

#[utoipa::path(
    get, path = "/v1/images", tag = "images", params(ListParams),
    responses((status = 200, description = "Newest first", body = Page<Image>), Common),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    caller: Reader,
    Params(params): Params<ListParams>,
) -> Result<Json<Page<Image>>, ApiError> {
    let ListParams { name, cursor, limit } = params;
    let request = PageParams { cursor, limit }.request()?;
    let wanted = name.as_deref().map(|name| convert::image_name("name", name)).transpose()?;
    let images = app.engine.images(caller.tenant()).await?;
    let named = |image: &burrow_model::Image| wanted.as_ref().is_none_or(|name| image.names.contains(name));
    let images = images.into_iter().filter(named).map(convert::image).collect();
    Ok(Json(page_of_list(images, &request, |image| &image.id)?))
}

/// Names an image.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct ImagePath {
    /// The image's id, or one of its names, with `/` written as `%2F`.
    #[param(max_length = 255)]
    pub(crate) image: String,
}

impl ImagePath {
    pub(super) async fn find(
        &self,
        app: &App,
        caller: &burrow_http::auth::Caller,
    ) -> Result<burrow_model::Image, ApiError> {
        convert::image_reference("image", &self.image)?;
        Ok(app.engine.find_image(caller.tenant(), &self.image).await?)
    }
}

#[utoipa::path(
    get, path = "/v1/images/{image}", tag = "images", params(ImagePath),
    responses((status = 200, description = "The image", body = ImageDetail), Common, ObjectRefusals),
)]
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    caller: Reader,
    _: NoParams,
    Segments(path): Segments<ImagePath>,
) -> Result<Json<ImageDetail>, ApiError> {
    caller.unbound()?;
    convert::image_reference("image", &path.image)?;
    Ok(Json(convert::image_detail(app.engine.inspect_image(caller.tenant(), &path.image).await?)))
}

#[utoipa::path(
    delete, path = "/v1/images/{image}", tag = "images", params(ImagePath),
    responses(
        (status = 204, description = "By id: the image was removed, with all its names. By name: the name was removed, and the \
         image too if it was the last name. Sandboxes created from the image are not affected"),
        Common, ObjectRefusals,
    ),
)]
pub(crate) async fn remove(
    State(app): State<Arc<App>>,
    caller: Admin,
    _: NoParams,
    Segments(path): Segments<ImagePath>,
) -> Result<StatusCode, ApiError> {
    convert::image_reference("image", &path.image)?;
    let (engine, tenant) = (app.engine.clone(), caller.tenant().clone());
    app.run_to_completion(async move { Ok(engine.remove_image(&tenant, &path.image).await?) }).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[utoipa::path(
    post, path = "/v1/images/{image}/tags", tag = "images", params(ImagePath), request_body = TagImage,
    responses((status = 200, description = "The image with its new name", body = Image), Common, ObjectRefusals, WithBody),
)]
pub(crate) async fn tag(
    State(app): State<Arc<App>>,
    caller: Admin,
    _: NoParams,
    Segments(path): Segments<ImagePath>,
    body: JsonBody<TagImage>,
) -> Result<Json<Image>, ApiError> {
    let name = convert::image_name("name", &body.value.name)?;
    let image = path.find(&app, &caller).await?;
    Ok(Json(convert::image(app.engine.tag_image(caller.tenant(), &image, name).await?)))
}

/// Names one name of an image.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct TagPath {
    /// The image's id, or one of its names, with `/` written as `%2F`.
    #[param(max_length = 255)]
    image: String,
    /// The name to remove, with `/` written as `%2F`.
    #[param(max_length = 255)]
    tag: String,
}

#[utoipa::path(
    delete, path = "/v1/images/{image}/tags/{tag}", tag = "images", params(TagPath),
    responses((status = 204, description = "The name was removed; the image was not"), Common, ObjectRefusals),
)]
pub(crate) async fn untag(
    State(app): State<Arc<App>>,
    caller: Admin,
    _: NoParams,
    Segments(path): Segments<TagPath>,
) -> Result<StatusCode, ApiError> {
    let name = convert::image_name("tag", &path.tag)?;
    let image = ImagePath { image: path.image }.find(&app, &caller).await?;
    app.engine.untag_image(caller.tenant(), &image, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[utoipa::path(
    post, path = "/v1/images/prune", tag = "images",
    responses(
        (status = 200, description = "Images without a name that no sandbox uses were removed, and layers that no image uses", body = PruneReport),
        Common,
    ),
)]
pub(crate) async fn prune(
    State(app): State<Arc<App>>,
    caller: Admin,
    _: NoParams,
) -> Result<Json<PruneReport>, ApiError> {
    let (engine, tenant) = (app.engine.clone(), caller.tenant().clone());
    let pruned = app.run_to_completion(async move { Ok(engine.prune_images(&tenant).await?) }).await?;
    Ok(Json(PruneReport {
        images: pruned.images.into_iter().map(String::from).collect(),
        layers: u32::try_from(pruned.layers).unwrap_or(u32::MAX),
        freed_bytes: pruned.freed_bytes,
    }))
}
