//! Applies sandboxes' rate limits: of the disk by the runtime, of the network by its gateway.
//!
//! Both are lost with the machine and the network that they are set on, and are stored only in the row. So they are set whenever a
//! machine or network is created, and again when a sandbox is adopted: an earlier daemon may have died after it set a rate and
//! before it stored it, or the other way round.

use burrow_catalog::SandboxRow;
use burrow_model::{Rates, SandboxId};
use burrow_network::Rate;
use burrow_runtime::{Ability, Runtime};

use crate::EngineError;
use crate::shared::Shared;

/// Checks that rates are valid and that the driver supports them.
pub(crate) fn check(rates: &Rates, runtime: &dyn Runtime) -> Result<(), EngineError> {
    rates.check()?;
    match runtime.capabilities().disk_rate {
        Ability::No { reason, .. } if rates.disk_mib_per_second.is_some() => {
            Err(EngineError::NoDiskRate { driver: runtime.name(), reason })
        }
        Ability::No { .. } | Ability::Yes => Ok(()),
    }
}

/// For a network that was just connected, before a machine is attached to it.
pub(crate) async fn limit_network(shared: &Shared, row: &SandboxRow) -> Result<(), EngineError> {
    match row.spec.rates.network_bytes_per_second() {
        Some(_) => set_network(shared, &row.id, &row.spec.rates).await,
        None => Ok(()),
    }
}

/// For a machine that was just created.
pub(crate) async fn limit_disk(row: &SandboxRow, runtime: &dyn Runtime) -> Result<(), EngineError> {
    match row.spec.rates.disk_bytes_per_second() {
        Some(rate) => Ok(runtime.set_disk_rate(&row.id, Some(rate)).await?),
        None => Ok(()),
    }
}

/// For a sandbox that is up, in place of its previous rates.
pub(crate) async fn change(
    shared: &Shared,
    id: &SandboxId,
    runtime: &dyn Runtime,
    before: &Rates,
    after: &Rates,
) -> Result<(), EngineError> {
    if before.network_mib_per_second != after.network_mib_per_second {
        set_network(shared, id, after).await?;
    }
    if before.disk_mib_per_second != after.disk_mib_per_second {
        runtime.set_disk_rate(id, after.disk_bytes_per_second()).await?;
    }
    Ok(())
}

/// For an adopted sandbox. It is kept even if this fails.
pub(crate) async fn adopt(shared: &Shared, row: &SandboxRow, runtime: &dyn Runtime) {
    let held = async {
        set_network(shared, &row.id, &row.spec.rates).await?;
        runtime.set_disk_rate(&row.id, row.spec.rates.disk_bytes_per_second()).await?;
        Ok::<_, EngineError>(())
    };
    if let Err(error) = held.await {
        let error = &error as &dyn std::error::Error;
        tracing::warn!(sandbox = %row.id, error, "could not set the rates of an adopted sandbox");
    }
}

async fn set_network(shared: &Shared, id: &SandboxId, rates: &Rates) -> Result<(), EngineError> {
    let rate = rates.network_bytes_per_second().map(|bytes_per_second| Rate { bytes_per_second });
    Ok(shared.seams.network.set_rate(id, rate).await?)
}

#[cfg(test)]
mod tests {
    use burrow_runtime::sim::Sim;

    use super::*;

    #[test]
    fn rates_that_the_driver_does_not_support_are_refused() {
        let unable = Sim::without_disk_rate("it has no disk");
        let network = Rates { network_mib_per_second: Some(1), ..Rates::unlimited() };
        check(&network, &unable).unwrap();
        let disk = Rates { disk_mib_per_second: Some(1), ..network };
        check(&disk, &Sim::default()).unwrap();
        let refused = check(&disk, &unable).unwrap_err();
        let said = "the driver `sim` cannot limit the disk rate of a sandbox: it has no disk";
        assert_eq!(refused.to_string(), said);
        let nonsense = Rates { network_mib_per_second: Some(0), ..network };
        assert!(matches!(check(&nonsense, &unable).unwrap_err(), EngineError::Limits(_)));
    }
}
