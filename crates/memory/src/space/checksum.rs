//! Checksums of stored values, against disk errors, not against attackers.

use twox_hash::XxHash3_128;

/// 64 bits, as SQLite stores integers.
pub(crate) fn hash(bytes: &[u8]) -> i64 {
    let [a, b, c, d, e, f, g, h, ..] = XxHash3_128::oneshot(bytes).to_le_bytes();
    i64::from_le_bytes([a, b, c, d, e, f, g, h])
}
