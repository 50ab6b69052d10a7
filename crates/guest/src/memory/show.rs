//! Results as text for people.
//!
//! Stored texts may contain anything: no control sequence of them reaches a terminal.

use std::fmt::Write as _;

use serde_json::Value;

/// Characters of an entry shown in a list.
const LINE_CHARACTERS: usize = 120;

/// A text on one line, without characters that move the cursor, change colours or reorder letters.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|each| if is_plain(each) { each } else { ' ' }).collect()
}

/// The same for several lines.
fn block(text: &str) -> String {
    text.lines().map(plain).collect::<Vec<_>>().join("\n")
}

fn is_plain(each: char) -> bool {
    // Besides control characters: those that reverse or hide text (bidirectional marks, zero width).
    !each.is_control()
        && !matches!(each, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn line(text: &str) -> String {
    let mut cut: String = plain(text).chars().take(LINE_CHARACTERS).collect();
    if text.chars().count() > LINE_CHARACTERS {
        cut.push('…');
    }
    cut
}

fn of<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

fn each(value: &Value) -> &[Value] {
    let list = ["items", "hits", "entries", "skills"].into_iter().find_map(|name| value[name].as_array());
    list.or_else(|| value.as_array()).map_or(&[], Vec::as_slice)
}

pub(super) fn added(value: &Value) -> String {
    let mut text = String::new();
    for entry in each(value) {
        let note = if entry["existed"].as_bool() == Some(true) { " (already existed)" } else { "" };
        let _ = writeln!(text, "{}{note}", of(entry, "id"));
    }
    text
}

pub(super) fn entry(value: &Value) -> String {
    format!("{}\n", block(of(value, "text")))
}

pub(super) fn entries(value: &Value) -> String {
    let mut text = String::new();
    for entry in each(value) {
        let _ = writeln!(
            text,
            "{}  {:<11} {}",
            of(entry, "id"),
            plain(of(entry, "kind")),
            line(of(entry, "text"))
        );
    }
    text
}

pub(super) fn hits(value: &Value) -> String {
    let mut text = String::new();
    for hit in each(value) {
        let (entry, score) = (&hit["entry"], hit["score"].as_f64().unwrap_or_default());
        let _ = writeln!(
            text,
            "{score:.2}  {}  {:<11} {}",
            of(entry, "id"),
            plain(of(entry, "kind")),
            line(of(entry, "text"))
        );
    }
    text
}

/// The daemon returns prompts without control characters; this makes sure of it for a terminal.
pub(super) fn text(value: &Value) -> String {
    format!("{}\n", block(of(value, "text")))
}

pub(super) fn item(value: &Value) -> String {
    match &value["value"] {
        Value::String(text) => format!("{}\n", block(text)),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            format!("{other}\n")
        }
    }
}

pub(super) fn items(value: &Value) -> String {
    let mut text = String::new();
    for item in each(value) {
        let _ = writeln!(text, "{}\t{}", plain(of(item, "key")), line(&item["value"].to_string()));
    }
    text
}

pub(super) fn names(value: &Value) -> String {
    let mut text = String::new();
    for found in each(value) {
        let thing = if found["skill"].is_object() { &found["skill"] } else { found };
        let _ = writeln!(text, "{}\t{}", plain(of(thing, "name")), line(of(thing, "description")));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn terminal_control_sequences_are_not_printed() {
        let poisoned = "a\u{1b}[31mb\r\u{7}c\u{202e}d\u{9b}2Je";
        for shown in [
            entry(&json!({ "text": poisoned })),
            entries(&json!({ "items": [{ "id": "mem", "kind": poisoned, "text": poisoned }] })),
            hits(&json!({ "hits": [{ "score": 0.5, "entry": { "id": "mem", "text": poisoned } }] })),
            text(&json!({ "text": poisoned })),
            item(&json!({ "value": poisoned })),
            items(&json!({ "items": [{ "key": poisoned, "value": poisoned }] })),
            names(&json!({ "items": [{ "name": poisoned, "description": poisoned }] })),
        ] {
            let harmful = shown.chars().filter(|c| *c != '\n' && *c != '\t').any(|c| !is_plain(c));
            assert!(!harmful, "{shown:?}");
            assert!(shown.contains('a') && shown.contains('d'), "{shown:?}");
        }
    }

    #[test]
    fn texts_keep_their_lines_and_lists_have_one_line_each() {
        assert_eq!(entry(&json!({ "text": "a\nb" })), "a\nb\n");
        let list = entries(&json!({ "items": [{ "id": "mem1", "kind": "note", "text": "a\nb" }] }));
        assert_eq!(list.lines().count(), 1);
    }
}
