//! Converts snapshots, and requests that create sandboxes from them.

use std::collections::{BTreeMap, BTreeSet};

use burrow_api::{self as api, CreateSnapshot, ForkSandbox, SandboxFromSnapshot, defaults};
use burrow_engine::{ForkOptions, FromSnapshot, SnapshotOptions};
use burrow_model::{Change, ChangeKind, Changes, Name, Snapshot, SnapshotKind, check_description};

use super::checks::{label, name};
use super::requests::{PAIRS_MAX, check_count, expires, lifetime, update_options};
use crate::error::ApiError;

/// Includes the paths that changed.
pub fn snapshot(snapshot: Snapshot) -> api::Snapshot {
    api::Snapshot {
        id: snapshot.id.into(),
        name: snapshot.name.map(String::from),
        description: snapshot.description,
        labels: snapshot.labels,
        kind: snapshot_kind(snapshot.kind),
        sandbox_id: snapshot.sandbox.into(),
        sandbox_name: snapshot.sandbox_name.map(String::from),
        parent: snapshot.parent.map(String::from),
        image: snapshot.spec.image.into(),
        image_id: snapshot.image.into(),
        processes: snapshot.dump.is_some(),
        ram_bytes: snapshot.ram_bytes,
        disk_bytes: snapshot.disk_bytes,
        pause_us: snapshot.pause_us,
        changes: changes(snapshot.changes),
        created_ms: snapshot.created_ms,
        expires_ms: snapshot.expires_ms,
    }
}

/// In lists, without paths: a thousand paths for each of a thousand snapshots would be too much.
pub fn snapshot_listed(listed: Snapshot) -> api::Snapshot {
    let changes = Changes { paths: Vec::new(), ..listed.changes };
    snapshot(Snapshot { changes, ..listed })
}

fn changes(changes: Changes) -> api::Changes {
    let change = |change: Change| api::Change {
        path: change.path,
        kind: match change.kind {
            ChangeKind::Added => api::ChangeKind::Added,
            ChangeKind::Changed => api::ChangeKind::Changed,
            ChangeKind::Deleted => api::ChangeKind::Deleted,
        },
    };
    api::Changes {
        paths: changes.paths.into_iter().map(change).collect(),
        total: changes.total,
        more: changes.more,
        since: changes.since.map(String::from),
    }
}

pub(super) fn snapshot_kind(kind: SnapshotKind) -> api::SnapshotKind {
    match kind {
        SnapshotKind::Manual => api::SnapshotKind::Manual,
        SnapshotKind::Policy => api::SnapshotKind::Policy,
        SnapshotKind::BeforeRestore => api::SnapshotKind::BeforeRestore,
        SnapshotKind::Exec => api::SnapshotKind::Exec,
        SnapshotKind::Fork => api::SnapshotKind::Fork,
        SnapshotKind::BeforeRotate => api::SnapshotKind::BeforeRotate,
        SnapshotKind::BeforeMerge => api::SnapshotKind::BeforeMerge,
    }
}

pub fn snapshot_kind_of(kind: api::SnapshotKind) -> SnapshotKind {
    match kind {
        api::SnapshotKind::Manual => SnapshotKind::Manual,
        api::SnapshotKind::Policy => SnapshotKind::Policy,
        api::SnapshotKind::BeforeRestore => SnapshotKind::BeforeRestore,
        api::SnapshotKind::Exec => SnapshotKind::Exec,
        api::SnapshotKind::Fork => SnapshotKind::Fork,
        api::SnapshotKind::BeforeRotate => SnapshotKind::BeforeRotate,
        api::SnapshotKind::BeforeMerge => SnapshotKind::BeforeMerge,
    }
}

pub fn snapshot_options(request: CreateSnapshot, now_ms: u64) -> Result<SnapshotOptions, ApiError> {
    check_description(&request.description)
        .map_err(|error| ApiError::invalid(format!("invalid `description`: {error}")))?;
    check_labels(&request.labels)?;
    Ok(SnapshotOptions {
        name: request.name.as_deref().map(|text| name("name", text)).transpose()?,
        description: request.description,
        labels: request.labels,
        files_only: request.files_only,
        expires_ms: expires("expires_seconds", request.expires_seconds, now_ms)?,
        kind: SnapshotKind::Manual,
    })
}

pub fn from_snapshot(request: SandboxFromSnapshot, now_ms: u64) -> Result<FromSnapshot, ApiError> {
    request.labels.as_ref().map(check_labels).transpose()?;
    let change = match request.network {
        Some(network) => {
            let update = api::UpdateSandbox { network: Some(network), ..api::UpdateSandbox::default() };
            Some(Box::new(update_options(update)?))
        }
        None => None,
    };
    Ok(FromSnapshot {
        name: request.name.as_deref().map(|text| name("name", text)).transpose()?,
        files_only: request.files_only,
        labels: request.labels,
        lifetime: Some(lifetime(request.ephemeral, request.ttl_seconds, now_ms)?),
        change,
        idempotency: None,
    })
}

