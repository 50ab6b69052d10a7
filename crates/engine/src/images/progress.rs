//! Progress reports while an image is made.

use std::fmt;
use std::sync::Arc;

/// The receiver of progress reports. Called from any thread, also during transfers, so it must not block.
#[derive(Clone)]
pub struct ImageProgressSink(Arc<dyn Fn(ImageProgress) + Send + Sync>);

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
    /// The beginning of a digest, or the step as in its recipe.
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
    /// It existed already.
    Cached,
    Done,
}

impl ImageProgressSink {
    pub fn new(tell: impl Fn(ImageProgress) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    /// Discards all reports.
    pub fn none() -> Self {
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

impl fmt::Debug for ImageProgressSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ImageProgressSink")
    }
}
