//! Records an exec: as a new entry or a repetition, and closes the failures that its success ends.

use burrow_model::RememberMode;
use serde_json::{Value, json};

use super::exec::{ExecFacts, Outcome, ShapedExec, entry_of, exec_entry, shape};
use super::normal::command_likeness;
use crate::{Condition, Entry, EntryChange, Filter, MemoryError, MemoryId, NewEntry, Op, PageRequest, View};

/// The least similarity to a failed command at which a success ends that failure.
const SAME_COMMAND_MIN: f32 = 0.6;

/// Failures that were open for longer are considered abandoned, not fixed.
const OPEN_MS_MAX: u64 = 7 * 24 * 60 * 60 * 1000;

/// Open failures of one program that are examined.
const OPEN_LOOKED_AT: u32 = 20;

/// Commands and files that are stored as the fix of a failure.
const FIX_COMMANDS_MAX: usize = 5;
const FIX_FILES_MAX: usize = 10;
/// Entries of the session that are examined for them.
const FIX_LOOKED_AT: u32 = 100;

/// The prefix of keys that mark an exec as recorded, by its id. They belong to one branch; a merge does not copy them.
pub(crate) const RUN_KEY: &str = "burrow-exec-run:";

/// The result of recording an exec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedExec {
    pub id: MemoryId,
    /// The exec was a repetition and was counted.
    pub repeated: bool,
    /// Failures that this success ended.
    pub fixed: Vec<MemoryId>,
}

/// Records an exec according to the mode, once per id.
/// A success that ends a failure is stored in every mode but `Off`, because it is the solution.
pub async fn record(
    view: &View,
    facts: &ExecFacts,
    mode: RememberMode,
    session: &str,
) -> Result<Option<RecordedExec>, MemoryError> {
    if mode == RememberMode::Off {
        return Ok(None);
    }
    let shaped = shape(facts);
    let fixed = match shaped.outcome {
        Outcome::Succeeded => open_failures(view, facts, &shaped).await?,
        Outcome::Failed | Outcome::Neither => Vec::new(),
    };
    let entry = match exec_entry(facts, mode) {
        Some(entry) => entry,
        None if !fixed.is_empty() => entry_of(facts, &shaped),
        None => return Ok(None),
    };
    let links = fixed.iter().map(|failure| failure.id.clone()).collect();
    let entry = NewEntry { session: Some(session.to_owned()), links, ..entry };
    let once = facts.exec.as_ref().map(|exec| format!("{RUN_KEY}{exec}"));
    let Some(added) = view.add_or_count(entry, once).await? else { return Ok(None) };
    if added.existed {
        open_again(view, &added.id, facts, shaped.outcome).await?;
    }
    for failure in &fixed {
        close(view, failure, &added.id, facts, session).await?;
    }
    let fixed = fixed.into_iter().map(|failure| failure.id).collect();
    Ok(Some(RecordedExec { id: added.id, repeated: added.existed, fixed }))
}

/// Failures of the same command that are still open.
async fn open_failures(
    view: &View,
    facts: &ExecFacts,
    shaped: &ShapedExec,
) -> Result<Vec<Entry>, MemoryError> {
    let equals = |path: &str, value: Value| Condition { path: path.to_owned(), op: Op::Eq, value };
    let program = super::cut(&super::normal::program(&shaped.command), 100);
    let filter = Filter {
        kinds: vec!["error".to_owned()],
        metadata: vec![equals("open", json!(true)), equals("program", json!(program))],
        ..Filter::all()
    };
    let page = view.list(&filter, PageRequest::first(OPEN_LOOKED_AT)).await?;
    let same = |entry: &Entry| {
        let command = entry.metadata.get("command").and_then(Value::as_str).unwrap_or("");
        let recent = last_ms(entry).saturating_add(OPEN_MS_MAX) > facts.at_ms;
        let place = entry.metadata.get("workdir").and_then(Value::as_str);
        let here = facts.workdir.as_deref();
        // `make` in another folder is a different command.
        recent && place == here && command_likeness(command, &shaped.command) >= SAME_COMMAND_MIN
    };
    Ok(page.rows.into_iter().filter(same).collect())
}

