//! Checks whether an entry may be stored. Errors name the limit that was exceeded.

use serde_json::{Map, Value};

use super::types::NewEntry;
use crate::MemoryError;
use crate::limits::{KIND_BYTES_MAX, LABEL_BYTES_MAX, LINKS_MAX, METADATA_BYTES_MAX, TEXT_BYTES_MAX};

pub(crate) fn check(entry: &NewEntry) -> Result<(), MemoryError> {
    length("the text of an entry", entry.text.len(), TEXT_BYTES_MAX)?;
    if entry.text.trim().is_empty() {
        return Err(MemoryError::invalid("the text of an entry", "it is empty"));
    }
    check_kind(&entry.kind)?;
    if !(0.0..=1.0).contains(&entry.importance) {
        return Err(MemoryError::invalid("the importance of an entry", "it must be from 0 to 1"));
    }
    let labels = [
        ("the key of an entry", &entry.key),
        ("the source of an entry", &entry.source),
        ("the session of an entry", &entry.session),
        ("the user of an entry", &entry.user),
        ("the agent of an entry", &entry.agent),
    ];
    for (what, label) in labels {
        if let Some(label) = label {
            length(what, label.len(), LABEL_BYTES_MAX)?;
            if label.is_empty() {
                return Err(MemoryError::invalid(what, "it is empty: omit the field instead"));
            }
        }
    }
    check_metadata(&entry.metadata)?;
    check_lists(entry)?;
    check_times(entry)
}

fn check_kind(kind: &str) -> Result<(), MemoryError> {
    length("the kind of an entry", kind.len(), KIND_BYTES_MAX)?;
    let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_' | '.');
    if kind.is_empty() || !kind.chars().all(word) {
        let why = "it may contain only lower-case letters, digits, `-`, `_` and `.`";
        return Err(MemoryError::invalid("the kind of an entry", why));
    }
    Ok(())
}

fn check_metadata(metadata: &Map<String, Value>) -> Result<(), MemoryError> {
    if metadata.is_empty() {
        return Ok(());
    }
    let text = serde_json::to_string(metadata)
        .map_err(|error| MemoryError::invalid("the metadata of an entry", error.to_string()))?;
    length("the metadata of an entry", text.len(), METADATA_BYTES_MAX)
}

fn check_lists(entry: &NewEntry) -> Result<(), MemoryError> {
    let lists = [
        ("the list of superseded entries", entry.supersedes.len()),
        ("the list of artifacts", entry.artifacts.len()),
        ("the list of links", entry.links.len()),
    ];
    for (what, count) in lists {
        if count > LINKS_MAX {
            return Err(MemoryError::invalid(
                what,
                format!("it has {count} items, the limit is {LINKS_MAX}"),
            ));
        }
    }
    for artifact in &entry.artifacts {
        length("the name of an artifact", artifact.len(), LABEL_BYTES_MAX * 2)?;
    }
    Ok(())
}

fn check_times(entry: &NewEntry) -> Result<(), MemoryError> {
    // The largest integer of SQLite.
    let beyond = |time: Option<u64>| time.is_some_and(|time| i64::try_from(time).is_err());
    if beyond(entry.at_ms) || beyond(entry.valid_from_ms) || beyond(entry.valid_to_ms) {
        return Err(MemoryError::invalid("the time of an entry", "it is out of range"));
    }
    if let (Some(from), Some(to)) = (entry.valid_from_ms, entry.valid_to_ms)
        && from > to
    {
        return Err(MemoryError::invalid("the validity of an entry", "it ends before it begins"));
    }
    Ok(())
}

fn length(what: &'static str, bytes: usize, max: usize) -> Result<(), MemoryError> {
    if bytes > max {
        return Err(MemoryError::TooLarge { what, bytes: bytes as u64, max: max as u64 });
    }
    Ok(())
}
