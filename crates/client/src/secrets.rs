//! Secrets: set and rotated, never read.

use burrow_api::{RotateSecret, Secret, SetSecret};
use http::Method;

use crate::client::Call;
use crate::url::Path;
use crate::{Client, ClientError};

impl Client {
    /// Declares it, or declares it anew. The same again changes nothing.
    pub async fn set_secret(&self, name: &str, secret: &SetSecret) -> Result<Secret, ClientError> {
        self.send_json(Method::PUT, Path::new("/v1/secrets").part(name), secret).await
    }

    /// Gives it a new value.
    pub async fn rotate_secret(&self, name: &str, value: &RotateSecret) -> Result<Secret, ClientError> {
        self.send_json(Method::POST, Path::new("/v1/secrets").part(name).fixed("rotate"), value).await
    }

    pub async fn secrets(&self) -> Result<Vec<Secret>, ClientError> {
        self.all_pages(Path::new("/v1/secrets")).await
    }

    pub async fn secret(&self, name: &str) -> Result<Secret, ClientError> {
        self.get(Path::new("/v1/secrets").part(name)).await
    }

    /// `force`: although rules of sandboxes name it.
    pub async fn delete_secret(&self, name: &str, force: bool) -> Result<(), ClientError> {
        let path = Path::new("/v1/secrets").part(name).flag("force", force);
        self.send_for_nothing(Call::new(Method::DELETE, path)).await
    }
}
