//! API keys.

use burrow_api::{CreateKey, CreatedKey, Key};
use http::Method;

use crate::client::Call;
use crate::sandboxes::sandbox_path;
use crate::url::Path;
use crate::volumes::volume_path;
use crate::{Client, ClientError};

impl Client {
    /// The secret is returned only in this response.
    pub async fn create_key(&self, request: &CreateKey) -> Result<CreatedKey, ClientError> {
        Ok(self.create(Path::new("/v1/keys"), request).await?.1)
    }

    pub async fn keys(&self) -> Result<Vec<Key>, ClientError> {
        self.all_pages(Path::new("/v1/keys")).await
    }

    pub async fn key(&self, key: &str) -> Result<Key, ClientError> {
        self.get(Path::new("/v1/keys").part(key)).await
    }

    /// Revokes the tokens that E2B clients received for a sandbox.
    pub async fn revoke_tokens(&self, sandbox: &str) -> Result<(), ClientError> {
        let path = sandbox_path(sandbox).fixed("revoke-tokens");
        self.send_no_content(Call::new(Method::POST, path)).await
    }

    /// Revokes the tokens that E2B clients received for the files of a volume.
    pub async fn revoke_volume_tokens(&self, volume: &str) -> Result<(), ClientError> {
        let path = volume_path(volume).fixed("revoke-tokens");
        self.send_no_content(Call::new(Method::POST, path)).await
    }

    pub async fn revoke_key(&self, key: &str) -> Result<(), ClientError> {
        self.send_no_content(Call::new(Method::DELETE, Path::new("/v1/keys").part(key))).await
    }
}
