//! PAX records: values that do not fit into ustar's fields, and extended attributes.

use super::sparse::PaxSparse;
use super::{Refusal, Time};

/// The prefix with which GNU tar, BSD tar and Go write extended attributes as raw bytes.
const ATTRIBUTE: &[u8] = b"SCHILY.xattr.";

/// Other forms of attributes: access control lists as text, attributes encoded once more. No image tool writes them.
const ATTRIBUTES_UNREAD: [&[u8]; 3] = [b"SCHILY.acl.", b"LIBARCHIVE.xattr.", b"RHT.security.selinux"];

/// More attributes than a file has on any file system.
const ATTRIBUTES_MAX: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Pax {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) uid: Option<u64>,
    pub(super) gid: Option<u64>,
    pub(super) mtime: Option<Time>,
    pub(super) attributes: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) attributes_unread: u64,
    pub(super) sparse: PaxSparse,
}

const BROKEN: Refusal = Refusal::Because("a PAX record is malformed");

impl Pax {
    /// `<length> <key>=<value>\n`, repeated.
    pub(super) fn parse(mut records: &[u8]) -> Result<Self, Refusal> {
        let mut pax = Self::default();
        while !records.is_empty() {
            let space = records.iter().position(|&byte| byte == b' ').ok_or(BROKEN)?;
            let length: usize = number(&records[..space])?;
            if length <= space + 1 || length > records.len() || records[length - 1] != b'\n' {
                return Err(BROKEN);
            }
            let record = &records[space + 1..length - 1];
            let equals = record.iter().position(|&byte| byte == b'=').ok_or(BROKEN)?;
            pax.note(&record[..equals], &record[equals + 1..])?;
            records = &records[length..];
        }
        Ok(pax)
    }

    fn note(&mut self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        match key {
            // An empty value cancels a global record, of which none is used here.
            b"path" | b"linkpath" | b"size" | b"uid" | b"gid" | b"mtime" if value.is_empty() => {}
            b"path" => once(&mut self.path, value.to_vec())?,
            b"linkpath" => once(&mut self.link, value.to_vec())?,
            b"size" => once(&mut self.size, number(value)?)?,
            b"uid" => once(&mut self.uid, number(value)?)?,
            b"gid" => once(&mut self.gid, number(value)?)?,
            b"mtime" => once(&mut self.mtime, time(value)?)?,
            _ if key.starts_with(b"GNU.sparse.") => {
                self.sparse.note(&key[b"GNU.sparse.".len()..], value)?;
            }
            _ if key.starts_with(ATTRIBUTE) => self.attribute(&key[ATTRIBUTE.len()..], value)?,
            _ if ATTRIBUTES_UNREAD.iter().any(|prefix| key.starts_with(prefix)) => {
                self.attributes_unread += 1;
            }
            // Comments, other times, names of owners: none of them affects where bytes are written.
            _ => {}
        }
        Ok(())
    }

    fn attribute(&mut self, name: &[u8], value: &[u8]) -> Result<(), Refusal> {
        if self.attributes.len() == ATTRIBUTES_MAX {
            return Err(Refusal::Because("an entry has too many extended attributes"));
        }
        if self.attributes.iter().any(|(known, _)| known == name) {
            return Err(Refusal::Because("an entry has the same extended attribute twice"));
        }
        self.attributes.push((name.to_vec(), value.to_vec()));
        Ok(())
    }

    /// Some programs apply a global record to every later entry, others to none.
    pub(super) fn refuse_global(&self) -> Result<(), Refusal> {
        let harmless = self.path.is_none()
            && self.link.is_none()
            && self.size.is_none()
            && self.uid.is_none()
            && self.gid.is_none()
            && !self.sparse.is_some();
        match harmless {
            true => Ok(()),
            false => Err(Refusal::Because("a global PAX record sets a name, size or owner")),
        }
    }
}

fn once<T>(field: &mut Option<T>, value: T) -> Result<(), Refusal> {
    match field.replace(value) {
        None => Ok(()),
        Some(_) => Err(Refusal::Because("a PAX record occurs twice")),
    }
}

/// Decimal digits only: programs interpret signs and blanks differently.
pub(super) fn number<T: std::str::FromStr>(text: &[u8]) -> Result<T, Refusal> {
    let digits = std::str::from_utf8(text).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits.and_then(|digits| digits.parse().ok()).ok_or(Refusal::Because("a number is malformed"))
}

/// `[-]seconds[.fraction]`.
fn time(text: &[u8]) -> Result<Time, Refusal> {
    let (negative, text) = match text.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let point = text.iter().position(|&byte| byte == b'.');
    let (whole, fraction) = match point {
        Some(point) => (&text[..point], &text[point + 1..]),
        None => (text, &b""[..]),
    };
    if !fraction.iter().all(u8::is_ascii_digit) {
        return Err(BROKEN);
    }
    let seconds: i64 = number(whole)?;
    let mut digits = [b'0'; 9];
    let count = fraction.len().min(digits.len());
    digits[..count].copy_from_slice(&fraction[..count]);
    let nanoseconds: u32 = number(&digits)?;
    Ok(match (negative, nanoseconds) {
        (false, nanoseconds) => Time { seconds, nanoseconds },
        (true, 0) => Time { seconds: -seconds, nanoseconds: 0 },
        // The fraction counts forward from the second before.
        (true, nanoseconds) => Time { seconds: -seconds - 1, nanoseconds: 1_000_000_000 - nanoseconds },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_and_after_the_epoch_are_parsed_to_the_nanosecond() {
        for (text, seconds, nanoseconds) in [
            ("0", 0, 0),
            ("1700000000", 1_700_000_000, 0),
            ("5.25", 5, 250_000_000),
            ("5.1234567899", 5, 123_456_789),
            ("-1", -1, 0),
            ("-1.25", -2, 750_000_000),
        ] {
            assert_eq!(time(text.as_bytes()).unwrap(), Time { seconds, nanoseconds }, "{text}");
        }
        for text in ["", "x", "1.x", "--1", "1e5", " 1", "+1", "9".repeat(30).as_str()] {
            assert!(time(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn malformed_and_repeated_records_are_refused() {
        for records in [
            "x",
            "5 a=b",
            "6 a=b\nx",
            "3 \n",
            "99 a=b\n",
            "0 a=b\n",
            "7 path\n",
            "10 size=-1\n",
            "8 uid=x\n",
            "11 path=ab\n11 path=cd\n",
            "-6 a=b\n",
            "+6 a=b\n",
        ] {
            assert!(Pax::parse(records.as_bytes()).is_err(), "{records:?}");
        }
        let pax = Pax::parse(b"11 path=ab\n24 SCHILY.xattr.user.a=\n").unwrap();
        assert_eq!(pax.path.unwrap(), b"ab");
        assert_eq!(pax.attributes, [(b"user.a".to_vec(), Vec::new())]);
    }
}
