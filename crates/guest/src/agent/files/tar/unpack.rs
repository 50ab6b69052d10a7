//! Unpacks a tar stream into a staging directory.

use std::io::Read;

use super::PIECE_BYTES;
use super::header::{Entries, Kind, refused};
use super::staging::Staging;
use crate::agent::failure::fail;
use crate::protocol::{ErrorCode, RequestError, TarSummary};

/// Far more than any reasonable archive contains.
const ENTRIES_MAX: u64 = 1_000_000;

pub(super) fn unpack(source: &mut impl Read, staging: &mut Staging) -> Result<TarSummary, RequestError> {
    let mut entries = Entries::new(source);
    let mut buffer = vec![0; PIECE_BYTES];
    let mut summary = TarSummary { entries: 0, bytes: 0 };
    while let Some(entry) = entries.next()? {
        summary.entries += 1;
        if summary.entries > ENTRIES_MAX {
            return Err(fail(
                ErrorCode::TooMany,
                format_args!("the archive has more than {ENTRIES_MAX} entries"),
            ));
        }
        summary.bytes = summary.bytes.saturating_add(entry.size);
        let path = relative(&entry.name)?;
        match &entry.kind {
            Kind::Directory => staging.directory(&path, &entry)?,
            Kind::Symlink { target } => staging.symlink(&path, target, &entry)?,
            Kind::HardLink { target } => staging.hard_link(&path, &relative(target)?)?,
            Kind::File => {
                let file = staging.file(&path)?;
                entries.content(entry.size, &mut buffer, |piece| file.write(piece))?;
                file.finish(staging, &entry)?;
            }
        }
    }
    entries.finish(&mut buffer)?;
    Ok(summary)
}

/// The components of a name, which must not leave the directory. Empty for the directory itself.
pub(super) fn relative(name: &[u8]) -> Result<Vec<Vec<u8>>, RequestError> {
    if name.starts_with(b"/") {
        return Err(refused("it contains an absolute path"));
    }
    if name.contains(&0) || name.len() > 4096 {
        return Err(refused("it contains an invalid file name"));
    }
    let mut parts = Vec::new();
    for part in name.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return Err(refused("it contains a path with `..`")),
            _ if part.len() > 255 => return Err(refused("it contains an invalid file name")),
            _ => parts.push(part.to_vec()),
        }
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_leave_the_directory_are_refused() {
        let joined = |name: &str| relative(name.as_bytes()).map(|parts| parts.join(&b'/'));
        assert_eq!(joined("./a//b/./c/").unwrap(), b"a/b/c");
        assert_eq!(joined("./").unwrap(), b"");
        assert_eq!(joined("..a/b..").unwrap(), b"..a/b..");
        for name in ["/etc/passwd", "../x", "a/../../x", "a/..", "a\0b", &"x".repeat(256), &"x/".repeat(3000)]
        {
            assert_eq!(joined(name).unwrap_err().code, ErrorCode::Invalid, "{name}");
        }
    }
}
