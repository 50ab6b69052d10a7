//! A driver that fails on demand; see [`Fault`]. Only calls that change something are counted.

use std::path::PathBuf;

use async_trait::async_trait;
use burrow_model::{Changes, DumpId, FailMode, Fault, ImageId, SandboxId, SnapshotId};

use crate::{
    Chunks, Comparison, DiskError, DiskId, Disks, Dump, Effort, Inventory, Space, TimeComparison, Tree,
};

/// Passes calls to `inner`; one of the calls that change something fails.
#[derive(Debug)]
pub struct FaultyDisks<V> {
    pub inner: V,
    fault: Fault,
}

impl<V> FaultyDisks<V> {
    pub fn new(inner: V, fail_at: u64, fails: FailMode) -> Self {
        Self { inner, fault: Fault::new(fail_at, fails) }
    }

    /// Whether the failure has happened.
    pub fn has_failed(&self) -> bool {
        self.fault.has_happened()
    }

    /// Ends a lasting failure.
    pub fn repair(&self) {
        self.fault.repair();
    }

    /// One call that changes something.
    async fn change<T>(&self, call: impl Future<Output = Result<T, DiskError>>) -> Result<T, DiskError> {
        self.fault.run(DiskError::Injected, call).await
    }
}

#[async_trait]
impl<V: Disks> Disks for FaultyDisks<V> {
    async fn stage(&self, disk: DiskId, from: Option<DiskId>) -> Result<PathBuf, DiskError> {
        self.change(self.inner.stage(disk, from)).await
    }

    async fn seal(&self, disk: DiskId) -> Result<(), DiskError> {
        self.change(self.inner.seal(disk)).await
    }

    async fn create(
        &self,
        disk: DiskId,
        from: Option<DiskId>,
        disk_bytes: u64,
    ) -> Result<PathBuf, DiskError> {
        self.change(self.inner.create(disk, from, disk_bytes)).await
    }

    async fn replace(&self, disk: DiskId, from: DiskId, disk_bytes: u64) -> Result<PathBuf, DiskError> {
        self.change(self.inner.replace(disk, from, disk_bytes)).await
    }

    async fn snapshot(&self, disk: DiskId, of: DiskId) -> Result<(), DiskError> {
        self.change(self.inner.snapshot(disk, of)).await
    }

    async fn locate(&self, disk: DiskId) -> Result<PathBuf, DiskError> {
        self.inner.locate(disk).await
    }

    async fn remove(&self, disk: DiskId) -> Result<(), DiskError> {
        self.change(self.inner.remove(disk)).await
    }

    async fn used(&self, disk: DiskId) -> Result<u64, DiskError> {
        self.inner.used(disk).await
    }

    async fn set_quota(&self, id: &SandboxId, disk_bytes: u64) -> Result<(), DiskError> {
        self.change(self.inner.set_quota(id, disk_bytes)).await
    }

    async fn sync(&self, id: &SandboxId) -> Result<(), DiskError> {
        self.change(self.inner.sync(id)).await
    }

    async fn inventory(&self) -> Result<Inventory, DiskError> {
        self.inner.inventory().await
    }

    async fn space(&self) -> Result<Space, DiskError> {
        self.inner.space().await
    }

    async fn space_for(&self, needed_bytes: u64) -> Result<Space, DiskError> {
        self.inner.space_for(needed_bytes).await
    }

    async fn send(&self, disk: DiskId, base: Option<DiskId>) -> Result<Chunks, DiskError> {
        self.inner.send(disk, base).await
    }

    async fn receive(&self, disk: DiskId, disk_bytes: u64, chunks: Chunks) -> Result<(), DiskError> {
        self.change(self.inner.receive(disk, disk_bytes, chunks)).await
    }

    async fn changes(
        &self,
        from: Option<&SnapshotId>,
        to: &SnapshotId,
        image: &ImageId,
        paths_max: usize,
        effort: Effort,
    ) -> Result<Changes, DiskError> {
        self.inner.changes(from, to, image, paths_max, effort).await
    }

    async fn compare(&self, old: &Tree, new: &Tree, times: TimeComparison) -> Result<Comparison, DiskError> {
        self.inner.compare(old, new, times).await
    }

    async fn names_of(&self, tree: &Tree, path: &[u8]) -> Result<Vec<Vec<u8>>, DiskError> {
        self.inner.names_of(tree, path).await
    }

    async fn stage_dump(&self, id: &DumpId) -> Result<PathBuf, DiskError> {
        self.change(self.inner.stage_dump(id)).await
    }

    async fn seal_dump(&self, id: &DumpId, about: &str, evict: bool) -> Result<u64, DiskError> {
        self.change(self.inner.seal_dump(id, about, evict)).await
    }

    async fn open_dump(&self, id: &DumpId) -> Result<Dump, DiskError> {
        self.inner.open_dump(id).await
    }

    async fn remove_dump(&self, id: &DumpId) -> Result<(), DiskError> {
        self.change(self.inner.remove_dump(id)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::Sim;

    #[tokio::test]
    async fn only_the_chosen_call_fails_and_reading_is_not_counted() {
        let faulty = FaultyDisks::new(Sim::default(), 1, FailMode::BeforeActing);
        let image = ImageId::generate();
        faulty.stage((&image).into(), None).await.unwrap();
        faulty.inventory().await.unwrap();
        assert!(!faulty.has_failed());
        assert!(matches!(faulty.seal((&image).into()).await, Err(DiskError::Injected)));
        assert!(faulty.has_failed());
        faulty.seal((&image).into()).await.unwrap();
    }

    #[tokio::test]
    async fn a_failure_before_acting_changes_nothing_and_one_after_has_done_the_work() {
        for (fails, staged) in [(FailMode::BeforeActing, 0), (FailMode::AfterActing, 1)] {
            let faulty = FaultyDisks::new(Sim::default(), 0, fails);
            let answer = faulty.stage((&ImageId::generate()).into(), None).await;
            assert!(matches!(answer, Err(DiskError::Injected)));
            assert_eq!(faulty.inventory().await.unwrap().staged.len(), staged);
        }
    }
}
