//! What a sandbox starts from, by the form its driver keeps files in.
//!
//! ```text
//!   a tree:   the image's own volume
//!   a disk:   image ─► its disk, made once ─► a machine booted on a copy of it, written down: a template
//!                                             └─► every sandbox of that image and size goes on from there
//! ```
//!
//! Disks and templates are kept as layers are: found or made by exactly one, whole from the commit of their row on, swept
//! after a crash, removed with their image or when nobody used them for long, and made again when they are missed.
//! A template is two volumes: the disk as it was when the machine was written down, which sandboxes get copies of, and
//! the machine itself, which they share.

use std::path::Path;
use std::sync::Arc;

use burrow_catalog::LayerRow;
use burrow_model::{ImageId, Limits, MIB, SandboxId, SandboxSpec, TenantId};
use burrow_runtime::{Form, Runtime, Template, TemplateOptions};
use burrow_volumes::VolumeError;

use crate::images::layers::{self, Claim, Hold, NewLayer};
use crate::shared::Shared;
use crate::{EngineError, faults};

/// Templates that a tenant has at most; those used longest ago make way.
const TEMPLATES_MAX: usize = 8;

/// What a template says of itself, beside its RAM.
const ABOUT: &str = "about";

/// What a disk may take in the pool, as a multiple of its size: what a guest overwrites in place is kept until nothing
/// of the old extent is left.
const DISK_SLACK: u64 = 2;

/// What a new sandbox is made of.
#[derive(Debug)]
pub(crate) struct Start {
    /// Its volume is a copy of this one.
    pub(crate) volume: ImageId,
    /// It goes on from this machine instead of booting.
    pub(crate) template: Option<Template>,
    /// Keeps both from being removed meanwhile.
    _holds: Vec<Hold>,
}

/// Bytes that a sandbox's volume may hold.
pub(crate) fn volume_bytes(shared: &Shared, spec: &SandboxSpec) -> u64 {
    bytes_of(shared.runtime(&spec.driver).map_or(Form::Tree, |runtime| runtime.form()), &spec.limits)
}

pub(crate) fn bytes_of(form: Form, limits: &Limits) -> u64 {
    let disk_bytes = u64::from(limits.disk_mib) * MIB;
    match form {
        Form::Tree => disk_bytes,
        Form::Disk => disk_bytes * DISK_SLACK,
    }
}

/// What a sandbox of this image is made of, made now where it is missing.
pub(crate) async fn start_of(
    shared: &Shared,
    tenant: &TenantId,
    image: &ImageId,
    runtime: &Arc<dyn Runtime>,
    limits: &Limits,
) -> Result<Start, EngineError> {
    if runtime.form() == Form::Tree {
        return Ok(Start { volume: image.clone(), template: None, _holds: Vec::new() });
    }
    if let Some(kind) = runtime.template_kind(limits) {
        match template_of(shared, tenant, image, runtime, limits, &kind).await {
            Ok(start) => return Ok(start),
            Err(error @ EngineError::Volume(VolumeError::ImageNotFound { .. })) => return Err(error),
            Err(error) => tell_cold(shared, tenant, image, &error),
        }
    }
    cold_start_of(shared, tenant, image, runtime).await
}

/// The same without a machine to go on from.
pub(crate) async fn cold_start_of(
    shared: &Shared,
    tenant: &TenantId,
    image: &ImageId,
    runtime: &Arc<dyn Runtime>,
) -> Result<Start, EngineError> {
    let (volume, hold) = disk_of(shared, tenant, image, runtime).await?;
    Ok(Start { volume, template: None, _holds: vec![hold] })
}

/// Says that a machine boots from the start, and why.
pub(crate) fn tell_cold(shared: &Shared, tenant: &TenantId, image: &ImageId, why: &EngineError) {
    tracing::warn!(%image, error = why as &dyn std::error::Error, "no template can be used: the machine boots");
    let detail = serde_json::json!({ "image": image, "reason": why.to_string() });
    shared.event(tenant, "image.template-failed", None, detail);
}

