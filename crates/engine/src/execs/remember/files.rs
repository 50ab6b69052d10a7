//! Finds the files that an exec changed in its working directory.

use burrow_guest::client::parse;
use burrow_guest::protocol::{self, Frame, ListFiles, Request};
use burrow_memory::remember::ExecFacts;

use super::GUEST_PATIENCE;
use crate::Guest;

/// Limits of the search: deep enough for a project, small enough to be fast.
const FILES_DEPTH: u32 = 4;
const FILES_LISTED_MAX: u32 = 5_000;
const FILES_CHANGED_MAX: usize = 100;

/// Files in the working directory that are newer than the exec. No request waits for this, and an incomplete result is
/// acceptable.
pub(super) async fn files_changed(guest: &Guest, facts: &ExecFacts, started_ms: u64) -> Vec<String> {
    let folder = match facts.workdir.as_deref() {
        Some("/") => return Vec::new(),
        Some(folder) => folder.to_owned(),
        // The same default as the guest's. A missing directory contains no files.
        None => home_of(facts.user.as_deref()),
    };
    // Only files in the requested directory count, whatever the guest lists; hidden directories, such as caches, do not.
    let wanted = |path: &str| {
        let within = path.strip_prefix(folder.trim_end_matches('/'));
        within.is_some_and(|rest| rest.starts_with('/') && !rest.contains("/."))
    };
    let since_ms = i64::try_from(started_ms).unwrap_or(i64::MAX);
    let list = ListFiles { path: folder.clone(), depth: FILES_DEPTH, entries_max: FILES_LISTED_MAX };
    let listed = tokio::time::timeout(GUEST_PATIENCE, listed(guest, list)).await;
    let mut changed: Vec<String> = listed
        .unwrap_or_default()
        .into_iter()
        .filter(|entry| entry.kind == protocol::FileKind::File && entry.modified_ms >= since_ms)
        .filter(|entry| wanted(&entry.path))
        .map(|entry| entry.path)
        .collect();
    changed.sort();
    changed.truncate(FILES_CHANGED_MAX);
    changed
}

/// The directory in which a process without a working directory starts.
fn home_of(user: Option<&str>) -> String {
    match user.unwrap_or("root").split(':').next().unwrap_or_default() {
        "" | "root" | "0" => "/root".to_owned(),
        name => format!("/home/{name}"),
    }
}

async fn listed(guest: &Guest, list: ListFiles) -> Vec<protocol::FileEntry> {
    let mut found = Vec::new();
    let Ok(mut connection) = guest.open(&Request::ListStream(list)).await else { return found };
    if guest.reply::<()>(&mut connection).await.is_err() {
        return found;
    }
    let (mut reader, _writer) = connection.split();
    while let Ok(Some(Frame::Control(json))) = reader.next().await {
        match parse::<Vec<protocol::FileEntry>>(&json) {
            Ok(entries) => found.extend(entries),
            Err(_) => break,
        }
    }
    found
}
