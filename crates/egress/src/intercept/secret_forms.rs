//! The forms in which a secret may appear: as it is, and in the usual encodings.
//!
//! Pure. Other transformations (reversed, compressed, encrypted, split with other bytes in between) cannot be found
//! by searching. Methods and paths of a secret's rules limit those.

use data_encoding::{BASE64, BASE64URL, HEXLOWER, HEXUPPER};
use zeroize::Zeroizing;

/// Shorter pieces of an encoding would match by chance everywhere.
const FORM_BYTES_MIN: usize = 6;

/// One form of a secret.
pub(super) type Form = Zeroizing<Vec<u8>>;

/// All forms, without duplicates.
pub(super) fn of(secret: &[u8]) -> Vec<Form> {
    let mut forms = vec![Zeroizing::new(secret.to_vec())];
    for skip in 0..3 {
        forms.extend(base64(secret, skip));
    }
    forms.extend([
        Zeroizing::new(HEXLOWER.encode(secret).into_bytes()),
        Zeroizing::new(HEXUPPER.encode(secret).into_bytes()),
    ]);
    forms.extend(url(secret));
    forms.extend(json(secret));
    forms.retain(|form| form.len() >= FORM_BYTES_MIN);
    forms.sort_unstable_by(|a, b| a[..].cmp(&b[..]));
    forms.dedup();
    forms
}

/// The part of a secret's base64 encoding that is independent of its neighbours, when `before` bytes (modulo three)
/// precede the secret.
fn base64(secret: &[u8], before: usize) -> [Form; 2] {
    let mut padded = Zeroizing::new(vec![0; before]);
    padded.extend_from_slice(secret);
    let (from, upto) = ((before * 8).div_ceil(6), padded.len() * 8 / 6);
    [BASE64, BASE64URL].map(|alphabet| {
        let whole = Zeroizing::new(alphabet.encode(&padded).into_bytes());
        Zeroizing::new(whole[from..upto].to_vec())
    })
}

fn url(secret: &[u8]) -> Vec<Form> {
    let alphanumeric = |b: u8| b.is_ascii_alphanumeric();
    let unreserved = |b: u8| alphanumeric(b) || b"-._~".contains(&b);
    // The characters that HTML forms leave unescaped, and those that `encodeURIComponent` does.
    let form = |b: u8| alphanumeric(b) || b"*-._".contains(&b);
    let component = |b: u8| unreserved(b) || b"!*'()".contains(&b);
    // The characters that `encodeURI` leaves unescaped.
    let reserved = |b: u8| unreserved(b) || b";,/?:@&=+$!*'()#".contains(&b);
    let upper = |b: u8| format!("%{b:02X}").into_bytes();
    let lower = |b: u8| format!("%{b:02x}").into_bytes();
    let plus = |b: u8| if b == b' ' { b"+".to_vec() } else { upper(b) };
    vec![
        escaped(secret, unreserved, upper),
        escaped(secret, unreserved, lower),
        escaped(secret, unreserved, plus),
        escaped(secret, form, plus),
        escaped(secret, component, upper),
        escaped(secret, reserved, upper),
        escaped(secret, alphanumeric, upper),
        escaped(secret, alphanumeric, lower),
        escaped(secret, |_| false, upper),
        escaped(secret, |_| false, lower),
    ]
}

fn json(secret: &[u8]) -> Vec<Form> {
    let short = |b: u8| match b {
        b'"' | b'\\' | b'/' => vec![b'\\', b],
        b'\n' => b"\\n".to_vec(),
        b'\r' => b"\\r".to_vec(),
        b'\t' => b"\\t".to_vec(),
        _ => format!("\\u{b:04x}").into_bytes(),
    };
    let plain = |b: u8| !matches!(b, b'"' | b'\\' | 0..=0x1f | 0x7f);
    vec![
        escaped(secret, plain, short),
        // Some encoders escape slashes, some the characters that are special in HTML.
        escaped(secret, |b| plain(b) && b != b'/', short),
        escaped(secret, |b| plain(b) && !matches!(b, b'<' | b'>' | b'&'), short),
        escaped(secret, |b| plain(b) && !matches!(b, b'<' | b'>' | b'&' | b'\''), short),
        escaped(secret, |_| false, |b| format!("\\u{b:04x}").into_bytes()),
        escaped(secret, |_| false, |b| format!("\\u{b:04X}").into_bytes()),
    ]
}

fn escaped(secret: &[u8], plain: impl Fn(u8) -> bool, escape: impl Fn(u8) -> Vec<u8>) -> Form {
    let mut form = Zeroizing::new(Vec::with_capacity(6 * secret.len()));
    for &b in secret {
        if plain(b) { form.push(b) } else { form.extend(escape(b)) }
    }
    form
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_at_any_position_in_base64() {
        let secret = b"sk-live/0+1?2>3";
        let forms = of(secret);
        for before in 0..7 {
            for after in 0..4 {
                let text = [&b"xyzxyzx"[..before], secret, &b"abcd"[..after]].concat();
                for alphabet in [BASE64, BASE64URL] {
                    let encoded = alphabet.encode(&text).into_bytes();
                    let found = |form: &Form| encoded.windows(form.len()).any(|window| window == &form[..]);
                    assert!(forms.iter().any(found), "{before} {after}");
                }
            }
        }
    }

    #[test]
    fn the_other_forms_match_common_encoders() {
        let cautious = of(b"sk-live_0~1 2*3");
        for form in [
            "sk%2Dlive%5F0%7E1%202%2A3",
            "sk%2dlive%5f0%7e1%202%2a3",
            "sk-live_0%7E1+2*3",
            "sk-live_0~1%202*3",
            "sk-live_0~1%202%2A3",
        ] {
            assert!(cautious.iter().any(|own| &own[..] == form.as_bytes()), "{form}");
        }
        let forms = of(br#"a"b/c d&e<12"#);
        for form in [
            r#"a"b/c d&e<12"#,
            r#"a\"b/c d&e<12"#,
            r#"a\"b\/c d&e<12"#,
            r#"a\"b/c d\u0026e\u003c12"#,
            "a%22b%2Fc%20d%26e%3C12",
            "a%22b%2fc%20d%26e%3c12",
            "a%22b%2Fc+d%26e%3C12",
            "6122622f63206426653c3132",
            "6122622F63206426653C3132",
        ] {
            assert!(forms.iter().any(|own| &own[..] == form.as_bytes()), "{form}");
        }
    }
}
