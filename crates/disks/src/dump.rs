//! Dumps: flat directories of files that are complete, unchanged and durable, or are refused.
//!
//! ```text
//!   <dump>/<files>           whatever the runtime wrote
//!   <dump>/burrow-manifest   burrow dump 1
//!                            {"dump":"…","about":"…","files":[{"name":"…","bytes":…,"hash":"…"}]}
//!                            <hash of the lines above>
//! ```
//!
//! A restore interprets these files with the host's rights, so each is compared with its manifest before any process reads
//! it. This detects damage by the disk, by a copy or by a person. A process that may write to the pool could also write a
//! matching manifest, but only root may do that.
//!
//! The hash is XXH3 with 128 bits: not cryptographic, but as fast as RAM, because the RAM of a sandbox is hashed when it
//! is put to sleep and again when it wakes. The hash of a file is that of its pieces' hashes, so that pieces can be
//! hashed in parallel.
//!
//! Later formats may change everything except the first line, and that the last line is the hash of everything before it.

mod recent;

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use burrow_model::DumpId;
use rustix::fs::{Advice, FileType, Mode, OFlags};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

use crate::{DiskError, Dump, step};
use recent::Stamp;

pub(crate) use recent::RecentlyVerified;

/// The format this version writes. It reads this one and all earlier ones.
const FORMAT: u32 = 1;

/// The manifest's name, among names that CRIU chooses.
pub const MANIFEST: &str = "burrow-manifest";

const FIRST_LINE: &str = "burrow dump ";

/// A sandbox of 4,096 processes leaves about ten files for each.
const FILES_MAX: usize = 100_000;

/// Enough for 100,000 files at about 120 bytes each, and the description of the dump.
const MANIFEST_BYTES_MAX: u64 = 32 << 20;

/// How much is hashed as one piece: small enough that one large file keeps all threads busy to the end.
const PIECE_BYTES: u64 = 4 << 20;

/// How much is read at once: fits the second-level cache, from which it is then hashed.
const READ_BYTES: usize = 256 << 10;

/// The maximum number of hashing threads: more gain little when reading from the page cache.
const THREADS_MAX: usize = 4;

/// Below this size, starting a second thread costs more than it gains.
const BYTES_PER_THREAD: u64 = 2 << 20;

/// How the files of a dump are made durable on a kind of disk.
pub(crate) trait Disk: Sync {
    /// Writes a file's data to disk.
    fn flush(&self, file: &File) -> io::Result<()>;
    /// Makes all names and all flushed data durable.
    fn commit(&self) -> io::Result<()>;
    /// Whether the kernel failed to write any data of a file since the file was first opened.
    fn check(&self, file: &File) -> io::Result<()>;
}

/// The disk of a simulation, which cannot lose power.
#[derive(Debug)]
pub(crate) struct NoDisk;

impl Disk for NoDisk {
    fn flush(&self, _: &File) -> io::Result<()> {
        Ok(())
    }

    fn commit(&self) -> io::Result<()> {
        Ok(())
    }

    fn check(&self, _: &File) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    /// The id of the dump, so that a dump in the place of another is detected. The first manifests did not contain it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dump: Option<DumpId>,
    about: String,
    files: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    name: String,
    bytes: u64,
    /// 32 hexadecimal digits.
    hash: String,
    /// The file's state before it was hashed. Unknown for an entry that was read from a manifest.
    #[serde(skip)]
    inode: u64,
    #[serde(skip)]
    changed: (i64, u64),
}

// === where they are ===

/// Suffix of a staged dump's name.
const STAGED: &str = ".staged";

/// Creates an empty directory for a dump in `folder`, which only root may enter.
pub(crate) fn stage(folder: &Path, id: &DumpId) -> Result<PathBuf, DiskError> {
    let path = staged(folder, id);
    remove_tree(&path)?;
    DirBuilder::new().recursive(true).create(&path).map_err(step("make the directory", &path))?;
    // The machine's own processes read parts of it during the restore, through a descriptor that they receive; no other
    // process gets past the pool's root.
    fs::set_permissions(&path, Permissions::from_mode(0o755)).map_err(step("open for reading", &path))?;
    Ok(path)
}

