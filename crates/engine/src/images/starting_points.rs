//! What a new sandbox is copied from, depending on the form in which its driver stores files.
//!
//! ```text
//!   a tree:   the image's own subvolume
//!   a disk:   image ─► its disk, created once ─► a machine booted on a copy of it, then dumped: a template
//!                                                └─► every sandbox of that image and size continues from there
//! ```
//!
//! Disks and templates are stored like layers: found, or created by exactly one task; complete once their row is committed; swept
//! after a crash; removed with their image or when unused for long; and created again when they are missing. A template consists
//! of two disks: the disk as it was when the machine was dumped, which sandboxes get copies of, and the machine itself, which they
//! share.

use std::path::Path;
use std::sync::Arc;

use burrow_catalog::LayerRow;
use burrow_disks::{DiskError, DiskId};
use burrow_model::{ImageId, Limits, MIB, SandboxId, SandboxSpec, TenantId};
use burrow_runtime::{Form, Runtime, Template, TemplateOptions};

use super::layer_locks::LayerReadLock;
use super::layers::{self, LayerClaim, NewLayer};
use crate::shared::Shared;
use crate::{EngineError, faults};

/// Templates that a tenant has at most; the least recently used ones are removed.
const TEMPLATES_MAX: usize = 8;

/// The file of a template that holds its description, beside its RAM.
const ABOUT: &str = "about";

/// The space that a disk may use in the pool, as a multiple of its size: blocks that a guest overwrites in place are kept until
/// the whole old extent is free.
const DISK_SLACK: u64 = 2;

/// What a new sandbox is created from.
#[derive(Debug)]
pub(crate) struct Start {
    /// Its disk is a copy of this one.
    pub(crate) disk: ImageId,
    /// It continues from this machine instead of booting.
    pub(crate) template: Option<Template>,
    /// Keep both from being removed in the meantime.
    _holds: Vec<LayerReadLock>,
}

/// Bytes that a sandbox's disk may hold.
pub(crate) fn disk_bytes(shared: &Shared, spec: &SandboxSpec) -> u64 {
    bytes_of(shared.runtime(&spec.driver).map_or(Form::Tree, |runtime| runtime.form()), &spec.limits)
}

pub(crate) fn bytes_of(form: Form, limits: &Limits) -> u64 {
    let disk_bytes = u64::from(limits.disk_mib) * MIB;
    match form {
        Form::Tree => disk_bytes,
        Form::Disk => disk_bytes * DISK_SLACK,
    }
}

/// What a sandbox of this image is created from. Created now if it is missing.
pub(crate) async fn start_of(
    shared: &Shared,
    tenant: &TenantId,
    image: &ImageId,
    runtime: &Arc<dyn Runtime>,
    limits: &Limits,
) -> Result<Start, EngineError> {
    if runtime.form() == Form::Tree {
        return Ok(Start { disk: image.clone(), template: None, _holds: Vec::new() });
    }
    if let Some(kind) = runtime.own_disks().and_then(|disks| disks.template_kind(limits)) {
        match template_of(shared, tenant, image, runtime, limits, &kind).await {
            Ok(start) => return Ok(start),
            Err(error @ EngineError::Disk(DiskError::NotFound { disk: DiskId::Image(_) })) => {
                return Err(error);
            }
            Err(error) => report_cold_start(shared, tenant, image, &error),
        }
    }
    cold_start_of(shared, tenant, image, runtime).await
}

/// The same without a template: the machine boots.
pub(crate) async fn cold_start_of(
    shared: &Shared,
    tenant: &TenantId,
    image: &ImageId,
    runtime: &Arc<dyn Runtime>,
) -> Result<Start, EngineError> {
    let (disk, hold) = disk_of(shared, tenant, image, runtime).await?;
    Ok(Start { disk, template: None, _holds: vec![hold] })
}

