//! Events that are acknowledged before their commit: present after a kill, once, in order, and in every read.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use burrow_audit::spool::Segment;
use burrow_audit::{Durability, Filter, Store};
use rusqlite::Connection;

use crate::store::{NOW, events, exported, verify};
use crate::{event, tenant};

const CHILD: &str = "BURROW_TEST_AUDIT_JOURNAL";
/// Acknowledgements that the parent waits for before it kills the child.
const ANSWERS_MIN: usize = 700;
const ROUNDS: usize = 3;

async fn numbers(store: &Store) -> Vec<u64> {
    let (found, _) = store.since(&tenant(), Filter::default(), 0, u32::MAX).await.unwrap();
    found.iter().map(|entry| entry.event.target.as_ref().unwrap().as_str().parse().unwrap()).collect()
}

/// The number of events in the log itself, without those in the journal.
fn committed(folder: &Path) -> u64 {
    let connection = Connection::open(folder.join("audit.db")).unwrap();
    connection.query_row("SELECT count(*) FROM leaves", (), |row| row.get(0)).unwrap()
}

async fn recorded(store: &Store, range: std::ops::Range<u64>) {
    for number in range {
        store.append(vec![event(number)], NOW, Durability::Process).await.unwrap();
    }
}

#[tokio::test]
async fn recording_needs_no_commit_and_is_visible_in_every_read() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    recorded(&store, 0..100).await;
    assert_eq!(committed(folder.path()), 0);
    assert_eq!(store.size(&tenant()).await.unwrap(), 100);
    assert_eq!(committed(folder.path()), 100);
    recorded(&store, 100..120).await;
    let text = exported(&store, &tenant()).await;
    assert_eq!(verify(&text, Vec::new(), &store).unwrap().events, 120);
    recorded(&store, 120..130).await;
    store.append(events(130..131), NOW, Durability::Power).await.unwrap();
    assert_eq!(committed(folder.path()), 131, "every commit includes the waiting events");
    assert_eq!(numbers(&store).await, (0..131).collect::<Vec<_>>());
}

#[tokio::test]
async fn events_beyond_the_limit_go_into_the_log_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    recorded(&store, 0..10_000).await;
    assert!(committed(folder.path()) >= 4096);
    assert_eq!(numbers(&store).await, (0..10_000).collect::<Vec<_>>());
    let left = Segment::list(&folder.path().join("journal")).unwrap();
    assert!(left.len() <= 2, "segments that are in the log are removed: {left:?}");
}

#[tokio::test]
async fn a_torn_frame_is_ignored_and_earlier_events_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    recorded(&Store::open(folder.path()).unwrap(), 0..3).await;
    let journal = folder.path().join("journal");
    let number = *Segment::list(&journal).unwrap().last().unwrap();
    let path = Segment::path(&journal, number);
    let length = std::fs::metadata(&path).unwrap().len();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(length - 1).unwrap();
    let store = Store::open(folder.path()).unwrap();
    assert_eq!(numbers(&store).await, [0, 1]);
    recorded(&store, 3..4).await;
    drop(store);
    assert_eq!(numbers(&Store::open(folder.path()).unwrap()).await, [0, 1, 3]);
}

#[tokio::test]
async fn a_log_of_the_first_version_is_migrated() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    store.append(events(0..5), NOW, Durability::Power).await.unwrap();
    drop(store);
    std::fs::remove_dir_all(folder.path().join("journal")).unwrap();
    let connection = Connection::open(folder.path().join("audit.db")).unwrap();
    connection.execute_batch("DROP TABLE journal; PRAGMA user_version = 1").unwrap();
    drop(connection);
    let store = Store::open(folder.path()).unwrap();
    recorded(&store, 5..7).await;
    assert_eq!(numbers(&store).await, (0..7).collect::<Vec<_>>());
}

#[test]
fn every_acknowledged_event_is_there_once_after_a_kill() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    if let Some(folder) = std::env::var_os(CHILD) {
        runtime.block_on(continue_recording(&PathBuf::from(folder)));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut answered = 0;
    for _ in 0..ROUNDS {
        answered = kill_one(folder.path()).max(answered);
        runtime.block_on(async {
            let store = Store::open(folder.path()).unwrap();
            let found = numbers(&store).await;
            assert_eq!(found, (0..found.len() as u64).collect::<Vec<_>>());
            assert!(found.len() as u64 > answered, "{} are there, {answered} was acknowledged", found.len());
        });
    }
    runtime.block_on(async {
        let store = Store::open(folder.path()).unwrap();
        let text = exported(&store, &tenant()).await;
        verify(&text, Vec::new(), &store).unwrap();
    });
}

/// Returns the last number that the child reported as recorded.
fn kill_one(folder: &Path) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "journal::every_acknowledged_event_is_there_once_after_a_kill", "--nocapture"])
        .env(CHILD, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut answers, mut last) = (0, 0);
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let Some(number) = line.unwrap().strip_prefix("answered ").and_then(|text| text.parse().ok()) else {
            continue;
        };
        (answers, last) = (answers + 1, number);
        if answers == ANSWERS_MIN {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(answers >= ANSWERS_MIN, "the child ended early, after {answers}");
    last
}

/// Continues where the log ends, with commits in between, and reports every acknowledgement.
async fn continue_recording(folder: &Path) {
    let store = Store::open(folder).unwrap();
    let first = store.size(&tenant()).await.unwrap();
    for number in first..first + 100_000 {
        store.append(vec![event(number)], NOW, Durability::Process).await.unwrap();
        std::io::stdout().write_all(format!("answered {number}\n").as_bytes()).unwrap();
        if number.is_multiple_of(150) {
            let store = store.clone();
            tokio::spawn(async move { store.settle().await });
        }
    }
}
