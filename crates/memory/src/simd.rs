//! The two hottest loops of a search, compiled again for the features of the host's processor.
//!
//! The program is compiled for the oldest processors of an architecture. Those cannot count bits in one instruction, and multiply
//! eight numbers at a time; nearly all current processors can count bits, and multiply sixteen. If the processor supports it, the
//! second compilation of the same plain loop is used: two to four times as fast, with the same results.

#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "to call the variant for this processor"))]

/// Appends the number of bits in which each row of `signs` differs from `wanted`; a row has as many words as `wanted`.
pub(crate) fn distances(signs: &[u64], wanted: &[u64], into: &mut Vec<u16>) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx512vpopcntdq")
        && std::arch::is_x86_feature_detected!("avx512vl")
    {
        // SAFETY: the processor's support for the required features was just checked.
        return unsafe { distances_avx512(signs, wanted, into) };
    }
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("popcnt") {
        // SAFETY: the processor's support for the required features was just checked.
        return unsafe { distances_popcnt(signs, wanted, into) };
    }
    distances_plain(signs, wanted, into);
}

/// The dot product of two vectors of numbers from -127 to 127, of equal length.
pub(crate) fn dot(a: &[i8], b: &[i8]) -> i32 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor's support for the required features was just checked.
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
    // The built-in model has 256 dimensions; a loop with a known length is unrolled.
    match wanted.first_chunk::<4>().filter(|_| wanted.len() == 4) {
        Some(wanted) => into.extend(signs.chunks_exact(4).map(|row| distance(row, wanted))),
        None => into.extend(signs.chunks_exact(wanted.len().max(1)).map(|row| distance(row, wanted))),
    }
}

#[inline(always)]
fn distance(row: &[u64], wanted: &[u64]) -> u16 {
    row.iter().zip(wanted).map(|(a, b)| (a ^ b).count_ones() as u16).sum()
}

/// The sum of two products of bytes fits in 16 bits, so the narrowest vector unit processes sixteen numbers per step.
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
    fn every_compiled_variant_counts_the_same_bits() {
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
