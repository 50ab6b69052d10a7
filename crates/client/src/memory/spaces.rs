//! Memory spaces that outlive sandboxes.

use burrow_api::memory::{CreateSpace, Space, UpdateSpace};
use http::Method;

use crate::client::Call;
use crate::url::Path;
use crate::{Client, ClientError};

fn space_path(space: &str) -> Path {
    Path::new("/v1/spaces").part(space)
}

impl Client {
    pub async fn create_space(&self, request: &CreateSpace) -> Result<Space, ClientError> {
        Ok(self.create(Path::new("/v1/spaces"), request).await?.1)
    }

    pub async fn spaces(&self) -> Result<Vec<Space>, ClientError> {
        self.all_pages(Path::new("/v1/spaces")).await
    }

    /// By id or name, with the sandboxes that use it.
    pub async fn space(&self, space: &str) -> Result<Space, ClientError> {
        self.get(space_path(space)).await
    }

    pub async fn update_space(&self, space: &str, update: &UpdateSpace) -> Result<Space, ClientError> {
        self.send_json(Method::PATCH, space_path(space), update).await
    }

    /// Deletes a space with its content. Refused while a sandbox uses it, unless forced.
    pub async fn delete_space(&self, space: &str, force: bool) -> Result<(), ClientError> {
        self.send_no_content(Call::new(Method::DELETE, space_path(space).flag("force", force))).await
    }
}
