//! Answers a query, or the last messages of an agent loop, with a block for the prompt.

use std::collections::HashSet;

use super::alike::normal_text;
use super::block::{BuiltBlock, Item, Section, build};
use super::dates::{iso_minute, relative};
use super::{BUDGET_TOKENS_MAX, BUDGET_TOKENS_MIN, fence, recent_work};
use crate::consolidate::readable;
use crate::recall::{ArmReport, Hit, LabelledView, Search, search};
use crate::remember::Message;
use crate::{Entry, Filter, MemoryError, MemoryId};

/// Characters of messages that form the query: the last ones say what the conversation is about.
const QUESTION_CHARACTERS_MAX: usize = 1_500;

/// Messages that are read, from the end.
const MESSAGES_MAX: usize = 6;

/// Approximate tokens of one shown entry: determines how many hits to request.
const ENTRY_TOKENS: usize = 50;

/// Hits below this share of the best score are dropped: mostly they only share a common word.
const SCORE_SHARE_MIN: f32 = 0.25;

/// Hits that are shown with their neighbours, and the least budget for that.
const JOINED_MAX: usize = 3;
const JOINED_BUDGET_MIN: usize = 400;

/// Longer messages are understandable without their neighbours.
const SHORT_CHARACTERS: usize = 240;

#[derive(Clone, Debug, PartialEq)]
pub struct ContextRequest {
    /// The query; without it and without messages, the answer describes the recent work.
    pub query: Option<String>,
    /// The conversation so far. Entries whose text it already contains are left out.
    pub messages: Vec<Message>,
    /// From [`BUDGET_TOKENS_MIN`] to [`BUDGET_TOKENS_MAX`].
    pub budget_tokens: usize,
    pub filter: Filter,
    /// The session to describe; by default the last one.
    pub session: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Context {
    /// Empty if memory has nothing relevant.
    pub text: String,
    pub used_tokens: usize,
    /// The shown entries, in order.
    pub ids: Vec<MemoryId>,
    /// The arms of the search that took part; empty if nothing was searched.
    pub arms: Vec<ArmReport>,
    /// Something was cut or left out because of the budget.
    pub truncated: bool,
}

/// The block for a prompt.
pub async fn context(views: &[LabelledView], request: &ContextRequest) -> Result<Context, MemoryError> {
    let budget = request.budget_tokens;
    if !(BUDGET_TOKENS_MIN..=BUDGET_TOKENS_MAX).contains(&budget) {
        let why = format!("it is {budget}, and must be from {BUDGET_TOKENS_MIN} to {BUDGET_TOKENS_MAX}");
        return Err(MemoryError::invalid("the token budget", why));
    }
    let Some(question) = question(request) else {
        let sections = recent_work::sections(views, request).await?;
        return Ok(answer(build(&sections, &[], budget), Vec::new()));
    };
    let query = Search {
        text: question.clone(),
        limit: (budget / ENTRY_TOKENS).clamp(5, 100),
        filter: request.filter.clone(),
        half_life_ms: None,
        weights: None,
        explain: false,
        include_cold: request.filter.include_cold,
        min_score: None,
    };
    let found = search(views, &query).await?;
    let best = found.hits.first().map_or(0.0, |hit| hit.score);
    let said = said(&request.messages);
    let hits: Vec<&Hit> = found
        .hits
        .iter()
        .filter(|hit| hit.score >= best * SCORE_SHARE_MIN && !said.contains(&normal_text(&hit.entry.text)))
        .collect();
    let items = items(views, &hits, budget, &said).await?;
    let terms = terms(&question);
    let section = Section { title: None, items, share: 100 };
    Ok(answer(build(&[section], &terms, budget), found.arms))
}

fn answer(built: BuiltBlock, arms: Vec<ArmReport>) -> Context {
    let BuiltBlock { text, used_tokens, ids, truncated } = built;
    Context { text, used_tokens, ids, arms, truncated }
}

/// The query, or the words of the last messages: the newest words first, since a search weights all equally and the
/// limit cuts the rest.
fn question(request: &ContextRequest) -> Option<String> {
    if let Some(query) = request.query.as_deref().map(str::trim).filter(|query| !query.is_empty()) {
        return Some(query.to_owned());
    }
    let mut text = String::new();
    let spoken = request.messages.iter().rev().filter(|message| message.role != "system").take(MESSAGES_MAX);
    for message in spoken {
        let left = QUESTION_CHARACTERS_MAX.saturating_sub(text.chars().count());
        if left == 0 {
            break;
        }
        let content = message.content.trim();
        text.push_str(&content.chars().take(left).collect::<String>());
        text.push('\n');
        // A message with enough words is used alone; "yes, do that" needs the messages before it.
        if text.split_whitespace().count() >= 12 && message.role == "user" {
            break;
        }
    }
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn said(messages: &[Message]) -> HashSet<String> {
    messages.iter().map(|message| normal_text(&message.content)).collect()
}

fn terms(question: &str) -> Vec<String> {
    let words = question.to_lowercase();
    let words = words.split(|c: char| !c.is_alphanumeric()).filter(|word| word.chars().count() >= 3);
    let distinct: HashSet<&str> = words.collect();
    distinct.into_iter().take(64).map(str::to_owned).collect()
}

async fn items(
    views: &[LabelledView],
    hits: &[&Hit],
    budget: usize,
    said: &HashSet<String>,
) -> Result<Vec<Item>, MemoryError> {
    let several = views.len() > 1;
    let mut items: Vec<Item> = Vec::new();
    for (nth, hit) in hits.iter().enumerate() {
        let Some(labelled) = views.iter().find(|labelled| labelled.label == hit.space) else { continue };
        let now_ms = labelled.view.now_ms();
        let space = several.then_some(hit.space.as_str());
        let item = item(&hit.entry, Some(hit.score), space, now_ms);
        let short = hit.entry.kind == "turn" && hit.entry.text.chars().count() <= SHORT_CHARACTERS;
        if nth >= JOINED_MAX || budget < JOINED_BUDGET_MIN || !short {
            items.push(item);
            continue;
        }
        let (before, after) = neighbours(labelled, &hit.entry.id).await?;
        let quiet = |entry: &Entry| said.contains(&normal_text(&entry.text));
        items.extend(before.filter(|entry| !quiet(entry)).map(|entry| joined(&entry, "just before")));
        items.push(item);
        items.extend(after.filter(|entry| !quiet(entry)).map(|entry| joined(&entry, "just after")));
    }
    Ok(items)
}

/// The entries right before and after it in the same session.
async fn neighbours(
    labelled: &LabelledView,
    id: &MemoryId,
) -> Result<(Option<Entry>, Option<Entry>), MemoryError> {
    let id = id.clone();
    labelled
        .view
        .read(move |reader| {
            let Some(row) = reader.row_of(&id)? else { return Ok((None, None)) };
            let before = reader.entries(&reader.neighbours(row, 1, 0))?.pop();
            let after = reader.entries(&reader.neighbours(row, 0, 1))?.pop();
            Ok((before, after))
        })
        .await
}

fn joined(entry: &Entry, when: &str) -> Item {
    let by = by(entry);
    Item { id: entry.id.clone(), heading: format!("[{}] {when}{by}", entry.id), text: entry.text.clone() }
}

/// An entry with its line of labels.
pub(super) fn item(entry: &Entry, score: Option<f32>, space: Option<&str>, now_ms: u64) -> Item {
    let at_ms = entry.at_ms;
    let mut heading = format!("[{}] {} ({})", entry.id, iso_minute(at_ms), relative(at_ms, now_ms));
    heading.push_str(&format!(" · {}{}", fence::label(&entry.kind), by(entry)));
    if let Some(score) = score {
        heading.push_str(&format!(" · relevance {score:.2}"));
    }
    if entry.count > 1 {
        heading.push_str(&format!(" · {} times", entry.count));
    }
    if let Some(space) = space {
        heading.push_str(&format!(" · space {}", fence::label(space)));
    }
    if entry.superseded_by.is_some() {
        heading.push_str(" · superseded");
    }
    if entry.valid_to_ms.is_some_and(|valid_to_ms| valid_to_ms <= now_ms) {
        heading.push_str(" · no longer valid");
    }
    let text = if entry.kind == "summary" { readable(&entry.text) } else { &entry.text };
    Item { id: entry.id.clone(), heading, text: text.to_owned() }
}

fn by(entry: &Entry) -> String {
    match entry.source.as_deref().filter(|source| *source != "exec") {
        Some(source) => format!(" by {}", fence::label(source)),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(query: Option<&str>, messages: &[(&str, &str)]) -> ContextRequest {
        let message = |(role, content): &(&str, &str)| Message {
            role: (*role).to_owned(),
            content: (*content).to_owned(),
        };
        ContextRequest {
            query: query.map(str::to_owned),
            messages: messages.iter().map(message).collect(),
            budget_tokens: 1_000,
            filter: Filter::all(),
            session: None,
        }
    }

    #[test]
    fn the_query_is_the_given_one_or_the_last_messages() {
        assert_eq!(question(&request(Some(" port? "), &[("user", "hi")])).as_deref(), Some("port?"));
        assert_eq!(question(&request(None, &[])), None);
        assert_eq!(question(&request(Some("  "), &[("system", "be nice")])), None);
        let short =
            request(None, &[("user", "deploy to staging"), ("assistant", "Shall I?"), ("user", "yes")]);
        assert_eq!(question(&short).as_deref(), Some("yes\nShall I?\ndeploy to staging"));
        let long = "why does the deploy of the billing service to staging fail with a timeout again";
        assert_eq!(question(&request(None, &[("user", "old"), ("user", long)])).as_deref(), Some(long));
        let huge = "é".repeat(50_000);
        assert!(
            question(&request(None, &[("user", &huge)])).unwrap().chars().count() <= QUESTION_CHARACTERS_MAX
        );
    }
}