/// The volume that holds an image as a disk.
pub(crate) async fn disk_of(
    shared: &Shared,
    tenant: &TenantId,
    image: &ImageId,
    runtime: &Arc<dyn Runtime>,
) -> Result<(ImageId, Hold), EngineError> {
    let key = format!("{}{}", disk_prefix(image), runtime.name());
    let right = match layers::claim(shared, tenant, &key).await? {
        Claim::There(row, hold) => return Ok((row.volume, hold)),
        Claim::Missing(right) => right,
    };
    let volumes = &shared.seams.volumes;
    let tree = volumes.locate_image(image).await?;
    let volume = ImageId::generate();
    let what = format!("{image} as a disk");
    let new = NewLayer { tenant: tenant.clone(), key, parent: None, what };
    let fill = async {
        let into = volumes.stage_image(&volume).await?;
        let unfit = |source| EngineError::ImageUnfit { driver: runtime.name(), source };
        runtime.make_disk(&tree, &into).await.map_err(unfit)?;
        faults::hit("disk.made")?;
        held_bytes(&into).await
    };
    let row = layers::make(shared, new, volume.clone(), fill).await?;
    Ok((row.volume, right.downgrade()))
}

/// Removes what was made of an image that goes.
pub(crate) async fn forget_image(
    shared: &Shared,
    tenant: &TenantId,
    image: &ImageId,
) -> Result<(), EngineError> {
    let catalog = &shared.seams.catalog;
    let prefixes = [disk_prefix(image), template_prefix(image), booted_prefix(image)];
    for row in catalog.list_layers(tenant).await? {
        if prefixes.iter().any(|prefix| row.key.starts_with(prefix)) {
            remove(shared, tenant, &row).await?;
        }
    }
    Ok(())
}

fn disk_prefix(image: &ImageId) -> String {
    format!("disk:{image}:")
}

fn booted_prefix(image: &ImageId) -> String {
    format!("booted:{image}:")
}

fn template_prefix(image: &ImageId) -> String {
    format!("template:{image}:")
}

// === templates ===

async fn template_of(
    shared: &Shared,
    tenant: &TenantId,
    image: &ImageId,
    runtime: &Arc<dyn Runtime>,
    limits: &Limits,
    kind: &str,
) -> Result<Start, EngineError> {
    let key = format!("{}{kind}", template_prefix(image));
    let right = match layers::claim(shared, tenant, &key).await? {
        Claim::There(row, hold) => {
            if let Some((volume, template)) = usable(shared, runtime, row).await? {
                return Ok(Start { volume, template: Some(template), _holds: vec![hold] });
            }
            drop(hold);
            // Whoever was faster has made another.
            let right = shared.images.locks.right(tenant, &key).await;
            if let Some(row) = shared.seams.catalog.layer(tenant, &key).await?
                && let Some((volume, template)) = usable(shared, runtime, row).await?
            {
                return Ok(Start { volume, template: Some(template), _holds: vec![right.downgrade()] });
            }
            right
        }
        Claim::Missing(right) => right,
    };
    let row = make_template(shared, tenant, image, runtime, limits, key).await?;
    let made = usable(shared, runtime, row).await?;
    make_room(shared, tenant).await?;
    let (volume, template) = made.ok_or_else(|| EngineError::DriverUnavailable {
        driver: runtime.name().to_owned(),
        reason: "a template that was just made does not fit this host".to_owned(),
    })?;
    Ok(Start { volume, template: Some(template), _holds: vec![right.downgrade()] })
}

/// The disk and the machine of a template, unless it was made under other circumstances.
async fn usable(
    shared: &Shared,
    runtime: &Arc<dyn Runtime>,
    row: LayerRow,
) -> Result<Option<(ImageId, Template)>, EngineError> {
    let Some(disk) = row.parent else { return Ok(None) };
    let volumes = &shared.seams.volumes;
    let (images, there) = (volumes.locate_image(&row.volume).await, volumes.locate_image(&disk).await);
    let (Ok(images), Ok(_)) = (images, there) else { return Ok(None) };
    let Ok(about) = tokio::fs::read_to_string(images.join(ABOUT)).await else { return Ok(None) };
    match runtime.misfit(&about).await {
        None => Ok(Some((disk, Template { images, about }))),
        Some(reason) => {
            tracing::info!(reason, "a template does not fit any more, and is made anew");
            Ok(None)
        }
    }
}

