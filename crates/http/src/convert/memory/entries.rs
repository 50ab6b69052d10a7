//! Converts entries, their versions and filters.

use burrow_api::ErrorCode;
use burrow_api::memory as api;
use burrow_memory::{
    AddResult, Condition, Entry, EntryChange, EraseReport, Filter, ForgetReport, NewEntry, Op, SessionInfo,
    Version,
};
use burrow_memory::{EntrySelection, VersionKind};
use burrow_model::MemoryId;

use super::millis;
use crate::error::ApiError;

/// A malformed id gets the same response as an unknown one, so that it reveals nothing.
pub fn memory_id(text: &str) -> Result<MemoryId, ApiError> {
    text.parse().map_err(|_| {
        let shown: String = text.chars().take(64).collect();
        burrow_memory::MemoryError::NotFound { what: "entry", id: shown }.into()
    })
}

fn ids(field: &str, texts: Vec<String>) -> Result<Vec<MemoryId>, ApiError> {
    let parse = |text: String| {
        text.parse().map_err(|_| {
            let shown: String = text.chars().take(64).collect();
            ApiError::new(
                ErrorCode::Unprocessable,
                format!("`{field}` contains `{shown}`, which is not an entry id"),
            )
        })
    };
    texts.into_iter().map(parse).collect()
}

pub fn new_entry(new: api::NewEntry) -> Result<NewEntry, ApiError> {
    Ok(NewEntry {
        key: new.key,
        text: new.text,
        kind: new.kind,
        metadata: new.metadata,
        importance: new.importance,
        source: new.source,
        session: new.session,
        user: new.user,
        agent: new.agent,
        at_ms: new.at_ms,
        valid_from_ms: new.valid_from_ms,
        valid_to_ms: new.valid_to_ms,
        supersedes: ids("supersedes", new.supersedes)?,
        artifacts: new.artifacts,
        links: ids("links", new.links)?,
    })
}

pub fn added_entry(added: AddResult) -> api::AddedEntry {
    api::AddedEntry {
        id: added.id.into(),
        seq: added.seq,
        existed: added.existed,
        duplicate_of: added.duplicate_of.map(String::from),
    }
}

fn strings(ids: Vec<MemoryId>) -> Vec<String> {
    ids.into_iter().map(String::from).collect()
}

pub fn memory_entry(entry: Entry) -> api::MemoryEntry {
    api::MemoryEntry {
        id: entry.id.into(),
        seq: entry.seq,
        version: entry.version,
        text: entry.text,
        kind: entry.kind,
        metadata: entry.metadata,
        importance: entry.importance,
        source: entry.source,
        session: entry.session,
        user: entry.user,
        agent: entry.agent,
        at_ms: entry.at_ms,
        stored_ms: entry.stored_ms,
        valid_from_ms: entry.valid_from_ms,
        valid_to_ms: entry.valid_to_ms,
        supersedes: strings(entry.supersedes),
        superseded_by: entry.superseded_by.map(String::from),
        count: entry.count,
        artifacts: entry.artifacts,
        links: strings(entry.links),
        cold: entry.cold,
        branch: entry.branch.into(),
    }
}

pub fn entry_change(change: api::UpdateEntry) -> Result<EntryChange, ApiError> {
    let api::UpdateEntry {
        text,
        kind,
        metadata,
        importance,
        valid_from_ms,
        valid_to_ms,
        artifacts,
        links,
        if_version: _,
    } = change;
    Ok(EntryChange {
        text,
        kind,
        metadata,
        importance,
        valid_from_ms: valid_from_ms.map(Some),
        valid_to_ms: valid_to_ms.map(Some),
        artifacts,
        links: links.map(|links| ids("links", links)).transpose()?,
        ..EntryChange::nothing()
    })
}

pub fn memory_version(version: Version) -> api::MemoryVersion {
    let Version { seq, stored_ms, branch, what } = version;
    let (change, entry, times) = match what {
        VersionKind::Written { entry } => (api::MemoryChange::Written, Some(memory_entry(*entry)), None),
        VersionKind::Forgotten => (api::MemoryChange::Forgotten, None, None),
        VersionKind::Cooled => (api::MemoryChange::Cooled, None, None),
        VersionKind::Warmed => (api::MemoryChange::Warmed, None, None),
        VersionKind::Repeated { times } => (api::MemoryChange::Repeated, None, Some(times)),
    };
    api::MemoryVersion { seq, stored_ms, branch: branch.into(), change, entry, times }
}

