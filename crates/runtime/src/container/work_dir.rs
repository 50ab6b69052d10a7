//! CRIU's working directories on this host: one per sandbox for its logs, and one for its cache of kernel features.
//!
//! ```text
//!   <run_dir>/criu/<sandbox>/       dump.log, restore.log, and notes
//!   a tmpfs, if `/run` is none      criu.kdat, CRIU's cache of kernel features: detecting them takes 30 ms
//! ```

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use burrow_model::SandboxId;
use rustix::fs::statfs;

const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

/// The directory of CRIU's cache, if it is on a tmpfs.
const RUN: &str = "/run";

/// A tmpfs on every host. The cache describes the kernel, so all daemons of the host may share it.
const SHARED_RUN: &str = "/dev/shm/burrow-criu";

/// Remains of a killed CRIU in `/tmp`: empty directories.
const STRAY_PREFIX: &str = ".criu.mntns.";

/// No restore takes this long, so older ones are unused. Younger ones may be in use, also by another program's CRIU.
const STRAY_AGE_MIN: Duration = Duration::from_secs(3600);

/// Facts about a sandbox that the next daemon must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Note {
    /// A dump is in progress, or was interrupted before the clean-up.
    Dumping,
    /// Files have names that the machine must not see when it resumes.
    Named,
}

impl Note {
    fn file(self) -> &'static str {
        match self {
            Self::Dumping => "dumping",
            Self::Named => "named",
        }
    }
}

#[derive(Debug)]
pub(super) struct WorkDir {
    directory: PathBuf,
    /// Mounted over `/run`.
    run: Option<PathBuf>,
}

impl WorkDir {
    pub(super) fn open(run_dir: &Path) -> io::Result<Self> {
        let directory = run_dir.join("criu");
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        remove_strays(Path::new("/tmp"));
        let run = if is_tmpfs(Path::new(RUN)) { None } else { own_directory(Path::new(SHARED_RUN)) };
        Ok(Self { directory, run })
    }

    /// The directory to mount over `/run`, for a CRIU that must still find `root`.
    pub(super) fn run(&self, root: &Path) -> Option<&Path> {
        self.run.as_deref().filter(|_| !root.starts_with(RUN))
    }

    /// An empty directory for work on a sandbox.
    pub(super) fn clear(&self, id: &SandboxId) -> io::Result<File> {
        self.remove(id)?;
        fs::create_dir(self.of(id))?;
        File::open(self.of(id))
    }

    /// Stores a note for a sandbox with these files, until the directory is cleared or removed.
    pub(super) fn note(&self, id: &SandboxId, note: Note, root: &Path) -> io::Result<()> {
        match fs::create_dir(self.of(id)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
        fs::write(self.of(id).join(note.file()), root.as_os_str().as_bytes())
    }

    /// The files of the sandbox, if the note exists.
    pub(super) fn noted(&self, id: &SandboxId, note: Note) -> io::Result<Option<PathBuf>> {
        match fs::read(self.of(id).join(note.file())) {
            Ok(bytes) => Ok(Some(OsString::from_vec(bytes).into())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn remove(&self, id: &SandboxId) -> io::Result<()> {
        match fs::remove_dir_all(self.of(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The sandboxes that have a directory here.
    pub(super) fn inventory(&self) -> io::Result<Vec<SandboxId>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            found.extend(entry?.file_name().to_str().and_then(|name| name.parse::<SandboxId>().ok()));
        }
        Ok(found)
    }

    fn of(&self, id: &SandboxId) -> PathBuf {
        self.directory.join(id.as_str())
    }
}

fn is_tmpfs(path: &Path) -> bool {
    statfs(path).is_ok_and(|found| found.f_type == TMPFS_MAGIC)
}

/// A directory on a tmpfs that only we can write; `None` if another user created it, who could give CRIU wrong data.
fn own_directory(path: &Path) -> Option<PathBuf> {
    // An existing directory gets the same checks as a new one.
    let _ = fs::DirBuilder::new().mode(0o700).create(path);
    let found = fs::symlink_metadata(path).ok()?;
    let ours = found.is_dir() && found.uid() == 0 && found.mode() & 0o077 == 0;
    (ours && is_tmpfs(path)).then(|| path.to_owned())
}

/// Best effort: the remains are empty directories.
fn remove_strays(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let stray = entry.file_name().to_str().is_some_and(|name| name.starts_with(STRAY_PREFIX));
        let old = |since: SystemTime| since.elapsed().is_ok_and(|age| age > STRAY_AGE_MIN);
        if stray && entry.metadata().and_then(|metadata| metadata.modified()).is_ok_and(old) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn notes_exist_until_they_are_cleared() {
        let directory = tempfile::tempdir().unwrap();
        let work_dir = WorkDir::open(directory.path()).unwrap();
        let id = SandboxId::generate();
        work_dir.clear(&id).unwrap();
        assert_eq!(work_dir.inventory().unwrap(), std::slice::from_ref(&id));
        let root = Path::new("/pool/x");
        for note in [Note::Dumping, Note::Named] {
            assert_eq!(work_dir.noted(&id, note).unwrap(), None);
            work_dir.note(&id, note, root).unwrap();
            let again = WorkDir::open(directory.path()).unwrap();
            assert_eq!(again.noted(&id, note).unwrap().as_deref(), Some(root));
        }
        work_dir.clear(&id).unwrap();
        assert_eq!(work_dir.noted(&id, Note::Dumping).unwrap(), None);
        for _ in 0..2 {
            work_dir.remove(&id).unwrap();
        }
        assert_eq!(work_dir.inventory().unwrap(), []);
    }

    #[test]
    fn a_directory_that_others_can_write_is_not_used() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = directory.path().join("run");
        assert_eq!(own_directory(&path).as_ref(), Some(&path));
        assert_eq!(own_directory(&path).as_ref(), Some(&path));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(own_directory(&path), None);
        let link = directory.path().join("link");
        symlink(&path, &link).unwrap();
        assert_eq!(own_directory(&link), None);
    }

    #[test]
    fn only_old_and_empty_strays_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let make = |name: &str, age: u64| {
            let path = directory.path().join(name);
            fs::create_dir(&path).unwrap();
            let then = SystemTime::now() - Duration::from_secs(age);
            File::open(&path).unwrap().set_modified(then).unwrap();
            path
        };
        let (old, young, other) =
            (make(".criu.mntns.a", 7200), make(".criu.mntns.b", 10), make("criu.mntns.c", 7200));
        remove_strays(directory.path());
        assert_eq!((old.exists(), young.exists(), other.exists()), (false, true, true));
    }
}
