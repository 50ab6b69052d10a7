//! Storage of artifacts: a directory, or a bucket.

use std::path::Path;
use std::sync::Arc;

use burrow_memory::artifacts::local_store;
use object_store::ObjectStore;
use object_store::aws::AmazonS3Builder;

use super::s3::Connector;
use super::{MemorySetupError, read_key};
use burrow_config::ArtifactsConfig;

/// `memory` is the directory of the spaces. Blocks.
pub(super) fn open(
    config: &ArtifactsConfig,
    memory: &Path,
) -> Result<Arc<dyn ObjectStore>, MemorySetupError> {
    match config {
        ArtifactsConfig::Folder(folder) => {
            let folder = folder.clone().unwrap_or_else(|| memory.join("artifacts"));
            Ok(local_store(&folder)?)
        }
        ArtifactsConfig::S3 { bucket, endpoint, region, access_key_file, secret_key_file } => {
            let mut builder = AmazonS3Builder::new()
                .with_http_connector(Connector::new().map_err(MemorySetupError::Tls)?)
                .with_bucket_name(bucket)
                .with_region(region)
                .with_access_key_id(read_key(access_key_file)?)
                .with_secret_access_key(read_key(secret_key_file)?);
            if let Some(endpoint) = endpoint {
                builder = builder
                    .with_endpoint(endpoint)
                    .with_allow_http(endpoint.starts_with("http://"))
                    .with_virtual_hosted_style_request(false);
            }
            let failed = |source| MemorySetupError::Bucket { bucket: bucket.clone(), source };
            Ok(Arc::new(builder.build().map_err(failed)?))
        }
    }
}
