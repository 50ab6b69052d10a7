//! Stores the messages of an agent loop, one entry per message, each only once.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::message::Message;
use super::secrets::scrub;
use crate::limits::{BATCH_MAX, TEXT_BYTES_MAX};
use crate::{MemoryError, MemoryId, NewEntry, View};

/// The participants, for filters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Participants {
    pub user: Option<String>,
    pub agent: Option<String>,
}

/// The result of storing messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMessages {
    pub session: String,
    pub added: usize,
    /// Messages that an earlier call stored: a loop may pass its whole conversation each time.
    pub known: usize,
    pub ids: Vec<MemoryId>,
}

/// Stores messages in their order.
pub async fn turn(
    view: &View,
    messages: &[Message],
    session: &str,
    who: &Participants,
) -> Result<StoredMessages, MemoryError> {
    let entries = turn_entries(messages, session, who);
    if entries.len() > BATCH_MAX {
        return Err(MemoryError::invalid(
            "the turn",
            format!("it has {} parts, the limit is {BATCH_MAX}", entries.len()),
        ));
    }
    let added = if entries.is_empty() { Vec::new() } else { view.add(entries).await? };
    let known = added.iter().filter(|added| added.existed).count();
    Ok(StoredMessages {
        session: session.to_owned(),
        added: added.len() - known,
        known,
        ids: added.into_iter().map(|added| added.id).collect(),
    })
}

/// The entries of messages; pure. A message that is too long for one entry becomes several, split between lines.
fn turn_entries(messages: &[Message], session: &str, who: &Participants) -> Vec<NewEntry> {
    let mut seen: HashMap<(String, String), usize> = HashMap::new();
    let mut entries = Vec::new();
    for message in messages {
        let text = scrub(&message.content);
        if text.trim().is_empty() {
            continue;
        }
        // The same text twice in one conversation is two messages; the same conversation passed again adds none.
        let nth = seen.entry((message.role.clone(), text.clone().into_owned())).or_default();
        *nth += 1;
        let parts = parts_of(&text);
        let of = parts.len();
        for (part, text) in parts.into_iter().enumerate() {
            let role = super::cut(&message.role.to_lowercase(), 32);
            let key = key(session, &role, text, *nth, part);
            entries.push(NewEntry {
                key: Some(key),
                kind: "turn".to_owned(),
                metadata: metadata(&role, part, of),
                source: Some(role),
                session: Some(session.to_owned()),
                user: who.user.clone(),
                agent: who.agent.clone(),
                ..NewEntry::note(text)
            });
        }
    }
    entries
}

fn metadata(role: &str, part: usize, of: usize) -> Map<String, Value> {
    let mut metadata = Map::new();
    metadata.insert("role".to_owned(), json!(role));
    if of > 1 {
        metadata.insert("part".to_owned(), json!(part + 1));
        metadata.insert("parts".to_owned(), json!(of));
    }
    metadata
}

fn key(session: &str, role: &str, text: &str, nth: usize, part: usize) -> String {
    let mut hash = blake3::Hasher::new();
    for field in [session, role, text] {
        hash.update(&(field.len() as u64).to_le_bytes());
        hash.update(field.as_bytes());
    }
    hash.update(&(nth as u64).to_le_bytes());
    hash.update(&(part as u64).to_le_bytes());
    format!("turn:{}", &hash.finalize().to_hex().as_str()[..40])
}

fn parts_of(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while rest.len() > TEXT_BYTES_MAX {
        let mut end = TEXT_BYTES_MAX;
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        // Split at the end of a line, unless that would leave most of the entry unused.
        let end =
            rest[..end].rfind('\n').map(|at| at + 1).filter(|at| *at > TEXT_BYTES_MAX / 2).unwrap_or(end);
        parts.push(&rest[..end]);
        rest = &rest[end..];
    }
    parts.push(rest);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(role: &str, content: &str) -> Message {
        Message { role: role.to_owned(), content: content.to_owned() }
    }

    const WHO: Participants = Participants { user: None, agent: None };

    fn keys(messages: &[Message], session: &str) -> Vec<String> {
        turn_entries(messages, session, &WHO).into_iter().filter_map(|entry| entry.key).collect()
    }

    #[test]
    fn a_repeated_conversation_has_the_same_keys() {
        let first = keys(&[said("user", "hi"), said("assistant", "yes")], "s");
        let longer = keys(
            &[said("user", "hi"), said("assistant", "yes"), said("user", "hi"), said("assistant", "yes")],
            "s",
        );
        assert_eq!(first, longer[..2]);
        assert_ne!(longer[0], longer[2], "said twice");
        assert_ne!(first, keys(&[said("user", "hi"), said("assistant", "yes")], "t"));
        assert_ne!(keys(&[said("user", "hi")], "s"), keys(&[said("assistant", "hi")], "s"));
    }

    #[test]
    fn empty_messages_are_left_out_and_secrets_go() {
        let entries = turn_entries(&[said("user", " \n"), said("user", "my password=hunter2")], "s", &WHO);
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].text, "my password=[secret removed]");
        assert_eq!(entries[0].source.as_deref(), Some("user"));
    }

    #[test]
    fn a_message_longer_than_an_entry_becomes_several() {
        let long = "line of text é\n".repeat(20_000);
        let entries = turn_entries(&[said("tool", &long)], "s", &WHO);
        assert!(entries.len() > 1 && entries.iter().all(|entry| entry.text.len() <= TEXT_BYTES_MAX));
        assert_eq!(entries.iter().map(|entry| entry.text.as_str()).collect::<String>(), long);
        assert_eq!(entries[1].metadata["part"], 2);
    }
}
