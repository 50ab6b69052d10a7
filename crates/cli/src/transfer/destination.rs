//! Moves an unpacked tree to its destination: it is unpacked beside the destination, then renamed into it.
//!
//! No part of a rejected or corrupt archive is ever visible at the destination. Within an existing directory, files
//! replace files, directories are merged, and symbolic links are never followed.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;

use rustix::fs::{Dir, renameat};
use rustix::io::Errno;

use super::archive_reader::ArchiveError;
use super::save::parent;
use super::unpack::{self, UnpackReport, open_directory};

/// Unpacks `archive` as the directory `destination`, which may exist.
pub(crate) fn unpack_to(archive: impl Read, destination: &Path) -> Result<UnpackReport, ArchiveError> {
    let wrap = |error: io::Error| ArchiveError::Write { path: destination.display().to_string(), error };
    let exists = destination.is_dir();
    // On the same file system as the destination, so that a rename suffices.
    let beside = if exists { destination } else { parent(destination) };
    let staging = tempfile::Builder::new().prefix(".burrow-").tempdir_in(beside).map_err(wrap)?;
    let root = File::open(staging.path()).map_err(wrap)?;
    let unpacked = unpack::unpack(archive, root.as_fd())?;
    if exists {
        let into = File::open(destination).map_err(wrap)?;
        merge(root.as_fd(), into.as_fd())?;
        // The existing directory keeps its permission bits, as with cp.
        let inner: Vec<_> =
            unpacked.directories.iter().filter(|directory| !directory.is_root()).cloned().collect();
        unpack::finish_directories(into.as_fd(), &inner)?;
    } else {
        let path = staging.keep();
        if let Err(error) = fs::rename(&path, destination) {
            let _ = fs::remove_dir_all(&path);
            return Err(wrap(error));
        }
        if !unpacked.directories.iter().any(unpack::Directory::is_root) {
            // The archive has no entry for it, and the staging directory is readable by its owner only.
            unpack::finish_directories(root.as_fd(), &[unpack::Directory::root(0o755)])?;
        }
        unpack::finish_directories(root.as_fd(), &unpacked.directories)?;
    }
    Ok(unpacked)
}

/// Moves everything from one directory into another.
fn merge(from: BorrowedFd<'_>, into: BorrowedFd<'_>) -> Result<(), ArchiveError> {
    let listing = Dir::read_from(from).map_err(|error| ArchiveError::Read(error.into()))?;
    for entry in listing {
        let entry = entry.map_err(|error| ArchiveError::Read(error.into()))?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let wrap = |error: Errno| ArchiveError::Write {
            path: name.to_string_lossy().into_owned(),
            error: error.into(),
        };
        match renameat(from, name, into, name) {
            Ok(()) => {}
            // The directory exists already: merge one level deeper.
            Err(Errno::NOTEMPTY | Errno::EXIST) => {
                let inner_from = open_directory(from, name.to_bytes()).map_err(wrap)?;
                let inner_into = open_directory(into, name.to_bytes()).map_err(wrap)?;
                merge(inner_from.as_fd(), inner_into.as_fd())?;
            }
            Err(error) => return Err(wrap(error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn archive(entries: &[(&str, &str)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (path, content) in entries {
            let mut header = tar::Header::new_gnu();
            if path.ends_with('/') {
                header.set_entry_type(tar::EntryType::Directory);
                header.set_mode(0o555);
                header.set_size(0);
            } else {
                header.set_mode(0o640);
                header.set_size(content.len() as u64);
            }
            builder.append_data(&mut header, path, content.as_bytes()).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn a_new_directory_gets_the_archives_bits() {
        let place = tempfile::tempdir().unwrap();
        let destination = place.path().join("site");
        let bytes = archive(&[("./", ""), ("./sub/", ""), ("./sub/a", "one")]);
        unpack_to(bytes.as_slice(), &destination).unwrap();
        assert_eq!(fs::read_to_string(destination.join("sub/a")).unwrap(), "one");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode(&destination), 0o555);
        assert_eq!(mode(&destination.join("sub")), 0o555);
        assert_eq!(mode(&destination.join("sub/a")), 0o640);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn an_existing_directory_is_merged() {
        let place = tempfile::tempdir().unwrap();
        let destination = place.path().join("site");
        fs::create_dir_all(destination.join("sub")).unwrap();
        fs::write(destination.join("sub/a"), "old").unwrap();
        fs::write(destination.join("sub/mine"), "mine").unwrap();
        let bytes = archive(&[("sub/a", "new"), ("sub/deep/b", "two")]);
        unpack_to(bytes.as_slice(), &destination).unwrap();
        assert_eq!(fs::read_to_string(destination.join("sub/a")).unwrap(), "new");
        assert_eq!(fs::read_to_string(destination.join("sub/mine")).unwrap(), "mine");
        assert_eq!(fs::read_to_string(destination.join("sub/deep/b")).unwrap(), "two");
        assert_eq!(fs::read_dir(&destination).unwrap().count(), 1, "no staging is left");
    }

    #[test]
    fn a_link_at_the_destination_is_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let (destination, outside) = (place.path().join("site"), place.path().join("outside"));
        fs::create_dir_all(&destination).unwrap();
        fs::create_dir_all(&outside).unwrap();
        fs::write(outside.join("a"), "old").unwrap();
        symlink(&outside, destination.join("sub")).unwrap();
        let bytes = archive(&[("sub/a", "new")]);
        assert!(unpack_to(bytes.as_slice(), &destination).is_err());
        assert_eq!(fs::read_to_string(outside.join("a")).unwrap(), "old");
    }

    #[test]
    fn a_rejected_archive_leaves_the_destination_unchanged() {
        let place = tempfile::tempdir().unwrap();
        let destination = place.path().join("site");
        let mut bytes = archive(&[("good", "x")]);
        bytes.truncate(bytes.len() - 700);
        assert!(unpack_to(&bytes[..700], &destination).is_err());
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
