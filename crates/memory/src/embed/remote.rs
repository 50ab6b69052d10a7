//! Embeddings from an endpoint with OpenAI's `/embeddings` API.

use serde_json::{Value, json};
use tokio::runtime::Handle;

use super::{EmbedError, Embedder, Endpoint, EndpointOptions, ModelId, check_batch, head, normalise};

/// Texts per request. The limits of endpoints differ; all of them accept this many.
const REQUEST_TEXTS: usize = 64;

/// Bytes of one text. Models read at most about 8,000 tokens, and endpoints refuse longer texts; a text's beginning usually
/// says what it is about.
const TEXT_BYTES: usize = 16 * 1024;

/// The most dimensions of a vector: twice those of the largest models.
const DIMS_MAX: usize = 8192;

#[derive(Clone, Debug)]
pub struct RemoteOptions {
    pub endpoint: EndpointOptions,
    /// The endpoint's name of the model.
    pub model: String,
    /// The dimensions of its vectors.
    pub dims: usize,
}

/// The embedder; see the module documentation.
#[derive(Debug)]
pub struct Remote {
    endpoint: Endpoint,
    model: ModelId,
    name: String,
    runtime: Handle,
}

impl Remote {
    /// Sends no request yet, so that memory works while the endpoint is down.
    ///
    /// Requests run on `runtime`; [`Embedder::embed`] is called on a thread outside any runtime.
    pub fn new(options: RemoteOptions, runtime: Handle) -> Result<Self, EmbedError> {
        let endpoint = Endpoint::new(&options.endpoint)?;
        if options.dims == 0 || options.dims > DIMS_MAX {
            let why = format!("{} dimensions are not between 1 and {DIMS_MAX}", options.dims);
            return Err(EmbedError::Answer { url: endpoint.url(PATH), why });
        }
        let model = ModelId { name: format!("remote:{}", options.model), dims: options.dims };
        Ok(Self { endpoint, model, name: options.model, runtime })
    }

    fn ask(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let input: Vec<&str> = texts.iter().map(|text| asked(text)).collect();
        let document = json!({ "model": self.name, "input": input, "encoding_format": "float" });
        let answer = self.runtime.block_on(self.endpoint.post(PATH, &document))?;
        let bad = |why: &str| EmbedError::Answer { url: self.endpoint.url(PATH), why: why.to_owned() };
        let data = answer.get("data").and_then(Value::as_array).ok_or_else(|| bad("it has no `data`"))?;
        if data.len() != texts.len() {
            return Err(bad(&format!("{} vectors for {} texts", data.len(), texts.len())));
        }
        let mut vectors = vec![Vec::new(); texts.len()];
        for (position, item) in data.iter().enumerate() {
            let index =
                item.get("index").and_then(Value::as_u64).map_or(Some(position), |n| usize::try_from(n).ok());
            let slot = index
                .and_then(|index| vectors.get_mut(index))
                .ok_or_else(|| bad("an index is out of range"))?;
            *slot = self.vector(item).map_err(|why| bad(&why))?;
        }
        match vectors.iter().all(|vector| vector.len() == self.model.dims) {
            true => Ok(vectors),
            false => Err(bad("two vectors have the same index")),
        }
    }

    fn vector(&self, item: &Value) -> Result<Vec<f32>, String> {
        let numbers = item.get("embedding").and_then(Value::as_array).ok_or("an item has no `embedding`")?;
        if numbers.len() != self.model.dims {
            return Err(format!(
                "a vector has {} dimensions, {} are configured",
                numbers.len(),
                self.model.dims
            ));
        }
        let mut vector = Vec::with_capacity(numbers.len());
        for number in numbers {
            #[expect(clippy::cast_possible_truncation, reason = "a vector's numbers are about one")]
            let number = number.as_f64().unwrap_or(f64::NAN) as f32;
            if !number.is_finite() {
                return Err("a vector contains a value that is not a number".to_owned());
            }
            vector.push(number);
        }
        normalise(&mut vector);
        Ok(vector)
    }
}

const PATH: &str = "/embeddings";

/// Endpoints refuse an empty text, and cut or refuse a long one.
fn asked(text: &str) -> &str {
    let text = head(text, TEXT_BYTES);
    if text.trim().is_empty() { "." } else { text }
}

impl Embedder for Remote {
    fn model(&self) -> &ModelId {
        &self.model
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        check_batch(texts)?;
        let mut vectors = Vec::with_capacity(texts.len());
        for part in texts.chunks(REQUEST_TEXTS) {
            vectors.extend(self.ask(part)?);
        }
        Ok(vectors)
    }
}
