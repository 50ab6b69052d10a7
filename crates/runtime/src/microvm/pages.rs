//! Dumps the RAM of a paused machine: the base file that it started from, and the pages that it has changed since.
//!
//! ```text
//!   base     the file that its RAM was mapped from, privately; never written     ──FICLONE──► file
//!   changed  private pages of the emulator (present or swapped, not of a file) ──process_vm_readv──► over it
//! ```
//!
//! A machine that was booted rather than restored has no base: all its touched pages are private. Pages of zeros are
//! skipped where the file has a hole.

#![expect(unsafe_code, reason = "reading another process's memory has no safe interface")]

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;

use rustix::fs::{SeekFrom, ioctl_ficlone, seek};
use rustix::io::Errno;

const PAGE: usize = 4096;

/// Pages checked and copied at a time: 2 MiB.
const BATCH: usize = 512;

// From the kernel's documentation of `/proc/<pid>/pagemap`.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_A_FILE: u64 = 1 << 61;

/// The RAM of one machine in its emulator.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ram {
    pub(super) pid: u32,
    pub(super) address: u64,
    pub(super) bytes: u64,
}

/// A dump's RAM file that was prepared before the machine is stopped.
#[derive(Debug)]
pub(super) struct PreparedRamFile {
    file: File,
    /// The ranges with content, start and end, sorted.
    content: Vec<(u64, u64)>,
}

impl Ram {
    /// Copies the base of the machine's RAM into the empty `file`. The machine may run meanwhile: the base never
    /// changes.
    pub(super) fn prepare(&self, file: File) -> io::Result<PreparedRamFile> {
        if let Some(base) = self.base()? {
            match ioctl_ficlone(&file, &base) {
                Ok(()) => {}
                // Another file system, or one that cannot share extents.
                Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOTTY) => copy(&base, &file)?,
                Err(errno) => return Err(errno.into()),
            }
        }
        file.set_len(self.bytes)?;
        let content = content(&file, self.bytes)?;
        Ok(PreparedRamFile { file, content })
    }

    /// The file that the RAM is mapped from, if there is one; it may be unlinked.
    fn base(&self) -> io::Result<Option<File>> {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid))?;
        match mapping(&maps, self.address) {
            None => {
                Err(io::Error::new(io::ErrorKind::NotFound, "the emulator has no mapping at its RAM address"))
            }
            Some(Mapping { inode: 0, .. }) => Ok(None),
            Some(Mapping { range, .. }) => {
                File::open(format!("/proc/{}/map_files/{range}", self.pid)).map(Some)
            }
        }
    }
}

impl PreparedRamFile {
    /// Copies the changed pages of the machine, and returns their size in bytes. The machine must be paused.
    pub(super) fn copy_changed(&self, ram: Ram) -> io::Result<u64> {
        let pagemap = File::open(format!("/proc/{}/pagemap", ram.pid))?;
        let pages = usize::try_from(ram.bytes).map_err(io::Error::other)? / PAGE;
        let mut copied = 0;
        let mut entries = vec![0; BATCH * 8];
        let mut content = vec![0; BATCH * PAGE];
        for first in (0..pages).step_by(BATCH) {
            let count = BATCH.min(pages - first);
            let at = ram.address / PAGE as u64 * 8 + first as u64 * 8;
            pagemap.read_exact_at(&mut entries[..count * 8], at)?;
            let own: Vec<bool> = entries[..count * 8].chunks_exact(8).map(is_own).collect();
            for (from, to) in runs(&own) {
                let bytes = &mut content[..(to - from) * PAGE];
                read_memory(ram.pid, ram.address + ((first + from) * PAGE) as u64, bytes)?;
                copied += self.write((first + from) * PAGE, bytes)?;
            }
        }
        Ok(copied)
    }

