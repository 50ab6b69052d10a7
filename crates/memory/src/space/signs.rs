//! The stored form of vectors: eight bits per dimension for scoring, one bit for the scan.

use super::checksum::hash;

/// A vector in the file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PackedVector {
    /// The factor of the bytes.
    pub(crate) scale: f32,
    pub(crate) data: Vec<u8>,
}

/// The number of 64-bit words for the signs of this many dimensions.
pub(crate) fn words(dimensions: usize) -> usize {
    dimensions.div_ceil(64)
}

pub(crate) fn of(vector: &[f32]) -> Box<[u64]> {
    let mut signs = vec![0u64; words(vector.len())];
    for (at, value) in vector.iter().enumerate() {
        if *value > 0.0 {
            signs[at / 64] |= 1 << (at % 64);
        }
    }
    signs.into_boxed_slice()
}

pub(crate) fn to_bytes(signs: &[u64]) -> Vec<u8> {
    signs.iter().flat_map(|word| word.to_le_bytes()).collect()
}

pub(crate) fn from_bytes(bytes: &[u8]) -> Box<[u64]> {
    bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default())).collect()
}

/// Normalises to length 1, then quantises to eight bits per dimension: a cosine is off by a few thousandths, far less than models differ.
pub(crate) fn pack(vector: &[f32]) -> PackedVector {
    let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    let largest = vector.iter().fold(0f32, |largest, value| largest.max(value.abs()));
    if length == 0.0 || !length.is_finite() {
        return PackedVector { scale: 0.0, data: vec![0; vector.len()] };
    }
    let step = largest / 127.0;
    let data = vector.iter().map(|value| ((value / step).round() as i8).to_le_bytes()[0]).collect();
    PackedVector { scale: step / length, data }
}

/// The direction of a stored vector, with length 1.
pub(crate) fn unpack(scale: f32, data: &[u8]) -> Vec<f32> {
    data.iter().map(|byte| f32::from(i8::from_le_bytes([*byte])) * scale).collect()
}

/// The dot product of a stored vector with a query of length 1.
pub(crate) fn cosine(query: &[f32], scale: f32, data: &[u8]) -> f32 {
    if query.len() != data.len() {
        return 0.0;
    }
    let mut sums = [0f32; 8];
    let (query, data) = (query.chunks(8), data.chunks(8));
    for (query, data) in query.zip(data) {
        for ((sum, value), byte) in sums.iter_mut().zip(query).zip(data) {
            *sum += value * f32::from(i8::from_le_bytes([*byte]));
        }
    }
    sums.iter().sum::<f32>() * scale
}

/// Estimates dot products with stored vectors from their signs alone, assuming that all dimensions of the stored vector
/// have the same magnitude. More precise than counting different signs, since larger dimensions of the query
/// count more; a byte of signs costs one table look-up.
#[derive(Debug)]
pub(crate) struct SignEstimator {
    /// For each byte of signs and each of its values, its part of the dot product.
    parts: Vec<[f32; 256]>,
}

impl SignEstimator {
    pub(crate) fn of(query: &[f32]) -> Self {
        let parts = query.chunks(8).map(|dims| {
            let mut parts = [-dims.iter().sum::<f32>(); 256];
            for value in 1..256usize {
                let (lowest, without) = (value.trailing_zeros() as usize, value & (value - 1));
                parts[value] = parts[without] + 2.0 * dims.get(lowest).copied().unwrap_or(0.0);
            }
            parts
        });
        Self { parts: parts.collect() }
    }

    /// Higher is closer; for comparisons, not for output.
    pub(crate) fn score(&self, signs: &[u64]) -> f32 {
        let bytes = signs.iter().flat_map(|word| word.to_le_bytes());
        self.parts.iter().zip(bytes).map(|(parts, byte)| parts[usize::from(byte)]).sum()
    }
}

/// The signs of a stored vector. A dimension that was rounded to zero has lost its sign.
pub(crate) fn of_packed(packed: &PackedVector) -> Vec<u8> {
    to_bytes(&of(&unpack(packed.scale, &packed.data)))
}

/// Whether stored signs match a stored vector, ignoring dimensions that were rounded to zero.
pub(crate) fn agree(stored: &[u8], packed: &PackedVector) -> bool {
    let signs = from_bytes(stored);
    signs.len() == words(packed.data.len())
        && packed.data.iter().enumerate().all(|(at, byte)| {
            let value = i8::from_le_bytes([*byte]);
            value == 0 || (value > 0) == (signs[at / 64] >> (at % 64) & 1 == 1)
        })
}

/// The checksum of a stored vector, for `check`.
pub(crate) fn sum(packed: &PackedVector) -> i64 {
    let mut bytes = packed.scale.to_le_bytes().to_vec();
    bytes.extend_from_slice(&packed.data);
    hash(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_vector_keeps_its_direction() {
        let vector: Vec<f32> = (0..300u16).map(|at| (f32::from(at) * 0.7).sin()).collect();
        let packed = pack(&vector);
        let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
        let query: Vec<f32> = vector.iter().map(|value| value / length).collect();
        assert!((cosine(&query, packed.scale, &packed.data) - 1.0).abs() < 0.01);
        let away: Vec<f32> = query.iter().map(|value| -value).collect();
        assert!((cosine(&away, packed.scale, &packed.data) + 1.0).abs() < 0.01);
    }

    #[test]
    fn a_zero_vector_is_similar_to_nothing() {
        for vector in [vec![0.0; 64], vec![f32::NAN; 64], vec![f32::INFINITY; 64], vec![]] {
            let packed = pack(&vector);
            assert_eq!(cosine(&vec![0.1; vector.len()], packed.scale, &packed.data), 0.0);
        }
    }

    #[test]
    fn an_estimate_is_the_product_with_the_signs() {
        let query: Vec<f32> = (0..70u8).map(|at| (f32::from(at) * 1.3).sin()).collect();
        let other: Vec<f32> = (0..70u8).map(|at| (f32::from(at) * 0.4).cos()).collect();
        let guess = SignEstimator::of(&query);
        for vector in [&query, &other] {
            let product: f32 = query.iter().zip(vector).map(|(a, b)| if *b > 0.0 { *a } else { -a }).sum();
            assert!((guess.score(&of(vector)) - product).abs() < 1e-3);
        }
        assert!(guess.score(&of(&query)) > guess.score(&of(&other)));
    }

    #[test]
    fn signs_read_back_as_they_were_written() {
        let vector: Vec<f32> = (0..100u8).map(|at| if at % 3 == 0 { 1.0 } else { -1.0 }).collect();
        let signs = of(&vector);
        assert_eq!(signs.len(), 2);
        assert_eq!(from_bytes(&to_bytes(&signs)), signs);
        assert_eq!(signs.iter().map(|word| word.count_ones()).sum::<u32>(), 34);
    }
}
