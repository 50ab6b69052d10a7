//! The subset of DER that certificates need.

pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;
pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const OID: u8 = 0x06;
pub(super) const UTF8_STRING: u8 = 0x0c;
pub(super) const GENERALIZED_TIME: u8 = 0x18;
pub(super) const UTC_TIME: u8 = 0x17;
pub(super) const BOOLEAN: u8 = 0x01;

/// Encodes one value: its tag, its length, its parts.
pub(super) fn value(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut bytes = vec![tag];
    match u8::try_from(length) {
        Ok(short @ ..0x80) => bytes.push(short),
        Ok(_) | Err(_) => {
            let whole = length.to_be_bytes();
            let digits = &whole[whole.iter().position(|b| *b != 0).unwrap_or(whole.len() - 1)..];
            bytes.push(0x80 | u8::try_from(digits.len()).unwrap_or(8));
            bytes.extend_from_slice(digits);
        }
    }
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    bytes
}

/// A decoded value: its tag, its contents, and its complete encoding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value<'a> {
    pub(super) tag: u8,
    pub(super) inside: &'a [u8],
    pub(super) whole: &'a [u8],
}

/// Decodes and removes the first value of `bytes`.
pub(super) fn next<'a>(bytes: &mut &'a [u8]) -> Option<Value<'a>> {
    let all = *bytes;
    let (&tag, rest) = all.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (inside, behind) = rest.split_at_checked(length)?;
    *bytes = behind;
    Some(Value { tag, inside, whole: &all[..all.len() - behind.len()] })
}

/// Like [`next`], but requires this tag.
pub(super) fn expect<'a>(bytes: &mut &'a [u8], tag: u8) -> Option<Value<'a>> {
    next(bytes).filter(|read| read.tag == tag)
}
