//! The Merkle tree of RFC 6962: hashes, the growing edge, creating and checking proofs.
//!
//! ```text
//!  leaf  = SHA-256(0x00 ‖ body)      node = SHA-256(0x01 ‖ left ‖ right)      the empty tree = SHA-256("")
//!
//!            root(7)
//!           /       \
//!       0..4         4..7        The edge of a tree of 7 leaves is its full subtrees from left to right: 0..4, 4..6, 6..7.
//!      /    \        /   \       Appending needs only the edge, and so does verifying an export.
//! ```
//!
//! Pure: an implementation of [`Hashes`] provides the hashes of full subtrees.

use ring::digest::{Context, SHA256};

/// The maximum number of levels: the size of a tree is a `u64`.
const LEVELS_MAX: u32 = 63;

/// A SHA-256 hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().map(Self).ok()
    }

    pub fn hex(&self) -> String {
        data_encoding::HEXLOWER.encode(&self.0)
    }

    pub fn from_hex(text: &str) -> Option<Self> {
        data_encoding::HEXLOWER.decode(text.as_bytes()).ok().and_then(|bytes| Self::from_slice(&bytes))
    }
}

impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.hex())
    }
}

impl std::fmt::Display for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.hex())
    }
}

fn hash(pieces: &[&[u8]]) -> Hash {
    let mut context = Context::new(&SHA256);
    for piece in pieces {
        context.update(piece);
    }
    let mut bytes = [0; 32];
    bytes.copy_from_slice(context.finish().as_ref());
    Hash(bytes)
}

/// The hash of a leaf's bytes.
pub fn leaf_hash(body: &[u8]) -> Hash {
    hash(&[&[0], body])
}

/// The hash of two subtrees.
pub fn node_hash(left: &Hash, right: &Hash) -> Hash {
    hash(&[&[1], &left.0, &right.0])
}

/// The hash of a tree without leaves.
pub fn empty_hash() -> Hash {
    hash(&[])
}

/// The right edge of a tree: sufficient to append and to compute the root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edge {
    size: u64,
    /// The hashes of its full subtrees, the largest first: one for every bit that is set in the size.
    full: Vec<Hash>,
}

/// A subtree that an append has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompleteSubtree {
    /// It has `1 << level` leaves.
    pub level: u32,
    /// The number of subtrees of this level to its left.
    pub index: u64,
    pub hash: Hash,
}

impl Edge {
    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn full(&self) -> &[Hash] {
        &self.full
    }

    /// Restores an edge from [`Edge::full`]; `None` if the number of hashes does not match the size.
    pub fn from_parts(size: u64, full: Vec<Hash>) -> Option<Self> {
        (full.len() == size.count_ones() as usize && size < 1 << LEVELS_MAX).then_some(Self { size, full })
    }

    /// Appends a leaf, and reports every subtree of two or more leaves that it completes.
    pub fn append(&mut self, leaf: Hash, mut completes: impl FnMut(CompleteSubtree)) {
        let (mut hash, mut level, mut index) = (leaf, 0, self.size);
        while index & 1 == 1
            && let Some(left) = self.full.pop()
        {
            hash = node_hash(&left, &hash);
            level += 1;
            index >>= 1;
            completes(CompleteSubtree { level, index, hash });
        }
        self.full.push(hash);
        self.size += 1;
    }

    pub fn root(&self) -> Hash {
        let folded = self.full.iter().rev().copied().reduce(|right, left| node_hash(&left, &right));
        folded.unwrap_or_else(empty_hash)
    }
}

/// Provides the hash of the full subtree of `1 << level` leaves that has `index` subtrees of its size before it.
pub trait Hashes {
    type Error;

    fn full(&self, level: u32, index: u64) -> Result<Hash, Self::Error>;
}

/// The hash of the leaves `from..to`, where `from` is a multiple of the smallest power of two that covers the range.
fn range<H: Hashes>(hashes: &H, from: u64, to: u64) -> Result<Hash, H::Error> {
    let count = to - from;
    if count.is_power_of_two() {
        let level = count.trailing_zeros();
        return hashes.full(level, from >> level);
    }
    let middle = from + split(count);
    Ok(node_hash(&range(hashes, from, middle)?, &range(hashes, middle, to)?))
}

/// The largest power of two that is smaller than `count`, which is at least 2.
fn split(count: u64) -> u64 {
    1 << (u64::BITS - 1 - (count - 1).leading_zeros())
}