    /// Writes pages, but no zeros into holes.
    fn write(&self, at: usize, bytes: &[u8]) -> io::Result<u64> {
        let wanted: Vec<bool> = bytes
            .chunks_exact(PAGE)
            .enumerate()
            .map(|(page, content)| !is_zero(content) || self.has_content((at + page * PAGE) as u64))
            .collect();
        let mut written = 0;
        for (from, to) in runs(&wanted) {
            let piece = &bytes[from * PAGE..to * PAGE];
            self.file.write_all_at(piece, (at + from * PAGE) as u64)?;
            written += piece.len() as u64;
        }
        Ok(written)
    }

    fn has_content(&self, at: u64) -> bool {
        let after = self.content.partition_point(|(from, _)| *from <= at);
        after > 0 && at < self.content[after - 1].1
    }
}

fn is_own(entry: &[u8]) -> bool {
    let entry = u64::from_ne_bytes(entry.try_into().expect("entries are of eight bytes"));
    entry & (PRESENT | SWAPPED) != 0 && entry & OF_A_FILE == 0
}

fn is_zero(page: &[u8]) -> bool {
    page.chunks_exact(8).all(|word| word == [0; 8])
}

/// The maximal runs of `true`, as start and end.
fn runs(flags: &[bool]) -> Vec<(usize, usize)> {
    let mut found: Vec<(usize, usize)> = Vec::new();
    for (index, _) in flags.iter().enumerate().filter(|(_, flag)| **flag) {
        match found.last_mut() {
            Some((_, to)) if *to == index => *to += 1,
            Some(_) | None => found.push((index, index + 1)),
        }
    }
    found
}

/// The ranges of a file that have content.
fn content(file: &File, bytes: u64) -> io::Result<Vec<(u64, u64)>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes {
        let from = match seek(file, SeekFrom::Data(at)) {
            Ok(from) => from,
            Err(Errno::NXIO) => break,
            Err(errno) => return Err(errno.into()),
        };
        let to = seek(file, SeekFrom::Hole(from))?;
        found.push((from, to));
        at = to;
    }
    Ok(found)
}

/// For file systems that cannot share extents: copies the ranges with content.
fn copy(from: &File, to: &File) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 20];
    for (start, end) in content(from, from.metadata()?.len())? {
        let mut at = start;
        while at < end {
            let length = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
            from.read_exact_at(&mut buffer[..length], at)?;
            to.write_all_at(&buffer[..length], at)?;
            at += length as u64;
        }
    }
    Ok(())
}

fn read_memory(pid: u32, address: u64, into: &mut [u8]) -> io::Result<()> {
    let pid = libc::pid_t::try_from(pid).map_err(io::Error::other)?;
    let mut done = 0;
    while done < into.len() {
        let rest = &mut into[done..];
        let local = libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() };
        let remote = libc::iovec {
            iov_base: std::ptr::with_exposed_provenance_mut(
                usize::try_from(address).map_err(io::Error::other)? + done,
            ),
            iov_len: rest.len(),
        };
        // SAFETY: the kernel writes only to `rest`, which has the given length, and reads from the other process. An
        // address that is not mapped there is an error.
        let read = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
        match usize::try_from(read) {
            Err(_) => return Err(io::Error::last_os_error()),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => done += count,
        }
    }
    Ok(())
}

/// A line of `/proc/<pid>/maps`.
struct Mapping {
    /// As in the names in `map_files`.
    range: String,
    inode: u64,
}