/// Makes a staged dump final: it gets its name only when it is complete. A dump that fails is removed, because the
/// kernel reports a failed write once: a second attempt would succeed without the data.
pub(crate) fn seal(
    folder: &Path,
    id: &DumpId,
    about: &str,
    disk: &dyn Disk,
    recent: &RecentlyVerified,
) -> Result<u64, DiskError> {
    let (from, to) = (staged(folder, id), folder.join(id.as_str()));
    if let Some(sealed) = DumpFolder::open(id, &to)? {
        return sealed.sealed_bytes();
    }
    let dump = DumpFolder::open(id, &from)?.ok_or_else(|| DiskError::DumpNotFound { dump: id.clone() })?;
    let sealed = dump.seal(about, disk).and_then(|files| {
        fs::rename(&from, &to).map_err(step("rename the dump", &from))?;
        disk.commit().map_err(step("sync the dump", &to))?;
        dump.check(disk)?;
        let bytes = files.iter().map(|file| file.bytes).sum();
        recent.remember(id, dump.stamps(files)?);
        Ok(bytes)
    });
    if sealed.is_err()
        && let Err(error) = remove(folder, id)
    {
        tracing::warn!(dump = %id, error = &error as &dyn std::error::Error, "could not remove a failed dump");
    }
    sealed
}

/// Drops a sealed dump from the page cache. Does nothing if the dump does not exist.
pub(crate) fn evict(folder: &Path, id: &DumpId) -> Result<(), DiskError> {
    match DumpFolder::open(id, &folder.join(id.as_str()))? {
        Some(sealed) => sealed.evict(),
        None => Ok(()),
    }
}

/// Returns a sealed dump, verified. If it was verified recently and is unchanged, only its metadata is checked, and the
/// kernel starts to read it from disk.
pub(crate) fn open(folder: &Path, id: &DumpId, recent: &RecentlyVerified) -> Result<Dump, DiskError> {
    let path = folder.join(id.as_str());
    let dump = DumpFolder::open(id, &path)?.ok_or_else(|| DiskError::DumpNotFound { dump: id.clone() })?;
    let (about, bytes) = dump.verify(recent)?;
    Ok(Dump { path, about, bytes })
}

/// Removes a dump, staged or sealed.
pub(crate) fn remove(folder: &Path, id: &DumpId) -> Result<(), DiskError> {
    remove_tree(&staged(folder, id))?;
    remove_tree(&folder.join(id.as_str()))
}

/// The dumps in `folder`, staged or sealed, sorted.
pub(crate) fn inventory(folder: &Path) -> Result<Vec<DumpId>, DiskError> {
    let mut found = BTreeSet::new();
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(step("list", folder))?,
    };
    for entry in entries {
        let name = entry.map_err(step("list", folder))?.file_name();
        let Some(name) = name.to_str() else { continue };
        found.extend(name.strip_suffix(STAGED).unwrap_or(name).parse::<DumpId>());
    }
    Ok(found.into_iter().collect())
}

fn staged(folder: &Path, id: &DumpId) -> PathBuf {
    folder.join(format!("{id}{STAGED}"))
}

fn remove_tree(path: &Path) -> Result<(), DiskError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(step("remove the dump", path)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

// === what is in one ===

/// The directory of one dump, kept open: names are looked up in it and nowhere else, and no link is followed.
#[derive(Debug)]
pub(crate) struct DumpFolder<'a> {
    id: &'a DumpId,
    directory: File,
}

