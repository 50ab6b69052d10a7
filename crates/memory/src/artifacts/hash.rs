//! The BLAKE3 hash of a blob, and the hashes of its blocks, in one pass.
//!
//! ```text
//!               root = the blob's hash
//!              /                      \
//!          parent                      block 2        a block is 1 MiB, the last one may be shorter
//!         /      \
//!     block 0   block 1
//! ```
//!
//! BLAKE3 is a tree, so the hash of an aligned block whose size is a power of two is one of its inner nodes. Storing those of
//! 1 MiB blocks (32 bytes each: 160 KiB for the largest blob) lets any block be verified on its own: a range is verified without
//! reading the rest, and no byte of a damaged block is returned. The list is verified, too: its nodes must join to the root.

use std::fmt;

use blake3::Hasher;
use blake3::hazmat::{ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};

/// Bytes of one block: the least that a range read fetches, and what a read keeps in RAM.
pub(crate) const BLOCK_BYTES: u64 = 1 << 20;

/// The name of a blob: the BLAKE3 hash of its content.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlobHash([u8; 32]);

impl BlobHash {
    /// Parses 64 lower-case hexadecimal digits; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != 64 || text.bytes().any(|b| b.is_ascii_uppercase()) {
            return None;
        }
        blake3::Hash::from_hex(text).ok().map(|hash| Self(*hash.as_bytes()))
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for BlobHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(blake3::Hash::from_bytes(self.0).to_hex().as_str())
    }
}

impl fmt::Debug for BlobHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The hashes that verify a whole blob: its hash, its length and the hashes of its blocks.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Proof {
    pub(crate) hash: BlobHash,
    pub(crate) bytes: u64,
    /// One per block; empty if the blob is a single block, whose hash is the root itself.
    blocks: Vec<ChainingValue>,
}

impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proof({}, {} bytes, {} blocks)", self.hash, self.bytes, self.blocks.len())
    }
}

impl Proof {
    /// Restores a stored proof; `None` if the list does not match this hash and length.
    pub(crate) fn restore(hash: BlobHash, bytes: u64, list: &[u8]) -> Option<Self> {
        let (blocks, rest) = list.as_chunks::<32>();
        let blocks = blocks.to_vec();
        let expected =
            if bytes <= BLOCK_BYTES { 0 } else { usize::try_from(bytes.div_ceil(BLOCK_BYTES)).ok()? };
        let sound = rest.is_empty()
            && blocks.len() == expected
            && (blocks.is_empty() || root_of(&blocks) == *hash.as_bytes());
        sound.then_some(Self { hash, bytes, blocks })
    }

    /// The list of blocks in its stored form.
    pub(crate) fn list(&self) -> Vec<u8> {
        self.blocks.concat()
    }

    /// The length of the block with this number in bytes; 0 past the end.
    pub(crate) fn block_len(&self, number: u64) -> u64 {
        self.bytes.saturating_sub(number.saturating_mul(BLOCK_BYTES)).min(BLOCK_BYTES)
    }

    /// Whether `content` is the block with this number.
    pub(crate) fn proves(&self, number: u64, content: &[u8]) -> bool {
        if content.len() as u64 != self.block_len(number) {
            return false;
        }
        if self.blocks.is_empty() {
            return number == 0 && blake3::hash(content).as_bytes() == self.hash.as_bytes();
        }
        let known = usize::try_from(number).ok().and_then(|number| self.blocks.get(number));
        known.is_some_and(|known| *known == block_hash(number, content))
    }
}

/// Computes a [`Proof`] from streamed content.
#[derive(Debug)]
pub(crate) struct Prover {
    /// The hasher of the current block.
    block: Hasher,
    block_bytes: u64,
    done: Vec<ChainingValue>,
    bytes: u64,
}

