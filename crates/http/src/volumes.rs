//! Finds, creates and removes volumes for a caller.

use std::sync::Arc;

use burrow_api::CreateVolume;
use burrow_engine::{EngineError, ObjectKind};
use burrow_model as model;

use crate::app::App;
use crate::auth::{Caller, check_reference};
use crate::convert;
use crate::error::ApiError;

/// The volume that `text` names. For a key that is bound to one sandbox, no volumes exist here; it accesses them through
/// its sandbox.
pub async fn find(app: &App, caller: &Caller, text: &str) -> Result<model::Volume, ApiError> {
    check_reference(text)?;
    if caller.bound_to().is_some() {
        return Err(EngineError::NotFound { kind: ObjectKind::Volume, what: text.to_owned() }.into());
    }
    let found = app.engine.find_volume(caller.tenant(), text).await?;
    if let Some(trace) = caller.trace() {
        trace.target(found.id.as_str());
    }
    Ok(found)
}

pub async fn make(app: &Arc<App>, caller: &Caller, wish: CreateVolume) -> Result<model::Volume, ApiError> {
    let options = convert::volume_options(wish, &app.config.defaults.limits)?;
    let (engine, tenant) = (app.engine.clone(), caller.tenant().clone());
    let made =
        app.run_to_completion(async move { Ok(engine.create_volume(&tenant, options).await?) }).await?;
    if let Some(trace) = caller.trace() {
        trace.target(made.id.as_str());
    }
    Ok(made)
}

pub async fn take_away(
    app: &Arc<App>,
    caller: &Caller,
    volume: model::Volume,
    snapshots: bool,
) -> Result<(), ApiError> {
    let (engine, tenant) = (app.engine.clone(), caller.tenant().clone());
    app.run_to_completion(async move { Ok(engine.delete_volume(&tenant, &volume, snapshots).await?) }).await
}
