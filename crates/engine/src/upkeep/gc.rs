//! Garbage collection: finds stale sandboxes, snapshots and images, reports their sizes and, on request, removes them.

use std::collections::HashSet;

use burrow_catalog::SandboxRow;
use burrow_model::{Snapshot, SnapshotKind, State, TenantId};

use crate::snapshots::removal::remove_snapshot;
use crate::{Engine, EngineError};

#[derive(Clone, Copy, Debug)]
pub struct GcOptions {
    /// Removes stale items; otherwise they are only reported.
    pub apply: bool,
    /// Items that were unused for this long are stale.
    pub unused_for_ms: u64,
}

#[derive(Clone, Debug)]
pub struct GcReport {
    pub items: Vec<GcItem>,
    /// The size of everything that was or would be removed.
    pub freed_bytes: u64,
}

/// One stale item.
#[derive(Clone, Debug)]
pub struct GcItem {
    pub thing: GcObject,
    pub id: String,
    pub name: Option<String>,
    /// Why it is stale.
    pub why: String,
    /// Bytes that only this item uses, as far as known.
    pub bytes: u64,
    pub action: GcAction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GcObject {
    Sandbox,
    Snapshot,
    Image,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GcAction {
    /// A person has to decide.
    Kept,
    WouldRemove,
    Removed,
    Failed(String),
}

impl Engine {
    pub async fn gc(&self, tenant: &TenantId, options: GcOptions) -> Result<GcReport, EngineError> {
        let lineage = self.shared.seams.catalog.lineage(tenant).await?;
        let mut report = GcReport { items: Vec::new(), freed_bytes: 0 };
        for snapshot in &lineage.snapshots {
            if let Some((why, removable)) = self.stale_snapshot(snapshot, &lineage.sandboxes, options).await?
            {
                let bytes = self.shared.seams.disks.used((&snapshot.id).into()).await.unwrap_or(0);
                let item = GcItem {
                    thing: GcObject::Snapshot,
                    id: snapshot.id.to_string(),
                    name: snapshot.name.as_ref().map(ToString::to_string),
                    why,
                    bytes: bytes.saturating_add(snapshot.ram_bytes),
                    action: planned(removable),
                };
                let removal = async { remove_snapshot(&self.shared, snapshot).await };
                report.settle(item, options.apply, removal).await;
            }
        }
        for row in &lineage.sandboxes {
            if let Some(why) = self.stale_sandbox(row, options) {
                let item = GcItem {
                    thing: GcObject::Sandbox,
                    id: row.id.to_string(),
                    name: row.name.as_ref().map(ToString::to_string),
                    why,
                    bytes: self.shared.seams.disks.used((&row.id).into()).await.unwrap_or(0),
                    action: planned(self.shared.policy.idle.gc_sandboxes),
                };
                report.settle(item, options.apply, self.delete(tenant, &row.id)).await;
            }
        }
        self.stale_images(tenant, options, &mut report).await?;
        Ok(report)
    }

    /// Why a snapshot is stale, and whether it may be removed without asking: a manual snapshot may not.
    async fn stale_snapshot(
        &self,
        snapshot: &Snapshot,
        sandboxes: &[SandboxRow],
        options: GcOptions,
    ) -> Result<Option<(String, bool)>, EngineError> {
        let wanted =
            |row: &SandboxRow| row.spec.rotate.as_ref().is_some_and(|rotate| rotate.snapshot == snapshot.id);
        if sandboxes.iter().any(wanted) {
            return Ok(None);
        }
        let age_ms = self.now_ms().saturating_sub(snapshot.created_ms);
        let orphan = !sandboxes.iter().any(|row| row.id == snapshot.sandbox);
        let old = age_ms >= options.unused_for_ms;
        Ok(match snapshot.kind {
            SnapshotKind::Fork => {
                let children = self.shared.seams.catalog.children_of_snapshot(&snapshot.id).await?;
                children.is_empty().then(|| ("no child of its fork exists any more".to_owned(), true))
            }
            SnapshotKind::Manual if orphan && old => {
                Some((format!("its sandbox was deleted; {} old", days(age_ms)), false))
            }
            SnapshotKind::Manual => None,
            SnapshotKind::Policy
            | SnapshotKind::BeforeRestore
            | SnapshotKind::Exec
            | SnapshotKind::BeforeRotate
            | SnapshotKind::BeforeMerge => {
                let why = if orphan { "its sandbox was deleted" } else { "taken automatically" };
                (orphan || old).then(|| (format!("{why}; {} old", days(age_ms)), true))
            }
        })
    }

    fn stale_sandbox(&self, row: &SandboxRow, options: GcOptions) -> Option<String> {
        if !matches!(row.state, State::Stopped | State::Failed | State::Hibernated | State::Paused) {
            return None;
        }
        let last_ms = row.active_ms.unwrap_or(0).max(row.updated_ms).max(row.stopped_ms.unwrap_or(0));
        let unused_ms = self.now_ms().saturating_sub(last_ms);
        (unused_ms >= options.unused_for_ms).then(|| format!("unused for {}", days(unused_ms)))
    }

    /// Images without a name from which nothing was created. Images with a name are kept, because a user named them.
    async fn stale_images(
        &self,
        tenant: &TenantId,
        options: GcOptions,
        report: &mut GcReport,
    ) -> Result<(), EngineError> {
        let catalog = &self.shared.seams.catalog;
        let unused = catalog.unused_images(tenant).await?;
        let ids: HashSet<_> = unused.iter().map(|row| row.image.id.clone()).collect();
        for row in unused {
            let item = GcItem {
                thing: GcObject::Image,
                id: row.image.id.to_string(),
                name: None,
                why: "it has no name, and nothing was created from it".to_owned(),
                bytes: row.image.size_bytes,
                action: planned(true),
            };
            let removal = async { self.remove_image_itself(tenant, &row.image).await.map(drop) };
            report.settle(item, options.apply, removal).await;
        }
        let now = self.now_ms();
        let lineage = catalog.lineage(tenant).await?;
        let used: HashSet<_> = lineage
            .sandboxes
            .iter()
            .map(|row| &row.image)
            .chain(lineage.snapshots.iter().map(|snapshot| &snapshot.image))
            .collect();
        for row in catalog.list_images(tenant).await? {
            let age_ms = now.saturating_sub(row.image.created_ms);
            if ids.contains(&row.image.id) || used.contains(&row.image.id) || age_ms < options.unused_for_ms {
                continue;
            }
            report.items.push(GcItem {
                thing: GcObject::Image,
                id: row.image.id.to_string(),
                name: row.image.names.first().map(ToString::to_string),
                why: format!("no sandbox uses it; {} old", days(age_ms)),
                bytes: row.image.size_bytes,
                action: GcAction::Kept,
            });
        }
        Ok(())
    }
}

fn planned(removable: bool) -> GcAction {
    if removable { GcAction::WouldRemove } else { GcAction::Kept }
}

impl GcReport {
    /// Adds an item to the report, and removes it if requested.
    async fn settle(
        &mut self,
        mut item: GcItem,
        apply: bool,
        removal: impl Future<Output = Result<(), EngineError>>,
    ) {
        if item.action == GcAction::WouldRemove {
            let done = if apply { removal.await } else { Ok(()) };
            match done {
                Ok(()) => {
                    self.freed_bytes = self.freed_bytes.saturating_add(item.bytes);
                    if apply {
                        item.action = GcAction::Removed;
                    }
                }
                Err(error) => item.action = GcAction::Failed(error.to_string()),
            }
        }
        self.items.push(item);
    }
}

/// A duration in words.
fn days(ms: u64) -> String {
    const HOUR_MS: u64 = 60 * 60 * 1000;
    match ms / HOUR_MS {
        0 => "less than an hour".to_owned(),
        hours @ 1..=47 => format!("{hours} h"),
        hours => format!("{} days", hours / 24),
    }
}
