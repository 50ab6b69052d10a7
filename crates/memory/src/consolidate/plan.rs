//! Plans a consolidation. Pure, so a dry run reports exactly what a run does.
//!
//! 1. Entries with the same text are joined (`twins`).
//! 2. Old sessions are rolled up: chunks of their entries get a summary that cites them, and go cold.
//!
//! Entries that stay warm: those that are young, important, open, or still being worked on, those written
//! to last (facts, decisions, tasks, notes of skills), and summaries.

use std::collections::BTreeMap;

use burrow_model::MemoryId;

use super::Policy;
use super::twins::{self, Candidate, DuplicateGroup};
use crate::Entry;

/// Kinds that become cold only as duplicates, because they were written to last.
const LASTING_KINDS: &[&str] = &["fact", "decision", "task", "todo", "open", "summary", "preference", "rule"];

/// Smaller groups are not summarised: a summary of two entries is longer than they are.
const CHUNK_MIN: usize = 4;

/// Entries to be summarised together, and the user and agent that they belong to.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct RollUp {
    /// For the summary's first line: the session, or the day.
    pub title: String,
    pub session: Option<String>,
    pub user: Option<String>,
    pub agent: Option<String>,
    /// In the order of their times.
    pub sources: Vec<MemoryId>,
}

#[derive(Clone, Debug, PartialEq, Default, serde::Serialize)]
pub struct Plan {
    pub joins: Vec<DuplicateGroup>,
    pub roll_ups: Vec<RollUp>,
}

/// Plans what to do with these warm entries now.
pub(super) fn plan(entries: &[Entry], policy: &Policy, now_ms: u64) -> Plan {
    let old = |entry: &&Entry| entry.at_ms.saturating_add(policy.older_than_ms) <= now_ms;
    let candidates: Vec<Candidate> =
        entries.iter().filter(|entry| !is_pinned(entry)).map(candidate).collect();
    let joins = match policy.join_duplicates {
        true => twins::find(&candidates, policy.near_duplicate),
        false => Vec::new(),
    };
    let gone: std::collections::HashSet<&MemoryId> = joins.iter().flat_map(|join| &join.gone).collect();
    let warm = entries.len();
    let aim =
        policy.target_share.map(|share| (warm as f64 * f64::from(share.clamp(0.0, 1.0))).floor() as usize);
    let mut left = warm - gone.len();

    let rollable = |entry: &&Entry| !gone.contains(&entry.id) && old(entry) && may_cool(entry, policy);
    let mut roll_ups = Vec::new();
    for chunk in chunks(entries.iter().filter(rollable), policy.chunk_entries) {
        if aim.is_some_and(|aim| left <= aim) {
            break;
        }
        // The summary is itself a warm entry.
        left = left - chunk.sources.len() + 1;
        roll_ups.push(chunk);
    }
    Plan { joins, roll_ups }
}

fn candidate(entry: &Entry) -> Candidate {
    Candidate {
        id: entry.id.clone(),
        text: entry.text.clone(),
        realm: (entry.kind.clone(), entry.user.clone(), entry.agent.clone()),
        at_ms: entry.at_ms,
    }
}

/// Whether the entry must stay unchanged: open work, and facts with a key.
fn is_pinned(entry: &Entry) -> bool {
    entry.metadata.get("open").and_then(serde_json::Value::as_bool) == Some(true)
        || entry.metadata.get("pinned").and_then(serde_json::Value::as_bool) == Some(true)
        || entry.kind == "summary"
}

fn may_cool(entry: &Entry, policy: &Policy) -> bool {
    !is_pinned(entry)
        && !LASTING_KINDS.contains(&entry.kind.as_str())
        && entry.importance <= policy.keep_importance_above
        && entry.superseded_by.is_none()
}

/// Groups by session (or day, where there is none), user and agent, oldest group first, cut into chunks.
fn chunks<'a>(entries: impl Iterator<Item = &'a Entry>, chunk_entries: usize) -> Vec<RollUp> {
    type Group = (String, Option<String>, Option<String>, Option<String>);
    let mut groups: BTreeMap<Group, Vec<&Entry>> = BTreeMap::new();
    for entry in entries {
        let title = match &entry.session {
            Some(session) => format!("session {session}"),
            None => format!("the day {}", crate::context::dates::iso_day(entry.at_ms)),
        };
        let group = (title, entry.session.clone(), entry.user.clone(), entry.agent.clone());
        groups.entry(group).or_default().push(entry);
    }
    let mut out: Vec<(u64, RollUp)> = Vec::new();
    for ((title, session, user, agent), mut members) in groups {
        members.sort_by_key(|entry| (entry.at_ms, entry.seq));
        for part in even_parts(&members, chunk_entries.max(CHUNK_MIN)) {
            if part.len() < CHUNK_MIN {
                continue;
            }
            out.push((
                part[0].at_ms,
                RollUp {
                    title: title.clone(),
                    session: session.clone(),
                    user: user.clone(),
                    agent: agent.clone(),
                    sources: part.iter().map(|entry| entry.id.clone()).collect(),
                },
            ));
        }
    }
    out.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| a.1.sources.cmp(&b.1.sources)));
    out.into_iter().map(|(_, roll_up)| roll_up).collect()
}

/// Parts of nearly equal length, none longer than `most`: 25 entries become 13 and 12, not 24 and 1.
fn even_parts<'a, 'b>(members: &'b [&'a Entry], most: usize) -> Vec<&'b [&'a Entry]> {
    let parts = members.len().div_ceil(most);
    if parts == 0 {
        return Vec::new();
    }
    members.chunks(members.len().div_ceil(parts)).collect()
}
