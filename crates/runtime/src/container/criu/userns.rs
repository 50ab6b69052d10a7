//! Which ids of the host a machine has, in its images.
//!
//! CRIU stores the uid map of the machine's user namespace in an image, and restores the same map. All other ids in the images
//! are relative to that namespace. But each start of a machine has another uid range, and several machines may be restored
//! from one dump. So every dump stores the ids that files have on disk. A restore reads a copy of this one image with its own
//! range: the copy is mounted over the image in a private mount namespace, and the dump itself is not changed.

#![expect(unsafe_code, reason = "leaving a shared file system view has no safe interface")]

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;

use burrow_network::linux::{HostIds, UID_BASE, UID_COUNT};
use rustix::fs::{CWD, Dir, Mode, OFlags, openat};
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use super::image;
use super::links;
use super::protobuf::{Fields, Malformed, Message, Value};
use crate::launcher::{attach, bind_mapped};

/// The image's name begins so, and ends with [`SUFFIX`].
const PREFIX: &[u8] = b"userns-";
const SUFFIX: &[u8] = b".img";
const KIND: u32 = 0x5547_4906;

/// Both maps are lists of extents.
const MAPS: [u32; 2] = [1, 2];
const EXTENT_FIRST: u32 = 1;
const EXTENT_BASE: u32 = 2;
const EXTENT_COUNT: u32 = 3;

/// The images of a dump, with a map of other ids.
#[derive(Debug)]
pub(super) struct MappedImages {
    images: OwnedFd,
    /// The mount namespace that they are seen in; it ends with this.
    _view: OwnedFd,
}

impl MappedImages {
    /// `work` is a directory for the other map.
    pub(super) fn of(
        images: BorrowedFd<'_>,
        work: BorrowedFd<'_>,
        ids: Option<&HostIds>,
    ) -> io::Result<Self> {
        let base = ids.map_or(UID_BASE, |ids| ids.range.base());
        let name = find(images)?;
        let mapped = mapped(&links::read(images, &name)?, base).map_err(image::malformed)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(work, name.as_str(), flags, Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH)?;
        let mut file = File::from(file);
        file.write_all(&mapped)?;
        let mount = bind_mapped(file.as_fd(), None)?;
        // On a thread of its own, which ends there: no other thread may find itself among other files.
        thread::scope(|scope| {
            let showing = scope.spawn(|| show(images, &mount, &name));
            showing.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
        })
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.images.as_fd()
    }
}

/// Mounts `image` over the one of that name, in a mount namespace that this thread makes.
fn show(images: BorrowedFd<'_>, image: &OwnedFd, name: &str) -> io::Result<MappedImages> {
    // SAFETY: the thread shares its root and working directory with the others until here, and uses neither of theirs
    // afterwards. No file table is unshared.
    unsafe { unshare_unsafe(UnshareFlags::FS) }?;
    // The working directory is the one thing that follows into the new namespace.
    rustix::process::fchdir(images)?;
    // SAFETY: as above.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let place = openat(CWD, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    attach(image, &place)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let images = openat(CWD, ".", flags, Mode::empty())?;
    Ok(MappedImages { images, _view: File::open("/proc/thread-self/ns/mnt")?.into() })
}

/// Writes the ids that files have on disk to a dump, in the place of those that the machine had on this host.
pub(super) fn write_stored(images: BorrowedFd<'_>) -> io::Result<()> {
    let name = find(images)?;
    let found = links::read(images, &name)?;
    let stored = mapped(&found, UID_BASE).map_err(image::malformed)?;
    if stored == found {
        return Ok(());
    }
    let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    File::from(openat(images, name.as_str(), flags, Mode::empty())?).write_all(&stored)
}

/// The name of the image. There is exactly one: processes inside cannot create user namespaces.
fn find(images: BorrowedFd<'_>) -> io::Result<String> {
    for entry in Dir::read_from(images)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name.starts_with(PREFIX) && name.ends_with(SUFFIX) {
            return String::from_utf8(name.to_owned()).map_err(io::Error::other);
        }
    }
    Err(io::Error::new(io::ErrorKind::NotFound, "the dump has no user namespace"))
}

