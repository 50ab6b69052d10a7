//! Entries as text: one line each in lists, all fields of a single entry.

use std::io::IsTerminal as _;

use burrow_api::memory::{ArmReport, ArmState, MemoryEntry};
use serde_json::{Map, Value};

use crate::commands::prelude::*;
use crate::print::escape::escape_lines;
use crate::terminal;

/// Width of texts if the width of the terminal is unknown, and their minimum width.
const TEXT_WIDTH: usize = 120;
const TEXT_WIDTH_MIN: usize = 24;

/// The width that the other columns of a table leave for its text.
pub(crate) fn text_width(others: usize) -> usize {
    if !std::io::stdout().is_terminal() {
        return TEXT_WIDTH;
    }
    usize::from(terminal::size().columns).saturating_sub(others).max(TEXT_WIDTH_MIN)
}

/// The start of a text on one line, escaped, no wider than `width`.
pub(crate) fn excerpt(text: &str, width: usize) -> String {
    let mut shown = String::new();
    let mut count = 0;
    for word in text.split_whitespace() {
        let word = escape(word);
        let gap = usize::from(count > 0);
        let length = word.chars().count();
        if count + gap + length > width {
            let room = width.saturating_sub(count + gap + 1);
            if gap > 0 && room > 0 {
                shown.push(' ');
            }
            shown.extend(word.chars().take(room));
            shown.push('…');
            return shown;
        }
        if gap > 0 {
            shown.push(' ');
        }
        shown.push_str(&word);
        count += gap + length;
    }
    shown
}

/// `2026-11-15 02:39`
pub(crate) fn date(at_ms: u64) -> String {
    quantity::timestamp(at_ms).chars().take(16).map(|c| if c == 'T' { ' ' } else { c }).collect()
}

/// Prints text from memory, over several lines: verbatim for programs, escaped for terminals.
pub(crate) fn verbatim(text: &str) -> Result<(), Stop> {
    if !std::io::stdout().is_terminal() {
        return print::data(text);
    }
    print::line(escape_lines(text.as_bytes()))
}

/// All fields of an entry except its text, as name and value.
pub(crate) fn facts(entry: &MemoryEntry) -> Vec<(&'static str, String)> {
    let moment = |at_ms: Option<u64>| at_ms.map(quantity::timestamp).unwrap_or_default();
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let mut facts = vec![
        ("id", entry.id.clone()),
        ("kind", entry.kind.clone()),
        ("happened", quantity::timestamp(entry.at_ms)),
        ("stored", quantity::timestamp(entry.stored_ms)),
        ("number", entry.seq.to_string()),
        ("version", entry.version.to_string()),
        ("importance", format!("{:.2}", entry.importance)),
        ("session", text(&entry.session)),
        ("source", text(&entry.source)),
        ("user", text(&entry.user)),
        ("agent", text(&entry.agent)),
        ("valid from", moment(entry.valid_from_ms)),
        ("valid to", moment(entry.valid_to_ms)),
        ("supersedes", entry.supersedes.join(", ")),
        ("superseded by", text(&entry.superseded_by)),
        ("times", if entry.count > 1 { entry.count.to_string() } else { String::new() }),
        ("artifacts", entry.artifacts.join(", ")),
        ("links", entry.links.join(", ")),
        ("metadata", metadata(&entry.metadata)),
        ("cold", if entry.cold { "yes".to_owned() } else { String::new() }),
    ];
    facts.retain(|(_, value)| !value.is_empty());
    facts
}

/// `team=a, n=3`
pub(crate) fn metadata(metadata: &Map<String, Value>) -> String {
    let pairs: Vec<_> = metadata
        .iter()
        .map(|(key, value)| match value {
            Value::String(text) => format!("{key}={text}"),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                format!("{key}={value}")
            }
        })
        .collect();
    pairs.join(", ")
}

/// The name of an arm for users.
pub(crate) fn arm_name(arm: &str) -> &str {
    match arm {
        "lexical" => "words",
        "vector" => "meaning",
        other => other,
    }
}

/// Notes about arms that did not see all entries, so that a degraded search is visible.
pub(crate) fn missing_arms(arms: &[ArmReport]) -> Vec<String> {
    arms.iter()
        .filter_map(|report| {
            let arm = escape(arm_name(&report.arm));
            match report.state {
                ArmState::Took | ArmState::Off => None,
                ArmState::Down => {
                    let why = report.reason.as_deref().unwrap_or("no reason was given");
                    Some(format!("note: the search arm `{arm}` was not available: {}", escape(why)))
                }
                ArmState::Partial => {
                    let share = report.covered.unwrap_or_default() * 100.0;
                    Some(format!(
                        "note: the search arm `{arm}` covers {share:.0} % of the entries so far; indexing continues"
                    ))
                }
            }
        })
        .collect()
}

#[cfg(test)]
pub(crate) fn example(id: &str, text: &str) -> MemoryEntry {
    MemoryEntry {
        id: id.to_owned(),
        seq: 7,
        version: 1,
        text: text.to_owned(),
        kind: "note".to_owned(),
        metadata: Map::new(),
        importance: 0.5,
        source: None,
        session: None,
        user: None,
        agent: None,
        at_ms: 1_794_710_393_000,
        stored_ms: 1_794_710_393_000,
        valid_from_ms: None,
        valid_to_ms: None,
        supersedes: Vec::new(),
        superseded_by: None,
        count: 1,
        artifacts: Vec::new(),
        links: Vec::new(),
        cold: false,
        branch: "brn".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_one_escaped_line_that_fits() {
        for (text, width, shown) in [
            ("one two three", 20, "one two three"),
            ("one\n\n two\tthree ", 20, "one two three"),
            ("one two three", 9, "one two…"),
            ("one two three", 10, "one two t…"),
            ("abcdefgh", 4, "abc…"),
            ("\u{1b}[2Jgone", 20, "\\x1b[2Jgone"),
            ("", 4, ""),
        ] {
            assert_eq!(excerpt(text, width), shown, "{text:?}");
            assert!(excerpt(text, width).chars().count() <= width);
        }
    }

    #[test]
    fn only_known_fields_are_shown() {
        let facts = facts(&example("mem1", "x"));
        assert!(facts.iter().all(|(name, _)| *name != "session"));
        assert_eq!(date(1_794_710_393_000), "2026-11-15 02:39");
    }

    #[test]
    fn an_arm_that_did_not_see_everything_is_named() {
        let arm =
            |arm: &str, state| ArmReport { arm: arm.to_owned(), state, reason: None, covered: Some(0.25) };
        let down = ArmReport { reason: Some("refused\u{1b}".to_owned()), ..arm("vector", ArmState::Down) };
        assert_eq!(
            missing_arms(&[arm("lexical", ArmState::Took), down, arm("vector", ArmState::Partial)]),
            [
                "note: the search arm `meaning` was not available: refused\\x1b",
                "note: the search arm `meaning` covers 25 % of the entries so far; indexing continues"
            ]
        );
    }
}
