//! Sandboxes: created, found, started, stopped, updated and deleted.
//!
//! Reads query the catalog directly. Every change of a sandbox is sent to its actor, which carries out one request at a time.

use std::time::Duration;

use burrow_catalog::{Page, PageRequest, SandboxFilter, SandboxRow};
use burrow_disks::Chunks;
use burrow_guest::protocol::{MachineStats, Request as GuestRequest};
use burrow_model::{
    Image, ImageId, MemorySpec, RotatePolicy, SandboxId, SandboxSpec, State, TenantId, check_mounts,
};
use burrow_runtime::Incidents;

use crate::actor;
use crate::actor::command::{Command, Creation, Source, UseMode};
use crate::checks::{check_limits, check_policies};
use crate::egress::rates;
use crate::new_row::new_row;
use crate::shown::shown;
use crate::snapshots::pins::Pin;
use crate::trees::held_trees;
use crate::warm_pool::pool::{Kind, WarmSandbox};
use crate::{
    CreateOptions, Engine, EngineError, Guest, Maximum, ObjectKind, UpdateOptions, VolumeRefusal, volumes,
    warm_pool,
};

/// The attempts of a create whose name was held by a sandbox that was then undone.
const CREATE_ATTEMPTS_MAX: usize = 5;

/// The attempts to read statistics of a sandbox that falls asleep and wakes meanwhile.
const STATS_ATTEMPTS_MAX: usize = 5;

/// Result of [`Engine::create`].
#[derive(Clone, Debug)]
pub struct CreateResult {
    pub row: SandboxRow,
    /// False: the sandbox existed already (same idempotency key, or same name with `if_not_exists`).
    pub fresh: bool,
}

impl Engine {
    /// Creates a sandbox. Returns when it runs and its guest listens.
    pub async fn create(
        &self,
        tenant: &TenantId,
        options: CreateOptions,
    ) -> Result<CreateResult, EngineError> {
        self.admit_create(&options).await?;
        self.check_memory(tenant, &options.memory).await?;
        let _needed = self.needed(tenant, options.rotate.as_ref()).await?;
        let image = self.find_image(tenant, &options.image).await?;
        self.create_from(tenant, &options, &image).await
    }

    /// The same from a known image, whatever names it has in the catalog.
    pub async fn create_from_image(
        &self,
        tenant: &TenantId,
        options: &CreateOptions,
        image: &Image,
    ) -> Result<CreateResult, EngineError> {
        self.admit_create(options).await?;
        self.check_memory(tenant, &options.memory).await?;
        self.create_from(tenant, options, image).await
    }

    /// The same without checks of the options. Builds start from layers this way.
    pub(crate) async fn create_from(
        &self,
        tenant: &TenantId,
        options: &CreateOptions,
        image: &Image,
    ) -> Result<CreateResult, EngineError> {
        for _ in 0..CREATE_ATTEMPTS_MAX {
            match self.try_create(tenant, options, image).await {
                // The sandbox that had the name or the key was itself undone while this task waited for it.
                Err(EngineError::Gone { .. }) => {}
                result => return result,
            }
        }
        Err(EngineError::NotFound {
            kind: ObjectKind::Sandbox,
            what: options.name.clone().map_or_else(String::new, String::from),
        })
    }

    async fn try_create(
        &self,
        tenant: &TenantId,
        options: &CreateOptions,
        image: &Image,
    ) -> Result<CreateResult, EngineError> {
        let ready = self.take_ready(tenant, options, image).await?;
        let id = ready.as_ref().map_or_else(SandboxId::generate, |ready| ready.id.clone());
        let row = self.new_row(id, tenant, options, image);
        let idempotency = options.idempotency.clone();
        let source = ready.map_or(Source::Image, |ready| Source::Ready(Box::new(ready)));
        // The actor itself stores the row, as its first step. So every row that can be found has an actor.
        let actor = actor::add(&self.shared, row);
        match actor.ask(|reply| Command::Create { idempotency, source, reply }).await? {
            Creation::Fresh(row) => Ok(CreateResult { row: *row, fresh: true }),
            Creation::Repeated(existing) => {
                // Its creation may not be complete: the actor replies after it.
                let row = self.ask(tenant, &existing, |reply| Command::Settled { reply }).await?;
                Ok(CreateResult { row, fresh: false })
            }
            Creation::NameTaken(existing) => self.use_existing(tenant, options, &existing).await,
        }
    }

