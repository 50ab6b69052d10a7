//! Artifacts: named blobs, streamed in both directions.

use burrow_api::Page;
use burrow_api::memory::Artifact;
use http::Method;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, RANGE};
use serde_json::{Map, Value};

use super::Memory;
use crate::client::Call;
use crate::files::{range_header, upload_call};
use crate::{ByteStream, ClientError, DownloadRange, PageQuery, UploadBody};

const METADATA: HeaderName = HeaderName::from_static("x-burrow-metadata");

/// Name, type and metadata of a blob.
#[derive(Clone, Debug, PartialEq)]
pub struct NewArtifact {
    pub name: String,
    /// `application/octet-stream` if absent.
    pub media_type: Option<String>,
    pub metadata: Map<String, Value>,
}

/// A blob that is being downloaded.
#[derive(Debug)]
pub struct ArtifactDownload {
    pub bytes: ByteStream,
    pub length: Option<u64>,
    pub media_type: Option<String>,
    /// BLAKE3 of the whole blob, in hexadecimal.
    pub hash: Option<String>,
}

impl Memory {
    /// Stores a new artifact, or a new version of one.
    pub async fn artifact_put(&self, new: &NewArtifact, body: UploadBody) -> Result<Artifact, ClientError> {
        let path = self.write_path(self.route("artifacts").part(&new.name));
        let shown = path.shown();
        let mut call = upload_call(Method::PUT, path, body);
        if let Some(media_type) = &new.media_type {
            let value = HeaderValue::from_str(media_type)
                .map_err(|_| ClientError::BadHeader { path: shown.clone(), what: "media type" })?;
            call.headers.insert(CONTENT_TYPE, value);
        }
        if !new.metadata.is_empty() {
            call.headers.insert(METADATA, metadata_header(&new.metadata, &shown)?);
        }
        self.client.send_upload(call).await
    }

    pub async fn artifact_get(
        &self,
        name: &str,
        version: Option<u64>,
        range: Option<DownloadRange>,
    ) -> Result<ArtifactDownload, ClientError> {
        let path = self.read_path(self.route("artifacts").part(name)).query_if("version", version);
        let shown = path.shown();
        let mut call = Call::new(Method::GET, path);
        if let Some(range) = range {
            call.headers.insert(RANGE, range_header(range));
        }
        let response = self.client.send(call).await?;
        let headers = response.headers();
        Ok(ArtifactDownload {
            length: text(headers, &CONTENT_LENGTH).and_then(|length| length.parse().ok()),
            media_type: text(headers, &CONTENT_TYPE),
            hash: text(headers, &ETAG).map(|tag| tag.trim_matches('"').to_owned()),
            bytes: ByteStream::new(response.into_body(), shown),
        })
    }

    /// The newest version of each artifact, by name.
    pub async fn artifacts(&self, prefix: &str, page: &PageQuery) -> Result<Page<Artifact>, ClientError> {
        let path =
            self.route("artifacts").query_if("prefix", Some(prefix).filter(|prefix| !prefix.is_empty()));
        self.client.page(self.read_path(path), page).await
    }

    /// Oldest first.
    pub async fn artifact_versions(&self, name: &str) -> Result<Vec<Artifact>, ClientError> {
        self.client.get(self.read_path(self.route("artifact-versions").part(name))).await
    }

    pub async fn artifact_forget(&self, name: &str) -> Result<(), ClientError> {
        let path = self.write_path(self.route("artifacts").part(name));
        self.client.send_no_content(Call::new(Method::DELETE, path)).await
    }
}

/// JSON in ASCII, because headers cannot carry other characters safely.
fn metadata_header(metadata: &Map<String, Value>, path: &str) -> Result<HeaderValue, ClientError> {
    let encode = |source| ClientError::Encode { path: path.to_owned(), source };
    let mut ascii = String::new();
    for character in serde_json::to_string(metadata).map_err(encode)?.chars() {
        // JSON allows one control character that a header does not: DEL.
        if character.is_ascii() && character != '\u{7f}' {
            ascii.push(character);
        } else {
            // In JSON, other characters occur only in strings, where each may be written as an escape.
            for unit in character.encode_utf16(&mut [0; 2]) {
                ascii.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    HeaderValue::from_str(&ascii)
        .map_err(|_| ClientError::BadHeader { path: path.to_owned(), what: "metadata" })
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_encoded_in_ascii_without_loss() {
        let metadata = serde_json::json!({ "title": "Über 漢字 🦊\u{7f}\n" });
        let header = metadata_header(metadata.as_object().unwrap(), "x").unwrap();
        let read: Value = serde_json::from_str(header.to_str().unwrap()).unwrap();
        assert_eq!(read, metadata);
    }
}
