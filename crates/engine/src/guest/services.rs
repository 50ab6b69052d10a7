//! Services: declared in the sandbox's specification, run by its guest.

use std::collections::BTreeMap;

use burrow_guest::protocol::{Request, RunningService, Service, ServiceRestart};
use burrow_model::{Name, RestartPolicy, SandboxId, ServiceSpec, TenantId};

use crate::{Engine, EngineError, LimitsChange, RatesChange, UpdateOptions};

/// A declared service and, while its sandbox runs, its status.
#[derive(Clone, Debug)]
pub struct ServiceStatus {
    pub name: Name,
    pub spec: ServiceSpec,
    pub running: Option<RunningService>,
}

impl Engine {
    pub async fn services(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
    ) -> Result<Vec<ServiceStatus>, EngineError> {
        let row = self.get(tenant, id).await?;
        let mut running: Vec<RunningService> = Vec::new();
        if let Some(guest) = self.guest_if_running(&row).await? {
            running = guest.call(&Request::ListServices).await?;
        }
        let status = |(name, spec): (Name, ServiceSpec)| {
            let running = running.iter().find(|service| service.name == name.as_str()).cloned();
            ServiceStatus { name, spec, running }
        };
        Ok(row.spec.services.into_iter().map(status).collect())
    }

    /// Declares or changes a service; a running sandbox starts it at once.
    pub async fn set_service(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        name: Name,
        spec: ServiceSpec,
    ) -> Result<ServiceStatus, EngineError> {
        self.update(tenant, id, service_update(name.clone(), Some(spec))).await?;
        self.service(tenant, id, &name).await
    }

    pub async fn remove_service(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        name: &Name,
    ) -> Result<(), EngineError> {
        self.service(tenant, id, name).await?;
        self.update(tenant, id, service_update(name.clone(), None)).await?;
        Ok(())
    }

    pub async fn restart_service(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        name: &Name,
    ) -> Result<(), EngineError> {
        self.service(tenant, id, name).await?;
        let guest = self.guest(tenant, id).await?;
        guest.call(&Request::RestartService { name: name.to_string() }).await
    }

    async fn service(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        name: &Name,
    ) -> Result<ServiceStatus, EngineError> {
        let services = self.services(tenant, id).await?;
        let found = services.into_iter().find(|service| service.name == *name);
        found.ok_or_else(|| EngineError::ServiceNotFound { what: name.to_string(), sandbox: id.clone() })
    }
}

fn service_update(name: Name, spec: Option<ServiceSpec>) -> UpdateOptions {
    UpdateOptions {
        name: None,
        limits: LimitsChange { ram_mib: None, cpu_millis: None, pids: None, disk_mib: None },
        rates: RatesChange::none(),
        labels: BTreeMap::new(),
        env: BTreeMap::new(),
        services: [(name, spec)].into(),
        network: None,
        sleep: None,
        snapshots: None,
        rotate: None,
        memory: None,
        lease: None,
        volumes: None,
    }
}

/// The services for the guest: declared ones with the sandbox's own environment as default. Below that (`under`) are the variables
/// that its network needs.
pub(crate) fn for_guest(
    row: &burrow_catalog::SandboxRow,
    image: &burrow_model::ImageConfig,
    under: &BTreeMap<String, String>,
) -> Vec<Service> {
    let service = |(name, spec): (&Name, &ServiceSpec)| {
        let mut env = under.clone();
        env.extend(image.env.clone());
        env.extend(row.spec.env.clone());
        env.extend(spec.env.clone());
        Service {
            name: name.to_string(),
            argv: spec.argv.clone(),
            env,
            cwd: spec.workdir.clone().or_else(|| row.spec.workdir.clone()).or_else(|| image.workdir.clone()),
            user: spec.user.clone().or_else(|| row.spec.user.clone()).or_else(|| image.user.clone()),
            restart: match spec.restart {
                RestartPolicy::Always => ServiceRestart::Always,
                RestartPolicy::OnFailure => ServiceRestart::OnFailure,
                RestartPolicy::Never => ServiceRestart::Never,
            },
        }
    };
    row.spec.services.iter().map(service).collect()
}
