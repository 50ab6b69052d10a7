//! The steps of operations: bringing a machine up, and removing resources.

pub mod journal;

use std::path::PathBuf;
use std::sync::Arc;

use burrow_catalog::SandboxRow;
use burrow_guest::protocol::{Boot, GENERATION, PORT};
use burrow_model::SandboxId;
use burrow_network::{GATEWAY_V4, SANDBOX_V4};
use burrow_runtime::{BootOptions, FinishOptions, Form, RestoreOptions, Runtime, RuntimeError, Template};

use crate::actor::live_machine::LiveMachine;
use crate::egress::{self, rates, secrets};
use crate::guest::services;
use crate::shared::Shared;
use crate::sleep::activity::{Activity, StreamCutter};
use crate::snapshots::dump;
use crate::snapshots::dump_description::OpenedDump;
use crate::snapshots::{removal, restored_kinds};
use crate::warm_pool::pool::WarmSandbox;
use crate::{EngineError, Guest, faults, memory, volumes};
use journal::{Operation, Resource};

/// How a machine starts.
#[derive(Clone, Debug, Default)]
pub(crate) struct StartOptions {
    /// Its files belonged to another sandbox: it needs a new identity at boot.
    pub(crate) renew: bool,
    pub(crate) template: Option<Template>,
}

/// Connects a network for a machine of this driver.
pub(crate) async fn connect(
    shared: &Shared,
    runtime: &dyn Runtime,
    id: &SandboxId,
) -> Result<burrow_network::Link, EngineError> {
    Ok(match runtime.form() {
        Form::Tree => shared.seams.network.connect(id).await?,
        // Its network interface is connected by the process that starts the machine.
        Form::Disk => shared.seams.network.connect_later(id).await?,
    })
}

/// Network, then its listeners and the machine. The caller unwinds if this fails.
pub(crate) async fn bring_up(
    shared: &Shared,
    row: &SandboxRow,
    root: PathBuf,
    operation: Operation,
    start: StartOptions,
) -> Result<LiveMachine, EngineError> {
    let runtime = shared.runtime(&row.spec.driver)?;
    let link = connect(shared, &*runtime, &row.id).await?;
    rates::limit_network(shared, row).await?;
    faults::hit(if operation == Operation::Create { "create.network" } else { "start.network" })?;
    let options = BootOptions {
        root,
        attachment: link.attachment,
        hostname: hostname(row),
        limits: row.spec.limits,
        boot_document: boot_document(shared, row, start.renew).await?,
        template: start.template,
        mounts: volumes::mounts_of(shared, row).await?,
    };
    // Concurrently, since they are independent. Both end before the answer: no client may find a sandbox without its network.
    let listeners = async {
        egress::attach(shared, row).await?;
        faults::hit(if operation == Operation::Create { "create.egress" } else { "start.egress" })
    };
    let (attached, machine) = tokio::join!(listeners, runtime.boot(&row.id, options));
    let machine = machine?;
    attached?;
    rates::limit_disk(row, &*runtime).await?;
    faults::hit(if operation == Operation::Create { "create.machine" } else { "start.machine" })?;
    Ok(LiveMachine::new(link.dial, machine, runtime))
}

/// As [`bring_up`], for a pre-created sandbox: network and machine exist, and wait for their identity.
pub(crate) async fn bring_up_warm(
    shared: &Shared,
    row: &SandboxRow,
    ready: WarmSandbox,
) -> Result<LiveMachine, EngineError> {
    rates::limit_network(shared, row).await?;
    let options =
        FinishOptions { hostname: hostname(row), boot_document: boot_document(shared, row, false).await? };
    let driver = ready.runtime.needs_precreate(&row.id)?;
    let (attached, machine) =
        tokio::join!(egress::attach(shared, row), driver.finish(&row.id, ready.begun, options));
    let machine = machine?;
    attached?;
    rates::limit_disk(row, &*ready.runtime).await?;
    Ok(LiveMachine::new(ready.dial, machine, ready.runtime))
}

/// Network, listeners and a machine with the dumped processes. The machine is paused when this returns, until its row says that it
/// runs. Repeated once if the program that restores it was killed or hung. The caller unwinds if this fails.
pub(crate) async fn restore_machine(
    shared: &Shared,
    row: &SandboxRow,
    root: PathBuf,
    kept: &OpenedDump,
    activity: &Arc<Activity>,
) -> Result<LiveMachine, EngineError> {
    match try_restore_machine(shared, row, root.clone(), kept, activity).await {
        Err(EngineError::Runtime(error @ RuntimeError::RestoreCut { .. })) => {
            tracing::warn!(sandbox = %row.id, error = &error as &dyn std::error::Error, "a restore was interrupted; trying once more");
            unwind(shared, row, Operation::Wake, &mut |_| Ok(())).await?;
            try_restore_machine(shared, row, root, kept, activity).await
        }
        outcome => outcome,
    }
}

