//! How many of the turns that answer a question are among the first hits, through the public API.

use std::collections::HashMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use burrow_api::memory::{CreateSpace, NewEntry, SearchMemory};
use burrow_client::{Client, MemorySelection};
use serde_json::json;

use super::conversations::{Conversation, Question, read};
use crate::daemon::{BenchSetup, Daemon, Kind};
use crate::error::BenchError;
use crate::report::{Figure, Target};

/// The file for every question's result.
const FOLDER: &str = "target/bench";

/// Entries per request.
const BATCH: usize = 200;

/// The longest wait for the vectors: a conversation at some 5 ms per turn, many times over.
const FILL_PATIENCE: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(50);

/// The results of every question.
struct QuestionResult {
    category: u64,
    at_10: f64,
    at_20: f64,
}

/// The names of an embedder's figures, and the target of the first.
struct Names {
    kind: Kind,
    file: &'static str,
    at_10: &'static str,
    at_20: &'static str,
    categories: [&'static str; 4],
    promised: f64,
}

const BUILT_IN: Names = Names {
    kind: Kind::Usual,
    file: "recall-built-in.jsonl",
    at_10: "recall.built_in.at_10",
    at_20: "recall.built_in.at_20",
    categories: [
        "recall.built_in.several_turns",
        "recall.built_in.time",
        "recall.built_in.inference",
        "recall.built_in.one_turn",
    ],
    promised: 0.71,
};

const MINILM: Names = Names {
    kind: Kind::MiniLm,
    file: "recall-minilm.jsonl",
    at_10: "recall.minilm.at_10",
    at_20: "recall.minilm.at_20",
    categories: [
        "recall.minilm.several_turns",
        "recall.minilm.time",
        "recall.minilm.inference",
        "recall.minilm.one_turn",
    ],
    promised: 0.74,
};

const NOTE: &str = "share of the turns that answer a question among the first hits, mean over the questions";

pub(in super::super) async fn measure(prepared: &BenchSetup) -> Result<Vec<Figure>, BenchError> {
    let Some(path) = &prepared.locomo else {
        eprintln!("  left out: `LOCOMO=<file>` names the conversations");
        return Ok(Vec::new());
    };
    let conversations = read(path)?;
    let mut figures = measure_with(prepared, &BUILT_IN, &conversations).await?;
    match prepared.minilm {
        Some(_) => figures.extend(measure_with(prepared, &MINILM, &conversations).await?),
        None => eprintln!("  MiniLM left out: `MINILM=<folder>` names the model"),
    }
    Ok(figures)
}

async fn measure_with(
    prepared: &BenchSetup,
    names: &Names,
    conversations: &[Conversation],
) -> Result<Vec<Figure>, BenchError> {
    let daemon = Daemon::start(prepared, names.kind).await?;
    let client = daemon.client()?;
    fs::create_dir_all(FOLDER).map_err(BenchError::io("make", FOLDER))?;
    let path = Path::new(FOLDER).join(names.file);
    let mut file = fs::File::create(&path).map_err(BenchError::io("make", path.display()))?;
    let mut all = Vec::new();
    for (number, conversation) in conversations.iter().enumerate() {
        let space = format!("conversation-{number}");
        let ids = store(&client, &space, conversation).await?;
        for question in &conversation.questions {
            let (asked, line) = ask(&client, &space, question, &ids).await?;
            writeln!(file, "{line}").map_err(BenchError::io("write", path.display()))?;
            all.push(asked);
        }
        client.delete_space(&space, false).await.map_err(BenchError::api("delete a space"))?;
    }
    daemon.finish().await?;
    let at_10 = mean(all.iter().map(|asked| asked.at_10));
    let mut figures = vec![
        Figure::new(names.at_10, at_10, "share", NOTE).target(Target::AtLeast { limit: names.promised }),
        Figure::new(names.at_20, mean(all.iter().map(|asked| asked.at_20)), "share", NOTE),
    ];
    for (category, name) in (1..).zip(names.categories) {
        let of = all.iter().filter(|asked| asked.category == category).map(|asked| asked.at_10);
        figures.push(Figure::new(name, mean(of), "share", "the same at 10, of one category of questions"));
    }
    Ok(figures)
}

/// Adds a conversation to a space; returns which entry is which turn.
pub(super) async fn store(
    client: &Client,
    space: &str,
    conversation: &Conversation,
) -> Result<HashMap<String, String>, BenchError> {
    let request =
        CreateSpace { name: space.to_owned(), description: String::new(), labels: Default::default() };
    client.create_space(&request).await.map_err(BenchError::api("create a space"))?;
    let memory = client.memory(MemorySelection::now(&format!("space:{space}")));
    let mut ids = HashMap::new();
    for turns in conversation.turns.chunks(BATCH) {
        let entries = turns.iter().map(|turn| NewEntry {
            kind: "turn".to_owned(),
            session: Some(turn.session.clone()),
            at_ms: Some(turn.at_ms),
            ..NewEntry::note(turn.text.clone())
        });
        let added = memory.add(entries.collect()).await.map_err(BenchError::api("add entries"))?;
        ids.extend(added.into_iter().zip(turns).map(|(added, turn)| (added.id, turn.id.clone())));
    }
    let deadline = Instant::now() + FILL_PATIENCE;
    while memory.stats().await.map_err(BenchError::api("ask for statistics"))?.vectors.pending > 0 {
        if Instant::now() > deadline {
            return Err(BenchError::WrongAnswer { what: "vectors are still missing".to_owned() });
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(ids)
}

async fn ask(
    client: &Client,
    space: &str,
    question: &Question,
    ids: &HashMap<String, String>,
) -> Result<(QuestionResult, serde_json::Value), BenchError> {
    let memory = client.memory(MemorySelection::now(&format!("space:{space}")));
    let search = SearchMemory { query: question.text.clone(), limit: Some(20), ..SearchMemory::default() };
    let found = memory.search(&search).await.map_err(BenchError::api("search"))?;
    let hits: Vec<&str> =
        found.hits.iter().filter_map(|hit| ids.get(&hit.entry.id)).map(String::as_str).collect();
    let share = |first: usize| {
        let found = hits.iter().take(first).filter(|id| question.answered_by.contains(**id)).count();
        #[expect(clippy::cast_precision_loss, reason = "a few turns")]
        let share = found as f64 / question.answered_by.len() as f64;
        share
    };
    let asked = QuestionResult { category: question.category, at_10: share(10), at_20: share(20) };
    // Only ids: we may not copy the texts.
    let line = json!({
        "space": space, "category": asked.category, "at_10": asked.at_10, "at_20": asked.at_20,
        "answered_by": question.answered_by, "found": hits,
        "scores": found.hits.iter().map(|hit| hit.score).collect::<Vec<_>>(),
    });
    Ok((asked, line))
}

pub(super) fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    if count > 0.0 { sum / count } else { 0.0 }
}