/// The same image with other ids.
fn mapped(bytes: &[u8], base: u32) -> Result<Vec<u8>, Malformed> {
    let records = image::records(bytes, KIND)?;
    let [(_, record)] = records.as_slice() else { return Err(Malformed) };
    let mut maps = Vec::new();
    for field in Fields::of(record) {
        let field = field?;
        let Value::Bytes(extent) = field.value else { return Err(Malformed) };
        check(extent)?;
        maps.push(field.number);
    }
    if maps != MAPS {
        return Err(Malformed);
    }
    let extent = Message::default()
        .number(EXTENT_FIRST, 0)
        .number(EXTENT_BASE, base.into())
        .number(EXTENT_COUNT, UID_COUNT.into());
    let maps = MAPS.into_iter().fold(Message::default(), |maps, map| maps.message(map, &extent));
    Ok(image::written(KIND, &[maps]))
}

/// That these are all ids of a machine, wherever they are on the host.
fn check(extent: &[u8]) -> Result<(), Malformed> {
    let (mut first, mut count) = (None, None);
    for field in Fields::of(extent) {
        match field? {
            field if field.number == EXTENT_FIRST => first = Some(field.value),
            field if field.number == EXTENT_COUNT => count = Some(field.value),
            _ => {}
        }
    }
    let wanted = (Some(Value::Number(0)), Some(Value::Number(UID_COUNT.into())));
    if (first, count) == wanted { Ok(()) } else { Err(Malformed) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn extent(first: u64, base: u64, count: u64) -> Message {
        Message::default().number(EXTENT_FIRST, first).number(EXTENT_BASE, base).number(EXTENT_COUNT, count)
    }

    fn image(extents: &[(u32, Message)]) -> Vec<u8> {
        let add = |message: Message, (map, extent): &(u32, Message)| message.message(*map, extent);
        image::written(KIND, &[extents.iter().fold(Message::default(), add)])
    }

    fn of_base(base: u64) -> Vec<u8> {
        image(&[(1, extent(0, base, 65536)), (2, extent(0, base, 65536))])
    }

    #[test]
    fn only_the_ids_on_the_host_change() {
        assert_eq!(mapped(&of_base(100_000), 0xefff_0000).unwrap(), of_base(0xefff_0000));
        assert_eq!(mapped(&of_base(0xefff_0000), 100_000).unwrap(), of_base(100_000));
    }

    #[test]
    fn maps_that_no_machine_has_are_refused() {
        let whole = extent(0, 100_000, 65536);
        for bad in [
            image(&[(1, whole.clone())]),
            image(&[(1, whole.clone()), (1, whole.clone()), (2, whole.clone())]),
            image(&[(1, extent(1, 100_000, 65536)), (2, whole.clone())]),
            image(&[(1, extent(0, 100_000, 65535)), (2, whole)]),
            b"nonsense".to_vec(),
        ] {
            assert!(mapped(&bad, 100_000).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_restore_sees_other_ids_and_the_dump_stays_as_it_is() {
        let (images, work) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let name = images.path().join("userns-9.img");
        fs::write(&name, of_base(0x6000_0000)).unwrap();
        fs::write(images.path().join("other.img"), "other").unwrap();
        let [images, work] = [images.path(), work.path()].map(|path| File::open(path).unwrap());
        write_stored(images.as_fd()).unwrap();
        assert_eq!(fs::read(&name).unwrap(), of_base(100_000));
        let ids = HostIds::reserve().unwrap();
        let mapped = MappedImages::of(images.as_fd(), work.as_fd(), Some(&ids)).unwrap();
        let seen = |name: &str| links::read(mapped.as_fd(), name).unwrap();
        assert_eq!(seen("userns-9.img"), of_base(ids.range.base().into()));
        assert_eq!(seen("other.img"), b"other");
        assert_eq!(fs::read(&name).unwrap(), of_base(100_000));
    }
}
