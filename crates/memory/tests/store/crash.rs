//! `kill -9` during writes: acknowledged writes are stored, and the file is consistent.
//!
//! The test runs itself as a child that writes until it is killed, and prints each acknowledged write.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use burrow_memory::{EntrySelection, Limits, MemoryRef, NewEntry, SpaceId};

use crate::world::{Random, WordEmbedder, World, assert_sound, by_meaning, by_words, listed, note};

const FOLDER: &str = "BURROW_MEMORY_CRASH_FOLDER";
const SPACE: &str = "BURROW_MEMORY_CRASH_SPACE";
const ROUND: &str = "BURROW_MEMORY_CRASH_ROUND";

/// The child is killed after at most this many acknowledged writes.
const ACKNOWLEDGED_MAX: usize = 120;

#[test]
fn a_child_that_writes_until_it_is_killed() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let space: SpaceId = std::env::var(SPACE).unwrap().parse().unwrap();
    let round = std::env::var(ROUND).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async move {
        let world =
            World::at(Path::new(&folder), WordEmbedder::new("words", 64, true), Limits::usual()).await;
        let mut writers = Vec::new();
        for writer in 0..4 {
            let view = world.memory.view(&MemoryRef::main(&space));
            let round = round.clone();
            writers.push(tokio::spawn(async move {
                // Ends when it is killed, or when the parent has ended.
                for at in 0.. {
                    let key = format!("r{round}w{writer}n{at}");
                    let entry = NewEntry { key: Some(key.clone()), ..note(&format!("{key} crash entry")) };
                    let added = view.add(vec![entry, note("filler of the batch")]).await.unwrap();
                    if at % 3 == 0 {
                        view.forget(&EntrySelection::Ids(vec![added[1].id.clone()]), false).await.unwrap();
                    }
                    if at % 7 == 0 {
                        view.erase(&EntrySelection::Ids(vec![added[1].id.clone()]), false).await.unwrap();
                    }
                    let mut out = std::io::stdout().lock();
                    if writeln!(out, "ACK {key}").and_then(|()| out.flush()).is_err() {
                        return;
                    }
                }
            }));
        }
        for writer in writers {
            writer.await.unwrap();
        }
    });
}

/// Runs the child and kills it after some acknowledged writes. Returns those.
fn killed_midway(folder: &Path, space: &SpaceId, round: usize, kill_after: usize) -> Vec<String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::a_child_that_writes_until_it_is_killed", "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .env(SPACE, space.as_str())
        .env(ROUND, round.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut acknowledged = Vec::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    while acknowledged.len() < kill_after {
        let line = lines.next().expect("the child writes until it is killed").unwrap();
        // The test harness may have printed the beginning of a line.
        if let Some((_, key)) = line.split_once("ACK ") {
            acknowledged.push(key.to_owned());
        }
    }
    child.kill().unwrap();
    // Writes that it printed before it died count as well.
    let rest = lines.map_while(Result::ok);
    acknowledged.extend(rest.filter_map(|line| Some(line.split_once("ACK ")?.1.to_owned())));
    child.wait().unwrap();
    acknowledged
}

#[test]
fn a_kill_at_any_moment_loses_no_acknowledged_write() {
    let folder = tempfile::tempdir().unwrap();
    let space = SpaceId::generate();
    let mut random = Random::new(42);
    let mut acknowledged = Vec::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for round in 0..6 {
        let kill_after = 1 + random.below(ACKNOWLEDGED_MAX);
        acknowledged.extend(killed_midway(folder.path(), &space, round, kill_after));
        runtime.block_on(async {
            let world = World::at(folder.path(), WordEmbedder::new("words", 64, true), Limits::usual()).await;
            let view = world.memory.view(&MemoryRef::main(&space));
            assert_sound(&view).await;
            let entries = listed(&view, &burrow_memory::Filter::everything()).await;
            let there: std::collections::BTreeSet<_> =
                entries.iter().filter_map(|entry| entry.text.strip_suffix(" crash entry")).collect();
            for key in &acknowledged {
                assert!(there.contains(key.as_str()), "`{key}` was acknowledged and is gone");
            }
            let some = acknowledged.last().unwrap();
            assert_eq!(by_words(&view, some).await.len(), 1);
            let close = by_meaning(&view, world.embedder.vector(&format!("{some} crash entry"))).await;
            assert_eq!(close[0], format!("{some} crash entry"));
            world.memory.close().await;
        });
    }
}
