//! Changes a sandbox's specification.

use burrow_catalog::{SandboxChange, SandboxRow};
use burrow_guest::protocol::Request as GuestRequest;
use burrow_model::{Request, State, check_mounts};

use super::Actor;
use crate::checks::{check_limits, check_policies};
use crate::egress::interception::intercepts;
use crate::egress::{self, rates, secrets};
use crate::guest::services;
use crate::images::starting_points;
use crate::{EngineError, Guest, UpdateOptions, VolumeRefusal, volumes};

impl Actor {
    pub(super) async fn update(&mut self, update: UpdateOptions) -> Result<(), EngineError> {
        self.admit(Request::Update, "update")?;
        let mut next = SandboxRow::clone(&self.row);
        apply(&mut next, &update)?;
        if update.network.is_some() {
            self.shared.policy.egress.check(&next.spec.network)?;
        }
        self.check_volumes(&next)?;
        check_limits(&next.spec.limits, &self.shared.policy.limits_max)?;
        if next.spec.rates != self.row.spec.rates {
            rates::check(&next.spec.rates, &*self.shared.runtime(&next.spec.driver)?)?;
        }
        check_policies(&next.spec.sleep, next.spec.snapshots.as_ref(), next.spec.rotate.as_ref())?;
        let before = self.row.clone();
        // A rotation is due one whole period after its policy was set, however old the sandbox is.
        let rotated_ms = update.rotate.is_some().then(|| Some(self.shared.now_ms()));
        let change = SandboxChange {
            name: update.name.map(Some),
            spec: Some(next.spec.clone()),
            rotated_ms,
            ..self.change()
        };
        let changed = async {
            self.enforce(&before, &next).await?;
            self.store(change, None).await
        };
        if let Err(error) = changed.await {
            if let Err(error) = self.enforce(&next, &before).await {
                tracing::error!(error = &error as &dyn std::error::Error, "could not undo a failed update");
            }
            return Err(error);
        }
        self.event("sandbox.updated", serde_json::json!({}));
        if before.spec.network != self.row.spec.network && self.live.is_some() {
            // Durable first: the policy that is applied never allows more than the stored one.
            egress::follow(&self.shared, &self.row).await?;
        }
        Ok(())
    }

    /// Volumes are mounted when a machine is created, and its dumped processes depend on them.
    fn check_volumes(&self, next: &SandboxRow) -> Result<(), EngineError> {
        if next.spec.volumes == self.row.spec.volumes {
            return Ok(());
        }
        if !matches!(self.row.state, State::Stopped | State::Failed) {
            return Err(EngineError::Volumes(VolumeRefusal::InPlace { id: self.row.id.clone() }));
        }
        check_mounts(&next.spec.volumes)?;
        volumes::check_driver(&*self.shared.runtime(&next.spec.driver)?, &next.spec.volumes)
    }

    /// Applies a new specification to the host and the guest.
    pub(super) async fn enforce(&self, before: &SandboxRow, after: &SandboxRow) -> Result<(), EngineError> {
        let (old, new) = (&before.spec, &after.spec);
        if old.limits.disk_mib != new.limits.disk_mib {
            let disk_bytes = starting_points::disk_bytes(&self.shared, new);
            self.shared.seams.disks.set_quota(&self.row.id, disk_bytes).await?;
        }
        let Some(live) = &self.live else { return Ok(()) };
        if old.limits != new.limits {
            live.runtime.set_limits(&self.row.id, &new.limits).await?;
        }
        rates::change(&self.shared, &self.row.id, &*live.runtime, &old.rates, &new.rates).await?;
        if self.row.state != State::Running {
            // A frozen guest cannot answer; it is informed at its next start.
            return Ok(());
        }
        let guest = self.guest_of(live);
        if old.limits.ram_mib != new.limits.ram_mib {
            self.send_ram(&guest, after).await?;
        }
        if intercepts(before) != intercepts(after) {
            self.send_trust(&guest, after).await?;
        }
        if old.services != new.services {
            self.send_services(&guest, after).await?;
        }
        Ok(())
    }

    pub(super) async fn send_ram(&self, guest: &Guest, row: &SandboxRow) -> Result<(), EngineError> {
        let ram_bytes = u64::from(row.spec.limits.ram_mib) * burrow_model::MIB;
        guest.call::<()>(&GuestRequest::SetRam { ram_bytes }).await
    }

    /// An agent of an older version, which does not support trust, continues without it until the sandbox is started again.
    pub(super) async fn send_trust(&self, guest: &Guest, row: &SandboxRow) -> Result<(), EngineError> {
        let certificate = secrets::trust_of(&self.shared, row).await?;
        match guest.call::<()>(&GuestRequest::SetTrust { certificate }).await {
            Err(EngineError::Guest { source, .. }) => {
                tracing::warn!(error = %source, "the sandbox does not trust its authority yet");
                Ok(())
            }
            told => told,
        }
    }

    pub(super) async fn send_services(&self, guest: &Guest, row: &SandboxRow) -> Result<(), EngineError> {
        let image = self.shared.image_config(&row.tenant, &row.image).await?;
        let services = services::for_guest(row, &image, &secrets::environment(&self.shared, row).await?);
        guest.call::<()>(&GuestRequest::SetServices { services }).await
    }
}

/// Changes the specification in a row. The name, which the catalog assigns, is left out.
pub(crate) fn apply(row: &mut SandboxRow, update: &UpdateOptions) -> Result<(), EngineError> {
    row.spec.limits = update.limits.apply(row.spec.limits);
    row.spec.rates = update.rates.apply(row.spec.rates);
    if let Some(sleep) = update.sleep {
        row.spec.sleep = sleep;
    }
    if let Some(snapshots) = update.snapshots {
        row.spec.snapshots = snapshots;
    }
    if let Some(rotate) = &update.rotate {
        row.spec.rotate = rotate.clone();
    }
    if let Some(memory) = &update.memory {
        row.spec.memory = memory.apply(&row.spec.memory);
    }
    if let Some(change) = &update.lease {
        row.spec.lease = Some(change.lease.clone());
        row.spec.lifetime = row.spec.lifetime.until(change.expires_ms);
    }
    if let Some(volumes) = &update.volumes {
        row.spec.volumes.clone_from(volumes);
    }
    merge(&mut row.spec.labels, &update.labels);
    merge(&mut row.spec.env, &update.env);
    merge(&mut row.spec.services, &update.services);
    if let Some(change) = &update.network {
        row.spec.network = change.apply(&row.spec.network)?;
    }
    Ok(())
}

/// Sets keys that have a value and removes those that have none.
fn merge<K: Ord + Clone, V: Clone>(
    into: &mut std::collections::BTreeMap<K, V>,
    changes: &std::collections::BTreeMap<K, Option<V>>,
) {
    for (key, value) in changes {
        match value {
            Some(value) => into.insert(key.clone(), value.clone()),
            None => into.remove(key),
        };
    }
}