pub fn fork_options(request: ForkSandbox, now_ms: u64) -> Result<ForkOptions, ApiError> {
    let max = defaults::FORK_MAX;
    if !(1..=max).contains(&request.count) {
        return Err(ApiError::invalid(format!("`count` must be from 1 to {max}, not {}", request.count)));
    }
    request.labels.as_ref().map(check_labels).transpose()?;
    let count = request.count as usize;
    Ok(ForkOptions {
        count,
        names: names(&request.names, count)?,
        files_only: request.files_only,
        labels: request.labels,
        lifetime: Some(lifetime(request.ephemeral, request.ttl_seconds, now_ms)?),
    })
}

/// One name for each child, or none.
fn names(given: &[String], count: usize) -> Result<Vec<Name>, ApiError> {
    let names: Vec<Name> = match given {
        [] => return Ok(Vec::new()),
        [one] if count > 1 => {
            (1..=count).map(|number| name("names", &format!("{one}-{number}"))).collect::<Result<_, _>>()?
        }
        several if several.len() == count => {
            several.iter().map(|text| name("names", text)).collect::<Result<_, _>>()?
        }
        _ => {
            let message =
                format!("`names` must be empty, or contain one name or one for each of the {count} children");
            return Err(ApiError::invalid(message));
        }
    };
    if names.iter().collect::<BTreeSet<_>>().len() < names.len() {
        return Err(ApiError::invalid("`names` contains the same name twice"));
    }
    Ok(names)
}

fn check_labels(labels: &BTreeMap<String, String>) -> Result<(), ApiError> {
    check_count("labels", labels.len(), PAIRS_MAX)?;
    labels.iter().try_for_each(|(key, value)| label(key, value).map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fork(json: &str) -> Result<ForkOptions, ApiError> {
        fork_options(serde_json::from_str(json).expect("the request is well-formed"), 0)
    }

    #[test]
    fn children_get_the_requested_names() {
        let called = |json| fork(json).unwrap().names.into_iter().map(String::from).collect::<Vec<_>>();
        assert_eq!(called("{}"), Vec::<String>::new());
        assert_eq!(called(r#"{"names": ["a"]}"#), ["a"]);
        assert_eq!(called(r#"{"count": 2, "names": ["a"]}"#), ["a-1", "a-2"]);
        assert_eq!(called(r#"{"count": 2, "names": ["a", "b"]}"#), ["a", "b"]);
    }

    #[test]
    fn invalid_forks_are_rejected_with_their_field() {
        let long = format!(r#"{{"count": 2, "names": ["{}"]}}"#, "a".repeat(63));
        for (json, field) in [
            (r#"{"count": 0}"#, "`count`"),
            (r#"{"count": 65}"#, "`count`"),
            (r#"{"count": 3, "names": ["a", "b"]}"#, "`names`"),
            (r#"{"count": 2, "names": ["a", "a"]}"#, "`names`"),
            (r#"{"names": ["A"]}"#, "`names`"),
            (&long, "`names`"),
            (r#"{"labels": {"": "x"}}"#, "`labels`"),
            (r#"{"ttl_seconds": 0}"#, "`ttl_seconds`"),
        ] {
            let error = fork(json).unwrap_err().into_detail();
            assert!(error.message.contains(field), "{json}: {}", error.message);
        }
    }

    #[test]
    fn invalid_snapshots_are_rejected_with_their_field() {
        for (json, field) in [
            (r#"{"name": "No Good"}"#, "`name`"),
            (r#"{"description": "\u001b[31m"}"#, "`description`"),
            (r#"{"labels": {"a": "\u0007"}}"#, "`labels`"),
            (r#"{"expires_seconds": 0}"#, "`expires_seconds`"),
        ] {
            let request = serde_json::from_str(json).expect("the request is well-formed");
            let error = snapshot_options(request, 0).unwrap_err().into_detail();
            assert!(error.message.contains(field), "{json}: {}", error.message);
        }
        let request = serde_json::from_str(r#"{"expires_seconds": 60}"#).unwrap();
        assert_eq!(snapshot_options(request, 1_000).unwrap().expires_ms, Some(61_000));
    }

    #[test]
    fn a_kind_is_the_same_on_the_wire_and_in_the_catalog() {
        for kind in SnapshotKind::ALL {
            assert_eq!(snapshot_kind(kind).as_str(), kind.as_str());
            assert_eq!(snapshot_kind_of(snapshot_kind(kind)), kind);
        }
    }
}