pub(super) fn last_ms(entry: &Entry) -> u64 {
    entry.metadata.get("last_ms").and_then(Value::as_u64).unwrap_or(entry.at_ms).max(entry.at_ms)
}

/// Reopens a failure that was fixed and occurred again.
async fn open_again(
    view: &View,
    id: &MemoryId,
    facts: &ExecFacts,
    outcome: Outcome,
) -> Result<(), MemoryError> {
    if outcome != Outcome::Failed {
        return Ok(());
    }
    let entry = match view.get(id).await {
        // The failure was forgotten meanwhile.
        Err(MemoryError::NotFound { .. }) => return Ok(()),
        entry => entry?,
    };
    if entry.metadata.get("open") == Some(&json!(true)) {
        return Ok(());
    }
    let mut metadata = entry.metadata;
    metadata.insert("open".to_owned(), json!(true));
    metadata.insert("last_ms".to_owned(), json!(facts.at_ms));
    let change = EntryChange { metadata: Some(metadata), ..EntryChange::nothing() };
    view.update(id, change, None).await.map(|_| ())
}

/// Stores in a failure what ended it.
async fn close(
    view: &View,
    failure: &Entry,
    success: &MemoryId,
    facts: &ExecFacts,
    session: &str,
) -> Result<(), MemoryError> {
    let done = done_between(view, failure, facts, session).await?;
    let mut metadata = failure.metadata.clone();
    metadata.insert("open".to_owned(), json!(false));
    metadata.insert(
        "fix".to_owned(),
        json!({ "id": success.as_str(), "at_ms": facts.at_ms, "commands": done.commands, "files": done.files }),
    );
    let mut links = failure.links.clone();
    if !links.contains(success) {
        links.push(success.clone());
    }
    links.truncate(crate::limits::LINKS_MAX);
    let change = EntryChange { metadata: Some(metadata), links: Some(links), ..EntryChange::nothing() };
    match view.update(&failure.id, change, None).await {
        // The failure was forgotten meanwhile.
        Err(MemoryError::NotFound { .. }) => Ok(()),
        other => other.map(|_| ()),
    }
}

struct FixSteps {
    commands: Vec<String>,
    files: Vec<String>,
}

async fn done_between(
    view: &View,
    failure: &Entry,
    facts: &ExecFacts,
    session: &str,
) -> Result<FixSteps, MemoryError> {
    let filter = Filter {
        kinds: vec!["exec".to_owned()],
        since_ms: Some(last_ms(failure)),
        session: Some(session.to_owned()),
        ..Filter::all()
    };
    let page = view.list(&filter, PageRequest::first(FIX_LOOKED_AT)).await?;
    let mut between: Vec<Entry> = page.rows.into_iter().filter(|entry| entry.at_ms < facts.at_ms).collect();
    between.sort_by_key(|entry| (entry.at_ms, entry.seq));
    let mut done = FixSteps { commands: Vec::new(), files: Vec::new() };
    let mut commands: Vec<(u64, &str)> = between
        .iter()
        .filter_map(|entry| Some((entry.at_ms, entry.metadata.get("command")?.as_str()?)))
        .collect();
    let since_ms = last_ms(failure);
    let earlier = facts.earlier.iter().filter(|one| (since_ms..=facts.at_ms).contains(&one.at_ms));
    commands.extend(earlier.map(|one| (one.at_ms, one.command.as_str())));
    commands.sort_by_key(|(at_ms, _)| *at_ms);
    // The last commands before the success most likely fixed the failure.
    for (_, command) in commands.iter().rev() {
        let command = super::cut(command, 200);
        if done.commands.len() < FIX_COMMANDS_MAX && !done.commands.contains(&command) {
            done.commands.insert(0, command);
        }
    }
    let changed = between.iter().filter_map(|entry| entry.metadata.get("files")?.as_array()).flatten();
    let files =
        changed.filter_map(Value::as_str).map(str::to_owned).chain(facts.files_changed.iter().cloned());
    for file in files {
        if done.files.len() < FIX_FILES_MAX && !done.files.contains(&file) {
            done.files.push(super::cut(&super::secrets::scrub(&file), 200));
        }
    }
    Ok(done)
}
