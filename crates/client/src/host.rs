//! The daemon and its host: health, version, capabilities, configuration, metrics, backup.

use burrow_api::{HostInfo, Readiness, Version};
use http::Method;

use crate::client::Call;
use crate::url::Path;
use crate::{ByteStream, Client, ClientError};

impl Client {
    /// Whether the daemon responds.
    pub async fn health(&self) -> Result<(), ClientError> {
        self.send_no_content(Call::new(Method::GET, Path::new("/healthz"))).await
    }

    /// Whether the daemon can serve, and what it waits for. If it is not ready, it responds with 503 and the same body.
    pub async fn readiness(&self) -> Result<Readiness, ClientError> {
        self.get_even_unavailable(Path::new("/readyz")).await
    }

    pub async fn version(&self) -> Result<Version, ClientError> {
        self.get(Path::new("/v1/version")).await
    }

    pub async fn host(&self) -> Result<HostInfo, ClientError> {
        self.get(Path::new("/v1/host")).await
    }

    /// The configuration in effect.
    pub async fn config(&self) -> Result<serde_json::Value, ClientError> {
        self.get(Path::new("/v1/config")).await
    }

    pub async fn openapi(&self) -> Result<serde_json::Value, ClientError> {
        self.get(Path::new("/v1/openapi.json")).await
    }

    /// In Prometheus' text format.
    pub async fn metrics(&self) -> Result<String, ClientError> {
        self.get_text(Path::new("/metrics")).await
    }

    /// A tar archive of the daemon's state.
    pub async fn backup(&self) -> Result<ByteStream, ClientError> {
        let path = Path::new("/v1/backup");
        let shown = path.shown();
        let response = self.send(Call::new(Method::GET, path)).await?;
        Ok(ByteStream::new(response.into_body(), shown))
    }
}
