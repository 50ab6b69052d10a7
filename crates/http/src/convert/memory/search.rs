//! Converts searches of memory, and their results.

use burrow_api::defaults;
use burrow_api::memory as api;
use burrow_memory::Filter;
use burrow_memory::context::{Context, ContextRequest};
use burrow_memory::recall::{ArmReport, ArmState, Hit, ScoreBreakdown, Search, SearchOutcome, Weights};
use burrow_memory::remember::{Message, RelatedMemory, StoredMessages};

use super::entries::{filter, memory_entry};
use super::{bounded, check_query, millis};
use crate::error::ApiError;

/// Weights are relative to one another; a larger one would dominate all others.
const WEIGHT_MAX: f32 = 10.0;

pub fn search(request: &api::SearchMemory) -> Result<Search, ApiError> {
    check_query(&request.query)?;
    let limit = bounded("limit", request.limit, defaults::MEMORY_HITS, 1..=defaults::MEMORY_HITS_MAX)?;
    if request.min_score.is_some_and(|score| !(0.0..=1.0).contains(&score)) {
        return Err(ApiError::invalid("`min_score` must be from 0 to 1"));
    }
    let half_life_ms = match request.half_life_seconds {
        None => None,
        Some(0) => return Err(ApiError::invalid("`half_life_seconds` must be more than 0")),
        Some(seconds) => Some(millis("half_life_seconds", seconds)?),
    };
    let filter = request.filter.clone().map(filter).transpose()?.unwrap_or_else(Filter::all);
    Ok(Search {
        text: request.query.clone(),
        limit: limit as usize,
        include_cold: request.include_cold || filter.include_cold,
        filter,
        half_life_ms,
        weights: request.weights.map(weights).transpose()?,
        explain: request.explain,
        min_score: request.min_score,
    })
}

fn weights(given: api::SearchWeights) -> Result<Weights, ApiError> {
    let usual = Weights::usual();
    let pick = |name: &str, given: Option<f32>, usual: f32| match given {
        None => Ok(usual),
        Some(weight) if (0.0..=WEIGHT_MAX).contains(&weight) => Ok(weight),
        Some(_) => Err(ApiError::invalid(format!("`weights.{name}` must be from 0 to {WEIGHT_MAX}"))),
    };
    Ok(Weights {
        lexical: pick("lexical", given.lexical, usual.lexical)?,
        vector: pick("vector", given.vector, usual.vector)?,
        neighbours: pick("neighbours", given.neighbours, usual.neighbours)?,
        recency: pick("recency", given.recency, usual.recency)?,
        importance: pick("importance", given.importance, usual.importance)?,
    })
}

pub fn found(found: SearchOutcome) -> api::SearchResult {
    api::SearchResult {
        hits: found.hits.into_iter().map(hit).collect(),
        arms: found.arms.into_iter().map(arm).collect(),
        searched: found.searched,
        took_us: found.took_us,
    }
}

fn hit(hit: Hit) -> api::MemoryHit {
    api::MemoryHit {
        entry: memory_entry(hit.entry),
        space: hit.space,
        score: hit.score,
        why: why(hit.why),
        collapsed: hit.collapsed.into_iter().map(String::from).collect(),
    }
}

fn why(why: ScoreBreakdown) -> api::SearchWhy {
    api::SearchWhy {
        lexical: why.lexical.map(|arm| api::LexicalWhy {
            rank: arm.rank as u64,
            score: arm.score,
            terms: arm.terms,
        }),
        vector: why.vector.map(|arm| api::VectorWhy { rank: arm.rank as u64, cosine: arm.cosine }),
        neighbours: why.neighbours.map(|arm| api::NeighbourWhy {
            score: arm.score,
            ids: arm.ids.into_iter().map(String::from).collect(),
        }),
        recency: why.recency,
        importance: why.importance,
        validity: why.validity,
    }
}

fn arm(report: ArmReport) -> api::ArmReport {
    let arm = report.arm.to_string();
    let (state, reason, covered) = match report.state {
        ArmState::Took => (api::ArmState::Took, None, None),
        ArmState::Off => (api::ArmState::Off, None, None),
        ArmState::Down { reason } => (api::ArmState::Down, Some(reason), None),
        ArmState::Partial { covered } => (api::ArmState::Partial, None, Some(covered)),
    };
    api::ArmReport { arm, state, reason, covered }
}

pub fn messages(messages: Vec<api::TurnMessage>) -> Result<Vec<Message>, ApiError> {
    let mut read = Vec::with_capacity(messages.len());
    for (number, message) in messages.into_iter().enumerate() {
        let json = serde_json::to_value(message)
            .map_err(|error| ApiError::invalid(format!("`messages[{number}]` is invalid: {error}")))?;
        let unfit = || ApiError::invalid(format!("`messages[{number}]` is not a message"));
        read.push(Message::from_json(&json).ok_or_else(unfit)?);
    }
    Ok(read)
}

pub fn context_request(request: api::ContextRequest) -> Result<ContextRequest, ApiError> {
    use defaults::{CONTEXT_TOKENS, CONTEXT_TOKENS_MAX, CONTEXT_TOKENS_MIN};
    let query = request.query.filter(|query| !query.trim().is_empty());
    if let Some(query) = &query {
        check_query(query)?;
    }
    let bounds = CONTEXT_TOKENS_MIN..=CONTEXT_TOKENS_MAX;
    let budget_tokens = bounded("budget_tokens", request.budget_tokens, CONTEXT_TOKENS, bounds)?;
    Ok(ContextRequest {
        query,
        messages: messages(request.messages)?,
        budget_tokens: budget_tokens as usize,
        filter: request.filter.map(filter).transpose()?.unwrap_or_else(Filter::all),
        session: request.session,
    })
}

pub fn context_block(context: Context) -> api::ContextBlock {
    api::ContextBlock {
        text: context.text,
        used_tokens: u32::try_from(context.used_tokens).unwrap_or(u32::MAX),
        ids: context.ids.into_iter().map(String::from).collect(),
        arms: context.arms.into_iter().map(arm).collect(),
        truncated: context.truncated,
    }
}

pub fn stored_turn(turned: StoredMessages) -> api::StoredTurn {
    api::StoredTurn {
        session: turned.session,
        ids: turned.ids.into_iter().map(String::from).collect(),
        added: turned.added as u64,
    }
}

pub fn related(related: RelatedMemory) -> api::RelatedMemory {
    api::RelatedMemory {
        id: related.id.into(),
        kind: related.kind,
        text: related.excerpt,
        why: related.why,
        score: related.score,
        at_ms: related.at_ms,
        count: related.count,
        fixed_by: related.fixed_by.map(|fix| api::RelatedFix {
            id: fix.id.into(),
            at_ms: fix.at_ms,
            commands: fix.commands,
            files: fix.files,
        }),
    }
}
