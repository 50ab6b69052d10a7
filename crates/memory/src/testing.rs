//! A memory in a temporary folder, with a manual clock, for unit tests.

use std::sync::Arc;

use burrow_model::{MemoryRef, SandboxId};
use object_store::ObjectStore;
use object_store::memory::InMemory;
use tempfile::TempDir;

use crate::artifacts::DiskFloor;
use crate::embed::{EmbedError, Embedder, ModelId};
use crate::{AsOf, Limits, ManualClock, Memory, MemoryOptions, View};

/// The initial time of the tests.
pub(crate) const START_MS: u64 = 1_700_000_000_000;

#[derive(Debug)]
pub(crate) struct World {
    /// Keeps the files until it is dropped.
    _folder: TempDir,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) memory: Memory,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::over(Arc::new(InMemory::new())).await
    }

    pub(crate) async fn over(store: Arc<dyn ObjectStore>) -> Self {
        Self::within(store, Limits::usual(), None).await
    }

    pub(crate) async fn within(store: Arc<dyn ObjectStore>, limits: Limits, disk: Option<DiskFloor>) -> Self {
        Self::with_disks(store, limits, disk, None).await
    }

    /// A memory whose spaces are on this disk.
    pub(crate) async fn on(disk: DiskFloor) -> Self {
        Self::with_disks(Arc::new(InMemory::new()), Limits::usual(), None, Some(disk)).await
    }

    async fn with_disks(
        store: Arc<dyn ObjectStore>,
        limits: Limits,
        artifact_disk: Option<DiskFloor>,
        disk: Option<DiskFloor>,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(START_MS));
        let memory = Memory::open(MemoryOptions {
            folder: folder.path().join("memory"),
            artifacts: Arc::clone(&store),
            artifact_disk,
            disk,
            embedder: Arc::new(WordEmbedder { model: ModelId { name: "words".to_owned(), dims: 64 } }),
            clock: Arc::clone(&clock) as Arc<dyn crate::Clock>,
            limits,
        })
        .await
        .unwrap();
        Self { _folder: folder, clock, store, memory }
    }

    /// The present of a new sandbox.
    pub(crate) fn view(&self) -> View {
        self.memory.view(&MemoryRef::own(&SandboxId::generate()))
    }

    /// A new branch that continues from the state of a view.
    pub(crate) async fn fork(&self, view: &View) -> View {
        let point = view.point().await.unwrap();
        self.memory.view(&MemoryRef::branched(&view.of().space, point))
    }

    pub(crate) async fn at(&self, view: &View, seq: u64) -> View {
        view.at(&AsOf::Seq(seq)).await.unwrap()
    }
}

/// An embedder for which texts with the same words are similar.
#[derive(Debug)]
struct WordEmbedder {
    model: ModelId,
}

impl Embedder for WordEmbedder {
    fn model(&self) -> &ModelId {
        &self.model
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let vector = |text: &&str| {
            let mut vector = vec![0.0; self.model.dims];
            for word in text.split_whitespace() {
                let sum =
                    word.to_lowercase().bytes().fold(7usize, |sum, byte| sum * 31 % 9973 + usize::from(byte));
                vector[sum % self.model.dims] += 1.0;
            }
            crate::embed::normalise(&mut vector);
            vector
        };
        Ok(texts.iter().map(vector).collect())
    }

    fn is_immediate(&self) -> bool {
        true
    }
}