impl<'a> DumpFolder<'a> {
    /// Opens the directory `path`; `None` if it does not exist.
    pub(crate) fn open(id: &'a DumpId, path: &Path) -> Result<Option<Self>, DiskError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(directory) => Ok(Some(Self { id, directory: directory.into() })),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => Err(step("open the dump", path)(error.into())),
        }
    }

    /// Writes the manifest, flushes everything, and returns the files.
    fn seal(&self, about: &str, disk: &dyn Disk) -> Result<Vec<Entry>, DiskError> {
        let mut files = self.list()?;
        let (flushed, hashes) = std::thread::scope(|scope| {
            // The disk works during the hashing. This commit only reduces the work of the one that counts.
            let flushing = scope.spawn(|| {
                self.each(&files, |file| disk.flush(file))?;
                disk.commit().map_err(|error| (String::new(), error))
            });
            let hashes = self.hash(&files);
            (flushing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), hashes)
        });
        flushed.map_err(|(file, error)| self.failed("write to disk", &file)(error))?;
        let hashes = hashes.map_err(|(file, error)| self.failed("read", &file)(error))?;
        for (file, hash) in files.iter_mut().zip(hashes) {
            file.hash = format!("{hash:032x}");
        }
        let manifest = Manifest { dump: Some(self.id.clone()), about: about.to_owned(), files };
        self.write_manifest(&manifest)
            .and_then(|written| disk.flush(&written))
            .map_err(self.failed("write", MANIFEST))?;
        Ok(manifest.files)
    }

    /// Fails if the kernel could not write all of it.
    fn check(&self, disk: &dyn Disk) -> Result<(), DiskError> {
        let mut files = self.list()?;
        files.push(self.look(MANIFEST)?);
        self.each(&files, |file| disk.check(file))
            .map_err(|(file, error)| self.failed("write to disk", &file)(error))
    }

    /// Compares every file with the manifest, and returns the description of the dump and its size in bytes.
    fn verify(&self, recent: &RecentlyVerified) -> Result<(String, u64), DiskError> {
        let manifest = self.read_manifest()?;
        if manifest.dump.as_ref().is_some_and(|dump| dump != self.id) {
            return Err(self.damaged(MANIFEST, "is that of another dump, which was put in its place"));
        }
        let mut found = self.list().map_err(|error| {
            if let DiskError::NotDumpable { file, .. } = &error {
                return self.damaged(file, "was not there when it was sealed");
            }
            error
        })?;
        found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let mut wanted: Vec<&Entry> = manifest.files.iter().collect();
        wanted.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        self.compare_names(&wanted, &found)?;
        let bytes = found.iter().map(|file| file.bytes).sum();
        let stamps = self.stamps(found.clone())?;
        if recent.knows(self.id, &stamps) {
            self.advise(&found, Advice::WillNeed)?;
            return Ok((manifest.about, bytes));
        }
        let hashes = self.hash(&found).map_err(|(file, error)| match error.raw_os_error() {
            // btrfs itself found that a block differs from what it wrote.
            Some(libc::EIO) => self.damaged(&file, "cannot be read from the disk"),
            _ => self.failed("read", &file)(error),
        })?;
        for (file, hash) in wanted.iter().zip(hashes) {
            if file.hash != format!("{hash:032x}") {
                return Err(self.damaged(&file.name, "has another content than when it was sealed"));
            }
        }
        recent.remember(self.id, stamps);
        Ok((manifest.about, bytes))
    }

    /// The metadata that shows whether these files or the manifest have changed since.
    fn stamps(&self, mut files: Vec<Entry>) -> Result<Vec<Stamp>, DiskError> {
        files.push(self.look(MANIFEST)?);
        files.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let stamp = |file: Entry| Stamp {
            name: file.name,
            inode: file.inode,
            bytes: file.bytes,
            changed: file.changed,
        };
        Ok(files.into_iter().map(stamp).collect())
    }

    /// The size according to the manifest, for a dump that is sealed already.
    pub(crate) fn sealed_bytes(&self) -> Result<u64, DiskError> {
        Ok(self.read_manifest()?.files.iter().map(|file| file.bytes).sum())
    }

    /// Drops its pages from the page cache. Best effort: pages in use stay.
    fn evict(&self) -> Result<(), DiskError> {
        let mut files = self.list()?;
        files.push(self.look(MANIFEST)?);
        self.advise(&files, Advice::DontNeed)
    }

    fn advise(&self, files: &[Entry], advice: Advice) -> Result<(), DiskError> {
        for file in files {
            self.open_file(&file.name)
                .and_then(|opened| Ok(rustix::fs::fadvise(&opened, 0, None, advice)?))
                .map_err(self.failed("give advice on the page cache for", &file.name))?;
        }
        Ok(())
    }

    /// The files and their sizes, without the manifest and not yet hashed.
    fn list(&self) -> Result<Vec<Entry>, DiskError> {
        let listed = rustix::fs::Dir::read_from(&self.directory);
        let mut files = Vec::new();
        for entry in listed.map_err(|error| self.failed("list", "")(error.into()))? {
            let entry = entry.map_err(|error| self.failed("list", "")(error.into()))?;
            let bytes = entry.file_name().to_bytes();
            if matches!(bytes, b"." | b"..") || bytes == MANIFEST.as_bytes() {
                continue;
            }
            let Ok(name) = std::str::from_utf8(bytes) else {
                return Err(self.refused(&String::from_utf8_lossy(bytes), "has a name that is no text"));
            };
            if files.len() == FILES_MAX {
                return Err(self.refused(name, "is one file more than a dump may have"));
            }
            files.push(self.look(name)?);
        }
        Ok(files)
    }

    /// One file in its present state, not yet hashed.
    fn look(&self, name: &str) -> Result<Entry, DiskError> {
        let found = rustix::fs::statat(&self.directory, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| self.failed("inspect", name)(error.into()))?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(self.refused(name, "is no regular file"));
        }
        Ok(Entry {
            name: name.to_owned(),
            bytes: found.st_size.cast_unsigned(),
            hash: String::new(),
            inode: found.st_ino,
            changed: (found.st_ctime, found.st_ctime_nsec),
        })
    }

    fn refused(&self, file: &str, why: &'static str) -> DiskError {
        DiskError::NotDumpable { dump: self.id.clone(), file: file.to_owned(), why }
    }

    fn compare_names(&self, wanted: &[&Entry], found: &[Entry]) -> Result<(), DiskError> {
        let mut present = found.iter().peekable();
        for file in wanted {
            if let Some(extra) = present.next_if(|present| present.name < file.name) {
                return Err(self.damaged(&extra.name, "was not there when it was sealed"));
            }
            match present.next_if(|present| present.name == file.name) {
                None => return Err(self.damaged(&file.name, "is missing")),
                Some(present) if present.bytes != file.bytes => {
                    return Err(self.damaged(&file.name, "has another size than when it was sealed"));
                }
                Some(_) => {}
            }
        }
        match present.next() {
            Some(extra) => Err(self.damaged(&extra.name, "was not there when it was sealed")),
            None => Ok(()),
        }
    }

    fn open_file(&self, name: &str) -> io::Result<File> {
        // If it has become a pipe, opening it must not wait.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.directory, name, flags, Mode::empty())?.into())
    }

    fn failed(&self, what: &'static str, file: &str) -> impl FnOnce(io::Error) -> DiskError {
        let what_of = format!("{}/{file}", self.id);
        move |source| DiskError::Step { step: what, what: what_of, source }
    }

    fn damaged(&self, file: &str, how: &'static str) -> DiskError {
        DiskError::Damaged { what: format!("dump `{}`", self.id), file: file.to_owned(), how }
    }
}