pub(super) fn filter(filter: api::EntryFilter) -> Result<Filter, ApiError> {
    Ok(Filter {
        kinds: filter.kinds,
        metadata: filter.metadata.into_iter().map(condition).collect(),
        since_ms: filter.since_ms,
        until_ms: filter.until_ms,
        session: filter.session,
        source: filter.source,
        user: filter.user,
        agent: filter.agent,
        ids: ids("filter.ids", filter.ids)?,
        include_cold: filter.include_cold,
        include_superseded: filter.include_superseded,
    })
}

fn condition(test: api::MetadataTest) -> Condition {
    Condition { path: test.path, op: op(test.operator), value: test.value }
}

/// Conditions on metadata in a query: a JSON list.
pub fn conditions(text: Option<&str>) -> Result<Vec<Condition>, ApiError> {
    let Some(text) = text else { return Ok(Vec::new()) };
    let tests: Vec<api::MetadataTest> = serde_json::from_str(text).map_err(|_| {
        ApiError::invalid("`metadata` is not a list of conditions")
            .hint(r#"write it as JSON, such as `[{"path":"team","operator":"eq","value":"a"}]`"#)
    })?;
    Ok(tests.into_iter().map(condition).collect())
}

fn op(operator: api::MetadataOperator) -> Op {
    match operator {
        api::MetadataOperator::Eq => Op::Eq,
        api::MetadataOperator::Ne => Op::Ne,
        api::MetadataOperator::In => Op::In,
        api::MetadataOperator::Exists => Op::Exists,
        api::MetadataOperator::Lt => Op::Lt,
        api::MetadataOperator::Gt => Op::Gt,
    }
}

/// Exactly one selector is required: a request without one must not mean all entries.
pub fn which(
    named: Vec<String>,
    by: Option<api::EntryFilter>,
    older_than_seconds: Option<u64>,
) -> Result<EntrySelection, ApiError> {
    match (named.is_empty(), by, older_than_seconds) {
        (false, None, None) => Ok(EntrySelection::Ids(ids("ids", named)?)),
        (true, Some(by), None) => {
            if by == api::EntryFilter::default() {
                let error = ApiError::invalid("`filter` is empty, and would select all entries");
                return Err(error.hint("to select all entries, give `older_than_seconds` 0"));
            }
            Ok(EntrySelection::Filter(filter(by)?))
        }
        (true, None, Some(seconds)) => {
            Ok(EntrySelection::OlderThanMs(millis("older_than_seconds", seconds)?))
        }
        _ => Err(ApiError::invalid("give exactly one of `ids`, `filter` and `older_than_seconds`")),
    }
}

pub fn forgotten(forgotten: ForgetReport, dry_run: bool) -> api::ForgottenEntries {
    api::ForgottenEntries { count: forgotten.count, ids: strings(forgotten.ids), dry_run }
}

pub fn erased(erased: EraseReport, dry_run: bool) -> api::ErasedEntries {
    api::ErasedEntries {
        count: erased.count,
        ids: strings(erased.ids),
        summaries: strings(erased.summaries),
        copies: strings(erased.copies),
        branches: erased.branches,
        dry_run,
    }
}

pub fn memory_session(session: SessionInfo) -> api::MemorySession {
    api::MemorySession {
        session: session.session,
        opened_ms: session.opened_ms,
        last_ms: session.last_ms,
        entries: session.entries,
        first: session.first_excerpt,
        last: session.last_excerpt,
        closed: session.closed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_selector_is_required() {
        let id = MemoryId::generate().to_string();
        assert!(
            matches!(which(vec![id.clone()], None, None), Ok(EntrySelection::Ids(ids)) if ids.len() == 1)
        );
        assert!(matches!(which(Vec::new(), None, Some(60)), Ok(EntrySelection::OlderThanMs(60_000))));
        let some = api::EntryFilter { kinds: vec!["note".to_owned()], ..api::EntryFilter::default() };
        assert!(matches!(which(Vec::new(), Some(some.clone()), None), Ok(EntrySelection::Filter(_))));
        for (ids, filter, age) in [
            (Vec::new(), None, None),
            (vec![id], Some(some.clone()), None),
            (Vec::new(), Some(some), Some(1)),
            (Vec::new(), Some(api::EntryFilter::default()), None),
            (Vec::new(), None, Some(u64::MAX)),
            (vec!["memnothing".to_owned()], None, None),
        ] {
            assert!(which(ids, filter, age).is_err());
        }
    }
}