    /// Takes a pre-created sandbox, if a matching one is ready. It is used up even if the create is then refused. So requests that are
    /// known to be refused take none; nor do sandboxes with services, which must not run before the sandbox is durable.
    async fn take_ready(
        &self,
        tenant: &TenantId,
        options: &CreateOptions,
        image: &Image,
    ) -> Result<Option<WarmSandbox>, EngineError> {
        // The machine of a pre-created sandbox has its mounts already.
        if !options.services.is_empty() || !options.volumes.is_empty() {
            return Ok(None);
        }
        if let Some(name) = &options.name
            && self.shared.seams.catalog.sandbox_by_name(tenant, name.as_str()).await?.is_some()
        {
            return Ok(None);
        }
        let kind = Kind {
            tenant: tenant.clone(),
            image: image.id.clone(),
            driver: options.driver.clone(),
            limits: options.limits,
        };
        Ok(self.shared.warm_pool.take(&kind))
    }

    async fn use_existing(
        &self,
        tenant: &TenantId,
        options: &CreateOptions,
        existing: &SandboxId,
    ) -> Result<CreateResult, EngineError> {
        if !options.if_not_exists {
            let name = options.name.clone().map_or_else(String::new, String::from);
            return Err(EngineError::NameTaken { name, existing: existing.clone() });
        }
        if let Some(network) = &options.network {
            // A request for a closed sandbox must not return an open one that happens to have the same name.
            let row = self.get(tenant, existing).await?;
            if row.spec.network != *network {
                return Err(EngineError::NetworkDiffers { id: row.id });
            }
        }
        if !options.volumes.is_empty() && self.get(tenant, existing).await?.spec.volumes != options.volumes {
            return Err(EngineError::Volumes(VolumeRefusal::Differ { id: existing.clone() }));
        }
        let row = self.start_sandbox(tenant, existing).await?;
        Ok(CreateResult { row, fresh: false })
    }

    /// By id, unique prefix of an id, or name.
    pub async fn resolve(&self, tenant: &TenantId, text: &str) -> Result<SandboxRow, EngineError> {
        let found = self.shared.seams.catalog.resolve_sandbox(tenant, text).await?;
        found.ok_or_else(|| EngineError::NotFound { kind: ObjectKind::Sandbox, what: shown(text) })
    }

    pub async fn get(&self, tenant: &TenantId, id: &SandboxId) -> Result<SandboxRow, EngineError> {
        let row = self.shared.seams.catalog.sandbox(tenant, id).await?;
        row.ok_or_else(|| EngineError::NotFound { kind: ObjectKind::Sandbox, what: id.to_string() })
    }

    pub async fn list(
        &self,
        tenant: &TenantId,
        filter: SandboxFilter,
        page: PageRequest,
    ) -> Result<Page<SandboxRow>, EngineError> {
        Ok(self.shared.seams.catalog.list_sandboxes(tenant, filter, page).await?)
    }

    /// Brings a stopped, failed or paused sandbox to `running`. Does nothing if it runs.
    pub async fn start_sandbox(&self, tenant: &TenantId, id: &SandboxId) -> Result<SandboxRow, EngineError> {
        self.ask(tenant, id, |reply| Command::Start { fresh: false, reply }).await
    }

    /// Ends its processes, after waiting up to `grace` for them to end by themselves. An ephemeral sandbox is then removed.
    pub async fn stop_sandbox(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        grace: Duration,
    ) -> Result<SandboxRow, EngineError> {
        self.ask(tenant, id, |reply| Command::Stop { grace, reply }).await
    }

    pub async fn pause(&self, tenant: &TenantId, id: &SandboxId) -> Result<SandboxRow, EngineError> {
        self.ask(tenant, id, |reply| Command::Pause { reply }).await
    }

    pub async fn resume(&self, tenant: &TenantId, id: &SandboxId) -> Result<SandboxRow, EngineError> {
        self.ask(tenant, id, |reply| Command::Resume { reply }).await
    }