// === the manifest ===

impl DumpFolder<'_> {
    fn write_manifest(&self, manifest: &Manifest) -> io::Result<File> {
        let mut text = format!("{FIRST_LINE}{FORMAT}\n{}\n", serde_json::to_string(manifest)?);
        text.push_str(&format!("{:032x}\n", XxHash3_128::oneshot(text.as_bytes())));
        // May be left from an attempt that failed here. Anything else under that name is not written through.
        match rustix::fs::unlinkat(&self.directory, MANIFEST, rustix::fs::AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mut file =
            File::from(rustix::fs::openat(&self.directory, MANIFEST, flags, Mode::RUSR | Mode::WUSR)?);
        file.write_all(text.as_bytes())?;
        Ok(file)
    }

    fn read_manifest(&self) -> Result<Manifest, DiskError> {
        let damaged = || self.damaged(MANIFEST, "is not as it was written");
        let file = self.open_file(MANIFEST).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT) => self.damaged(MANIFEST, "is missing"),
            Some(libc::ELOOP) => self.damaged(MANIFEST, "is a link"),
            _ => self.failed("open", MANIFEST)(error),
        })?;
        let found = file.metadata().map_err(self.failed("inspect", MANIFEST))?;
        if !found.is_file() || found.len() > MANIFEST_BYTES_MAX {
            return Err(damaged());
        }
        let mut bytes = vec![0; usize::try_from(found.len()).map_err(|_| damaged())?];
        file.read_exact_at(&mut bytes, 0).map_err(|error| match error.raw_os_error() {
            Some(libc::EIO) => self.damaged(MANIFEST, "cannot be read from the disk"),
            _ => self.failed("read", MANIFEST)(error),
        })?;
        let text = String::from_utf8(bytes).map_err(|_| damaged())?;
        let (format, body) = unsealed(&text).ok_or_else(damaged)?;
        if format > FORMAT {
            return Err(DiskError::TooNew { dump: self.id.clone(), format, known: FORMAT });
        }
        let manifest: Manifest = serde_json::from_str(body).map_err(|_| damaged())?;
        let plain = |file: &Entry| {
            !file.name.is_empty() && !file.name.contains(['/', '\0']) && file.name != "." && file.name != ".."
        };
        match manifest.files.len() <= FILES_MAX && manifest.files.iter().all(plain) {
            true => Ok(manifest),
            false => Err(damaged()),
        }
    }
}

