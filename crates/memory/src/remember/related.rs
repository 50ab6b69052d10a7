//! Memories to show after a failure: the same failure before, and what helped.
//!
//! Few memories, and only useful ones. A caller that repeats a command knows that it failed a minute ago, but not that it
//! failed last week and was fixed by installing a package.

use serde_json::Value;

use super::exec::{ExecFacts, Outcome, ShapedExec, shape};
use super::normal::{command_likeness, features, normal_error, overlap};
use super::record::last_ms;
use super::session::SESSION_GAP_MS;
use crate::recall::{LabelledView, Search, search};
use crate::{Condition, Entry, Filter, MemoryError, MemoryId, Op, PageRequest, View};

/// The most that are shown.
const RELATED_MAX: usize = 3;

/// Characters of one excerpt: they are returned with an exec, and cost the agent tokens.
const EXCERPT_CHARACTERS_MAX: usize = 900;
const EXCERPT_BYTES_MAX: usize = 1024;

/// Below this, two failures only share a word or two by chance.
const SCORE_MIN: f32 = 0.6;

/// Failures of the same program that are compared.
const CANDIDATES_MAX: u32 = 100;

/// Search hits that are compared, to find failures of other programs and notes.
const HITS_MAX: usize = 20;

/// Words of an error that a note must contain to be related to it.
const NOTE_WORDS_MIN: usize = 3;

/// A memory that may help.
#[derive(Clone, Debug, PartialEq)]
pub struct RelatedMemory {
    pub id: MemoryId,
    pub kind: String,
    pub at_ms: u64,
    /// How often it happened.
    pub count: u64,
    /// At most a KiB of its text.
    pub excerpt: String,
    /// An explanation: what it has in common with the failure.
    pub why: String,
    /// From 0 to 1.
    pub score: f32,
    pub fixed_by: Option<FailureFix>,
}

/// The commands that fixed a failure.
#[derive(Clone, Debug, PartialEq)]
pub struct FailureFix {
    /// The exec that succeeded.
    pub id: MemoryId,
    pub at_ms: u64,
    /// The commands in between, in order.
    pub commands: Vec<String>,
    pub files: Vec<String>,
}

/// Memories worth showing beside a failed exec; none if it did not fail. `own` is the entry of this exec,
/// if it is recorded already.
pub async fn related(
    view: &View,
    facts: &ExecFacts,
    own: Option<&MemoryId>,
) -> Result<Vec<RelatedMemory>, MemoryError> {
    let shaped = shape(facts);
    if shaped.outcome != Outcome::Failed {
        return Ok(Vec::new());
    }
    let mut found: Vec<RelatedMemory> = Vec::new();
    for entry in candidates(view, &shaped).await? {
        let known = found.iter().any(|related| related.id == entry.id);
        if known || (Some(&entry.id) == own && !was_fixed(&entry)) {
            continue;
        }
        if let Some(related) = weigh(&entry, facts, &shaped)
            && is_worth_showing(&related, &entry, facts)
        {
            found.push(related);
        }
    }
    // Failures with a known fix first, then by similarity.
    found.sort_by(|a, b| {
        (b.fixed_by.is_some(), b.score)
            .partial_cmp(&(a.fixed_by.is_some(), a.score))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    found.truncate(RELATED_MAX);
    Ok(found)
}

async fn candidates(view: &View, shaped: &ShapedExec) -> Result<Vec<Entry>, MemoryError> {
    let program = super::cut(&super::normal::program(&shaped.command), 100);
    let filter = Filter {
        kinds: vec!["error".to_owned()],
        metadata: vec![Condition { path: "program".to_owned(), op: Op::Eq, value: Value::String(program) }],
        include_cold: true,
        ..Filter::all()
    };
    let mut entries = view.list(&filter, PageRequest::first(CANDIDATES_MAX)).await?.rows;
    if let Some(error) = &shaped.error {
        let query = Search {
            text: format!("{} {error}", shaped.command),
            limit: HITS_MAX,
            filter: Filter::all(),
            half_life_ms: None,
            weights: None,
            explain: false,
            include_cold: false,
            min_score: None,
        };
        let views = [LabelledView { label: String::new(), view: view.clone() }];
        let hits = search(&views, &query).await?.hits;
        entries.extend(hits.into_iter().map(|hit| hit.entry));
    }
    Ok(entries)
}

fn weigh(entry: &Entry, facts: &ExecFacts, shaped: &ShapedExec) -> Option<RelatedMemory> {
    let (score, why) = match entry.kind.as_str() {
        "error" => weigh_failure(entry, shaped)?,
        "exec" | "summary" | "turn" => return None,
        _ => weigh_note(entry, shaped)?,
    };
    (score >= SCORE_MIN && entry.at_ms <= facts.at_ms).then(|| RelatedMemory {
        id: entry.id.clone(),
        kind: entry.kind.clone(),
        at_ms: last_ms(entry),
        count: entry.count,
        excerpt: excerpt(&entry.text),
        why,
        score,
        fixed_by: fix_of(entry),
    })
}

fn weigh_failure(entry: &Entry, shaped: &ShapedExec) -> Option<(f32, String)> {
    let text = |name: &str| entry.metadata.get(name).and_then(Value::as_str);
    let command = command_likeness(text("command")?, &shaped.command);
    let (Some(theirs), Some(ours)) = (text("error"), shaped.error.as_deref()) else {
        let same = command > 0.99 && text("error").is_none() && shaped.error.is_none();
        return same.then(|| (0.7, "the same command failed without an error message".to_owned()));
    };
    let error = match normal_error(theirs) == normal_error(ours) {
        true => 1.0,
        false => overlap(&features(theirs), &features(ours)).min(0.95),
    };
    let score = 0.4 * command + 0.6 * error;
    let why = match (command > 0.99, error > 0.99) {
        (true, true) => "the same command failed with the same error",
        (false, true) => "another command failed with the same error",
        (true, false) => "the same command failed with a similar error",
        (false, false) => "a similar command failed with a similar error",
    };
    Some((score, why.to_owned()))
}

/// A note, fact or decision that contains most of the error's words.
fn weigh_note(entry: &Entry, shaped: &ShapedExec) -> Option<(f32, String)> {
    let error = features(shaped.error.as_deref()?);
    let text = features(&entry.text);
    let common = error.intersection(&text).count();
    if common < NOTE_WORDS_MIN {
        return None;
    }
    let share = common as f32 / error.len() as f32;
    Some((share, format!("it has {common} of the {} words of the error", error.len())))
}

fn is_worth_showing(related: &RelatedMemory, entry: &Entry, facts: &ExecFacts) -> bool {
    // Always if there is a fix; otherwise if it is not recent, or occurred repeatedly.
    related.fixed_by.is_some()
        || entry.kind != "error"
        || last_ms(entry).saturating_add(SESSION_GAP_MS) < facts.at_ms
        || entry.count >= 3
}

fn was_fixed(entry: &Entry) -> bool {
    entry.metadata.contains_key("fix")
}

fn fix_of(entry: &Entry) -> Option<FailureFix> {
    let fix = entry.metadata.get("fix")?;
    let list = |name: &str| -> Vec<String> {
        let values = fix.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        values.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    Some(FailureFix {
        id: fix.get("id")?.as_str()?.parse().ok()?,
        at_ms: fix.get("at_ms")?.as_u64()?,
        commands: list("commands"),
        files: list("files"),
    })
}

fn excerpt(text: &str) -> String {
    let mut cut = super::cut(text, EXCERPT_CHARACTERS_MAX);
    while cut.len() > EXCERPT_BYTES_MAX {
        cut.pop();
    }
    cut
}
