//! Exports and imports memory as JSON Lines.

use burrow_api::memory::ImportedMemory;
use http::Method;
use http::header::{CONTENT_TYPE, HeaderValue};

use super::Memory;
use crate::client::Call;
use crate::files::upload_call;
use crate::{ByteStream, ClientError, UploadBody};

impl Memory {
    pub async fn export(&self) -> Result<ByteStream, ClientError> {
        let path = self.read_path(self.route("export"));
        let shown = path.shown();
        let response = self.client.send(Call::new(Method::GET, path)).await?;
        Ok(ByteStream::new(response.into_body(), shown))
    }

    /// Lines that are already stored are skipped.
    pub async fn import(&self, lines: UploadBody) -> Result<ImportedMemory, ClientError> {
        let mut call = upload_call(Method::POST, self.write_path(self.route("import")), lines);
        call.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
        self.client.send_upload(call).await
    }
}
