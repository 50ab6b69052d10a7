//! Removes content that no space refers to.
//!
//! Two phases. First, without blocking uploads: list objects that are old enough, and exclude those that some space
//! refers to. Then, with the lock (see [`super::store`]): exclude those that were referred to meanwhile, and remove the rest.
//! If a space cannot be read, nothing is removed, because its references are unknown.

use std::collections::HashMap;
use std::path::Path;

use futures_util::TryStreamExt;
use object_store::path::Path as Place;
use object_store::{ObjectMeta, ObjectStore as _, ObjectStoreExt as _};
use serde::Serialize;

use super::hash::BlobHash;
use super::store::{Blobs, INCOMING, hash_at};
use crate::space::open_reader;
use crate::{Memory, MemoryError, blocking};

/// Newer objects are kept: an upload of this process, or of one that shares the store, may be about to refer to them.
pub(super) const SWEEP_GRACE_MS: u64 = 3600 * 1000;

/// Uploads that take longer than this are removed.
pub(super) const INCOMING_GRACE_MS: u64 = 48 * 3600 * 1000;

/// Objects that are processed together: the RAM that a sweep uses.
const BATCH_MAX: usize = 10_000;

/// The result of a sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SweepReport {
    /// Contents without references.
    pub blobs: u64,
    pub bytes: u64,
    /// Uploads that were never finished.
    pub unfinished: u64,
}

/// Objects without references so far, and their sizes.
type Candidates = HashMap<BlobHash, (Place, u64)>;

impl Memory {
    /// Removes content that no space refers to. Call it once per upkeep round, after `collect`.
    pub async fn sweep(&self, dry_run: bool) -> Result<SweepReport, MemoryError> {
        let blobs = self.blob_store();
        let now_ms = self.shared.clock.now_ms();
        let mut swept = SweepReport::default();
        let mut listed = blobs.store().list(None);
        loop {
            let mut candidates = Candidates::new();
            let mut ended = true;
            while let Some(object) = listed.try_next().await.map_err(failed("list"))? {
                if let Some(hash) = hash_at(&object.location) {
                    if age_ms(&object, now_ms) >= SWEEP_GRACE_MS {
                        candidates.insert(hash, (object.location, object.size));
                    }
                } else if is_abandoned(&object, now_ms) {
                    swept.unfinished += 1;
                    if !dry_run {
                        remove(blobs, &object.location).await?;
                    }
                }
                if candidates.len() == BATCH_MAX {
                    ended = false;
                    break;
                }
            }
            self.sweep_batch(candidates, dry_run, &mut swept).await?;
            if ended {
                return Ok(swept);
            }
        }
    }

    async fn sweep_batch(
        &self,
        candidates: Candidates,
        dry_run: bool,
        swept: &mut SweepReport,
    ) -> Result<(), MemoryError> {
        let candidates = self.unreferenced(candidates).await?;
        if candidates.is_empty() {
            return Ok(());
        }
        let _alone = self.blob_store().sweeping().await;
        for (location, bytes) in self.unreferenced(candidates).await?.into_values() {
            if !dry_run {
                remove(self.blob_store(), &location).await?;
            }
            swept.blobs += 1;
            swept.bytes += bytes;
        }
        Ok(())
    }

    /// Excludes the objects that any space refers to.
    async fn unreferenced(&self, mut candidates: Candidates) -> Result<Candidates, MemoryError> {
        for space in self.spaces().await? {
            if candidates.is_empty() {
                break;
            }
            let path = self.shared.slots.path(&space);
            candidates = blocking(move || exclude_referenced(candidates, &path)).await?;
        }
        Ok(candidates)
    }
}

fn exclude_referenced(mut candidates: Candidates, path: &Path) -> Result<Candidates, MemoryError> {
    let connection = match open_reader(path) {
        Ok(connection) => connection,
        // The space was removed since it was listed, and its references with it.
        Err(_) if !path.exists() => return Ok(candidates),
        Err(error) => return Err(error),
    };
    let mut statement =
        connection.prepare("SELECT hash FROM artifacts WHERE released = 0 AND hash IS NOT NULL")?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        let hash = row.get_ref(0)?.as_blob().ok().and_then(BlobHash::from_bytes);
        if let Some(hash) = hash {
            candidates.remove(&hash);
        }
    }
    Ok(candidates)
}

fn is_abandoned(object: &ObjectMeta, now_ms: u64) -> bool {
    object.location.prefix_matches(&Place::from(INCOMING)) && age_ms(object, now_ms) >= INCOMING_GRACE_MS
}

fn age_ms(object: &ObjectMeta, now_ms: u64) -> u64 {
    now_ms.saturating_sub(u64::try_from(object.last_modified.timestamp_millis()).unwrap_or(0))
}

async fn remove(blobs: &Blobs, location: &Place) -> Result<(), MemoryError> {
    match blobs.store().delete(location).await {
        Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
        Err(source) => Err(failed("remove from")(source)),
    }
}

fn failed(doing: &'static str) -> impl Fn(object_store::Error) -> MemoryError {
    move |source| MemoryError::Blob { doing, source }
}
