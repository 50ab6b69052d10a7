//! A daemon that is killed while it reads events from the spool finds each of them in the log exactly once.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use burrow_audit::spool::{Reader, Segment, SegmentPart, Writer};
use burrow_audit::{Filter, Span, Store};

use crate::store::{NOW, exported, verify};
use crate::{event, tenant};

const CHILD: &str = "BURROW_TEST_AUDIT_CRASH";
const EVENTS: u64 = 4000;
/// Commits that the parent waits for before it kills the child.
const COMMITS_MIN: usize = 20;
const ROUNDS: usize = 3;

#[test]
fn every_event_is_there_once_after_a_kill_while_reading_the_spool() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    if let Some(folder) = std::env::var_os(CHILD) {
        runtime.block_on(ingest_all(&PathBuf::from(folder), 13));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let segment = Segment::create(folder.path(), 1).unwrap();
    runtime.block_on(async {
        let writer = Writer::start(segment.file).unwrap();
        let recorded = (0..EVENTS).map(|number| {
            let writer = writer.clone();
            tokio::spawn(async move { writer.record(&event(number)).await.unwrap() })
        });
        for task in recorded.collect::<Vec<_>>() {
            task.await.unwrap();
        }
    });
    for _ in 0..ROUNDS {
        kill_one(folder.path());
    }
    runtime.block_on(async {
        ingest_all(folder.path(), 500).await;
        let store = Store::open(&folder.path().join("audit")).unwrap();
        let found = store.newest(&tenant(), Filter::default(), None, u32::MAX).await.unwrap();
        let mut numbers: Vec<u64> = found
            .iter()
            .map(|entry| entry.event.target.as_ref().unwrap().as_str().parse().unwrap())
            .collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..EVENTS).collect::<Vec<_>>());
        let text = exported(&store, &tenant()).await;
        assert_eq!(verify(&text, Vec::new(), &store).unwrap().events, EVENTS);
    });
}

fn kill_one(folder: &Path) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "crash::every_event_is_there_once_after_a_kill_while_reading_the_spool",
            "--nocapture",
        ])
        .env(CHILD, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut commits = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        commits += usize::from(line.unwrap() == "committed");
        if commits == COMMITS_MIN {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(commits >= COMMITS_MIN, "the child ended early, after {commits}");
}

/// Appends all remaining events to the log, `batch` at a time, and reports every commit.
async fn ingest_all(folder: &Path, batch: usize) {
    let store = Store::open(&folder.join("audit")).unwrap();
    let mut from = store.taken(1).await.unwrap();
    let mut reader = Reader::open(&Segment::path(folder, 1), from).unwrap();
    loop {
        let events = reader.read(SegmentPart::Acknowledged, batch).unwrap();
        if events.is_empty() {
            break;
        }
        let span = Span { segment: 1, from, to: reader.offset() };
        store.ingest(events, span, NOW).await.unwrap();
        from = Some(reader.offset());
        std::io::stdout().write_all(b"committed\n").unwrap();
    }
}
