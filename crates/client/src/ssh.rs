//! The SSH gateway: its address, and the public keys that can log in.

use burrow_api::{AddSshKey, Ssh, SshKey};
use http::Method;

use crate::client::Call;
use crate::url::Path;
use crate::{Client, ClientError};

const KEYS: &str = "/v1/ssh/keys";

impl Client {
    /// The address and the host key.
    pub async fn ssh(&self) -> Result<Ssh, ClientError> {
        self.get(Path::new("/v1/ssh")).await
    }

    /// Adds a public key; an existing one is returned unchanged.
    pub async fn add_ssh_key(&self, request: &AddSshKey) -> Result<SshKey, ClientError> {
        Ok(self.create(Path::new(KEYS), request).await?.1)
    }

    pub async fn ssh_keys(&self) -> Result<Vec<SshKey>, ClientError> {
        self.all_pages(Path::new(KEYS)).await
    }

    pub async fn remove_ssh_key(&self, key: &str) -> Result<(), ClientError> {
        self.send_no_content(Call::new(Method::DELETE, Path::new(KEYS).part(key))).await
    }
}
