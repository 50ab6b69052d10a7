//! The built-in embedder: a vector per token, distilled from all-MiniLM-L6-v2.
//!
//! A text's vector is the weighted mean of its tokens' vectors. The weights are those of the language, not of a store, so
//! vectors stay comparable however the store grows. The rarity of a word in the store is known to the caller of
//! [`TokenTable::similarity`], which has the store's counts.
//!
//! ```text
//!  tokens.bin.zst = zstd( "BTT1" dims:u32 count:u32 scale:[f32; count] weight:[f32; count] data:[[i8; dims]; count] words )
//! ```
//!
//! `scripts/distil` creates the file. Little-endian; `words` is the vocabulary, one line per token.

use std::sync::{Arc, OnceLock};

use super::{EmbedError, Embedder, ModelId, WordPiece, check_batch, normalise};
use crate::simd::dot;

static ASSET: &[u8] = include_bytes!("../../assets/tokens.bin.zst");

/// Tokens of a text that count: about 1,500 words; the mean of more says little about any of them.
const TOKENS_MAX: usize = 2048;

/// The embedder; see the module documentation.
#[derive(Debug)]
pub struct BuiltIn {
    id: ModelId,
    table: &'static TokenTable,
}

/// A vector and a weight for each token of the vocabulary.
#[derive(Debug)]
pub struct TokenTable {
    pub words: WordPiece,
    dims: usize,
    scale: Vec<f32>,
    weight: Vec<f32>,
    /// The reciprocal of the length of each token's vector of bytes.
    inverse: Vec<f32>,
    data: Vec<i8>,
}

impl TokenTable {
    /// The table in the program, decompressed at its first use.
    pub fn built_in() -> &'static Self {
        static TABLE: OnceLock<TokenTable> = OnceLock::new();
        TABLE.get_or_init(|| {
            // Sixteen times the compressed size: limits how much a damaged file can decompress to.
            let raw =
                zstd::bulk::decompress(ASSET, 128 << 20).expect("the asset was packed by scripts/distil");
            Self::read(&raw).expect("the asset was written by scripts/distil")
        })
    }

    fn read(raw: &[u8]) -> Option<Self> {
        let number = |at: usize| Some(u32::from_le_bytes(raw.get(at..at + 4)?.try_into().ok()?));
        if raw.get(..4)? != b"BTT1" {
            return None;
        }
        let (dims, count) = (usize::try_from(number(4)?).ok()?, usize::try_from(number(8)?).ok()?);
        let floats = |at: usize| -> Option<Vec<f32>> {
            let bytes = raw.get(at..at + 4 * count)?;
            Some(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
        };
        let (scale, weight) = (floats(12)?, floats(12 + 4 * count)?);
        let from = 12 + 8 * count;
        let data: Vec<i8> = raw.get(from..from + dims * count)?.iter().map(|b| b.cast_signed()).collect();
        let words = WordPiece::new(std::str::from_utf8(raw.get(from + dims * count..)?).ok()?.lines())?;
        let inverse = data.chunks_exact(dims).map(|row| {
            let length: i32 = row.iter().map(|x| i32::from(*x) * i32::from(*x)).sum();
            #[expect(clippy::cast_precision_loss, reason = "at most 127 squared times the dimensions")]
            let length = (length as f32).sqrt();
            if length > 0.0 { 1.0 / length } else { 0.0 }
        });
        let inverse = inverse.collect();
        Some(Self { words, dims, scale, weight, inverse, data })
    }

    fn row(&self, token: u32) -> &[i8] {
        let at = token as usize * self.dims;
        &self.data[at..at + self.dims]
    }

    /// The similarity of two tokens: the cosine of their vectors.
    pub fn similarity(&self, a: u32, b: u32) -> f32 {
        #[expect(clippy::cast_precision_loss, reason = "at most 127 squared times the dimensions")]
        let product = dot(self.row(a), self.row(b)) as f32;
        product * self.inverse[a as usize] * self.inverse[b as usize]
    }

    /// The number of tokens of the vocabulary.
    pub fn len(&self) -> usize {
        self.scale.len()
    }

    pub fn is_empty(&self) -> bool {
        self.scale.is_empty()
    }

    /// The weight of a token in the language: near 0 for `the`, near 1 for rare tokens.
    pub fn weight(&self, token: u32) -> f32 {
        self.weight[token as usize]
    }

    fn mean(&self, text: &str) -> Vec<f32> {
        let mut sum = vec![0.0; self.dims];
        for token in self.words.encode(text, TOKENS_MAX) {
            let by = self.scale[token as usize] * self.weight[token as usize];
            for (sum, x) in sum.iter_mut().zip(self.row(token)) {
                *sum += f32::from(*x) * by;
            }
        }
        normalise(&mut sum);
        sum
    }
}

