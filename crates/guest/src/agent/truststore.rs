//! A bundle of certificates as a Java keystore, since Java reads no PEM.
//!
//! The oldest format, which every Java reads: magic, version 2, entries, and a SHA-1 over a fixed salt and everything
//! before it. The digest protects nothing, since its password is public, but Java verifies it.

/// The password of Java's own trust store.
const PASSWORD: &str = "changeit";
const SALT: &[u8] = b"Mighty Aphrodite";
const MAGIC: u32 = 0xfeed_feed;
const VERSION: u32 = 2;
const TRUSTED: u32 = 2;

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// There are a few hundred public certificate authorities.
const CERTIFICATES_MAX: usize = 4096;

pub(super) fn of_bundle(bundle: &str) -> Vec<u8> {
    let certificates: Vec<Vec<u8>> = certificates(bundle).take(CERTIFICATES_MAX).collect();
    let mut store = Vec::with_capacity(bundle.len());
    for word in [MAGIC, VERSION, length(certificates.len())] {
        store.extend(word.to_be_bytes());
    }
    for (number, certificate) in certificates.iter().enumerate() {
        store.extend(TRUSTED.to_be_bytes());
        text(&mut store, &format!("burrow-{number}"));
        // The time of addition. Always the same, so that the same bundle gives the same file.
        store.extend(0_u64.to_be_bytes());
        text(&mut store, "X.509");
        store.extend(length(certificate.len()).to_be_bytes());
        store.extend(certificate);
    }
    let mut signed: Vec<u8> = PASSWORD.encode_utf16().flat_map(u16::to_be_bytes).collect();
    signed.extend(SALT);
    signed.extend(&store);
    store.extend(sha1(&signed));
    store
}

fn length(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// A short ASCII text in Java's encoding.
fn text(into: &mut Vec<u8>, text: &str) {
    into.extend(u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes());
    into.extend(text.as_bytes());
}

fn certificates(bundle: &str) -> impl Iterator<Item = Vec<u8>> {
    let bodies = bundle.split(BEGIN).skip(1).filter_map(|rest| rest.split_once(END));
    bodies.filter_map(|(body, _)| base64(body)).filter(|der| !der.is_empty())
}

/// Returns `None` if the text has other characters.
fn base64(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut bits, mut count) = (Vec::with_capacity(text.len() * 3 / 4), 0_u32, 0);
    for byte in text.bytes().filter(|byte| !byte.is_ascii_whitespace()) {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'=' => continue,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from((bits >> count) & 0xff).unwrap_or_default());
        }
    }
    Some(bytes)
}

/// FIPS 180-4. Not for security.
fn sha1(message: &[u8]) -> [u8; 20] {
    let mut state: [u32; 5] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    let mut padded = message.to_vec();
    padded.push(0x80);
    padded.resize((padded.len() + 8).next_multiple_of(64), 0);
    let end = padded.len();
    padded[end - 8..].copy_from_slice(&(message.len() as u64 * 8).to_be_bytes());
    for block in padded.chunks_exact(64) {
        let mut words = [0_u32; 80];
        for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
            *word = bytes.iter().fold(0, |word, byte| (word << 8) | u32::from(*byte));
        }
        for at in 16..80 {
            words[at] = (words[at - 3] ^ words[at - 8] ^ words[at - 14] ^ words[at - 16]).rotate_left(1);
        }
        let [mut a, mut b, mut c, mut d, mut e] = state;
        for (at, word) in words.iter().enumerate() {
            let (mixed, constant) = match at {
                0..20 => ((b & c) | (!b & d), 0x5a82_7999),
                20..40 => (b ^ c ^ d, 0x6ed9_eba1),
                40..60 => ((b & c) | (b & d) | (c & d), 0x8f1b_bcdc),
                _ => (b ^ c ^ d, 0xca62_c1d6_u32),
            };
            let sum = a.rotate_left(5).wrapping_add(mixed).wrapping_add(e).wrapping_add(constant);
            (e, d, c, b, a) = (d, c, b.rotate_left(30), a, sum.wrapping_add(*word));
        }
        for (own, add) in state.iter_mut().zip([a, b, c, d, e]) {
            *own = own.wrapping_add(add);
        }
    }
    let mut digest = [0; 20];
    for (bytes, word) in digest.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn sha1_matches_the_test_vectors_of_the_standard() {
        assert_eq!(hex(&sha1(b"")), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        assert_eq!(hex(&sha1(b"abc")), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(hex(&sha1(&[b'a'; 1000])), "291e9a6c66994949b57ba5e650361e98fc36b1ba");
        let lengths = [55, 56, 57, 63, 64, 65];
        let distinct: std::collections::BTreeSet<_> = lengths.map(|n| sha1(&vec![b'x'; n])).into();
        assert_eq!(distinct.len(), lengths.len());
        let sixty_four = "0098ba824b5c16427bd7a1122a5a442a25ec644d";
        assert_eq!(hex(&sha1(&[b'a'; 64])), sixty_four);
    }

    #[test]
    fn every_certificate_of_a_bundle_is_an_entry() {
        let bundle = "# x\n-----BEGIN CERTIFICATE-----\nMAAB\nAgME\n-----END CERTIFICATE-----\n\
                      -----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n\
                      -----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
        let store = of_bundle(bundle);
        assert_eq!(&store[..12], [0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2, 0, 0, 0, 2]);
        let holds = |der: &[u8]| {
            store
                .windows(der.len() + 4)
                .any(|window| window[..4] == length(der.len()).to_be_bytes() && window[4..] == *der)
        };
        assert!(holds(&[0x30, 0, 1, 2, 3, 4]) && holds(&[0x30, 0]));
        assert_eq!(of_bundle(bundle), store, "the same each time");
    }
}
