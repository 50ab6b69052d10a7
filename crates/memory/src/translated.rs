//! The two loops that a search spends its time in, translated once more for what this processor can do.
//!
//! A program is built for the oldest processors of a kind. Those cannot count bits in one step and multiply eight numbers at
//! a time; nearly all that run it can count bits, and multiply sixteen. Where this one can, the second translation of the
//! same plain loop is taken: two to four times as fast, with the same results.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "to call what was translated for this processor")
)]

/// Appends in how many bits each row of `signs` differs from `wanted`; a row has as many words as `wanted`.
pub(crate) fn distances(signs: &[u64], wanted: &[u64], into: &mut Vec<u16>) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx512vpopcntdq")
        && std::arch::is_x86_feature_detected!("avx512vl")
    {
        // SAFETY: the processor was just asked whether it has what this is translated for.
        return unsafe { distances_avx512(signs, wanted, into) };
    }
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("popcnt") {
        // SAFETY: the processor was just asked whether it has what this is translated for.
        return unsafe { distances_popcnt(signs, wanted, into) };
    }
    distances_plain(signs, wanted, into);
}

/// The product of two vectors of numbers from -127 to 127, of one length.
pub(crate) fn dot(a: &[i8], b: &[i8]) -> i32 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor was just asked whether it has what this is translated for.
        return unsafe { dot_avx2(a, b) };
    }
    dot_plain(a, b)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "popcnt")]
fn distances_popcnt(signs: &[u64], wanted: &[u64], into: &mut Vec<u16>) {
    distances_plain(signs, wanted, into);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512vpopcntdq,avx512vl")]
fn distances_avx512(signs: &[u64], wanted: &[u64], into: &mut Vec<u16>) {
    distances_plain(signs, wanted, into);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn dot_avx2(a: &[i8], b: &[i8]) -> i32 {
    dot_plain(a, b)
}

#[inline(always)]
fn distances_plain(signs: &[u64], wanted: &[u64], into: &mut Vec<u16>) {
    // The built-in model has 256 dimensions; a loop whose length is known is none.
    match wanted.first_chunk::<4>().filter(|_| wanted.len() == 4) {
        Some(wanted) => into.extend(signs.chunks_exact(4).map(|row| distance(row, wanted))),
        None => into.extend(signs.chunks_exact(wanted.len().max(1)).map(|row| distance(row, wanted))),
    }
}

#[inline(always)]
fn distance(row: &[u64], wanted: &[u64]) -> u16 {
    row.iter().zip(wanted).map(|(a, b)| (a ^ b).count_ones() as u16).sum()
}

/// Two products of bytes fit 16 bits, so sixteen numbers take one step of the narrowest vector unit.
#[inline(always)]
fn dot_plain(a: &[i8], b: &[i8]) -> i32 {
    let mut sums = [0i32; 8];
    let (a, b) = (a.chunks_exact(16), b.chunks_exact(16));
    let rest: i32 = a.remainder().iter().zip(b.remainder()).map(|(x, y)| i32::from(*x) * i32::from(*y)).sum();
    for (a, b) in a.zip(b) {
        for at in 0..8 {
            let low = i16::from(a[at]) * i16::from(b[at]);
            let high = i16::from(a[at + 8]) * i16::from(b[at + 8]);
            sums[at] += i32::from(low + high);
        }
    }
    sums.iter().sum::<i32>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_translation_counts_the_same_bits() {
        for words in [1usize, 4, 6, 12] {
            let signs: Vec<u64> = (0..words as u64 * 33)
                .map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(7))
                .collect();
            let wanted: Vec<u64> = signs[..words].to_vec();
            let (mut found, mut plain) = (Vec::new(), Vec::new());
            distances(&signs, &wanted, &mut found);
            distances_plain(&signs, &wanted, &mut plain);
            assert_eq!(found, plain);
            #[cfg(target_arch = "x86_64")]
            if std::arch::is_x86_feature_detected!("popcnt") {
                plain.clear();
                // SAFETY: as above.
                unsafe { distances_popcnt(&signs, &wanted, &mut plain) };
                assert_eq!(found, plain);
            }
            assert_eq!((found.len(), found[0]), (33, 0));
            let by_hand: u32 = (0..words).map(|at| (signs[words + at] ^ wanted[at]).count_ones()).sum();
            assert_eq!(u32::from(found[1]), by_hand);
        }
    }

    #[test]
    fn products_are_exact_for_the_largest_numbers_and_any_length() {
        for length in [0, 1, 15, 16, 17, 256] {
            let (a, b): (Vec<i8>, Vec<i8>) =
                (0..length).map(|n| (-127, if n % 3 == 0 { 127 } else { -127 })).unzip();
            let expected: i32 = a.iter().zip(&b).map(|(x, y)| i32::from(*x) * i32::from(*y)).sum();
            assert_eq!((dot(&a, &b), dot_plain(&a, &b)), (expected, expected));
        }
    }
}
