//! Runs all-MiniLM-L6-v2 (or a model of the same shape) from a folder that the operator provides.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use rten::{Model, NodeId, Value, ValueOrView};
use rten_tensor::prelude::*;
use rten_tensor::{NdTensor, NdTensorView};
use serde_json::Value as Json;

use super::{EmbedError, Embedder, ModelId, WordPiece, check_batch, normalise};

/// The maximum length that the model was trained with; later tokens are ignored.
const TOKENS_MAX: usize = 256;

/// The paths of a model's file, as the model hub and others name them. The quantised model first: it is four times faster,
/// and its recall differs by at most 0.01.
const FILES: [&str; 4] =
    ["onnx/model_quantized.onnx", "model_quantized.onnx", "onnx/model.onnx", "model.onnx"];

/// The embedder; see the module documentation.
pub struct MiniLm {
    id: ModelId,
    model: Model,
    words: WordPiece,
    inputs: Vec<(Input, NodeId)>,
    output: NodeId,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Input {
    Tokens,
    Mask,
    Segments,
}

impl fmt::Debug for MiniLm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MiniLm").field("id", &self.id).finish_non_exhaustive()
    }
}

impl MiniLm {
    /// Loads the model, which takes 0.1 s, and runs it once to learn its dimensions.
    pub fn open(folder: &Path) -> Result<Self, EmbedError> {
        let failed = |why: String| EmbedError::Load { folder: folder.display().to_string(), why };
        let file = FILES.iter().map(|name| folder.join(name)).find(|path| path.is_file());
        let file = file.ok_or_else(|| {
            failed("it contains neither `model_quantized.onnx` nor `model.onnx`".to_owned())
        })?;
        let words = vocabulary(folder).map_err(failed)?;
        let model = Model::load_file(&file).map_err(|error| failed(error.to_string()))?;
        let mut inputs = Vec::new();
        for id in model.input_ids() {
            let info = model.node_info(*id);
            let name = info.as_ref().and_then(|info| info.name()).unwrap_or_default();
            let input = match name {
                "input_ids" => Input::Tokens,
                "attention_mask" => Input::Mask,
                "token_type_ids" => Input::Segments,
                _ => return Err(failed(format!("the model requires the unknown input `{name}`"))),
            };
            inputs.push((input, *id));
        }
        let output =
            *model.output_ids().first().ok_or_else(|| failed("the model has no output".to_owned()))?;
        let id = ModelId { name: format!("minilm:{}", name_of(folder)), dims: 0 };
        let mut opened = Self { id, model, words, inputs, output };
        opened.id.dims = opened.vector("a").map_err(|error| failed(error.to_string()))?.len();
        Ok(opened)
    }

    /// Embeds one text at a time: the model's rounding depends on the whole batch, so a text's vector would depend on the
    /// other texts, and two searches for the same words could differ.
    fn vector(&self, text: &str) -> Result<Vec<f32>, EmbedError> {
        let failed = |why: String| EmbedError::Run { why };
        let mut ids = vec![self.words.begin.cast_signed()];
        ids.extend(self.words.encode(text, TOKENS_MAX - 2).into_iter().map(u32::cast_signed));
        ids.push(self.words.end.cast_signed());
        let length = ids.len();
        let inputs = self.inputs.iter().map(|(input, node)| {
            let values = match input {
                Input::Tokens => ids.clone(),
                Input::Mask => vec![1; length],
                Input::Segments => vec![0; length],
            };
            (*node, ValueOrView::from(NdTensor::from_data([1, length], values)))
        });
        let [output] = self
            .model
            .run_n(inputs.collect(), [self.output], None)
            .map_err(|error| failed(error.to_string()))?;
        mean(&output).ok_or_else(|| failed("its output is not one vector per token".to_owned()))
    }
}

/// The mean over the tokens, normalised to length 1.
fn mean(output: &Value) -> Option<Vec<f32>> {
    let states: NdTensorView<f32, 3> = output.try_into().ok()?;
    let [_, tokens, dims] = states.shape();
    let mut vector = vec![0.0; dims];
    for token in 0..tokens {
        for (sum, x) in vector.iter_mut().zip(states.slice((0, token)).iter()) {
            *sum += x;
        }
    }
    normalise(&mut vector);
    vector.iter().all(|x| x.is_finite()).then_some(vector)
}

/// Read from `vocab.txt`, or from `tokenizer.json`.
fn vocabulary(folder: &Path) -> Result<WordPiece, String> {
    match fs::read_to_string(folder.join("vocab.txt")) {
        Ok(text) => {
            return WordPiece::new(text.lines())
                .ok_or("its `vocab.txt` lacks BERT's special tokens".to_owned());
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(format!("its `vocab.txt` cannot be read: {error}")),
    }
    let text = fs::read(folder.join("tokenizer.json")).map_err(|error| {
        format!("it has no `vocab.txt`, and its `tokenizer.json` cannot be read: {error}")
    })?;
    let json: Json =
        serde_json::from_slice(&text).map_err(|error| format!("`tokenizer.json` is not JSON: {error}"))?;
    let words = json.pointer("/model/vocab").and_then(Json::as_object);
    let words = words.ok_or("its `tokenizer.json` contains no WordPiece vocabulary")?;
    let mut lines = vec![""; words.len()];
    for (word, id) in words {
        let id = id.as_u64().and_then(|id| usize::try_from(id).ok());
        let slot = id.and_then(|id| lines.get_mut(id)).ok_or("the numbers in its vocabulary have gaps")?;
        *slot = word;
    }
    WordPiece::new(lines.into_iter()).ok_or("its vocabulary lacks BERT's special tokens".to_owned())
}

fn name_of(folder: &Path) -> String {
    folder.file_name().map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned())
}

impl Embedder for MiniLm {
    fn model(&self) -> &ModelId {
        &self.id
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        check_batch(texts)?;
        texts.iter().map(|text| self.vector(text)).collect()
    }
}