impl BuiltIn {
    pub fn new() -> Self {
        let table = TokenTable::built_in();
        Self { id: ModelId { name: "built-in-1".to_owned(), dims: table.dims }, table }
    }

    pub fn shared() -> Arc<dyn Embedder> {
        Arc::new(Self::new())
    }
}

impl Default for BuiltIn {
    fn default() -> Self {
        Self::new()
    }
}

impl Embedder for BuiltIn {
    fn model(&self) -> &ModelId {
        &self.id
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        check_batch(texts)?;
        Ok(texts.iter().map(|text| self.table.mean(text)).collect())
    }

    fn is_immediate(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cosine(a: &str, b: &str) -> f32 {
        let vectors = BuiltIn::new().embed(&[a, b]).unwrap();
        vectors[0].iter().zip(&vectors[1]).map(|(x, y)| x * y).sum()
    }

    #[test]
    fn texts_with_similar_meanings_are_closer() {
        let near =
            cosine("the build failed because of a missing library", "compilation broke: no such dependency");
        let far =
            cosine("the build failed because of a missing library", "we had pasta for dinner on the beach");
        assert!(near > far + 0.15, "{near} {far}");
    }

    #[test]
    fn vectors_are_of_length_one_and_an_empty_text_is_zero() {
        let vectors = BuiltIn::new().embed(&["hello world", "", "\u{0}\n"]).unwrap();
        let length = |v: &[f32]| v.iter().map(|x| x * x).sum::<f32>();
        assert!((length(&vectors[0]) - 1.0).abs() < 1e-5);
        assert_eq!((length(&vectors[1]), length(&vectors[2])), (0.0, 0.0));
        assert!(vectors.iter().all(|v| v.len() == BuiltIn::new().model().dims));
    }

    #[test]
    fn common_words_weigh_little() {
        let table = TokenTable::built_in();
        let weight = |word: &str| table.weight(table.words.encode(word, 1)[0]);
        assert!(weight("the") < 0.05 && weight(",") < 0.1, "{} {}", weight("the"), weight(","));
        assert!(weight("telescope") > 0.9, "{}", weight("telescope"));
    }

    #[test]
    fn tokens_of_one_meaning_are_alike() {
        let table = TokenTable::built_in();
        let token = |word: &str| table.words.encode(word, 1)[0];
        let alike = |a: &str, b: &str| table.similarity(token(a), token(b));
        assert!((alike("car", "car") - 1.0).abs() < 1e-4);
        assert!(alike("car", "vehicle") > alike("car", "music") + 0.1);
    }

    #[test]
    fn a_batch_has_a_bound() {
        let texts = vec!["x"; super::super::BATCH_MAX + 1];
        assert!(matches!(BuiltIn::new().embed(&texts), Err(EmbedError::TooMany { texts: 257 })));
    }

    #[test]
    fn a_damaged_table_is_refused_not_read_past_its_end() {
        assert!(TokenTable::read(b"").is_none());
        assert!(TokenTable::read(b"BTT1\x00\x01\x00\x00\xff\xff\xff\xff").is_none());
    }
}
