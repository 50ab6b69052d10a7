//! The steps operations are made of: bringing a machine up, and removing what there is.

use std::path::PathBuf;
use std::sync::Arc;

use burrow_catalog::SandboxRow;
use burrow_guest::protocol::{Boot, GENERATION, PORT};
use burrow_model::SandboxId;
use burrow_network::{GATEWAY_V4, SANDBOX_V4};
use burrow_runtime::{BootOptions, FinishOptions, Form, RestoreOptions, Runtime, RuntimeError, Template};

use crate::activity::{Activity, Cut};
use crate::actor::Live;
use crate::dump::Kept;
use crate::journal::{Operation, Resource};
use crate::shared::Shared;
use crate::stock::Ready;
use crate::{EngineError, Guest, egress, faults, rates, secrets, services, shelves};

/// How a machine begins.
#[derive(Clone, Debug, Default)]
pub(crate) struct Beginning {
    /// Its files were another's: it finds out at its boot.
    pub(crate) renew: bool,
    pub(crate) template: Option<Template>,
}

/// A network for a machine of this driver.
pub(crate) async fn connect(
    shared: &Shared,
    runtime: &dyn Runtime,
    id: &SandboxId,
) -> Result<burrow_network::Link, EngineError> {
    Ok(match runtime.form() {
        Form::Tree => shared.seams.network.connect(id).await?,
        // Its card is plugged in by whoever starts the machine.
        Form::Disk => shared.seams.network.connect_later(id).await?,
    })
}

/// Network, then its doors and the machine. The caller unwinds when this fails.
pub(crate) async fn bring_up(
    shared: &Shared,
    row: &SandboxRow,
    root: PathBuf,
    operation: Operation,
    start: Beginning,
) -> Result<Live, EngineError> {
    let runtime = shared.runtime(&row.spec.driver)?;
    let link = connect(shared, &*runtime, &row.id).await?;
    rates::hold_network(shared, row).await?;
    faults::hit(if operation == Operation::Create { "create.network" } else { "start.network" })?;
    let options = BootOptions {
        root,
        attachment: link.attachment,
        hostname: hostname(row),
        limits: row.spec.limits,
        boot_document: boot_document(shared, row, start.renew).await?,
        template: start.template,
        mounts: shelves::mounts_of(shared, row).await?,
    };
    // Side by side, since neither needs the other; a program inside must not find a network that is not there yet,
    // which is why both are done before anybody is answered.
    let doors = async {
        egress::attach(shared, row).await?;
        faults::hit(if operation == Operation::Create { "create.egress" } else { "start.egress" })
    };
    let (attached, machine) = tokio::join!(doors, runtime.boot(&row.id, options));
    let machine = machine?;
    attached?;
    rates::hold_disk(row, &*runtime).await?;
    faults::hit(if operation == Operation::Create { "create.machine" } else { "start.machine" })?;
    Ok(Live::new(link.dial, machine, runtime))
}

/// As [`bring_up`], of what was made ahead: network and machine are there, and wait to be told whose they are.
pub(crate) async fn bring_up_ready(
    shared: &Shared,
    row: &SandboxRow,
    ready: Ready,
) -> Result<Live, EngineError> {
    rates::hold_network(shared, row).await?;
    let options =
        FinishOptions { hostname: hostname(row), boot_document: boot_document(shared, row, false).await? };
    let (attached, machine) =
        tokio::join!(egress::attach(shared, row), ready.runtime.finish(&row.id, ready.begun, options));
    let machine = machine?;
    attached?;
    rates::hold_disk(row, &*ready.runtime).await?;
    Ok(Live::new(ready.dial, machine, ready.runtime))
}

/// Network, listeners and the machine of processes that are kept. Nothing of it has run when this returns: it is paused, until
/// its row says that it runs. Tried once more where the program that restores them was killed or hung. The caller unwinds when
/// this fails.
pub(crate) async fn bring_back(
    shared: &Shared,
    row: &SandboxRow,
    root: PathBuf,
    kept: &Kept,
    activity: &Arc<Activity>,
) -> Result<Live, EngineError> {
    match try_bring_back(shared, row, root.clone(), kept, activity).await {
        Err(EngineError::Runtime(error @ RuntimeError::RestoreCut { .. })) => {
            tracing::warn!(sandbox = %row.id, error = &error as &dyn std::error::Error, "trying a restore once more");
            unwind(shared, row, Operation::Wake, &mut |_| Ok(())).await?;
            try_bring_back(shared, row, root, kept, activity).await
        }
        outcome => outcome,
    }
}

async fn try_bring_back(
    shared: &Shared,
    row: &SandboxRow,
    root: PathBuf,
    kept: &Kept,
    activity: &Arc<Activity>,
) -> Result<Live, EngineError> {
    let runtime = shared.runtime(&row.spec.driver)?;
    let link = shared.seams.network.connect_later(&row.id).await?;
    rates::hold_network(shared, row).await?;
    faults::hit("wake.network")?;
    let cut = Cut::default();
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
        mounts: shelves::mounts_of(shared, row).await?,
        introduce,
    };
    let doors = async {
        egress::attach(shared, row).await?;
        faults::hit("wake.egress")
    };
    let (attached, machine) = tokio::join!(doors, runtime.restore(&row.id, options));
    let machine = machine?;
    attached?;
    rates::hold_disk(row, &*runtime).await?;
    faults::hit("wake.machine")?;
    Ok(Live { dial: link.dial, machine, runtime, cut })
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

/// Removes all that `operation` may have touched, last made first. Removing what is not there is fine, so this can be
/// repeated from any point.
pub(crate) async fn unwind(
    shared: &Shared,
    row: &SandboxRow,
    operation: Operation,
    after: &mut (dyn FnMut(Resource) -> Result<(), EngineError> + Send),
) -> Result<(), EngineError> {
    // A row may name a driver this daemon was built or configured without; then it has no machine here.
    let runtime: Vec<_> = shared.runtime(&row.spec.driver).into_iter().collect();
    remove(shared, &row.id, &runtime, operation, after).await
}

/// The same by id alone, for what has no row of a sandbox.
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
            Resource::Volume => shared.seams.volumes.destroy(id).await?,
        }
        after(*resource)?;
    }
    Ok(())
}