/// The format and the body of a manifest whose last line is the hash of everything before it.
fn unsealed(text: &str) -> Option<(u32, &str)> {
    let (before, hash) = text.strip_suffix('\n')?.rsplit_once('\n')?;
    let sealed = &text[..=before.len()];
    if hash != format!("{:032x}", XxHash3_128::oneshot(sealed.as_bytes())) {
        return None;
    }
    let (first, body) = before.split_once('\n')?;
    Some((first.strip_prefix(FIRST_LINE)?.parse().ok()?, body))
}

// === hashing and syncing ===

impl DumpFolder<'_> {
    /// The hashes of all files, in their order; or the file that could not be read.
    fn hash(&self, files: &[Entry]) -> Result<Vec<u128>, (String, io::Error)> {
        let pieces: Vec<(usize, u64)> = files
            .iter()
            .enumerate()
            .flat_map(|(file, entry)| (0..entry.bytes.div_ceil(PIECE_BYTES)).map(move |piece| (file, piece)))
            .collect();
        let bytes: u64 = files.iter().map(|file| file.bytes).sum();
        let threads = usize::try_from(bytes / BYTES_PER_THREAD).unwrap_or(THREADS_MAX);
        let hashed = side_by_side(
            threads,
            &pieces,
            || vec![0; READ_BYTES],
            |buffer, (file, piece)| {
                let entry = &files[*file];
                let first = piece * PIECE_BYTES;
                let length = PIECE_BYTES.min(entry.bytes - first);
                self.open_file(&entry.name)
                    .and_then(|file| hash_range(&file, first, length, buffer))
                    .map_err(|error| (entry.name.clone(), error))
            },
        )?;
        let mut hashes = vec![XxHash3_128::new(); files.len()];
        for ((file, _), hash) in pieces.iter().zip(hashed) {
            hashes[*file].write(&hash.to_le_bytes());
        }
        Ok(hashes.into_iter().map(|hash| hash.finish_128()).collect())
    }

    /// Runs `work` for every file, several at a time; or returns the file that it failed for.
    fn each(
        &self,
        files: &[Entry],
        work: impl Fn(&File) -> io::Result<()> + Sync,
    ) -> Result<(), (String, io::Error)> {
        let one = |(): &mut (), entry: &Entry| {
            self.open_file(&entry.name)
                .and_then(|file| work(&file))
                .map_err(|error| (entry.name.clone(), error))
        };
        side_by_side(THREADS_MAX, files, || (), one).map(drop)
    }
}

fn hash_range(file: &File, first: u64, length: u64, buffer: &mut [u8]) -> io::Result<u128> {
    let mut hash = XxHash3_128::new();
    let mut done = 0;
    while done < length {
        let wanted = buffer.len().min(usize::try_from(length - done).unwrap_or(usize::MAX));
        file.read_exact_at(&mut buffer[..wanted], first + done)?;
        hash.write(&buffer[..wanted]);
        done += wanted as u64;
    }
    Ok(hash.finish_128())
}

/// Runs `work` for each item on a few threads, each with its own state. The results are in the order of the items;
/// the first failure ends it.
fn side_by_side<I: Sync, S, T: Send, E: Send>(
    threads: usize,
    items: &[I],
    state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, &I) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let (mut state, mut done) = (state(), Vec::new());
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { return Ok(done) };
            match work(&mut state, item) {
                Ok(answer) => done.push((at, answer)),
                Err(error) => {
                    next.store(items.len(), Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
    };
    let threads = threads.min(items.len()).min(THREADS_MAX);
    let mut all: Vec<(usize, T)> = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(worker)).collect();
        let mut all = worker();
        for other in others {
            let done = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            all = all.and_then(|mut all| {
                all.extend(done?);
                Ok(all)
            });
        }
        all
    })?;
    all.sort_unstable_by_key(|(at, _)| *at);
    Ok(all.into_iter().map(|(_, answer)| answer).collect())
}

#[cfg(test)]
mod tests;