/// The root of the first `size` leaves.
pub fn root<H: Hashes>(hashes: &H, size: u64) -> Result<Hash, H::Error> {
    if size == 0 { Ok(empty_hash()) } else { range(hashes, 0, size) }
}

/// Proves that leaf `index` is in the tree of `size` leaves. The caller has checked `index < size`.
pub fn inclusion<H: Hashes>(hashes: &H, index: u64, size: u64) -> Result<Vec<Hash>, H::Error> {
    let (mut from, mut to, mut path) = (0, size, Vec::new());
    while to - from > 1 {
        let middle = from + split(to - from);
        if index < middle {
            path.push(range(hashes, middle, to)?);
            to = middle;
        } else {
            path.push(range(hashes, from, middle)?);
            from = middle;
        }
    }
    path.reverse();
    Ok(path)
}

/// Proves that the tree of `size` leaves begins with that of `old`. The caller has checked `old <= size`.
pub fn consistency<H: Hashes>(hashes: &H, old: u64, size: u64) -> Result<Vec<Hash>, H::Error> {
    if old == 0 || old == size {
        return Ok(Vec::new());
    }
    // SUBPROOF of RFC 6962, 2.1.2, from the root down.
    let (mut from, mut to, mut path) = (0, size, Vec::new());
    while old != to {
        let middle = from + split(to - from);
        if old <= middle {
            path.push(range(hashes, middle, to)?);
            to = middle;
        } else {
            path.push(range(hashes, from, middle)?);
            from = middle;
        }
    }
    if from != 0 {
        path.push(range(hashes, from, to)?);
    }
    path.reverse();
    Ok(path)
}

/// Whether `path` proves `leaf` at `index` of the tree of `size` leaves with this `root`.
pub fn proves_inclusion(leaf: &Hash, index: u64, size: u64, path: &[Hash], root: &Hash) -> bool {
    if index >= size {
        return false;
    }
    let (mut place, mut last, mut hash) = (index, size - 1, *leaf);
    for step in path {
        if last == 0 {
            return false;
        }
        if place & 1 == 1 || place == last {
            hash = node_hash(step, &hash);
            while place & 1 == 0 && place != 0 {
                place >>= 1;
                last >>= 1;
            }
        } else {
            hash = node_hash(&hash, step);
        }
        place >>= 1;
        last >>= 1;
    }
    last == 0 && hash == *root
}