    /// Removes it with all its resources.
    pub async fn delete(&self, tenant: &TenantId, id: &SandboxId) -> Result<(), EngineError> {
        match self.ask(tenant, id, |reply| Command::Delete { reply }).await {
            // Two deletes at once: the second finds that the sandbox is gone, which is the requested result.
            Ok(_) | Err(EngineError::Gone { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub async fn update(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        update: UpdateOptions,
    ) -> Result<SandboxRow, EngineError> {
        if let Some(change) = &update.memory {
            let nothing = MemorySpec::quiet();
            self.check_memory(tenant, &change.apply(&nothing)).await?;
        }
        let rotate = update.rotate.as_ref().and_then(Option::as_ref);
        let _needed = self.needed(tenant, rotate).await?;
        self.ask(tenant, id, |reply| Command::Update { update: Box::new(update), reply }).await
    }

    /// The guest of a sandbox, which is woken, or started if its policy permits this.
    pub async fn guest(&self, tenant: &TenantId, id: &SandboxId) -> Result<Guest, EngineError> {
        self.ask(tenant, id, |reply| Command::Use { mode: UseMode::Start, reply }).await
    }

    /// The guest of a sandbox for a use of processes that exist: a sleeping one is woken, a stopped one is not started.
    pub async fn guest_with_processes(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
    ) -> Result<Guest, EngineError> {
        self.ask(tenant, id, |reply| Command::Use { mode: UseMode::Wake, reply }).await
    }

    /// The guest of a running sandbox. A sleeping one is not woken, also if it fell asleep just now: that is an error.
    pub async fn guest_if_awake(&self, tenant: &TenantId, id: &SandboxId) -> Result<Guest, EngineError> {
        self.ask(tenant, id, |reply| Command::Use { mode: UseMode::Observe, reply }).await
    }

    /// The guest of a sandbox that runs; `None` for any other, also if it stopped or fell asleep after its row was read.
    pub(crate) async fn guest_if_running(&self, row: &SandboxRow) -> Result<Option<Guest>, EngineError> {
        if row.state != State::Running {
            return Ok(None);
        }
        match self.guest_if_awake(&row.tenant, &row.id).await {
            Err(EngineError::Asleep { .. } | EngineError::Refused { .. }) => Ok(None),
            guest => guest.map(Some),
        }
    }

    /// Resource usage. Never wakes a sandbox, even if it falls asleep during this call.
    pub async fn stats(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
    ) -> Result<(SandboxRow, MachineStats, Incidents, u64), EngineError> {
        for _ in 0..STATS_ATTEMPTS_MAX {
            let row = self.get(tenant, id).await?;
            if matches!(row.state, State::Paused | State::Hibernated) {
                return self.stats_asleep(row).await;
            }
            match self.stats_awake(tenant, id).await {
                // It fell asleep after its row was read.
                Err(EngineError::Asleep { .. }) => {}
                found => return found,
            }
        }
        Err(EngineError::Asleep { id: id.clone() })
    }

    async fn stats_awake(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
    ) -> Result<(SandboxRow, MachineStats, Incidents, u64), EngineError> {
        let guest = self.guest_if_awake(tenant, id).await?;
        let stats = guest.call(&GuestRequest::Stats).await?;
        let runtime = self.shared.runtime(&guest.sandbox().spec.driver)?;
        let incidents = runtime.incidents(id).await?;
        let disk = self.shared.seams.disks.used(id.into()).await?;
        Ok((guest.sandbox().clone(), stats, incidents, disk))
    }

    /// The space that its disk uses in the pool. Does not wake the sandbox.
    pub async fn disk_used(&self, guest: &Guest) -> Result<u64, EngineError> {
        Ok(self.shared.seams.disks.used((&guest.sandbox().id).into()).await?)
    }

    /// Statistics of a sleeping sandbox, without its agent.
    async fn stats_asleep(
        &self,
        row: SandboxRow,
    ) -> Result<(SandboxRow, MachineStats, Incidents, u64), EngineError> {
        let mut stats = MachineStats {
            cpu_us: 0,
            ram_bytes: 0,
            ram_limit_bytes: 0,
            processes: 0,
            threads: 0,
            disk_used_bytes: 0,
            disk_total_bytes: 0,
            network_received_bytes: 0,
            network_sent_bytes: 0,
            execs_running: 0,
            agent_ram_bytes: 0,
            uptime_ms: 0,
            oom_kills: 0,
        };
        let mut incidents = Incidents::default();
        if row.state == State::Paused {
            let runtime = self.shared.runtime(&row.spec.driver)?;
            stats.cpu_us = runtime.cpu_us(&row.id).await?;
            stats.ram_bytes = runtime.dump_bytes(&row.id).await?;
            incidents = runtime.incidents(&row.id).await?;
        }
        let disk = self.shared.seams.disks.used((&row.id).into()).await?;
        Ok((row, stats, incidents, disk))
    }

    /// The files of a sandbox as a stream, for backups, including everything that its processes have written so far.
    pub async fn send_sandbox(&self, row: &SandboxRow) -> Result<Chunks, EngineError> {
        held_trees::settle(&self.shared, row).await;
        self.send_disk((&row.id).into(), Some((&row.image).into())).await
    }

    /// The number of pre-created sandboxes that are ready, for metrics.
    pub fn warm_ready(&self) -> usize {
        self.shared.warm_pool.ready()
    }

    /// Removes all pre-created sandboxes of this image, and creates no more of them. Call this before the image itself is removed.
    pub async fn forget_warm_of(&self, image: &ImageId) {
        warm_pool::forget_image(&self.shared, image).await;
    }

    /// Keeps the snapshot of a rotation policy from being removed until the policy is stored.
    async fn needed(
        &self,
        tenant: &TenantId,
        rotate: Option<&RotatePolicy>,
    ) -> Result<Option<Pin>, EngineError> {
        match rotate {
            Some(rotate) => Ok(Some(self.pinned(tenant, &rotate.snapshot).await?.1)),
            None => Ok(None),
        }
    }

    pub(crate) async fn admit_create(&self, options: &CreateOptions) -> Result<(), EngineError> {
        check_limits(&options.limits, &self.shared.policy.limits_max)?;
        check_policies(&options.sleep, options.snapshots.as_ref(), options.rotate.as_ref())?;
        if let Some(network) = &options.network {
            self.shared.policy.egress.check(network)?;
        }
        let runtime = self.shared.runtime(&options.driver)?;
        if let burrow_runtime::Ability::No { reason, .. } = runtime.capabilities().available {
            return Err(EngineError::DriverUnavailable { driver: options.driver.clone(), reason });
        }
        rates::check(&options.rates, &*runtime)?;
        check_mounts(&options.volumes)?;
        volumes::check_driver(&*runtime, &options.volumes)?;
        let max = self.shared.policy.sandboxes_max;
        if self.shared.sandboxes() >= max {
            return Err(EngineError::Maximum(Maximum::Sandboxes { max }));
        }
        let reserve_bytes = self.shared.policy.pool_reserve_bytes;
        let free_bytes = self.shared.seams.disks.space_for(reserve_bytes).await?.free_bytes;
        if free_bytes < reserve_bytes {
            return Err(EngineError::PoolReserve { free_bytes, reserve_bytes });
        }
        Ok(())
    }

    fn new_row(
        &self,
        id: SandboxId,
        tenant: &TenantId,
        options: &CreateOptions,
        image: &Image,
    ) -> SandboxRow {
        let spec = SandboxSpec {
            image: image.reference(),
            driver: options.driver.clone(),
            limits: options.limits,
            rates: options.rates,
            env: options.env.clone(),
            labels: options.labels.clone(),
            workdir: options.workdir.clone(),
            user: options.user.clone(),
            lifetime: options.lifetime,
            services: options.services.clone(),
            network: options.network.clone().unwrap_or_else(|| self.default_network().clone()),
            sleep: options.sleep,
            snapshots: options.snapshots,
            rotate: options.rotate.clone(),
            memory: options.memory.clone(),
            lease: options.lease.clone(),
            volumes: options.volumes.clone(),
        };
        let row = new_row(id, tenant, spec, image.id.clone(), self.shared.now_ms());
        SandboxRow { name: options.name.clone(), ..row }
    }
}
