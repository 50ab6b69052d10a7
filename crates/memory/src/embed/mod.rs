//! Computes vectors for texts, such that similar meanings have similar vectors.
//!
//! | embedder   | dims | per text | needs                                            |
//! |------------|------|----------|--------------------------------------------------|
//! | [`BuiltIn`] | 256  | µs       | nothing: a table of tokens inside the program    |
//! | [`MiniLm`]  | 384  | ~5 ms    | a folder with the model                          |
//! | [`Remote`]  | any  | network  | an endpoint with OpenAI's `/embeddings` API      |
//!
//! Embedders block, so they are called on a thread that may block. A vector has length 1 and is stored with the
//! [`ModelId`] that computed it, since vectors of different models are not comparable.

use std::fmt;

mod builtin;
mod endpoint;
mod minilm;
mod remote;
#[cfg(test)]
mod tests;
mod trie;
mod wordpiece;

pub use builtin::{BuiltIn, TokenTable};
pub use endpoint::{Endpoint, EndpointError, EndpointOptions};
pub use minilm::MiniLm;
pub use remote::{Remote, RemoteOptions};
pub use wordpiece::WordPiece;

/// Texts per call of [`Embedder::embed`]: as many as a model processes at once without much RAM.
pub const BATCH_MAX: usize = 256;

/// The model that computed a vector. Two are equal if name and dimensions are.
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

/// Computes the vectors of one model.
pub trait Embedder: fmt::Debug + Send + Sync {
    fn model(&self) -> &ModelId;

    /// One vector of length 1 per text, in their order; all zeros for a text without words. Blocks.
    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError>;

    /// Whether it is fast and cannot fail, so that vectors can be computed in the transaction that writes their entries.
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
    #[error("could not request embeddings")]
    Endpoint(#[from] EndpointError),
    #[error("invalid embeddings in the answer of `{url}`: {why}")]
    Answer { url: String, why: String },
    #[error("could not embed {texts} texts at once: the limit is {BATCH_MAX}")]
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
                Some("check that the configured model is an embedding model, and check its dimensions")
            }
            Self::Run { .. } | Self::TooMany { .. } => None,
        }
    }
}

/// Scales a vector to length 1. A zero vector stays zero.
pub(crate) fn normalise(vector: &mut [f32]) {
    let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    if length > f32::MIN_POSITIVE {
        vector.iter_mut().for_each(|x| *x /= length);
    }
}

/// The beginning of a text, of at most this many bytes.
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
