//! What is told to people while an image is made.

use std::fmt;
use std::sync::Arc;

/// Where progress goes. Called from any thread, also from inside transfers: must not block.
#[derive(Clone)]
pub struct Tell(Arc<dyn Fn(ImageProgress) + Send + Sync>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageProgress {
    Stage {
        stage: String,
        percent: Option<u8>,
    },
    /// One layer or step of several.
    Item(ImageItem),
    /// Output of a build's step.
    Output {
        text: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageItem {
    /// Counted from 0.
    pub index: usize,
    pub count: usize,
    /// A digest's beginning, or the step as its recipe has it.
    pub what: String,
    pub state: ItemState,
    pub bytes: u64,
    pub bytes_total: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemState {
    Downloading,
    Unpacking,
    Running,
    /// It was there already.
    Cached,
    Done,
}

impl Tell {
    pub fn new(tell: impl Fn(ImageProgress) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    /// Tells nobody.
    pub fn nobody() -> Self {
        Self::new(|_| {})
    }

    pub(crate) fn stage(&self, stage: &str, percent: Option<u8>) {
        (self.0)(ImageProgress::Stage { stage: stage.to_owned(), percent });
    }

    pub(crate) fn item(&self, item: ImageItem) {
        (self.0)(ImageProgress::Item(item));
    }

    pub(crate) fn output(&self, bytes: &[u8]) {
        (self.0)(ImageProgress::Output { text: String::from_utf8_lossy(bytes).into_owned() });
    }
}

impl fmt::Debug for Tell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tell")
    }
}
