//! Killed while it takes events out of the spool, the daemon finds each of them in the log exactly once.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use burrow_audit::spool::{Part, Reader, Segment, Writer};
use burrow_audit::{Filter, Span, Store};

use crate::store::{NOW, exported, verify};
use crate::{event, tenant};

const CHILD: &str = "BURROW_TEST_AUDIT_CRASH";
const EVENTS: u64 = 4000;
/// Commits that the parent waits for before it kills.
const COMMITS_MIN: usize = 20;
const ROUNDS: usize = 3;

#[test]
fn killed_while_it_takes_the_spool_in_every_event_is_there_once() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    if let Some(folder) = std::env::var_os(CHILD) {
        runtime.block_on(take_in(&PathBuf::from(folder), 13));
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
        take_in(folder.path(), 500).await;
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
            "crash::killed_while_it_takes_the_spool_in_every_event_is_there_once",
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

/// Takes in all that is left, `batch` at a time, and tells of every commit.
async fn take_in(folder: &Path, batch: usize) {
    let store = Store::open(&folder.join("audit")).unwrap();
    let mut from = store.taken(1).await.unwrap();
    let mut reader = Reader::open(&Segment::path(folder, 1), from).unwrap();
    loop {
        let events = reader.read(Part::Acknowledged, batch).unwrap();
        if events.is_empty() {
            break;
        }
        let span = Span { segment: 1, from, to: reader.offset() };
        store.ingest(events, span, NOW).await.unwrap();
        from = Some(reader.offset());
        std::io::stdout().write_all(b"committed\n").unwrap();
    }
}
