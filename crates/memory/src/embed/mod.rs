//! Turns texts into vectors whose closeness is closeness in meaning.
//!
//! | embedder   | dims | per text | needs                                            |
//! |------------|------|----------|--------------------------------------------------|
//! | [`BuiltIn`] | 256  | µs       | nothing: a table of tokens inside the program    |
//! | [`MiniLm`]  | 384  | ~5 ms    | a folder with the model                          |
//! | [`Remote`]  | any  | network  | an endpoint that speaks OpenAI's `/embeddings`   |
//!
//! Embedders block: they are called on a thread that may. A vector is of length one, and is kept beside the
//! [`ModelId`] that made it, since vectors of two models say nothing about each other.

use std::fmt;

mod builtin;
mod endpoint;
mod minilm;
mod pieces;
mod remote;
#[cfg(test)]
mod tests;
mod wordpiece;

pub use builtin::{BuiltIn, TokenTable};
pub use endpoint::{Endpoint, EndpointError, EndpointOptions};
pub use minilm::MiniLm;
pub use remote::{Remote, RemoteOptions};
pub use wordpiece::WordPiece;

/// Texts that one call of [`Embedder::embed`] may carry: what a model takes at once without much RAM.
pub const BATCH_MAX: usize = 256;

/// Which model made a vector. Two are the same when name and dimensions are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModelId {
    pub name: String,
    pub dims: usize,
}

impl fmt::Display for ModelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.name, self.dims)
    }
}

/// Makes vectors of one model.
pub trait Embedder: fmt::Debug + Send + Sync {
    fn model(&self) -> &ModelId;

    /// One vector of length one per text, in their order; all zeros for a text without a word in it. Blocks.
    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError>;

    /// Whether it is quick and cannot fail, so that a vector may be made within the write of its entry.
    fn is_immediate(&self) -> bool {
        false
    }
}

#[derive(Debug, thiserror::Error)]
pub enum EmbedError {
    #[error("could not load the embedding model in `{folder}`: {why}")]
    Load { folder: String, why: String },
    #[error("could not run the embedding model: {why}")]
    Run { why: String },
    #[error("could not get embeddings")]
    Endpoint(#[from] EndpointError),
    #[error("the answer of `{url}` does not hold the embeddings that were asked for: {why}")]
    Answer { url: String, why: String },
    #[error("could not embed {texts} texts at once, {BATCH_MAX} is the most")]
    TooMany { texts: usize },
}

impl EmbedError {
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Load { .. } => Some(
                "the folder needs `model_quantized.onnx` (or `model.onnx`, or either in `onnx/`) and `vocab.txt` \
                 or `tokenizer.json` of all-MiniLM-L6-v2",
            ),
            Self::Endpoint(error) => error.hint(),
            Self::Answer { .. } => {
                Some("check that the configured model makes embeddings, and its dimensions")
            }
            Self::Run { .. } | Self::TooMany { .. } => None,
        }
    }
}

/// Scales to length one. What is zero stays zero.
pub(crate) fn normalise(vector: &mut [f32]) {
    let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    if length > f32::MIN_POSITIVE {
        vector.iter_mut().for_each(|x| *x /= length);
    }
}

/// The beginning of a text, of at most so many bytes.
pub(crate) fn head(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn check_batch(texts: &[&str]) -> Result<(), EmbedError> {
    match texts.len() <= BATCH_MAX {
        true => Ok(()),
        false => Err(EmbedError::TooMany { texts: texts.len() }),
    }
}
