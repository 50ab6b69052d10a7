//! The initramfs of a machine: the agent as its first program, its modules, and empty directories.
//!
//! An uncompressed archive in the one format that every kernel reads (`newc`): decompression would cost an emulated
//! machine more time than it saves.

use std::fs;
use std::io;
use std::path::Path;

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const FILE: u32 = 0o100_644;
const TERMINAL: u32 = 0o020_600;

/// The kernel opens it for its first program.
const CONSOLE: (u32, u32) = (5, 1);

/// `guest` is the agent; `modules` a directory with the file `order`.
pub(super) fn build(guest: &Path, modules: &Path) -> io::Result<Vec<u8>> {
    let mut archive = Archive::default();
    for name in ["dev", "proc", "sys", "root", "modules"] {
        archive.add(name, DIRECTORY, &[], (0, 0));
    }
    archive.add("dev/console", TERMINAL, &[], CONSOLE);
    archive.add("init", PROGRAM, &fs::read(guest)?, (0, 0));
    let order = fs::read_to_string(modules.join("order"))?;
    for name in order.lines() {
        if name.contains('/') {
            return Err(io::ErrorKind::InvalidData.into());
        }
        archive.add(&format!("modules/{name}"), FILE, &fs::read(modules.join(name))?, (0, 0));
    }
    archive.add("modules/order", FILE, order.as_bytes(), (0, 0));
    archive.add("TRAILER!!!", 0, &[], (0, 0));
    Ok(archive.bytes)
}

#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    fn add(&mut self, name: &str, mode: u32, content: &[u8], (major, minor): (u32, u32)) {
        self.entries += 1;
        let length = |bytes: usize| u32::try_from(bytes).expect("a program is smaller than 4 GiB");
        // Number, mode, uid, gid, links, time, size, device, device of a node, length of the name, checksum.
        let fields = [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            length(content.len()),
            0,
            0,
            major,
            minor,
            length(name.len() + 1),
            0,
        ];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(name.bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_follow_their_headers() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("guest"), "program").unwrap();
        fs::write(directory.path().join("order"), "a.ko\n").unwrap();
        fs::write(directory.path().join("a.ko"), "module").unwrap();
        let bytes = build(&directory.path().join("guest"), directory.path()).unwrap();
        let (mut at, mut found) = (0, Vec::new());
        while at < bytes.len() {
            assert_eq!(&bytes[at..at + 6], b"070701");
            let field = |index: usize| {
                let text = std::str::from_utf8(&bytes[at + 6 + 8 * index..at + 14 + 8 * index]).unwrap();
                usize::from_str_radix(text, 16).unwrap()
            };
            let (size, name) = (field(6), field(11));
            let content = (at + 110 + name).next_multiple_of(4);
            let text = |from: usize, to: usize| String::from_utf8_lossy(&bytes[from..to]).into_owned();
            found.push((text(at + 110, at + 110 + name - 1), text(content, content + size)));
            at = (content + size).next_multiple_of(4);
        }
        assert_eq!(found[6], ("init".to_owned(), "program".to_owned()));
        assert_eq!(found[7], ("modules/a.ko".to_owned(), "module".to_owned()));
        assert_eq!(found.last().unwrap().0, "TRAILER!!!");
        fs::write(directory.path().join("order"), "../a.ko\n").unwrap();
        assert!(build(&directory.path().join("guest"), directory.path()).is_err());
    }
}
