//! The steps operations are made of: bringing a machine up, and removing what there is.

use std::path::PathBuf;

use burrow_catalog::SandboxRow;
use burrow_guest::protocol::{Boot, GENERATION, PORT};
use burrow_network::{GATEWAY_V4, SANDBOX_V4};
use burrow_runtime::BootOptions;

use crate::actor::Live;
use crate::journal::{Operation, Resource};
use crate::shared::Shared;
use crate::{EngineError, faults, services};

/// Network, then machine. The caller unwinds when this fails.
pub(crate) async fn bring_up(
    shared: &Shared,
    row: &SandboxRow,
    root: PathBuf,
    operation: Operation,
) -> Result<Live, EngineError> {
    let runtime = shared.runtime(&row.spec.driver)?;
    let image = shared.image_config(&row.tenant, &row.image).await?;
    let link = shared.seams.network.connect(&row.id).await?;
    faults::hit(if operation == Operation::Create { "create.network" } else { "start.network" })?;
    let boot = Boot {
        generation: GENERATION,
        token: row.token.clone(),
        listen: (SANDBOX_V4, PORT).into(),
        accept_from: GATEWAY_V4.into(),
        ram_bytes: u64::from(row.spec.limits.ram_mib) * burrow_model::MIB,
        services: services::for_guest(row, &image),
    };
    let options = BootOptions {
        root,
        attachment: link.attachment,
        hostname: row.name.as_ref().map_or_else(|| row.id.to_string(), ToString::to_string),
        limits: row.spec.limits,
        boot_document: serde_json::to_vec(&boot).expect("a boot document is JSON"),
    };
    let machine = runtime.boot(&row.id, options).await?;
    faults::hit(if operation == Operation::Create { "create.machine" } else { "start.machine" })?;
    Ok(Live { dial: link.dial, machine, runtime })
}

/// Removes all that `operation` may have touched, last made first. Removing what is not there is fine, so this can be
/// repeated from any point.
pub(crate) async fn unwind(
    shared: &Shared,
    row: &SandboxRow,
    operation: Operation,
    after: &mut (dyn FnMut(Resource) -> Result<(), EngineError> + Send),
) -> Result<(), EngineError> {
    for resource in operation.resources().iter().rev() {
        match resource {
            Resource::Machine => {
                // A row may name a driver this daemon was built or configured without; then it has no machine here.
                if let Ok(runtime) = shared.runtime(&row.spec.driver) {
                    runtime.destroy(&row.id).await?;
                }
            }
            Resource::Network => shared.seams.network.release(&row.id).await?,
            Resource::Volume => shared.seams.volumes.destroy(&row.id).await?,
        }
        after(*resource)?;
    }
    Ok(())
}
