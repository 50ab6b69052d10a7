//! A memory in a temporary folder, test embedders, and a random generator.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use burrow_memory::embed::EmbedError;
use burrow_memory::{
    Embedder, Entry, Filter, Limits, ManualClock, Memory, MemoryError, MemoryId, MemoryOptions, MemoryRef,
    ModelId, NewEntry, PageRequest, QueryTerm, Row, SpaceId, View,
};
use burrow_model::SandboxId;
use object_store::memory::InMemory;

pub(crate) const START_MS: u64 = 1_700_000_000_000;

/// An embedder for which texts with the same words are similar. May be slow (not immediate), and may be down.
#[derive(Debug)]
pub(crate) struct WordEmbedder {
    model: ModelId,
    immediate: bool,
    pub(crate) down: AtomicBool,
    pub(crate) calls: AtomicU64,
}

impl WordEmbedder {
    pub(crate) fn new(name: &str, dims: usize, immediate: bool) -> Arc<Self> {
        let model = ModelId { name: name.to_owned(), dims };
        Arc::new(Self { model, immediate, down: AtomicBool::new(false), calls: AtomicU64::new(0) })
    }

    pub(crate) fn vector(&self, text: &str) -> Vec<f32> {
        let mut vector = vec![-0.01; self.model.dims];
        for word in text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
            let mut state = word.to_lowercase().bytes().fold(self.model.dims as u64, |sum, byte| {
                (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
            for value in &mut vector {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                *value += if state & 1 == 0 { 1.0 } else { -1.0 };
            }
        }
        let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
        vector.iter_mut().for_each(|value| *value /= length);
        vector
    }
}

impl Embedder for WordEmbedder {
    fn model(&self) -> &ModelId {
        &self.model
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if self.down.load(Ordering::SeqCst) {
            return Err(EmbedError::Run { why: "it is down".to_owned() });
        }
        Ok(texts.iter().map(|text| self.vector(text)).collect())
    }

    fn is_immediate(&self) -> bool {
        self.immediate
    }
}

pub(crate) struct World {
    pub(crate) memory: Memory,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) embedder: Arc<WordEmbedder>,
    folder: PathBuf,
    _temporary: Option<tempfile::TempDir>,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(WordEmbedder::new("words", 64, true), Limits::usual()).await
    }

    pub(crate) async fn with(embedder: Arc<WordEmbedder>, limits: Limits) -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().to_owned();
        Self { _temporary: Some(temporary), ..Self::at(&folder, embedder, limits).await }
    }

    pub(crate) async fn at(folder: &Path, embedder: Arc<WordEmbedder>, limits: Limits) -> Self {
        let clock = Arc::new(ManualClock::new(START_MS));
        let memory = open(folder, &embedder, &clock, limits).await;
        Self { memory, clock, embedder, folder: folder.to_owned(), _temporary: None }
    }

    /// Closes the memory and opens it again, perhaps with another embedder.
    pub(crate) async fn reopen(&mut self, embedder: Arc<WordEmbedder>) {
        self.memory.close().await;
        self.memory = open(&self.folder, &embedder, &self.clock, Limits::usual()).await;
        self.embedder = embedder;
    }

    pub(crate) fn file(&self, space: &SpaceId) -> PathBuf {
        self.folder.join(format!("{space}.db"))
    }

    pub(crate) fn own(&self) -> View {
        self.memory.view(&MemoryRef::own(&SandboxId::generate()))
    }

    /// A child that sees what the view sees now.
    pub(crate) async fn fork(&self, view: &View) -> View {
        self.memory.view(&MemoryRef::branched(&view.of().space, view.point().await.unwrap()))
    }
}

async fn open(
    folder: &Path,
    embedder: &Arc<WordEmbedder>,
    clock: &Arc<ManualClock>,
    limits: Limits,
) -> Memory {
    Memory::open(MemoryOptions {
        folder: folder.to_owned(),
        artifacts: Arc::new(InMemory::new()),
        artifact_disk: None,
        disk: None,
        embedder: Arc::clone(embedder) as Arc<dyn Embedder>,
        clock: Arc::clone(clock) as Arc<dyn burrow_memory::Clock>,
        limits,
    })
    .await
    .unwrap()
}

pub(crate) fn note(text: &str) -> NewEntry {
    NewEntry::note(text)
}

pub(crate) async fn add(view: &View, text: &str) -> MemoryId {
    view.add(vec![note(text)]).await.unwrap().remove(0).id
}

pub(crate) async fn add_in(view: &View, session: &str, text: &str) -> MemoryId {
    let entry = NewEntry { session: Some(session.to_owned()), ..note(text) };
    view.add(vec![entry]).await.unwrap().remove(0).id
}

/// Every entry a view lists, newest first.
pub(crate) async fn listed(view: &View, filter: &Filter) -> Vec<Entry> {
    let mut all = Vec::new();
    let mut page = PageRequest { cursor: None, limit: 7 };
    loop {
        let found = view.list(filter, page.clone()).await.unwrap();
        all.extend(found.rows);
        page.cursor = found.next_cursor;
        if page.cursor.is_none() {
            return all;
        }
    }
}

pub(crate) async fn texts(view: &View) -> Vec<String> {
    let mut texts: Vec<_> =
        listed(view, &Filter::everything()).await.into_iter().map(|entry| entry.text).collect();
    texts.sort();
    texts
}

/// The texts that a search by words finds.
pub(crate) async fn by_words(view: &View, words: &str) -> Vec<String> {
    let terms: Vec<_> = words.split_whitespace().map(QueryTerm::word).collect();
    view.read(move |reader| {
        let rows: Vec<Row> = reader.lexical(&terms, 1000)?.hits.into_iter().map(|hit| hit.0).collect();
        reader.texts(&rows)
    })
    .await
    .unwrap()
}

/// The texts that a search by vectors finds, closest first.
pub(crate) async fn by_meaning(view: &View, vector: Vec<f32>) -> Vec<String> {
    view.read(move |reader| {
        let rows: Vec<Row> = reader.nearest(&vector, 1000, &|_| true)?.into_iter().map(|hit| hit.0).collect();
        reader.texts(&rows)
    })
    .await
    .unwrap()
}

#[track_caller]
pub(crate) fn assert_not_found<T: std::fmt::Debug>(result: Result<T, MemoryError>) {
    assert!(matches!(result, Err(MemoryError::NotFound { .. })), "{result:?}");
}

pub(crate) async fn assert_sound(view: &View) {
    let report = view.check().await.unwrap();
    assert!(report.is_sound(), "{report:#?}");
}

/// Small, seeded, good enough for choosing test operations.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).unwrap()
    }
}
