//! The ways a secret may be written: as it is, and as programs encode it.
//!
//! Pure. What is not here (reversed, compressed, encrypted, cut into pieces with something between) cannot be found by
//! looking for it: that is what a secret's methods and paths are for.

use data_encoding::{BASE64, BASE64URL, HEXLOWER, HEXUPPER};
use zeroize::Zeroizing;

/// Shorter pieces of an encoding would be found everywhere.
const FORM_BYTES_MIN: usize = 6;

/// One way to write a secret.
pub(super) type Form = Zeroizing<Vec<u8>>;

/// All of them, without repeats.
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

/// What a secret looks like inside of base64 when `before` bytes (modulo three) stand in front of it, whatever they are:
/// the characters that depend on its neighbours are left out.
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
    // What forms leave alone, and what `encodeURIComponent` does.
    let form = |b: u8| alphanumeric(b) || b"*-._".contains(&b);
    let component = |b: u8| unreserved(b) || b"!*'()".contains(&b);
    // What `encodeURI` leaves alone.
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
        // Some escape slashes, some what has a meaning in HTML.
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
    fn a_secret_is_found_in_base64_wherever_it_stands() {
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
    fn the_other_forms_are_those_that_programs_write() {
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
