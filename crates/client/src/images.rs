//! Images: list them, build the default one.

use burrow_api::{BuildImage, BuildProgress, Image};
use bytes::Bytes;
use http::Method;
use http::header::{CONTENT_TYPE, HeaderValue};

use crate::body::full;
use crate::client::Call;
use crate::url::Path;
use crate::{ByteStream, Client, ClientError, NdjsonStream};

impl Client {
    pub async fn images(&self) -> Result<Vec<Image>, ClientError> {
        self.all_pages(Path::new("/v1/images")).await
    }

    /// Builds it; the stream ends with `Done` or `Error`.
    pub async fn build_image(
        &self,
        request: &BuildImage,
    ) -> Result<NdjsonStream<BuildProgress>, ClientError> {
        let path = Path::new("/v1/images");
        let shown = path.shown();
        let bytes = serde_json::to_vec(request)
            .map_err(|source| ClientError::Encode { path: shown.clone(), source })?;
        let mut call = Call::new(Method::POST, path);
        call.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        call.body = full(Bytes::from(bytes));
        let response = self.send(call).await?;
        Ok(NdjsonStream::new(ByteStream::new(response.into_body(), shown)))
    }
}