/// Reports that a machine boots without a template, and why.
pub(crate) fn report_cold_start(shared: &Shared, tenant: &TenantId, image: &ImageId, why: &EngineError) {
    tracing::warn!(%image, error = why as &dyn std::error::Error, "no template can be used: the machine boots");
    let detail = serde_json::json!({ "image": image, "reason": why.to_string() });
    shared.event(tenant, "image.template-failed", None, detail);
}

/// The pool's copy of an image as a disk.
pub(crate) async fn disk_of(
    shared: &Shared,
    tenant: &TenantId,
    image: &ImageId,
    runtime: &Arc<dyn Runtime>,
) -> Result<(ImageId, LayerReadLock), EngineError> {
    let key = format!("{}{}", disk_prefix(image), runtime.name());
    let layer_lock = match layers::claim(shared, tenant, &key).await? {
        LayerClaim::There(row, hold) => return Ok((row.disk, hold)),
        LayerClaim::Missing(layer_lock) => layer_lock,
    };
    let disks = &shared.seams.disks;
    let tree = disks.locate(image.into()).await?;
    let disk = ImageId::generate();
    let what = format!("{image} as a disk");
    let new = NewLayer { tenant: tenant.clone(), key, parent: None, what };
    let fill = async {
        let into = disks.stage((&disk).into(), None).await?;
        let unfit = |source| EngineError::ImageUnfit { driver: runtime.name(), source };
        runtime.needs_own_disks()?.make_disk(&tree, &into).await.map_err(unfit)?;
        faults::hit("disk.made")?;
        held_bytes(&into).await
    };
    let row = layers::make(shared, new, disk.clone(), fill).await?;
    Ok((row.disk, layer_lock.downgrade()))
}

/// Removes the disks and templates of an image that is removed.
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
    let layer_lock = match layers::claim(shared, tenant, &key).await? {
        LayerClaim::There(row, hold) => {
            if let Some((disk, template)) = usable(shared, runtime, row).await? {
                return Ok(Start { disk, template: Some(template), _holds: vec![hold] });
            }
            drop(hold);
            // Another task may have created one in the meantime.
            let layer_lock = shared.images.locks.lock_exclusive(tenant, &key).await;
            if let Some(row) = shared.seams.catalog.layer(tenant, &key).await?
                && let Some((disk, template)) = usable(shared, runtime, row).await?
            {
                return Ok(Start { disk, template: Some(template), _holds: vec![layer_lock.downgrade()] });
            }
            layer_lock
        }
        LayerClaim::Missing(layer_lock) => layer_lock,
    };
    let row = make_template(shared, tenant, image, runtime, limits, key).await?;
    let made = usable(shared, runtime, row).await?;
    make_room(shared, tenant).await?;
    let (disk, template) = made.ok_or_else(|| EngineError::DriverUnavailable {
        driver: runtime.name().to_owned(),
        reason: "a template that was just created does not fit this host".to_owned(),
    })?;
    Ok(Start { disk, template: Some(template), _holds: vec![layer_lock.downgrade()] })
}

