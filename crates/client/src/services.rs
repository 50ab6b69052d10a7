//! Services: supervised processes of a sandbox.

use burrow_api::{CreateService, Service};
use http::Method;

use crate::client::Call;
use crate::sandboxes::sandbox_path;
use crate::{Client, ClientError};

impl Client {
    pub async fn services(&self, sandbox: &str) -> Result<Vec<Service>, ClientError> {
        self.all_pages(sandbox_path(sandbox).fixed("services")).await
    }

    /// Adds a service, or replaces the one with that name.
    pub async fn put_service(
        &self,
        sandbox: &str,
        name: &str,
        service: &CreateService,
    ) -> Result<Service, ClientError> {
        let path = sandbox_path(sandbox).fixed("services").part(name);
        self.send_json(Method::PUT, path, service).await
    }

    pub async fn delete_service(&self, sandbox: &str, name: &str) -> Result<(), ClientError> {
        let path = sandbox_path(sandbox).fixed("services").part(name);
        self.send_no_content(Call::new(Method::DELETE, path)).await
    }

    pub async fn restart_service(&self, sandbox: &str, name: &str) -> Result<(), ClientError> {
        let path = sandbox_path(sandbox).fixed("services").part(name).fixed("restart");
        self.send_no_content(Call::new(Method::POST, path)).await
    }
}