async fn make_template(
    shared: &Shared,
    tenant: &TenantId,
    image: &ImageId,
    runtime: &Arc<dyn Runtime>,
    limits: &Limits,
    key: String,
) -> Result<LayerRow, EngineError> {
    let volumes = &shared.seams.volumes;
    let (disk, _hold) = disk_of(shared, tenant, image, runtime).await?;
    let (booted, kept) = (ImageId::generate(), ImageId::generate());
    let images = volumes.stage_image(&kept).await?;
    let mut about = String::new();
    let on_disk = NewLayer {
        tenant: tenant.clone(),
        // One of an earlier try, or of a template that fits no more, is of no use.
        key: format!("{}{booted}", booted_prefix(image)),
        parent: Some(disk.clone()),
        what: format!("{image} as a disk, booted"),
    };
    let boot = async {
        let root = volumes.stage_image_from(&booted, &disk).await?;
        about = boot_once(shared, runtime, limits, &root, &images).await?;
        faults::hit("template.made")?;
        held_bytes(&root).await
    };
    if let Err(error) = layers::make(shared, on_disk, booted.clone(), boot).await {
        layers::discard(shared, &kept).await;
        return Err(error);
    }
    let what = format!("{image}, booted");
    let new = NewLayer { tenant: tenant.clone(), key, parent: Some(booted), what };
    let fill = async {
        let failed = |source| VolumeError::Step { step: "write to", what: kept.to_string(), source };
        tokio::fs::write(images.join(ABOUT), about).await.map_err(failed)?;
        held_bytes(&images).await
    };
    layers::make(shared, new, kept.clone(), fill).await
}

/// Under an id of its own, by which a crash's leftovers are found.
async fn boot_once(
    shared: &Shared,
    runtime: &Arc<dyn Runtime>,
    limits: &Limits,
    root: &Path,
    images: &Path,
) -> Result<String, EngineError> {
    let (id, network) = (SandboxId::generate(), &shared.seams.network);
    let link = network.connect_later(&id).await?;
    let options = TemplateOptions {
        root: root.to_owned(),
        images: images.to_owned(),
        limits: *limits,
        attachment: link.attachment,
    };
    let made = runtime.make_template(&id, options).await;
    network.release(&id).await?;
    Ok(made?.about)
}

/// Removes the templates used longest ago, beyond those that are kept.
async fn make_room(shared: &Shared, tenant: &TenantId) -> Result<(), EngineError> {
    let rows = shared.seams.catalog.list_layers(tenant).await?;
    let mut templates: Vec<&LayerRow> = rows.iter().filter(|row| row.key.starts_with("template:")).collect();
    templates.sort_by_key(|row| std::cmp::Reverse(row.used_ms));
    let mut stale: Vec<&LayerRow> = templates.split_off(templates.len().min(TEMPLATES_MAX));
    // What was replaced goes too, and the disks that no template has any more.
    stale.extend(rows.iter().filter(|row| row.key.starts_with("old:") && row.what.ends_with(", booted")));
    let gone: Vec<_> = stale.iter().map(|row| &row.volume).collect();
    let used = rows.iter().filter(|row| row.key.starts_with("template:") && !gone.contains(&&row.volume));
    let used: Vec<_> = used.filter_map(|row| row.parent.as_ref()).collect();
    stale.extend(rows.iter().filter(|row| row.key.starts_with("booted:") && !used.contains(&&row.volume)));
    for row in stale {
        remove(shared, tenant, row).await?;
    }
    Ok(())
}

/// Unless somebody is at work with it.
async fn remove(shared: &Shared, tenant: &TenantId, row: &LayerRow) -> Result<(), EngineError> {
    let Some(_right) = shared.images.locks.try_right(tenant, &row.key) else { return Ok(()) };
    // First the row: a crash in between leaves a volume without one, which the next start removes.
    if shared.seams.catalog.delete_layer(tenant, &row.key).await? {
        layers::discard(shared, &row.volume).await;
    }
    Ok(())
}

/// What the files of a directory take on disk; they are few.
async fn held_bytes(directory: &Path) -> Result<u64, EngineError> {
    use std::os::unix::fs::MetadataExt as _;
    let directory = directory.to_owned();
    let counted = tokio::task::spawn_blocking(move || {
        let entries = std::fs::read_dir(&directory)?;
        entries.map(|entry| Ok(entry?.metadata()?.blocks() * 512)).sum::<std::io::Result<u64>>()
    });
    let counted = counted.await.unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into()));
    let failed = |source| VolumeError::Step { step: "look at", what: "a disk".to_owned(), source };
    Ok(counted.map_err(failed)?)
}
