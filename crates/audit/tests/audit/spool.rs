//! E-A1: an event that cannot be recorded durably is an error, so nothing is injected without a record.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;

use burrow_audit::Event;
use burrow_audit::spool::{ReadError, Reader, Segment, SegmentPart, SpoolError, Writer};
use rustix::fs::{MemfdFlags, SealFlags};

use crate::event;

pub(crate) const CHILD: &str = "BURROW_TEST_AUDIT_FULL";

fn numbers(events: &[Event]) -> Vec<u64> {
    events.iter().map(|event| event.target.as_ref().unwrap().as_str().parse().unwrap()).collect()
}

/// A segment in RAM, for which the kernel can be made to refuse growing and writing.
fn memory_segment() -> File {
    let folder = tempfile::tempdir().unwrap();
    let made = Segment::create(folder.path(), 1).unwrap();
    let file = File::from(rustix::fs::memfd_create("spool", MemfdFlags::ALLOW_SEALING).unwrap());
    (&file).write_all(&fs::read(made.path).unwrap()).unwrap();
    file
}

fn duplicate(file: &File) -> OwnedFd {
    file.try_clone().unwrap().into()
}

#[tokio::test]
async fn recorded_events_are_read_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let segment = Segment::create(folder.path(), 7).unwrap();
    let mut reader = Reader::open(&segment.path, None).unwrap();
    assert!(reader.read(SegmentPart::Acknowledged, 10).unwrap().is_empty());
    let writer = Writer::start(segment.file).unwrap();
    for number in 0..5 {
        writer.record(&event(number)).await.unwrap();
    }
    assert!(reader.behind().unwrap() > 0);
    assert_eq!(numbers(&reader.read(SegmentPart::Acknowledged, 3).unwrap()), [0, 1, 2]);
    let mut later = Reader::open(&segment.path, Some(reader.offset())).unwrap();
    assert_eq!(numbers(&later.read(SegmentPart::Acknowledged, 10).unwrap()), [3, 4]);
    assert_eq!(later.behind().unwrap(), 0);
    assert_eq!(Segment::list(folder.path()).unwrap(), [7]);
    assert_eq!(Segment::create(folder.path(), 7).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_events_share_syncs_and_all_are_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let segment = Segment::create(folder.path(), 1).unwrap();
    let writer = Writer::start(segment.file).unwrap();
    let tasks: Vec<_> = (0..3000)
        .map(|number| {
            let writer = writer.clone();
            tokio::spawn(async move { writer.record(&event(number)).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let mut reader = Reader::open(&segment.path, None).unwrap();
    let mut found = numbers(&reader.read(SegmentPart::Acknowledged, usize::MAX).unwrap());
    found.sort_unstable();
    assert_eq!(found, (0..3000).collect::<Vec<_>>());
}

#[tokio::test]
async fn after_a_replacement_the_old_segment_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (Segment::create(folder.path(), 1).unwrap(), Segment::create(folder.path(), 2).unwrap());
    let writer = Writer::start(one.file).unwrap();
    writer.record(&event(1)).await.unwrap();
    writer.replace(two.file).await.unwrap();
    writer.record(&event(2)).await.unwrap();
    let read = |path: &Path| numbers(&Reader::open(path, None).unwrap().read(SegmentPart::All, 10).unwrap());
    assert_eq!((read(&one.path), read(&two.path)), (vec![1], vec![2]));
    // A file that is not a segment is refused.
    let wrong = File::open("/dev/null").unwrap();
    assert_eq!(writer.replace(wrong.into()).await.unwrap_err().kind(), io::ErrorKind::InvalidData);
    writer.record(&event(3)).await.unwrap();
    assert_eq!(read(&two.path), [2, 3]);
}

#[tokio::test]
async fn a_read_only_descriptor_records_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let segment = Segment::create(folder.path(), 1).unwrap();
    assert!(Writer::start(File::open(&segment.path).unwrap().into()).is_err());
}

#[tokio::test]
async fn a_file_that_cannot_grow_fails_every_event_until_it_is_replaced() {
    let file = memory_segment();
    let writer = Writer::start(duplicate(&file)).unwrap();
    writer.record(&event(1)).await.unwrap();
    rustix::fs::fcntl_add_seals(&file, SealFlags::GROW).unwrap();
    for number in 2..6 {
        let error = writer.record(&event(number)).await.unwrap_err();
        assert!(matches!(error, SpoolError::Write { .. }) && error.hint().is_some(), "{error:?}");
    }
    let replaced = memory_segment();
    writer.replace(duplicate(&replaced)).await.unwrap();
    writer.record(&event(6)).await.unwrap();
    let read = |file: File| numbers(&Reader::new(file, None).unwrap().read(SegmentPart::All, 10).unwrap());
    assert_eq!((read(file), read(replaced)), (vec![1], vec![6]));
}

#[tokio::test]
async fn a_file_that_cannot_be_written_fails_every_event() {
    let file = memory_segment();
    let writer = Writer::start(duplicate(&file)).unwrap();
    writer.record(&event(1)).await.unwrap();
    rustix::fs::fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::SHRINK).unwrap();
    for number in 2..4 {
        assert!(writer.record(&event(number)).await.is_err());
    }
    assert_eq!(numbers(&Reader::new(file, None).unwrap().read(SegmentPart::All, 10).unwrap()), [1]);
}

#[tokio::test]
async fn a_torn_end_is_ignored_wherever_it_is_torn() {
    let folder = tempfile::tempdir().unwrap();
    let segment = Segment::create(folder.path(), 1).unwrap();
    let writer = Writer::start(segment.file).unwrap();
    writer.record(&event(1)).await.unwrap();
    let whole = fs::read(&segment.path).unwrap();
    writer.record(&event(2)).await.unwrap();
    let both = fs::read(&segment.path).unwrap();
    let path = folder.path().join("torn");
    for cut in whole.len()..both.len() {
        // With the mark of the first event: the second was not acknowledged.
        let mut torn = whole.clone();
        torn.extend(&both[whole.len()..cut]);
        fs::write(&path, &torn).unwrap();
        let mut reader = Reader::open(&path, None).unwrap();
        assert_eq!(numbers(&reader.read(SegmentPart::All, 10).unwrap()), [1], "cut at {cut}");
        // A writer continues after the first event.
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let writer = Writer::start(file.into()).unwrap();
        writer.record(&event(3)).await.unwrap();
        assert_eq!(numbers(&reader.read(SegmentPart::All, 10).unwrap()), [3], "cut at {cut}");
    }
    // A complete event whose mark was lost in a power failure is read if the segment has no writer.
    let mut unmarked = whole.clone();
    unmarked.extend(&both[whole.len()..]);
    fs::write(&path, &unmarked).unwrap();
    let mut reader = Reader::open(&path, None).unwrap();
    assert_eq!(numbers(&reader.read(SegmentPart::Acknowledged, 10).unwrap()), [1]);
    assert_eq!(numbers(&reader.read(SegmentPart::All, 10).unwrap()), [2]);
}

#[tokio::test]
async fn missing_or_changed_acknowledged_bytes_are_reported_as_damage() {
    let folder = tempfile::tempdir().unwrap();
    let segment = Segment::create(folder.path(), 1).unwrap();
    let writer = Writer::start(segment.file).unwrap();
    for number in 1..4 {
        writer.record(&event(number)).await.unwrap();
    }
    let good = fs::read(&segment.path).unwrap();
    let path = folder.path().join("changed");
    let damage = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let mut reader = Reader::open(&path, None).unwrap();
        let (mut found, mut outcome) = (0, Ok(()));
        loop {
            match reader.read(SegmentPart::Acknowledged, 1) {
                Ok(events) if events.is_empty() => break,
                Ok(events) => found += events.len(),
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        (found, outcome)
    };
    assert!(matches!(damage(&good), (3, Ok(()))));
    for at in 32..good.len() {
        let mut bytes = good.clone();
        bytes[at] ^= 0x20;
        let (found, outcome) = damage(&bytes);
        assert!(found < 3 && matches!(outcome, Err(ReadError::Damaged { .. })), "byte {at}: {found}");
    }
    assert!(matches!(damage(&good[..good.len() - 1]), (2, Err(ReadError::Damaged { .. }))));
    assert!(matches!(Reader::open(Path::new("/dev/null"), None), Err(ReadError::NoSegment)));
}

#[test]
fn a_full_disk_refuses_every_event_until_there_is_space() {
    let Some(folder) = std::env::var_os(CHILD) else {
        return in_a_namespace("spool::a_full_disk_refuses_every_event_until_there_is_space");
    };
    let folder = Path::new(&folder);
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"]).arg(folder).status().unwrap();
    assert!(mounted.success());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let segment = Segment::create(folder, 1).unwrap();
        let writer = Writer::start(segment.file).unwrap();
        writer.record(&event(0)).await.unwrap();
        let ballast = folder.join("ballast");
        fill(&ballast);
        let mut recorded = 1;
        let error = loop {
            match writer.record(&event(recorded)).await {
                Ok(()) => recorded += 1,
                Err(error) => break error,
            }
            assert!(recorded < 100_000, "the disk never filled");
        };
        assert!(
            matches!(&error, SpoolError::Write { source } if source.kind() == io::ErrorKind::StorageFull)
        );
        assert!(writer.record(&event(77_777)).await.is_err(), "still full");
        fs::remove_file(&ballast).unwrap();
        writer.record(&event(recorded)).await.unwrap();
        let mut reader = Reader::open(&segment.path, None).unwrap();
        let found = numbers(&reader.read(SegmentPart::All, usize::MAX).unwrap());
        assert_eq!(found, (0..=recorded).collect::<Vec<_>>(), "refused events are not there");
    });
}

/// Runs a test of this program again in a private mount namespace.
pub(crate) fn in_a_namespace(test: &str) {
    let folder = tempfile::tempdir().unwrap();
    let mut unshare = Command::new("unshare");
    unshare.arg("--mount");
    if !rustix::process::geteuid().is_root() {
        unshare.arg("--map-root-user");
    }
    let output = unshare
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, folder.path())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
}

/// Fills the disk to the last byte.
pub(crate) fn fill(path: &Path) {
    let mut ballast = File::create(path).unwrap();
    let mut block = vec![1u8; 1 << 16];
    while !block.is_empty() {
        if ballast.write_all(&block).is_err() {
            block.truncate(block.len() / 2);
        }
    }
}