/// The disk and the machine of a template, if it still fits this host and driver.
async fn usable(
    shared: &Shared,
    runtime: &Arc<dyn Runtime>,
    row: LayerRow,
) -> Result<Option<(ImageId, Template)>, EngineError> {
    let Some(disk) = row.parent else { return Ok(None) };
    let disks = &shared.seams.disks;
    let (images, there) = (disks.locate((&row.disk).into()).await, disks.locate((&disk).into()).await);
    let (Ok(images), Ok(_)) = (images, there) else { return Ok(None) };
    let Ok(about) = tokio::fs::read_to_string(images.join(ABOUT)).await else { return Ok(None) };
    match runtime.misfit(&about).await {
        None => Ok(Some((disk, Template { images, about }))),
        Some(reason) => {
            tracing::info!(reason, "a template does not fit this host any more, and is created again");
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
    let disks = &shared.seams.disks;
    let (disk, _hold) = disk_of(shared, tenant, image, runtime).await?;
    let (booted, kept) = (ImageId::generate(), ImageId::generate());
    let images = disks.stage((&kept).into(), None).await?;
    let mut about = String::new();
    let on_disk = NewLayer {
        tenant: tenant.clone(),
        // One of an earlier attempt, or of a template that no longer fits, cannot be used.
        key: format!("{}{booted}", booted_prefix(image)),
        parent: Some(disk.clone()),
        what: format!("{image} as a disk, booted"),
    };
    let boot = async {
        let root = disks.stage((&booted).into(), Some((&disk).into())).await?;
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
        let failed = |source| DiskError::Step { step: "write to", what: kept.to_string(), source };
        tokio::fs::write(images.join(ABOUT), about).await.map_err(failed)?;
        held_bytes(&images).await
    };
    layers::make(shared, new, kept.clone(), fill).await
}

/// Under its own id, by which recovery finds what a crash leaves.
async fn boot_once(
    shared: &Shared,
    runtime: &Arc<dyn Runtime>,
    limits: &Limits,
    root: &Path,
    images: &Path,
) -> Result<String, EngineError> {
    let (id, network) = (SandboxId::generate(), &shared.seams.network);
    let disks = runtime.needs_own_disks()?;
    let link = network.connect_later(&id).await?;
    let options = TemplateOptions {
        root: root.to_owned(),
        images: images.to_owned(),
        limits: *limits,
        attachment: link.attachment,
    };
    let made = disks.make_template(&id, options).await;
    network.release(&id).await?;
    Ok(made?.about)
}

/// Removes the least recently used templates beyond the maximum.
async fn make_room(shared: &Shared, tenant: &TenantId) -> Result<(), EngineError> {
    let rows = shared.seams.catalog.list_layers(tenant).await?;
    let mut templates: Vec<&LayerRow> = rows.iter().filter(|row| row.key.starts_with("template:")).collect();
    templates.sort_by_key(|row| std::cmp::Reverse(row.used_ms));
    let mut stale: Vec<&LayerRow> = templates.split_off(templates.len().min(TEMPLATES_MAX));
    // Replaced ones are removed too, and the disks that no template uses any more.
    stale.extend(rows.iter().filter(|row| row.key.starts_with("old:") && row.what.ends_with(", booted")));
    let gone: Vec<_> = stale.iter().map(|row| &row.disk).collect();
    let used = rows.iter().filter(|row| row.key.starts_with("template:") && !gone.contains(&&row.disk));
    let used: Vec<_> = used.filter_map(|row| row.parent.as_ref()).collect();
    stale.extend(rows.iter().filter(|row| row.key.starts_with("booted:") && !used.contains(&&row.disk)));
    for row in stale {
        remove(shared, tenant, row).await?;
    }
    Ok(())
}

/// Unless it is in use.
async fn remove(shared: &Shared, tenant: &TenantId, row: &LayerRow) -> Result<(), EngineError> {
    let Some(_right) = shared.images.locks.try_lock_exclusive(tenant, &row.key) else { return Ok(()) };
    // The row first: a crash in between leaves a subvolume without one, which the next start removes.
    if shared.seams.catalog.delete_layer(tenant, &row.key).await? {
        layers::discard(shared, &row.disk).await;
    }
    Ok(())
}

/// The disk space that the files of a directory use; they are few.
async fn held_bytes(directory: &Path) -> Result<u64, EngineError> {
    use std::os::unix::fs::MetadataExt as _;
    let directory = directory.to_owned();
    let counted = tokio::task::spawn_blocking(move || {
        let entries = std::fs::read_dir(&directory)?;
        entries.map(|entry| Ok(entry?.metadata()?.blocks() * 512)).sum::<std::io::Result<u64>>()
    });
    let counted = counted.await.unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into()));
    let failed = |source| DiskError::Step { step: "read", what: "a disk".to_owned(), source };
    Ok(counted.map_err(failed)?)
}
