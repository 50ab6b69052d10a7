//! The record of the kinds of state that drivers have restored, which decides whether a trial is needed.
//!
//! It only saves trials. If it is missing or damaged, or is from another kernel or another version of a driver, trials are
//! made again.

use burrow_runtime::{RestoredKinds, Runtime, Trials};

use crate::shared::Shared;

/// Passes the stored records to the drivers. Called once, at the start.
pub(crate) async fn recall(shared: &Shared) {
    for runtime in &shared.seams.runtimes {
        let (driver, Some(trials)) = (runtime.name(), runtime.trials()) else { continue };
        let text = match shared.seams.catalog.restored_kinds(driver).await {
            Ok(text) => text,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(driver, error, "could not read the record of restored kinds of state");
                continue;
            }
        };
        match text.as_deref().map(serde_json::from_str::<RestoredKinds>) {
            None => {}
            Some(Ok(record)) => {
                let applies = trials.recall_kinds(record);
                tracing::debug!(driver, applies, "read the record of restored kinds of state");
            }
            Some(Err(error)) => {
                tracing::warn!(
                    driver, %error, "the record of restored kinds of state is damaged; trials are made again"
                );
            }
        }
    }
}

/// Stores the record of a driver after a trial, or after a restore that failed.
pub(crate) async fn store(shared: &Shared, runtime: &dyn Runtime) {
    let Some(record) = runtime.trials().and_then(Trials::restored_kinds) else { return };
    let text = serde_json::to_string(&record).expect("text is JSON");
    if let Err(error) = shared.seams.catalog.set_restored_kinds(runtime.name(), text).await {
        let error = &error as &dyn std::error::Error;
        tracing::warn!(error, "could not store the record of restored kinds of state");
    }
}