impl Prover {
    pub(crate) fn new() -> Self {
        Self { block: Hasher::new(), block_bytes: 0, done: Vec::new(), bytes: 0 }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn update(&mut self, mut content: &[u8]) {
        while !content.is_empty() {
            if self.block_bytes == BLOCK_BYTES {
                self.next_block();
            }
            let room = usize::try_from(BLOCK_BYTES - self.block_bytes).expect("a block is 1 MiB");
            let (now, later) = content.split_at(room.min(content.len()));
            self.block.update(now);
            self.block_bytes += now.len() as u64;
            self.bytes += now.len() as u64;
            content = later;
        }
    }

    fn next_block(&mut self) {
        self.done.push(self.block.finalize_non_root());
        self.block = Hasher::new();
        self.block.set_input_offset(self.done.len() as u64 * BLOCK_BYTES);
        self.block_bytes = 0;
    }

    pub(crate) fn finish(mut self) -> Proof {
        if self.done.is_empty() {
            let hash = BlobHash(*self.block.finalize().as_bytes());
            return Proof { hash, bytes: self.bytes, blocks: Vec::new() };
        }
        self.done.push(self.block.finalize_non_root());
        Proof { hash: BlobHash(root_of(&self.done)), bytes: self.bytes, blocks: self.done }
    }
}

fn block_hash(number: u64, content: &[u8]) -> ChainingValue {
    let mut hasher = Hasher::new();
    hasher.set_input_offset(number * BLOCK_BYTES);
    hasher.update(content).finalize_non_root()
}

/// The root of two or more blocks.
fn root_of(blocks: &[ChainingValue]) -> [u8; 32] {
    let (left, right) = blocks.split_at(left_half(blocks.len()));
    *merge_subtrees_root(&node_of(left), &node_of(right), Mode::Hash).as_bytes()
}

fn node_of(blocks: &[ChainingValue]) -> ChainingValue {
    if let [one] = blocks {
        return *one;
    }
    let (left, right) = blocks.split_at(left_half(blocks.len()));
    merge_subtrees_non_root(&node_of(left), &node_of(right), Mode::Hash)
}

/// BLAKE3's rule: the left side is the largest power of two that leaves at least one block for the right side.
fn left_half(blocks: usize) -> usize {
    blocks.div_ceil(2).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|i| u8::try_from((i * 31 + i / 255) % 251).unwrap()).collect()
    }

    fn prove(content: &[u8], piece: usize) -> Proof {
        let mut prover = Prover::new();
        for piece in content.chunks(piece) {
            prover.update(piece);
        }
        prover.finish()
    }

    #[test]
    fn the_hash_equals_blake3_for_any_size_and_pieces() {
        let block = usize::try_from(BLOCK_BYTES).unwrap();
        for bytes in
            [0, 1, 1024, block - 1, block, block + 1, 2 * block, 3 * block + 17, 5 * block, 6 * block + 1]
        {
            let content = content(bytes);
            let proof = prove(&content, 100_003);
            assert_eq!(proof.hash.to_string(), blake3::hash(&content).to_hex().to_string(), "{bytes} bytes");
            assert_eq!(Proof::restore(proof.hash, proof.bytes, &proof.list()), Some(proof), "{bytes} bytes");
        }
    }

    #[test]
    fn every_block_is_proven_and_a_flipped_bit_is_not() {
        let block = usize::try_from(BLOCK_BYTES).unwrap();
        for bytes in [0, 5, block, 2 * block + 3] {
            let mut content = content(bytes);
            let proof = prove(&content, block);
            for (number, block) in content.chunks(block).enumerate() {
                assert!(proof.proves(number as u64, block));
                assert!(!proof.proves(number as u64 + 1, block) || bytes == 0);
                assert!(!proof.proves(number as u64, &block[1..]));
            }
            if let Some(last) = content.last_mut() {
                *last ^= 1;
                let number = (bytes - 1) / block;
                assert!(!proof.proves(number as u64, &content[number * block..]));
            }
        }
    }

    #[test]
    fn a_list_of_another_hash_is_refused() {
        let block = usize::try_from(BLOCK_BYTES).unwrap();
        let proof = prove(&content(3 * block), block);
        let mut list = proof.list();
        assert_eq!(Proof::restore(proof.hash, proof.bytes, &list[..64]), None);
        assert_eq!(Proof::restore(proof.hash, proof.bytes, &list[..95]), None);
        assert_eq!(Proof::restore(proof.hash, proof.bytes + BLOCK_BYTES, &list), None);
        list[40] ^= 1;
        assert_eq!(Proof::restore(proof.hash, proof.bytes, &list), None);
    }

    #[test]
    fn only_canonical_hashes_are_parsed() {
        let hash = blake3::hash(b"x").to_hex().to_string();
        assert_eq!(BlobHash::parse(&hash).unwrap().to_string(), hash);
        assert_eq!(BlobHash::parse(&hash.to_uppercase()), None);
        assert_eq!(BlobHash::parse(&hash[1..]), None);
        assert_eq!(BlobHash::parse("../../etc/passwd"), None);
    }
}
