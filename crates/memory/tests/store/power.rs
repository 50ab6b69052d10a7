//! Power loss: the journal is truncated anywhere, or its end is corrupt. All complete commits in it survive, none in part.

use std::path::Path;

use burrow_memory::{EntryChange, EntrySelection, Limits, MemoryRef, SpaceId};

use crate::world::{Random, WordEmbedder, World, add, add_in, by_meaning, by_words, note, texts};

/// After a commit: the length of the journal, and the state that must be visible.
struct Commit {
    journal: usize,
    texts: Vec<String>,
}

async fn written(world: &World, space: &SpaceId) -> Vec<Commit> {
    let view = world.memory.view(&MemoryRef::main(space));
    let journal = format!("{}-wal", world.file(space).display());
    let mut commits = Vec::new();
    let first = add_in(&view, "s", "the first entry").await;
    for step in 0..24 {
        match step % 6 {
            0 => drop(add_in(&view, "s", &format!("entry {step}")).await),
            1 => {
                drop(view.add((0..8).map(|at| note(&format!("batch {step} {at}"))).collect()).await.unwrap())
            }
            2 => {
                let change =
                    EntryChange { text: Some(format!("changed in {step}")), ..EntryChange::nothing() };
                view.update(&first, change, None).await.unwrap();
            }
            3 => {
                let id = add(&view, &format!("short lived {step}")).await;
                view.forget(&EntrySelection::Ids(vec![id]), false).await.unwrap();
            }
            4 => drop(view.repeat(std::slice::from_ref(&first), 1).await.unwrap()),
            _ => drop(add(&view, &format!("{step} {}", "long ".repeat(2000))).await),
        }
        let journal = usize::try_from(std::fs::metadata(&journal).unwrap().len()).unwrap();
        commits.push(Commit { journal, texts: texts(&view).await });
    }
    commits
}

/// Opens a copy of the file with this journal.
async fn after_power_loss(folder: &Path, space: &SpaceId, file: &[u8], journal: &[u8], commits: &[Commit]) {
    std::fs::write(folder.join(format!("{space}.db")), file).unwrap();
    std::fs::write(folder.join(format!("{space}.db-wal")), journal).unwrap();
    let world = World::at(folder, WordEmbedder::new("words", 64, true), Limits::usual()).await;
    let view = world.memory.view(&MemoryRef::main(space));
    let report = view.check().await.unwrap();
    assert!(report.is_sound(), "journal of {} bytes: {report:#?}", journal.len());
    let found = texts(&view).await;
    // A commit may be visible before it was acknowledged; acknowledged commits must be.
    let acknowledged = commits.iter().rposition(|commit| commit.journal <= journal.len());
    if let Some(at) = acknowledged {
        let possible = &commits[at..(at + 2).min(commits.len())];
        // A step with two commits may be cut between them.
        let between = found.len() >= possible[0].texts.len();
        assert!(possible.iter().any(|commit| commit.texts == found) || between, "{} bytes", journal.len());
        assert!(
            possible[0]
                .texts
                .iter()
                .filter(|text| text.starts_with("batch"))
                .all(|text| found.contains(text)),
            "an acknowledged commit is gone at {} bytes",
            journal.len()
        );
    }
    let batches = found.iter().filter(|text| text.starts_with("batch")).count();
    assert_eq!(batches % 8, 0, "a batch is there whole or not at all");
    assert_eq!(by_words(&view, "batch").await.len(), batches);
    assert_eq!(by_meaning(&view, vec![0.1; 64]).await.len(), found.len());
    add(&view, "it goes on").await;
    world.memory.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_truncated_journal_leaves_complete_commits_and_a_consistent_file() {
    let world = World::new().await;
    let space = SpaceId::generate();
    let commits = written(&world, &space).await;
    let file = std::fs::read(world.file(&space)).unwrap();
    let journal = std::fs::read(format!("{}-wal", world.file(&space).display())).unwrap();
    assert!(commits.is_sorted_by_key(|commit| commit.journal), "the journal was not written back meanwhile");
    let mut random = Random::new(5);
    let folder = tempfile::tempdir().unwrap();
    let mut lengths: Vec<usize> = (0..60).map(|_| random.below(journal.len())).collect();
    // Lengths around the ends of commits, and within the header.
    lengths.extend(commits.iter().step_by(3).flat_map(|commit| [commit.journal, commit.journal - 1]));
    lengths.extend([0, 1, 31, 32, 33, journal.len()]);
    for (number, length) in lengths.into_iter().enumerate() {
        let length = length.min(journal.len());
        let place = folder.path().join(number.to_string());
        std::fs::create_dir(&place).unwrap();
        after_power_loss(&place, &space, &file, &journal[..length], &commits).await;
        std::fs::remove_dir_all(&place).unwrap();
    }
    // Data after the last sync may be corrupt instead of missing.
    for (number, commit) in commits.iter().step_by(4).enumerate() {
        let mut torn = journal.clone();
        torn[commit.journal..].iter_mut().for_each(|byte| *byte = random.next() as u8);
        let place = folder.path().join(format!("torn{number}"));
        std::fs::create_dir(&place).unwrap();
        std::fs::write(place.join("note"), b"rubbish after a commit").unwrap();
        let upto = std::slice::from_ref(commit);
        after_power_loss(&place, &space, &file, &torn, upto).await;
    }
}
