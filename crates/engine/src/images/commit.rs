//! Creates an image from a sandbox in its present state.

use std::collections::BTreeMap;

use burrow_catalog::SandboxRow;
use burrow_disks::{DiskError, DiskId};
use burrow_model::{Image, ImageConfig, ImageName, ImageOrigin, ImageStep, SandboxId, TenantId};

use super::finish::NewImage;
use super::{Files, ImageProgressSink};
use crate::trees::disks;
use crate::{Engine, EngineError};

/// The options of a commit.
#[derive(Clone, Debug)]
pub struct CommitOptions {
    pub sandbox: SandboxId,
    pub name: Option<ImageName>,
    pub change: ConfigChange,
}

/// `None` stays unchanged; pairs are added.
#[derive(Clone, Debug)]
pub struct ConfigChange {
    pub env: BTreeMap<String, String>,
    pub labels: BTreeMap<String, String>,
    pub user: Option<String>,
    pub workdir: Option<String>,
    pub entrypoint: Option<Vec<String>>,
    pub cmd: Option<Vec<String>>,
}

impl ConfigChange {
    fn apply(self, config: &mut ImageConfig) {
        config.env.extend(self.env);
        config.labels.extend(self.labels);
        config.user = self.user.or(config.user.take());
        config.workdir = self.workdir.or(config.workdir.take());
        if let Some(entrypoint) = self.entrypoint {
            config.entrypoint = entrypoint;
        }
        if let Some(cmd) = self.cmd {
            config.cmd = cmd;
        }
    }
}

impl Engine {
    /// Copies a sandbox's files at one moment, with its environment variables and its user. The sandbox continues to run; what its
    /// processes have not written yet is not in the image. Files on a machine's own disk are copied out of it completely, so that
    /// sandboxes of every driver can be created from the image.
    pub async fn commit_image(
        &self,
        tenant: &TenantId,
        options: CommitOptions,
        tell: ImageProgressSink,
    ) -> Result<Image, EngineError> {
        let row = self.get(tenant, &options.sandbox).await?;
        let _slot = self.shared.images.permit(&tell).await?;
        tell.stage("copying the sandbox's files", None);
        let base = self.shared.seams.catalog.image_record(tenant, &row.image).await?.map(|row| row.image);
        let written = match self.shared.seams.disks.used((&row.id).into()).await {
            Ok(bytes) => bytes,
            // Without quotas, the pool does not know the size.
            Err(DiskError::NoQuotas { .. }) => 0,
            Err(error) => return Err(error.into()),
        };
        let mut config = base.as_ref().map(|base| base.config.clone()).unwrap_or_default();
        inherit(&mut config, &row);
        options.change.apply(&mut config);
        let mut history = base.as_ref().map(|base| base.origin.history.clone()).unwrap_or_default();
        let title = row.name.as_ref().map_or_else(|| row.id.to_string(), ToString::to_string);
        history.push(ImageStep { what: format!("commit of {title}"), size_bytes: written, layer: None });
        let new = NewImage {
            names: options.name.into_iter().collect(),
            config,
            origin: ImageOrigin { kind: "commit".to_owned(), of: Some(title), history },
            layer: None,
            size_bytes: base.map_or(0, |base| base.size_bytes) + written,
            files: match disks::with_disks(&self.shared, &row.spec.driver)? {
                Some(_) => Files::MachineDisk(Box::new(row.clone())),
                None => Files::Sandbox(row.id.clone()),
            },
        };
        match self.finish_image(tenant, new, "image.committed").await {
            // The sandbox was deleted in the meantime.
            Err(EngineError::Disk(DiskError::NotFound { disk: DiskId::Sandbox(id) })) => {
                Err(EngineError::Gone { id })
            }
            result => result,
        }
    }
}

/// Copies settings from the sandbox's specification.
fn inherit(config: &mut ImageConfig, row: &SandboxRow) {
    config.env.extend(row.spec.env.clone());
    config.user = row.spec.user.clone().or(config.user.take());
    config.workdir = row.spec.workdir.clone().or(config.workdir.take());
}