/// Whether `path` proves that the tree of `size` leaves and `root` begins with that of `old` leaves and `old_root`.
pub fn proves_consistency(old: u64, old_root: &Hash, size: u64, root: &Hash, path: &[Hash]) -> bool {
    if old > size || (old == 0 && *old_root != empty_hash()) {
        return false;
    }
    if old == 0 || old == size {
        return path.is_empty() && (old == 0 || old_root == root);
    }
    // RFC 9162, 2.1.4.2. If `old` is a power of two, the old root is the first node.
    let mut steps = path.iter();
    let first = match old.is_power_of_two() {
        true => Some(old_root),
        false => steps.next(),
    };
    let Some(first) = first else { return false };
    let (mut place, mut last) = (old - 1, size - 1);
    while place & 1 == 1 {
        place >>= 1;
        last >>= 1;
    }
    let (mut before, mut now) = (*first, *first);
    for step in steps {
        if last == 0 {
            return false;
        }
        if place & 1 == 1 || place == last {
            before = node_hash(step, &before);
            now = node_hash(step, &now);
            while place & 1 == 0 && place != 0 {
                place >>= 1;
                last >>= 1;
            }
        } else {
            now = node_hash(&now, step);
        }
        place >>= 1;
        last >>= 1;
    }
    last == 0 && before == *old_root && now == *root
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    /// The definition of RFC 6962, computed over all leaves.
    struct NaiveTree(Vec<Hash>);

    impl NaiveTree {
        fn of(count: u64) -> Self {
            Self((0..count).map(|n| leaf_hash(&n.to_le_bytes())).collect())
        }

        fn hash(leaves: &[Hash]) -> Hash {
            match leaves {
                [] => empty_hash(),
                [one] => *one,
                more => {
                    let middle = (1..more.len()).rev().find(|n| n.is_power_of_two()).unwrap();
                    node_hash(&Self::hash(&more[..middle]), &Self::hash(&more[middle..]))
                }
            }
        }

        fn root(&self, size: u64) -> Hash {
            Self::hash(&self.0[..size as usize])
        }
    }

    impl Hashes for NaiveTree {
        type Error = Infallible;

        fn full(&self, level: u32, index: u64) -> Result<Hash, Infallible> {
            let (from, to) = (index << level, (index + 1) << level);
            Ok(Self::hash(&self.0[from as usize..to as usize]))
        }
    }

    /// The leaves and roots in the test vectors of RFC 6962 implementations.
    #[test]
    fn the_known_trees_of_rfc_6962() {
        let leaves: [&str; 8] = [
            "",
            "00",
            "10",
            "2021",
            "3031",
            "40414243",
            "5051525354555657",
            "606162636465666768696a6b6c6d6e6f",
        ];
        let roots = [
            "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
            "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
            "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
            "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
            "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
            "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
            "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
        ];
        assert_eq!(empty_hash().hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        let mut edge = Edge::default();
        for (leaf, root) in leaves.iter().zip(roots) {
            let body = data_encoding::HEXLOWER.decode(leaf.as_bytes()).unwrap();
            edge.append(leaf_hash(&body), |_| ());
            assert_eq!(edge.root().hex(), root, "of {} leaves", edge.size());
        }
    }

    #[test]
    fn every_proof_of_every_small_tree_holds_only_for_its_claim() {
        let naive = NaiveTree::of(40);
        for size in 1..=40u64 {
            let now = naive.root(size);
            assert_eq!(root(&naive, size).unwrap(), now);
            for index in 0..size {
                let path = inclusion(&naive, index, size).unwrap();
                let leaf = &naive.0[index as usize];
                assert!(proves_inclusion(leaf, index, size, &path, &now), "{index} of {size}");
                for other in (0..=size).filter(|other| *other != index) {
                    assert!(
                        !proves_inclusion(leaf, other, size, &path, &now),
                        "{index} as {other} of {size}"
                    );
                }
                for cut in 0..path.len() {
                    assert!(!proves_inclusion(leaf, index, size, &path[..cut], &now));
                }
            }
            for old in 0..=size {
                let path = consistency(&naive, old, size).unwrap();
                let before = naive.root(old);
                assert!(proves_consistency(old, &before, size, &now, &path), "{old} to {size}");
                let forked = leaf_hash(b"another history");
                assert!(old == 0 || !proves_consistency(old, &forked, size, &now, &path), "{old} to {size}");
                assert!(
                    old == 0 || !proves_consistency(old, &before, size, &forked, &path),
                    "{old} to {size}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn the_edge_gives_the_root_and_every_full_subtree(count in 1u64..400) {
            let naive = NaiveTree::of(count);
            let mut edge = Edge::default();
            for leaf in &naive.0 {
                edge.append(*leaf, |made| {
                    assert_eq!(made.hash, naive.full(made.level, made.index).unwrap());
                });
            }
            prop_assert_eq!(edge.root(), naive.root(count));
            let again = Edge::from_parts(edge.size(), edge.full().to_vec()).unwrap();
            prop_assert_eq!(again, edge);
        }

        #[test]
        fn a_proof_with_one_changed_bit_is_refused(size in 2u64..300, seed: u64, bit in 0usize..256) {
            let naive = NaiveTree::of(size);
            let (now, index, old) = (naive.root(size), seed % size, seed % (size - 1) + 1);
            let mut path = inclusion(&naive, index, size).unwrap();
            let place = (seed >> 32) as usize % path.len();
            path[place].0[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(!proves_inclusion(&naive.0[index as usize], index, size, &path, &now));
            let mut path = consistency(&naive, old, size).unwrap();
            let place = (seed >> 32) as usize % path.len();
            path[place].0[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(!proves_consistency(old, &naive.root(old), size, &now, &path));
        }

        #[test]
        fn invalid_proofs_never_panic(
            index: u64, size: u64, old: u64, path in proptest::collection::vec(any::<[u8; 32]>(), 0..70)
        ) {
            let path: Vec<_> = path.into_iter().map(Hash).collect();
            let root = leaf_hash(b"");
            prop_assert!(!proves_inclusion(&root, index, size.max(2), &path, &empty_hash()));
            proves_consistency(old, &root, size, &root, &path);
        }
    }
}
