//! The uid and gid maps of a machine, in its images.
//!
//! CRIU stores the uid map of the machine's user namespace in an image, and restores the same map. All other ids in the
//! images are relative to that namespace. But each start of a machine has another uid range, and several machines may
//! be restored from one dump. So every dump contains the ids that files have on disk. A restore reads a copy of this
//! one image with its own range, see [`super::replaced_images`].

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::BorrowedFd;

use burrow_network::linux::{HostIds, UID_BASE, UID_COUNT};
use rustix::fs::{Dir, Mode, OFlags, openat};

use super::image;
use super::links;
use super::protobuf::{Fields, Message, ProtobufError, Value};

/// The name of the image starts with this, and ends with [`SUFFIX`].
const PREFIX: &[u8] = b"userns-";
const SUFFIX: &[u8] = b".img";
const KIND: u32 = 0x5547_4906;

/// Both maps are lists of extents.
const MAPS: [u32; 2] = [1, 2];
const EXTENT_FIRST: u32 = 1;
const EXTENT_BASE: u32 = 2;
const EXTENT_COUNT: u32 = 3;

/// The image with the ids of a machine on this host; `None`: the ids that its files have on disk.
pub(super) fn replacement(images: BorrowedFd<'_>, ids: Option<&HostIds>) -> io::Result<(String, Vec<u8>)> {
    let base = ids.map_or(UID_BASE, |ids| ids.range.base());
    let name = find(images)?;
    let mapped = mapped(&links::read(images, &name)?, base).map_err(image::malformed)?;
    Ok((name, mapped))
}

/// Writes the ids that files have on disk to a dump, in place of those that the machine had on this host.
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
fn mapped(bytes: &[u8], base: u32) -> Result<Vec<u8>, ProtobufError> {
    let records = image::records(bytes, KIND)?;
    let [(_, record)] = records.as_slice() else { return Err(ProtobufError) };
    let mut maps = Vec::new();
    for field in Fields::of(record) {
        let field = field?;
        let Value::Bytes(extent) = field.value else { return Err(ProtobufError) };
        check(extent)?;
        maps.push(field.number);
    }
    if maps != MAPS {
        return Err(ProtobufError);
    }
    let extent = Message::default()
        .number(EXTENT_FIRST, 0)
        .number(EXTENT_BASE, base.into())
        .number(EXTENT_COUNT, UID_COUNT.into());
    let maps = MAPS.into_iter().fold(Message::default(), |maps, map| maps.message(map, &extent));
    Ok(image::written(KIND, &[maps]))
}

/// Checks that the extent contains all ids of a machine, whatever they are on the host.
fn check(extent: &[u8]) -> Result<(), ProtobufError> {
    let (mut first, mut count) = (None, None);
    for field in Fields::of(extent) {
        match field? {
            field if field.number == EXTENT_FIRST => first = Some(field.value),
            field if field.number == EXTENT_COUNT => count = Some(field.value),
            _ => {}
        }
    }
    let wanted = (Some(Value::Number(0)), Some(Value::Number(UID_COUNT.into())));
    if (first, count) == wanted { Ok(()) } else { Err(ProtobufError) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd as _;

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
    fn maps_that_no_machine_has_are_rejected() {
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
    fn a_dump_contains_the_ids_on_disk_and_a_restore_uses_its_own() {
        let images = tempfile::tempdir().unwrap();
        let name = images.path().join("userns-9.img");
        fs::write(&name, of_base(0x6000_0000)).unwrap();
        let images = File::open(images.path()).unwrap();
        write_stored(images.as_fd()).unwrap();
        assert_eq!(fs::read(&name).unwrap(), of_base(100_000));
        let ids = HostIds::reserve().unwrap();
        let (name, bytes) = replacement(images.as_fd(), Some(&ids)).unwrap();
        assert_eq!((name.as_str(), bytes), ("userns-9.img", of_base(ids.range.base().into())));
        assert_eq!(replacement(images.as_fd(), None).unwrap().1, of_base(100_000));
    }
}
