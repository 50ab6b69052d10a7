//! What programs inside recognise an E2B sandbox by: variables of commands, and files below `/run/e2b`.
//!
//! The files are put in place by the first call to a sandbox after it was started, and again by the first to a fork, which is
//! another sandbox.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use burrow_engine::Guest;
use burrow_guest::protocol::{FileEntry, Request, WriteFile};
use burrow_model::SandboxId;
use futures_util::future::join_all;

use crate::rest::App;
use crate::rest::upload::upload;

/// Where the files are.
const FOLDER: &str = "/run/e2b";

/// Where E2B's sandboxes find its service for events. Burrow has none: what is sent there is refused.
const EVENTS_ADDRESS: &str = "http://192.0.2.1";

/// Capacity of the cache of sandboxes that have the files. When it is full it is cleared, and sandboxes are checked again.
const KNOWN_MAX: usize = 10_000;

/// Which sandboxes have the files.
#[derive(Debug, Default)]
pub(crate) struct Marks(Mutex<HashMap<SandboxId, Marked>>);

#[derive(Debug)]
struct Marked {
    generation: u64,
    mark: Mark,
}

/// What commands of a sandbox need to know of it.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    pub(super) template: Arc<str>,
    /// Whether the sandbox has a user of its own for commands that name none.
    pub(super) has_user: bool,
}

impl Marks {
    /// The mark of a sandbox that has the files since it runs as this generation.
    pub(super) fn of(&self, sandbox: &SandboxId, generation: Option<u64>) -> Option<Mark> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let marked = known.get(sandbox).filter(|marked| Some(marked.generation) == generation)?;
        Some(marked.mark.clone())
    }

    fn remember(&self, sandbox: SandboxId, marked: Marked) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(sandbox, marked);
    }
}

/// Puts the files in place, unless they are.
pub(super) async fn put(app: &App, guest: &Guest) -> Mark {
    let row = guest.sandbox();
    let generation = app.engine.running(&row.tenant, &row.id);
    if let Some(mark) = app.marks.of(&row.id, generation) {
        return mark;
    }
    let template: Arc<str> = row.spec.image.to_string().into();
    let variables = variables(&row.id, &template);
    let writes = variables.iter().map(|(name, value)| async move {
        let write = WriteFile {
            path: format!("{FOLDER}/.{name}"),
            mode: Some(0o644),
            user: None,
            parents: true,
            offset: None,
            sync: false,
            in_place: false,
            metadata: None,
        };
        upload::<FileEntry>(guest, &Request::Write(write), Body::from(value.clone())).await
    });
    // An image may have no `/run`, or one that nobody writes to: then there are only the variables.
    for failed in join_all(writes).await.into_iter().filter_map(Result::err) {
        tracing::debug!(sandbox = %row.id, code = failed.code().as_str(), "could not write a file of `{FOLDER}`");
    }
    let mark = Mark { template, has_user: row.spec.user.is_some() };
    if let Some(generation) = generation {
        app.marks.remember(row.id.clone(), Marked { generation, mark: mark.clone() });
    }
    mark
}

/// The variables of every command, and of every kernel that runs code.
pub(crate) fn variables(sandbox: &SandboxId, template: &str) -> BTreeMap<String, String> {
    let pairs = [
        ("E2B_SANDBOX", "true"),
        ("E2B_SANDBOX_ID", sandbox.as_str()),
        ("E2B_TEMPLATE_ID", template),
        ("E2B_EVENTS_ADDRESS", EVENTS_ADDRESS),
    ];
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_that_was_started_again_is_marked_again() {
        let (marks, sandbox) = (Marks::default(), SandboxId::generate());
        assert!(marks.of(&sandbox, Some(1)).is_none());
        let mark = Mark { template: "base".into(), has_user: true };
        marks.remember(sandbox.clone(), Marked { generation: 1, mark });
        let known = marks.of(&sandbox, Some(1)).unwrap();
        assert_eq!((&*known.template, known.has_user), ("base", true));
        assert!(marks.of(&sandbox, Some(2)).is_none());
        assert!(marks.of(&sandbox, None).is_none(), "it does not run");
        let set = variables(&sandbox, "base");
        assert_eq!((set["E2B_SANDBOX"].as_str(), set["E2B_SANDBOX_ID"].as_str()), ("true", sandbox.as_str()));
        assert_eq!((set.len(), set["E2B_TEMPLATE_ID"].as_str()), (4, "base"));
    }
}
