//! Writes tar headers: ustar, preceded by PAX records if ustar is not sufficient.

use std::io::{self, Write};

use ::tar::{EntryType, Header};

use crate::entries::{BLOCK_BYTES, Time, padding};

/// The largest size that ustar's field can hold.
const USTAR_SIZE_MAX: u64 = (1 << 33) - 1;

/// An entry to be written.
#[derive(Clone, Debug)]
pub(super) struct Entry<'a> {
    pub(super) kind: EntryType,
    pub(super) name: &'a [u8],
    pub(super) link: Option<&'a [u8]>,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) size: u64,
    pub(super) mtime: Time,
    /// Sorted, so that the same file always gives the same bytes.
    pub(super) attributes: &'a [(Vec<u8>, Vec<u8>)],
}

impl Entry<'_> {
    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let records = self.records();
        if !records.is_empty() {
            let mut header = Header::new_ustar();
            header.set_entry_type(EntryType::XHeader);
            copy(b"PaxHeaders/entry", &mut header.as_old_mut().name);
            header.set_mode(0o644);
            put_numbers(&mut header, 0, 0, 0, records.len() as u64);
            out.write_all(header.as_bytes())?;
            out.write_all(&records)?;
            pad(out, records.len() as u64)?;
        }
        let mut header = Header::new_ustar();
        header.set_entry_type(self.kind);
        copy(self.name, &mut header.as_old_mut().name);
        copy(self.link.unwrap_or_default(), &mut header.as_old_mut().linkname);
        header.set_mode(self.mode);
        let seconds = u64::try_from(self.mtime.seconds).unwrap_or(0);
        let size = if self.size > USTAR_SIZE_MAX { 0 } else { self.size };
        put_numbers(&mut header, self.uid, self.gid, seconds, size);
        out.write_all(header.as_bytes())
    }

    /// Records for the values that do not fit into ustar's fields.
    fn records(&self) -> Vec<u8> {
        let mut records = Vec::new();
        let name_room = Header::new_ustar().as_old().name.len();
        if self.name.len() > name_room {
            record(&mut records, b"path", self.name);
        }
        if let Some(link) = self.link.filter(|link| link.len() > name_room) {
            record(&mut records, b"linkpath", link);
        }
        if self.size > USTAR_SIZE_MAX {
            record(&mut records, b"size", self.size.to_string().as_bytes());
        }
        if self.mtime.nanoseconds != 0 || self.mtime.seconds < 0 {
            record(&mut records, b"mtime", time(self.mtime).as_bytes());
        }
        for (name, value) in self.attributes {
            record(&mut records, &[b"SCHILY.xattr.", &name[..]].concat(), value);
        }
        records
    }
}

/// Pads content to a whole block.
pub(super) fn pad(out: &mut dyn Write, size: u64) -> io::Result<()> {
    let count = usize::try_from(padding(size)).expect("less than a block");
    out.write_all(&[0; BLOCK_BYTES][..count])
}

/// Two blocks of zeros.
pub(super) fn end(out: &mut dyn Write) -> io::Result<()> {
    out.write_all(&[0; 2 * BLOCK_BYTES])
}

fn put_numbers(header: &mut Header, uid: u32, gid: u32, seconds: u64, size: u64) {
    header.set_uid(u64::from(uid));
    header.set_gid(u64::from(gid));
    header.set_mtime(seconds);
    header.set_size(size);
    header.set_cksum();
}

/// Copies as much as fits; the full value is in a record.
fn copy(bytes: &[u8], field: &mut [u8]) {
    let count = bytes.len().min(field.len());
    field[..count].copy_from_slice(&bytes[..count]);
}

/// `<length> <key>=<value>
/// `, where the length includes its own digits.
fn record(records: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    records.extend_from_slice(length.to_string().as_bytes());
    records.push(b' ');
    records.extend_from_slice(key);
    records.push(b'=');
    records.extend_from_slice(value);
    records.push(b'\n');
}

/// Before the epoch, the fraction counts backwards in this notation.
fn time(time: Time) -> String {
    let text = match (time.seconds, time.nanoseconds) {
        (seconds, nanoseconds) if seconds < 0 && nanoseconds > 0 => {
            format!("-{}.{:09}", -(seconds + 1), 1_000_000_000 - nanoseconds)
        }
        (seconds, 0) => seconds.to_string(),
        (seconds, nanoseconds) => format!("{seconds}.{nanoseconds:09}"),
    };
    if text.contains('.') { text.trim_end_matches('0').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_record_includes_itself() {
        for length in [1usize, 5, 88, 89, 90, 91, 92, 93, 988, 990, 995, 9990] {
            let mut records = Vec::new();
            record(&mut records, b"path", &vec![b'x'; length]);
            let text = String::from_utf8(records.clone()).unwrap();
            let stated: usize = text.split(' ').next().unwrap().parse().unwrap();
            assert_eq!(stated, records.len());
        }
    }

    #[test]
    fn times_survive_formatting_and_parsing() {
        for (seconds, nanoseconds, expected) in [
            (5, 250_000_000, "5.25"),
            (100, 0, "100"),
            (-1, 0, "-1"),
            (-2, 750_000_000, "-1.25"),
            (-1, 500_000_000, "-0.5"),
        ] {
            assert_eq!(time(Time { seconds, nanoseconds }), expected);
        }
    }
}
