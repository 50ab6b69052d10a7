//! An image of a sandbox, as it is now.

use std::collections::BTreeMap;

use burrow_catalog::SandboxRow;
use burrow_model::{Image, ImageConfig, ImageName, ImageOrigin, ImageStep, SandboxId, TenantId};
use burrow_volumes::VolumeError;

use super::finish::NewImage;
use super::{Files, Tell};
use crate::{Engine, EngineError, disks};

/// What to make of a sandbox.
#[derive(Clone, Debug)]
pub struct CommitOptions {
    pub sandbox: SandboxId,
    pub name: Option<ImageName>,
    pub change: ConfigChange,
}

/// `None` stays as it is; pairs are added.
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
    /// Takes a sandbox's files at one moment, with the variables and the user it was given. It runs on meanwhile; what
    /// its processes have not written yet is not in the image. What is on a disk of its own is copied out of it, whole, so
    /// that sandboxes of every driver can be made of the image.
    pub async fn commit_image(
        &self,
        tenant: &TenantId,
        options: CommitOptions,
        tell: Tell,
    ) -> Result<Image, EngineError> {
        let row = self.get(tenant, &options.sandbox).await?;
        let _slot = self.shared.images.slot(&tell).await?;
        tell.stage("taking the sandbox's files", None);
        let base = self.shared.seams.catalog.image_record(tenant, &row.image).await?.map(|row| row.image);
        let written = match self.shared.seams.volumes.used(&row.id).await {
            Ok(bytes) => bytes,
            // A pool without quotas keeps no account.
            Err(VolumeError::NoQuotas { .. }) => 0,
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
                Some(_) => Files::Disk(Box::new(row.clone())),
                None => Files::Sandbox(row.id.clone()),
            },
        };
        match self.finish_image(tenant, new, "image.committed").await {
            // Deleted while we looked at it.
            Err(EngineError::Volume(VolumeError::NotFound { id })) => Err(EngineError::Gone { id }),
            result => result,
        }
    }
}

/// What the sandbox's owner decided goes with it.
fn inherit(config: &mut ImageConfig, row: &SandboxRow) {
    config.env.extend(row.spec.env.clone());
    config.user = row.spec.user.clone().or(config.user.take());
    config.workdir = row.spec.workdir.clone().or(config.workdir.take());
}
