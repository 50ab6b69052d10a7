//! An image's layers, one upon the other: those that are there are used, the others are unpacked.

use std::io::Read;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use burrow_catalog::LayerRow;
use burrow_images::layer::{self, ApplyLimits, ApplyOptions};
use burrow_images::{DiffId, ImageError, ImageSpec, Layer};
use burrow_model::{ImageId, ImageStep, TenantId};
use burrow_volumes::{UID_COUNT, UID_SHIFT};

use super::finish::{blocking, stage_upon};
use super::layers::{Claim, Hold, NewLayer, claim, make};
use super::progress::{ImageItem, ItemState};
use super::{Files, Tell};
use crate::shared::Shared;
use crate::{EngineError, faults};

/// Where the bytes of layers come from, by their place in the image.
pub(super) trait LayerSource: Send + Sync {
    fn open(&self, index: usize) -> Result<Box<dyn Read + Send>, ImageError>;
}

/// The layers of one image, each found or to be made.
#[derive(Debug)]
pub(super) struct Stack {
    tenant: TenantId,
    keys: Vec<String>,
    claims: Vec<Claim>,
}

/// A stack that is whole.
#[derive(Debug)]
pub(super) struct Stacked {
    pub(super) files: Files,
    pub(super) layer: Option<ImageId>,
    pub(super) size_bytes: u64,
    pub(super) history: Vec<ImageStep>,
    /// Until the image itself is there, which then keeps its layers.
    pub(super) _holds: Vec<Hold>,
}

impl Stack {
    /// Looks every layer up, lowest first, and waits for those that somebody else is making.
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

    /// The layers that must be unpacked: all above the highest that is there.
    pub(super) fn missing(&self) -> Vec<usize> {
        let there = |claim: &Claim| matches!(claim, Claim::There(..));
        let first = self.claims.iter().rposition(there).map_or(0, |highest| highest + 1);
        (first..self.claims.len()).collect()
    }

    /// Unpacks what is missing.
    pub(super) async fn fill(
        self,
        shared: &Shared,
        spec: &ImageSpec,
        source: Arc<dyn LayerSource>,
        tell: &Tell,
    ) -> Result<Stacked, EngineError> {
        let missing = self.missing();
        let count = self.keys.len();
        let mut stacked = Stacked {
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
                Claim::There(row, hold) => {
                    tell.item(item(index, count, &what, ItemState::Cached, layer));
                    stacked._holds.push(hold);
                    row
                }
                // Nothing is made below a layer that is there: that one holds it all.
                Claim::Missing(_) if !missing.contains(&index) => continue,
                Claim::Missing(right) => {
                    let new = NewLayer {
                        tenant: self.tenant.clone(),
                        key,
                        parent: below.as_ref().map(|below| below.volume.clone()),
                        what: format!("layer {what}"),
                    };
                    let place = Place { index, count, what: what.clone(), source: source.clone() };
                    let parent = below.as_ref().map(|below| &below.volume);
                    let row = unpack(shared, new, parent, spec, place, tell).await?;
                    tell.item(item(index, count, &what, ItemState::Done, layer));
                    stacked._holds.push(right.downgrade());
                    row
                }
            };
            stacked.history.push(ImageStep {
                what: row.what.clone(),
                size_bytes: row.size_bytes,
                layer: Some(row.key.clone()),
            });
            stacked.size_bytes += row.size_bytes;
            below = Some(row);
        }
        if let Some(top) = below {
            stacked.files = Files::Volume(top.volume.clone());
            stacked.layer = Some(top.volume);
        }
        Ok(stacked)
    }
}

/// Which layer of how many.
struct Place {
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
    place: Place,
    tell: &Tell,
) -> Result<LayerRow, EngineError> {
    let volume = ImageId::generate();
    let (stored, expected) = (spec.layers[place.index].clone(), spec.diff_ids[place.index]);
    let (cancelled, tell) = (shared.images.closing(), tell.clone());
    let fill = async {
        let root = stage_upon(shared, &volume, parent).await?;
        faults::hit("layer.staged")?;
        let bytes = blocking(move || {
            let root = std::fs::File::open(&root).map_err(|source| ImageError::Io {
                step: "open",
                what: root.display().to_string(),
                source,
            })?;
            let told = |bytes| {
                let state = ItemState::Unpacking;
                tell.item(ImageItem { bytes, ..item(place.index, place.count, &place.what, state, &stored) });
            };
            told(0);
            let options = ApplyOptions {
                compression: stored.compression,
                expected,
                uid_shift: UID_SHIFT,
                uid_count: UID_COUNT,
                limits: ApplyLimits::DEFAULT,
                cancelled: &cancelled,
                progress: &told,
            };
            Ok(layer::apply(place.source.open(place.index)?, root.as_fd(), &options)?.bytes)
        })
        .await?;
        faults::hit("layer.filled")?;
        Ok(bytes)
    };
    make(shared, new, volume.clone(), fill).await
}

fn item(index: usize, count: usize, what: &str, state: ItemState, layer: &Layer) -> ImageItem {
    let bytes = if state == ItemState::Done { layer.size } else { 0 };
    ImageItem { index, count, what: what.to_owned(), state, bytes, bytes_total: Some(layer.size) }
}

/// As much of a digest as people compare.
pub(super) fn shown(diff_id: &DiffId) -> String {
    diff_id.0.hex().chars().take(12).collect()
}