async fn try_restore_machine(
    shared: &Shared,
    row: &SandboxRow,
    root: PathBuf,
    kept: &OpenedDump,
    activity: &Arc<Activity>,
) -> Result<LiveMachine, EngineError> {
    let runtime = shared.runtime(&row.spec.driver)?;
    let link = shared.seams.network.connect_later(&row.id).await?;
    rates::limit_network(shared, row).await?;
    faults::hit("wake.network")?;
    let cut = StreamCutter::default();
    let foreign = kept.about.is_foreign(row);
    let introduce = foreign.then(|| {
        let guest = Guest {
            row: Arc::new(row.clone()),
            dial: link.dial.clone(),
            cut: cut.clone(),
            lease: activity.lease(),
        };
        kept.about.introduction(row, hostname(row), guest)
    });
    let options = RestoreOptions {
        root,
        images: kept.images.clone(),
        about: kept.about.runtime.clone(),
        attachment: link.attachment,
        limits: row.spec.limits,
        hostname: foreign.then(|| hostname(row)),
        mounts: volumes::mounts_of(shared, row).await?,
        introduce,
        trial: false,
    };
    let listeners = async {
        egress::attach(shared, row).await?;
        faults::hit("wake.egress")
    };
    let (attached, machine) = tokio::join!(listeners, runtime.restore(&row.id, options));
    if let Err(RuntimeError::Restore { .. }) = &machine {
        restored_kinds::store(shared, &*runtime).await;
    }
    let machine = machine?;
    attached?;
    rates::limit_disk(row, &*runtime).await?;
    faults::hit("wake.machine")?;
    Ok(LiveMachine { dial: link.dial, machine, runtime, cut })
}

fn hostname(row: &SandboxRow) -> String {
    row.name.as_ref().map_or_else(|| row.id.to_string(), ToString::to_string)
}

async fn boot_document(shared: &Shared, row: &SandboxRow, renew: bool) -> Result<Vec<u8>, EngineError> {
    let image = shared.image_config(&row.tenant, &row.image).await?;
    let boot = Boot {
        generation: GENERATION,
        token: row.token.clone(),
        listen: (SANDBOX_V4, PORT).into(),
        accept_from: GATEWAY_V4.into(),
        ram_bytes: u64::from(row.spec.limits.ram_mib) * burrow_model::MIB,
        services: services::for_guest(row, &image, &secrets::environment(shared, row).await?),
        renew,
        trust: secrets::trust_of(shared, row).await?,
    };
    Ok(serde_json::to_vec(&boot).expect("a boot document is JSON"))
}

/// Removes all that `operation` may have touched, in reverse order of creation. Missing resources are ignored, so this can be repeated
/// from any point.
pub(crate) async fn unwind(
    shared: &Shared,
    row: &SandboxRow,
    operation: Operation,
    after: &mut (dyn FnMut(Resource) -> Result<(), EngineError> + Send),
) -> Result<(), EngineError> {
    // A row may name a driver that this daemon does not have; then it has no machine here.
    let runtime: Vec<_> = shared.runtime(&row.spec.driver).into_iter().collect();
    remove(shared, &row.id, &runtime, operation, after).await
}

/// The same by id alone, for resources without a sandbox's row.
pub(crate) async fn remove(
    shared: &Shared,
    id: &SandboxId,
    runtimes: &[Arc<dyn Runtime>],
    operation: Operation,
    after: &mut (dyn FnMut(Resource) -> Result<(), EngineError> + Send),
) -> Result<(), EngineError> {
    for resource in operation.resources().iter().rev() {
        match resource {
            Resource::Machine => {
                for runtime in runtimes {
                    runtime.destroy(id).await?;
                }
            }
            Resource::Network => {
                egress::detach(shared, id).await?;
                shared.seams.network.release(id).await?;
            }
            Resource::Disk => shared.seams.disks.remove(id.into()).await?,
        }
        after(*resource)?;
    }
    Ok(())
}

/// Removes what only a deleted sandbox needed: its dump, the snapshot it was forked from, its memory. What cannot be removed now is
/// removed at the next start.
pub(crate) async fn forget(shared: &Shared, row: &SandboxRow) {
    if let Some(dump) = &row.dump {
        dump::remove_if_unused(shared, dump).await;
    }
    if let Some(origin) = &row.origin {
        removal::release_base(shared, &row.tenant, origin).await;
    }
    memory::remove_if_unused(shared, &row.memory().space).await;
}
