//! A driver that fails on demand, for walking every failure.
//!
//! A step can fail in two ways that its caller cannot tell apart: it did nothing, or it did all and the answer was
//! lost. Both must be walked, since only the second finds an undo that forgets what was made.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use burrow_model::{ImageId, SandboxId};

use crate::{Chunks, Inventory, Space, VolumeError, VolumeId, Volumes};

/// Whether a failing call does its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fails {
    BeforeActing,
    AfterActing,
}

/// Passes calls on to `inner`; one of those that change something fails.
#[derive(Debug)]
pub struct Faulty<V> {
    pub inner: V,
    fails: Fails,
    /// Calls left until the one that fails.
    left: AtomicU64,
}

impl<V> Faulty<V> {
    /// Lets `fail_at` changing calls pass, fails the next, and lets the rest pass.
    pub fn new(inner: V, fail_at: u64, fails: Fails) -> Self {
        Self { inner, fails, left: AtomicU64::new(fail_at) }
    }

    /// Whether the failure has happened. A walk ends with the first run that did not meet it.
    pub fn has_failed(&self) -> bool {
        self.left.load(Ordering::SeqCst) == u64::MAX
    }

    /// Counts a call; `true` for the one that must fail. After it the counter rests at `u64::MAX`.
    fn is_the_one(&self) -> bool {
        let before = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| match left {
            u64::MAX => None,
            0 => Some(u64::MAX),
            left => Some(left - 1),
        });
        before == Ok(0)
    }

    /// One call that changes something.
    async fn change<T: Send>(
        &self,
        call: impl Future<Output = Result<T, VolumeError>> + Send,
    ) -> Result<T, VolumeError> {
        if !self.is_the_one() {
            return call.await;
        }
        match self.fails {
            Fails::BeforeActing => {}
            Fails::AfterActing => {
                call.await?;
            }
        }
        Err(VolumeError::Injected)
    }
}

#[async_trait]
impl<V: Volumes> Volumes for Faulty<V> {
    async fn stage_image(&self, id: &ImageId) -> Result<PathBuf, VolumeError> {
        self.change(self.inner.stage_image(id)).await
    }

    async fn stage_image_from(&self, id: &ImageId, parent: &ImageId) -> Result<PathBuf, VolumeError> {
        self.change(self.inner.stage_image_from(id, parent)).await
    }

    async fn stage_image_of_sandbox(
        &self,
        id: &ImageId,
        sandbox: &SandboxId,
    ) -> Result<PathBuf, VolumeError> {
        self.change(self.inner.stage_image_of_sandbox(id, sandbox)).await
    }

    async fn locate_image(&self, id: &ImageId) -> Result<PathBuf, VolumeError> {
        self.inner.locate_image(id).await
    }

    async fn seal_image(&self, id: &ImageId) -> Result<(), VolumeError> {
        self.change(self.inner.seal_image(id)).await
    }

    async fn remove_image(&self, id: &ImageId) -> Result<(), VolumeError> {
        self.change(self.inner.remove_image(id)).await
    }

    async fn create(&self, id: &SandboxId, image: &ImageId, disk_bytes: u64) -> Result<PathBuf, VolumeError> {
        self.change(self.inner.create(id, image, disk_bytes)).await
    }

    async fn locate(&self, id: &SandboxId) -> Result<PathBuf, VolumeError> {
        self.inner.locate(id).await
    }

    async fn set_quota(&self, id: &SandboxId, disk_bytes: u64) -> Result<(), VolumeError> {
        self.change(self.inner.set_quota(id, disk_bytes)).await
    }

    async fn used(&self, id: &SandboxId) -> Result<u64, VolumeError> {
        self.inner.used(id).await
    }

    async fn destroy(&self, id: &SandboxId) -> Result<(), VolumeError> {
        self.change(self.inner.destroy(id)).await
    }

    async fn inventory(&self) -> Result<Inventory, VolumeError> {
        self.inner.inventory().await
    }

    async fn space(&self) -> Result<Space, VolumeError> {
        self.inner.space().await
    }

    async fn send(&self, volume: &VolumeId) -> Result<Chunks, VolumeError> {
        self.inner.send(volume).await
    }

    async fn receive(&self, volume: &VolumeId, disk_bytes: u64, chunks: Chunks) -> Result<(), VolumeError> {
        self.change(self.inner.receive(volume, disk_bytes, chunks)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::Sim;

    #[tokio::test]
    async fn only_the_chosen_call_fails_and_reading_is_not_counted() {
        let faulty = Faulty::new(Sim::default(), 1, Fails::BeforeActing);
        let image = ImageId::generate();
        faulty.stage_image(&image).await.unwrap();
        faulty.inventory().await.unwrap();
        assert!(!faulty.has_failed());
        assert!(matches!(faulty.seal_image(&image).await, Err(VolumeError::Injected)));
        assert!(faulty.has_failed());
        faulty.seal_image(&image).await.unwrap();
    }

    #[tokio::test]
    async fn a_failure_before_acting_changes_nothing_and_one_after_has_done_the_work() {
        for (fails, staged) in [(Fails::BeforeActing, 0), (Fails::AfterActing, 1)] {
            let faulty = Faulty::new(Sim::default(), 0, fails);
            let answer = faulty.stage_image(&ImageId::generate()).await;
            assert!(matches!(answer, Err(VolumeError::Injected)));
            assert_eq!(faulty.inventory().await.unwrap().staged.len(), staged);
        }
    }
}
