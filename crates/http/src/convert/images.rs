//! Converts images between the API and the model.

use burrow_api as api;
use burrow_engine::ImageDetail;
use burrow_model::Image;

use super::checks::{check_path, check_text, label, user, variable};
use crate::error::ApiError;

/// Maximum number of arguments of an entrypoint or command.
const ARGUMENTS_MAX: usize = 1_000;

pub fn image(image: Image) -> api::Image {
    api::Image {
        id: image.id.into(),
        name: image.names.first().cloned().map(String::from),
        names: image.names.into_iter().map(String::from).collect(),
        size_bytes: image.size_bytes,
        created_ms: image.created_ms,
        config: config(image.config),
        origin: image.origin.kind,
        origin_of: image.origin.of,
    }
}

pub fn image_detail(detail: ImageDetail) -> api::ImageDetail {
    let steps = detail.image.origin.history.iter();
    let step = |step: &burrow_model::ImageStep| api::ImageStep {
        what: step.what.clone(),
        size_bytes: step.size_bytes,
    };
    api::ImageDetail {
        history: steps.map(step).collect(),
        image: image(detail.image),
        unique_bytes: detail.unique_bytes,
        layers: detail
            .layers
            .into_iter()
            .map(|row| api::ImageLayer { key: row.key, what: row.what, size_bytes: row.size_bytes })
            .collect(),
        used_by: detail.used_by.into_iter().map(String::from).collect(),
    }
}

fn config(config: burrow_model::ImageConfig) -> api::ImageConfig {
    api::ImageConfig {
        env: config.env,
        user: config.user,
        workdir: config.workdir,
        entrypoint: config.entrypoint,
        cmd: config.cmd,
        labels: config.labels,
        exposed_ports: config.exposed_ports,
    }
}

pub fn check_image_config(change: &api::ImageConfigChange) -> Result<(), ApiError> {
    for (name, value) in &change.env {
        variable("config.env", name, value)?;
    }
    for (key, value) in &change.labels {
        label(key, value)?;
    }
    if let Some(text) = &change.user {
        user("config.user", text)?;
    }
    if let Some(path) = &change.workdir {
        check_path("config.workdir", path)?;
    }
    for (field, argv) in [("config.entrypoint", &change.entrypoint), ("config.cmd", &change.cmd)] {
        let argv = argv.as_deref().unwrap_or_default();
        if argv.len() > ARGUMENTS_MAX {
            return Err(ApiError::invalid(format!("`{field}` has more than {ARGUMENTS_MAX} arguments")));
        }
        argv.iter().try_for_each(|argument| check_text(field, argument))?;
    }
    Ok(())
}