/// The mapping that contains an address.
fn mapping(maps: &str, address: u64) -> Option<Mapping> {
    maps.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let range = words.next()?;
        let (from, to) = range.split_once('-')?;
        let (from, to) = (u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?);
        if !(from..to).contains(&address) {
            return None;
        }
        let inode = words.nth(3)?.parse().ok()?;
        Some(Mapping { range: range.to_owned(), inode })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Maps a file privately into this process, as an emulator does, and changes some pages.
    struct MappedFile {
        start: *mut u8,
        bytes: usize,
    }

    impl MappedFile {
        fn new(base: Option<&File>, pages: usize) -> Self {
            use std::os::fd::AsRawFd as _;
            let bytes = pages * PAGE;
            let flags = libc::MAP_PRIVATE | if base.is_none() { libc::MAP_ANONYMOUS } else { 0 };
            let descriptor = base.map_or(-1, |base| base.as_raw_fd());
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: a new mapping at an address that the kernel chooses, which nothing else refers to.
            let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, descriptor, 0) };
            assert_ne!(start, libc::MAP_FAILED);
            Self { start: start.cast(), bytes }
        }

        fn put(&self, page: usize, byte: u8) {
            // SAFETY: within the mapping, which only this test uses.
            unsafe { self.start.add(page * PAGE).write_bytes(byte, PAGE) };
        }

        fn ram(&self) -> Ram {
            let address = self.start.expose_provenance() as u64;
            Ram { pid: std::process::id(), address, bytes: self.bytes as u64 }
        }
    }

    impl Drop for MappedFile {
        fn drop(&mut self) {
            // SAFETY: created by `new`, and nothing refers to it any more.
            unsafe { libc::munmap(self.start.cast(), self.bytes) };
        }
    }

    fn page(byte: u8) -> Vec<u8> {
        vec![byte; PAGE]
    }

    #[test]
    fn changed_pages_overwrite_the_copy_and_the_base_is_unchanged() {
        let directory = tempfile::tempdir().unwrap();
        let base_path = directory.path().join("base");
        let before = [page(1), page(2), page(0), page(3)].concat();
        fs::write(&base_path, &before).unwrap();
        let base = File::open(&base_path).unwrap();
        let mapped = MappedFile::new(Some(&base), 4);
        mapped.put(1, 7);
        mapped.put(3, 0);
        fs::remove_file(&base_path).unwrap();
        let file = File::create_new(directory.path().join("ram")).unwrap();
        let prepared = mapped.ram().prepare(file).unwrap();
        assert_eq!(prepared.copy_changed(mapped.ram()).unwrap(), 2 * PAGE as u64);
        let now = fs::read(directory.path().join("ram")).unwrap();
        assert!(now == [page(1), page(7), page(0), page(0)].concat());
        let mut kept = vec![0; before.len()];
        base.read_exact_at(&mut kept, 0).unwrap();
        assert!(kept == before);
    }

    #[test]
    fn without_a_base_only_nonzero_pages_are_written() {
        use std::os::unix::fs::MetadataExt as _;
        let directory = tempfile::tempdir().unwrap();
        let mapped = MappedFile::new(None, 3 * BATCH);
        mapped.put(0, 0);
        mapped.put(BATCH + 3, 9);
        let file = File::create_new(directory.path().join("ram")).unwrap();
        let prepared = mapped.ram().prepare(file).unwrap();
        assert_eq!(prepared.copy_changed(mapped.ram()).unwrap(), PAGE as u64);
        let written = fs::metadata(directory.path().join("ram")).unwrap();
        assert_eq!(written.len(), (3 * BATCH * PAGE) as u64);
        assert!(written.blocks() * 512 < (BATCH * PAGE) as u64, "{} blocks", written.blocks());
        let now = fs::read(directory.path().join("ram")).unwrap();
        assert!(now[(BATCH + 3) * PAGE..(BATCH + 4) * PAGE] == page(9));
    }

    #[test]
    fn runs_are_found_and_an_unmapped_address_has_no_mapping() {
        assert_eq!(runs(&[true, true, false, true]), [(0, 2), (3, 4)]);
        assert_eq!(runs(&[]), []);
        let maps = "1000-3000 rw-p 00000000 08:01 42 /ram\n5000-6000 rw-p 00000000 00:00 0 \n";
        assert_eq!(mapping(maps, 0x2fff).unwrap().inode, 42);
        assert_eq!(mapping(maps, 0x5000).unwrap().range, "5000-6000");
        assert!(mapping(maps, 0x3000).is_none());
    }
}
