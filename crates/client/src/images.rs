//! Images: list, inspect, build, tag, import, export, remove.

use burrow_api::{BuildImage, BuildProgress, Image, ImageDetail, PruneReport, TagImage};
use bytes::Bytes;
use http::Method;
use http::header::{CONTENT_TYPE, HeaderValue};

use crate::body::full;
use crate::client::Call;
use crate::files::upload_call;
use crate::url::Path;
use crate::{ByteStream, Client, ClientError, NdjsonStream, UploadBody};

impl Client {
    pub async fn images(&self) -> Result<Vec<Image>, ClientError> {
        self.all_pages(Path::new("/v1/images")).await
    }

    /// By id or name.
    pub async fn image(&self, image: &str) -> Result<ImageDetail, ClientError> {
        self.get(image_path(image)).await
    }

    /// By id, removes the image with all its names. By name, removes the name, and the image if it was the last name.
    pub async fn remove_image(&self, image: &str) -> Result<(), ClientError> {
        self.send_no_content(Call::new(Method::DELETE, image_path(image))).await
    }

    /// Adds a name to an image.
    pub async fn tag_image(&self, image: &str, name: &str) -> Result<Image, ClientError> {
        let request = TagImage { name: name.to_owned() };
        self.send_json(Method::POST, image_path(image).fixed("tags"), &request).await
    }

    /// Removes a name; the image is kept.
    pub async fn untag_image(&self, image: &str, name: &str) -> Result<(), ClientError> {
        self.send_no_content(Call::new(Method::DELETE, image_path(image).fixed("tags").part(name))).await
    }

    /// Removes images that have no name and no sandbox, and layers that no image uses.
    pub async fn prune_images(&self) -> Result<PruneReport, ClientError> {
        self.post_empty(Path::new("/v1/images/prune")).await
    }

    /// Builds an image; the stream ends with `Done` or `Error`.
    pub async fn build_image(
        &self,
        request: &BuildImage,
    ) -> Result<NdjsonStream<BuildProgress>, ClientError> {
        let path = Path::new("/v1/images");
        let bytes = serde_json::to_vec(request)
            .map_err(|source| ClientError::Encode { path: path.shown(), source })?;
        let mut call = Call::new(Method::POST, path);
        call.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        call.body = full(Bytes::from(bytes));
        self.progress(call).await
    }

    /// Builds an image with files: a tar archive of `request`, a [`BuildImage`] as JSON, and of `context/`.
    pub async fn build_image_with(
        &self,
        context: UploadBody,
    ) -> Result<NdjsonStream<BuildProgress>, ClientError> {
        self.progress(archive(Path::new("/v1/images/build"), context)).await
    }

    /// Imports an archive: from `docker save`, an OCI archive, or a tar archive of a root file system.
    pub async fn import_image(
        &self,
        name: Option<&str>,
        content: UploadBody,
    ) -> Result<NdjsonStream<BuildProgress>, ClientError> {
        self.progress(archive(Path::new("/v1/images/import").query_if("name", name), content)).await
    }

    /// An image as an OCI archive; `compression` is `none`, `gzip` or `zstd`.
    pub async fn export_image(&self, image: &str, compression: &str) -> Result<ByteStream, ClientError> {
        let path = image_path(image).fixed("export").query("compression", compression);
        let shown = path.shown();
        let response = self.send(Call::new(Method::GET, path)).await?;
        Ok(ByteStream::new(response.into_body(), shown))
    }

    async fn progress(&self, call: Call) -> Result<NdjsonStream<BuildProgress>, ClientError> {
        let shown = call.path.shown();
        let response = self.send(call).await?;
        Ok(NdjsonStream::new(ByteStream::new(response.into_body(), shown)))
    }
}

fn image_path(image: &str) -> Path {
    Path::new("/v1/images").part(image)
}

fn archive(path: Path, content: UploadBody) -> Call {
    let mut call = upload_call(Method::PUT, path, content);
    call.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-tar"));
    call
}
