//! The SSH gateway: where it is, and the public keys that open it.

use burrow_api::{AddSshKey, Ssh, SshKey};
use http::Method;

use crate::client::Call;
use crate::url::Path;
use crate::{Client, ClientError};

const KEYS: &str = "/v1/ssh/keys";

impl Client {
    /// Where it listens, and what it is known by.
    pub async fn ssh(&self) -> Result<Ssh, ClientError> {
        self.get(Path::new("/v1/ssh")).await
    }

    /// One that is there already is answered as it is.
    pub async fn add_ssh_key(&self, request: &AddSshKey) -> Result<SshKey, ClientError> {
        Ok(self.create(Path::new(KEYS), request).await?.1)
    }

    pub async fn ssh_keys(&self) -> Result<Vec<SshKey>, ClientError> {
        self.all_pages(Path::new(KEYS)).await
    }

    pub async fn remove_ssh_key(&self, key: &str) -> Result<(), ClientError> {
        self.send_for_nothing(Call::new(Method::DELETE, Path::new(KEYS).part(key))).await
    }
}
