//! The environment variables and files below `/run/e2b` by which programs recognise an E2B sandbox.
//!
//! The files are written by the first call to a sandbox after its start, and again by the first call to a fork, which
//! is another sandbox. A sandbox made from a snapshot gets them before its client gets the response. A sandbox with the
//! `mcp` option also gets the program of that option.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use burrow_engine::Guest;
use burrow_guest::protocol::{FileEntry, Request, WriteFile};
use burrow_model::{SandboxId, TenantId};
use futures_util::future::join_all;

use super::super::mcp;
use burrow_gateway::e2b::variables::variables;
use burrow_http::app::{App, Part};
use burrow_http::error::ApiError;
use burrow_http::upload::upload;

/// The directory of the files.
const FOLDER: &str = "/run/e2b";

/// Maximum number of sandboxes that are known to have the files. When it is reached, the cache is cleared, and
/// sandboxes are checked again.
const KNOWN_MAX: usize = 10_000;

/// The sandboxes that are known to have the files.
#[derive(Debug, Default)]
pub(crate) struct Marks(Mutex<HashMap<SandboxId, StoredMark>>);

#[derive(Debug)]
struct StoredMark {
    generation: u64,
    mark: Mark,
}

/// Properties of a sandbox that its commands depend on.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    pub(super) template: Arc<str>,
    /// Whether the sandbox has a default user for commands.
    pub(super) has_user: bool,
    /// Whether it has an MCP address.
    pub(super) has_mcp: bool,
}

impl Part for Marks {
    fn new(_: &App) -> Self {
        Self::default()
    }
}

impl Marks {
    /// The mark of a sandbox that got the files in this generation.
    pub(super) fn of(&self, sandbox: &SandboxId, generation: Option<u64>) -> Option<Mark> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let marked = known.get(sandbox).filter(|marked| Some(marked.generation) == generation)?;
        Some(marked.mark.clone())
    }

    fn remember(&self, sandbox: SandboxId, marked: StoredMark) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(sandbox, marked);
    }
}

/// Writes the files in a sandbox that may run programs before its first call: one with a start command, or one made
/// from a snapshot, which has the files of another sandbox. A sandbox that is not running stays asleep: a repeated
/// request may return it.
pub(crate) async fn mark(app: &App, tenant: &TenantId, sandbox: &SandboxId) {
    if app.engine.running(tenant, sandbox).is_none() {
        return;
    }
    match app.engine.guest_with_processes(tenant, sandbox).await {
        Ok(guest) => drop(put(app, &guest).await),
        Err(error) => {
            let error: &dyn std::error::Error = &error;
            tracing::debug!(%sandbox, error, "could not write the files of `{FOLDER}`; the first call will");
        }
    }
}

/// Writes the files, unless they were written.
pub(super) async fn put(app: &App, guest: &Guest) -> Mark {
    let row = guest.sandbox();
    let generation = app.engine.running(&row.tenant, &row.id);
    if let Some(mark) = app.part::<Marks>().of(&row.id, generation) {
        return mark;
    }
    let template: Arc<str> = row.spec.image.to_string().into();
    let variables = variables(&row.id, &template);
    let writes =
        variables.iter().map(|(name, value)| write(guest, format!("{FOLDER}/.{name}"), 0o644, value));
    // An image may have no `/run`, or a read-only one: then there are only the variables.
    for failed in join_all(writes).await.into_iter().filter_map(Result::err) {
        tracing::debug!(sandbox = %row.id, code = failed.code().as_str(), "could not write a file of `{FOLDER}`");
    }
    let has_mcp = mcp::is_labelled(&row.spec.labels);
    if has_mcp && let Err(failed) = write(guest, mcp::PROGRAM_PATH.to_owned(), 0o755, mcp::PROGRAM).await {
        let (sandbox, code) = (&row.id, failed.code().as_str());
        tracing::debug!(%sandbox, code, "could not write `{}`", mcp::PROGRAM_PATH);
    }
    let mark = Mark { template, has_user: row.spec.user.is_some(), has_mcp };
    if let Some(generation) = generation {
        app.part::<Marks>().remember(row.id.clone(), StoredMark { generation, mark: mark.clone() });
    }
    mark
}

async fn write(guest: &Guest, path: String, mode: u32, content: &str) -> Result<FileEntry, ApiError> {
    let write = WriteFile {
        path,
        mode: Some(mode),
        user: None,
        parents: true,
        offset: None,
        sync: false,
        in_place: false,
        metadata: None,
    };
    upload::<FileEntry>(guest, &Request::Write(write), Body::from(content.to_owned())).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restarted_sandbox_is_marked_again() {
        let (marks, sandbox) = (Marks::default(), SandboxId::generate());
        assert!(marks.of(&sandbox, Some(1)).is_none());
        let mark = Mark { template: "base".into(), has_user: true, has_mcp: false };
        marks.remember(sandbox.clone(), StoredMark { generation: 1, mark });
        let known = marks.of(&sandbox, Some(1)).unwrap();
        assert_eq!((&*known.template, known.has_user), ("base", true));
        assert!(marks.of(&sandbox, Some(2)).is_none());
        assert!(marks.of(&sandbox, None).is_none(), "it is not running");
        let set = variables(&sandbox, "base");
        assert_eq!((set["E2B_SANDBOX"].as_str(), set["E2B_SANDBOX_ID"].as_str()), ("true", sandbox.as_str()));
        assert_eq!((set.len(), set["E2B_TEMPLATE_ID"].as_str()), (4, "base"));
    }
}
