//! Secrets: declare, rotate, list, delete. Values cannot be read.

use burrow_api::{RotateSecret, Secret, SetSecret};
use http::Method;

use crate::client::Call;
use crate::url::Path;
use crate::{Client, ClientError};

impl Client {
    /// Declares a secret or changes its declaration. Repeating the same declaration changes nothing.
    pub async fn set_secret(&self, name: &str, secret: &SetSecret) -> Result<Secret, ClientError> {
        self.send_json(Method::PUT, Path::new("/v1/secrets").part(name), secret).await
    }

    /// Sets a new value.
    pub async fn rotate_secret(&self, name: &str, value: &RotateSecret) -> Result<Secret, ClientError> {
        self.send_json(Method::POST, Path::new("/v1/secrets").part(name).fixed("rotate"), value).await
    }

    pub async fn secrets(&self) -> Result<Vec<Secret>, ClientError> {
        self.all_pages(Path::new("/v1/secrets")).await
    }

    pub async fn secret(&self, name: &str) -> Result<Secret, ClientError> {
        self.get(Path::new("/v1/secrets").part(name)).await
    }

    /// With `force`, deletes the secret even if rules of sandboxes refer to it.
    pub async fn delete_secret(&self, name: &str, force: bool) -> Result<(), ClientError> {
        let path = Path::new("/v1/secrets").part(name).flag("force", force);
        self.send_no_content(Call::new(Method::DELETE, path)).await
    }
}
