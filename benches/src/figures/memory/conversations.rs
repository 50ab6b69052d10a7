//! Reads a file of LoCoMo: long conversations, and questions with the turns that answer them.
//!
//! The licence does not allow us to distribute the data; the user names the file (`LOCOMO=<file>`).

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::error::BenchError;

/// Maximum number of sessions of one conversation: the numbering has gaps, so all are tried.
const SESSIONS_MAX: usize = 100;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

pub(super) struct Conversation {
    pub(super) turns: Vec<Turn>,
    pub(super) questions: Vec<Question>,
}

pub(super) struct Turn {
    /// The id in the file: `D3:7`.
    pub(super) id: String,
    pub(super) session: String,
    pub(super) at_ms: u64,
    /// `Name: text`.
    pub(super) text: String,
}

pub(super) struct Question {
    pub(super) text: String,
    /// The category: 1 several turns together, 2 time, 3 inference, 4 one turn.
    pub(super) category: u64,
    pub(super) answered_by: BTreeSet<String>,
}

/// The conversations of a file. Questions without an answer in it (category 5) are omitted.
pub(super) fn read(path: &Path) -> Result<Vec<Conversation>, BenchError> {
    let bytes = fs::read(path).map_err(BenchError::io("read", path.display()))?;
    let wrong = || BenchError::WrongAnswer { what: format!("`{}` is not a file of LoCoMo", path.display()) };
    let file: Value = serde_json::from_slice(&bytes).map_err(|_| wrong())?;
    let all = file.as_array().ok_or_else(wrong)?;
    all.iter().map(|one| conversation(one).ok_or_else(wrong)).collect()
}

fn conversation(value: &Value) -> Option<Conversation> {
    let talk = value.get("conversation")?;
    let mut turns = Vec::new();
    for number in 1..=SESSIONS_MAX {
        let session = format!("session_{number}");
        let Some(said) = talk.get(&session).and_then(Value::as_array) else { continue };
        let began_ms = time(talk.get(format!("{session}_date_time"))?.as_str()?)?;
        for (at, turn) in said.iter().enumerate() {
            let mut text = format!("{}: {}", turn.get("speaker")?.as_str()?, turn.get("text")?.as_str()?);
            if let Some(caption) = turn.get("blip_caption").and_then(Value::as_str) {
                text += &format!(" [image: {caption}]");
            }
            // In chronological order.
            let at_ms = began_ms + u64::try_from(at).ok()? * 1000;
            turns.push(Turn {
                id: turn.get("dia_id")?.as_str()?.to_owned(),
                session: session.clone(),
                at_ms,
                text,
            });
        }
    }
    let known: HashMap<&str, ()> = turns.iter().map(|turn| (turn.id.as_str(), ())).collect();
    let mut questions = Vec::new();
    for asked in value.get("qa")?.as_array()? {
        let answered_by =
            evidence(asked).filter(|id| known.contains_key(id.as_str())).collect::<BTreeSet<_>>();
        let category = asked.get("category")?.as_u64()?;
        if category <= 4 && !answered_by.is_empty() {
            questions.push(Question {
                text: asked.get("question")?.as_str()?.to_owned(),
                category,
                answered_by,
            });
        }
    }
    Some(Conversation { turns, questions })
}

/// The ids of turns; some fields of the file contain several.
fn evidence(asked: &Value) -> impl Iterator<Item = String> + '_ {
    let fields = asked.get("evidence").and_then(Value::as_array).into_iter().flatten();
    let apart = |c: char| !(c.is_ascii_alphanumeric() || c == ':');
    fields.filter_map(Value::as_str).flat_map(move |text| text.split(apart)).map(str::to_owned)
}

/// `1:56 pm on 8 May, 2023`, to the minute.
fn time(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] = [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ];
    let (clock, date) = text.split_once(" on ")?;
    let (clock, half) = clock.split_once(' ')?;
    let (hour, minute) = clock.split_once(':')?;
    let hour = hour.parse::<i64>().ok()? % 12 + if half == "pm" { 12 } else { 0 };
    let mut words = date.split([' ', ',']).filter(|word| !word.is_empty());
    let day: i64 = words.next()?.parse().ok()?;
    let name = words.next()?;
    let month = i64::try_from(MONTHS.iter().position(|month| *month == name)?).ok()? + 1;
    let year: i64 = words.next()?.parse().ok()?;
    let days = days_since_1970(year, month, day);
    u64::try_from(days * DAY_MS + (hour * 60 + minute.parse::<i64>().ok()?) * 60_000).ok()
}

fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn times_are_read_as_the_file_writes_them() {
        assert_eq!(time("12:00 am on 1 January, 1970"), Some(0));
        assert_eq!(time("1:56 pm on 8 May, 2023"), Some(1_683_554_160_000));
        assert_eq!(time("soon"), None);
    }

    #[test]
    fn a_conversation_is_read_with_its_questions() {
        let value = json!({
            "conversation": {
                "session_1_date_time": "1:00 pm on 2 March, 2024",
                "session_1": [
                    {"speaker": "A", "dia_id": "D1:1", "text": "Hello"},
                    {"speaker": "B", "dia_id": "D1:2", "text": "Look", "blip_caption": "a dog"},
                ],
            },
            "qa": [
                {"question": "What?", "category": 4, "evidence": ["D1:2; D9:9"]},
                {"question": "None?", "category": 5, "evidence": ["D1:1"]},
                {"question": "Lost?", "category": 1, "evidence": []},
            ],
        });
        let read = conversation(&value).unwrap();
        assert_eq!(read.turns[1].text, "B: Look [image: a dog]");
        assert_eq!(read.turns[1].at_ms, read.turns[0].at_ms + 1000);
        assert_eq!(read.questions.len(), 1);
        assert_eq!(read.questions[0].answered_by, BTreeSet::from(["D1:2".to_owned()]));
    }
}
