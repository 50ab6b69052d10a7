//! The layers of an image, on top of each other: existing ones are used, the others are unpacked.

use std::io::Read;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use burrow_catalog::LayerRow;
use burrow_disks::{UID_COUNT, UID_SHIFT};
use burrow_images::layer::{self, ApplyLimits, ApplyOptions};
use burrow_images::{DiffId, ImageError, ImageSpec, Layer};
use burrow_model::{ImageId, ImageStep, TenantId};

use super::finish::{blocking, stage_from};
use super::layer_locks::LayerReadLock;
use super::layers::{LayerClaim, NewLayer, claim, make};
use super::progress::{ImageItem, ItemState};
use super::{Files, ImageProgressSink};
use crate::shared::Shared;
use crate::{EngineError, faults};

/// The source of the layers' bytes, by their index in the image.
pub(super) trait LayerSource: Send + Sync {
    fn open(&self, index: usize) -> Result<Box<dyn Read + Send>, ImageError>;
}

/// The layers of one image, each found or to be made.
#[derive(Debug)]
pub(super) struct Stack {
    tenant: TenantId,
    keys: Vec<String>,
    claims: Vec<LayerClaim>,
}

/// A complete stack.
#[derive(Debug)]
pub(super) struct CompleteStack {
    pub(super) files: Files,
    pub(super) layer: Option<ImageId>,
    pub(super) size_bytes: u64,
    pub(super) history: Vec<ImageStep>,
    /// Held until the image itself exists, which then keeps its layers.
    pub(super) _holds: Vec<LayerReadLock>,
}

impl Stack {
    /// Looks up every layer, lowest first, and waits for those that another task is making.
    pub(super) async fn claim(
        shared: &Shared,
        tenant: &TenantId,
        spec: &ImageSpec,
    ) -> Result<Self, EngineError> {
        let keys: Vec<String> = spec.chain_ids().iter().map(ToString::to_string).collect();
        let mut claims = Vec::with_capacity(keys.len());
        for key in &keys {
            claims.push(claim(shared, tenant, key).await?);
        }
        Ok(Self { tenant: tenant.clone(), keys, claims })
    }

    /// The layers that must be unpacked: all above the highest existing one.
    pub(super) fn missing(&self) -> Vec<usize> {
        let there = |claim: &LayerClaim| matches!(claim, LayerClaim::There(..));
        let first = self.claims.iter().rposition(there).map_or(0, |highest| highest + 1);
        (first..self.claims.len()).collect()
    }

    /// Unpacks what is missing.
    pub(super) async fn fill(
        self,
        shared: &Shared,
        spec: &ImageSpec,
        source: Arc<dyn LayerSource>,
        tell: &ImageProgressSink,
    ) -> Result<CompleteStack, EngineError> {
        let missing = self.missing();
        let count = self.keys.len();
        let mut stack = CompleteStack {
            files: Files::None,
            layer: None,
            size_bytes: 0,
            history: Vec::new(),
            _holds: Vec::new(),
        };
        let mut below: Option<LayerRow> = None;
        for (index, (key, claim)) in self.keys.into_iter().zip(self.claims).enumerate() {
            let (layer, what) = (&spec.layers[index], shown(&spec.diff_ids[index]));
            let row = match claim {
                LayerClaim::There(row, hold) => {
                    tell.item(item(index, count, &what, ItemState::Cached, layer));
                    stack._holds.push(hold);
                    row
                }
                // Layers below an existing one are not needed: it contains their files.
                LayerClaim::Missing(_) if !missing.contains(&index) => continue,
                LayerClaim::Missing(layer_lock) => {
                    let new = NewLayer {
                        tenant: self.tenant.clone(),
                        key,
                        parent: below.as_ref().map(|below| below.disk.clone()),
                        what: format!("layer {what}"),
                    };
                    let place = LayerPosition { index, count, what: what.clone(), source: source.clone() };
                    let parent = below.as_ref().map(|below| &below.disk);
                    let row = unpack(shared, new, parent, spec, place, tell).await?;
                    tell.item(item(index, count, &what, ItemState::Done, layer));
                    stack._holds.push(layer_lock.downgrade());
                    row
                }
            };
            stack.history.push(ImageStep {
                what: row.what.clone(),
                size_bytes: row.size_bytes,
                layer: Some(row.key.clone()),
            });
            stack.size_bytes += row.size_bytes;
            below = Some(row);
        }
        if let Some(top) = below {
            stack.files = Files::Image(top.disk.clone());
            stack.layer = Some(top.disk);
        }
        Ok(stack)
    }
}

/// The position of a layer.
struct LayerPosition {
    index: usize,
    count: usize,
    what: String,
    source: Arc<dyn LayerSource>,
}

async fn unpack(
    shared: &Shared,
    new: NewLayer,
    parent: Option<&ImageId>,
    spec: &ImageSpec,
    place: LayerPosition,
    tell: &ImageProgressSink,
) -> Result<LayerRow, EngineError> {
    let disk = ImageId::generate();
    let (stored, expected) = (spec.layers[place.index].clone(), spec.diff_ids[place.index]);
    let (cancelled, tell) = (shared.images.closing(), tell.clone());
    let fill = async {
        let root = stage_from(shared, &disk, parent).await?;
        faults::hit("layer.staged")?;
        let bytes = blocking(move || {
            let root = std::fs::File::open(&root).map_err(|source| ImageError::Io {
                step: "open",
                what: root.display().to_string(),
                source,
            })?;
            let report = |bytes| {
                let state = ItemState::Unpacking;
                tell.item(ImageItem { bytes, ..item(place.index, place.count, &place.what, state, &stored) });
            };
            report(0);
            let options = ApplyOptions {
                compression: stored.compression,
                expected,
                uid_shift: UID_SHIFT,
                uid_count: UID_COUNT,
                limits: ApplyLimits::DEFAULT,
                cancelled: &cancelled,
                progress: &report,
            };
            Ok(layer::apply(place.source.open(place.index)?, root.as_fd(), &options)?.bytes)
        })
        .await?;
        faults::hit("layer.filled")?;
        Ok(bytes)
    };
    make(shared, new, disk.clone(), fill).await
}

fn item(index: usize, count: usize, what: &str, state: ItemState, layer: &Layer) -> ImageItem {
    let bytes = if state == ItemState::Done { layer.size } else { 0 };
    ImageItem { index, count, what: what.to_owned(), state, bytes, bytes_total: Some(layer.size) }
}

/// The part of a digest that is shown to users.
pub(super) fn shown(diff_id: &DiffId) -> String {
    diff_id.0.hex().chars().take(12).collect()
}
