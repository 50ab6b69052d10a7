//! What there is: the sandboxes of who logged in, and the shells that were left open in one.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use burrow_api::{Exec, ExecState};
use burrow_client::{Client, ClientError, PageQuery, SandboxQuery};

use crate::visit::Visit;

/// Sandboxes shown to who named none, and execs looked at for shells left open: the newest.
const SHOWN_MAX: u32 = 50;
const LOOKED_AT: u32 = 100;

/// Shells offered at once.
const OFFERED_MAX: usize = 9;

/// Execs that somebody has a channel to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attached(Arc<Mutex<HashSet<String>>>);

/// Given back when the channel ends.
#[derive(Debug)]
pub(crate) struct Held {
    all: Attached,
    exec: String,
}

impl Held {
    pub(crate) fn exec(&self) -> &str {
        &self.exec
    }
}

impl Attached {
    pub(crate) fn enter(&self, exec: &str) -> Held {
        self.with(|all| all.insert(exec.to_owned()));
        Held { all: self.clone(), exec: exec.to_owned() }
    }

    fn enter_if_free(&self, exec: &str) -> Option<Held> {
        let free = self.with(|all| all.insert(exec.to_owned()));
        free.then(|| Held { all: self.clone(), exec: exec.to_owned() })
    }

    fn with<T>(&self, change: impl FnOnce(&mut HashSet<String>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.all.with(|all| all.remove(&self.exec));
    }
}

/// A shell that runs, and whom nobody talks to.
#[derive(Debug)]
pub(crate) struct LeftOpen {
    pub(crate) held: Held,
    pub(crate) started_ms: u64,
}

/// Newest first. Held from here on, so that two who come at once are not offered the same.
pub(crate) async fn left_open(visit: &Visit, sandbox: &str) -> Result<Vec<LeftOpen>, ClientError> {
    let client = visit.client();
    let newest = PageQuery { cursor: None, limit: Some(LOOKED_AT) };
    let execs = client.list_execs(sandbox, &newest).await?.items;
    let candidates: Vec<Exec> = execs.into_iter().filter(is_shell).take(OFFERED_MAX).collect();
    let mut found = Vec::new();
    for exec in candidates {
        let Some(held) = visit.shared.attached.enter_if_free(&exec.id) else { continue };
        // The list may be behind; only the sandbox itself knows, and it is about to be used anyway.
        if found.is_empty() {
            client.wake_sandbox(sandbox).await?;
        }
        let now = client.exec(sandbox, &exec.id).await?;
        if now.state == ExecState::Running {
            found.push(LeftOpen { held, started_ms: now.started_ms });
        }
    }
    Ok(found)
}

fn is_shell(exec: &Exec) -> bool {
    exec.state == ExecState::Running && exec.terminal && exec.argv == burrow_api::login_shell()
}

/// The sandboxes there are, for people.
pub(crate) async fn page(client: &Client) -> Result<String, ClientError> {
    let newest = PageQuery { cursor: None, limit: Some(SHOWN_MAX) };
    let page = client.list_sandboxes(&SandboxQuery::default(), &newest).await?;
    let mut text = String::new();
    for sandbox in &page.items {
        let name = sandbox.name.as_ref().unwrap_or(&sandbox.id);
        let _ =
            writeln!(text, "{:<32}  {:<10}  {}", shown(name), sandbox.state.as_str(), shown(&sandbox.image));
    }
    if page.items.is_empty() {
        text.push_str("there are no sandboxes yet\n");
    }
    if page.next_cursor.is_some() {
        text.push_str("… and more: `burrow ls` shows all\n");
    }
    text.push_str("log in with one's name in front of the `@`, or with `new` for a new one\n");
    Ok(text)
}

/// Without what a terminal would obey.
pub(crate) fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exec_is_offered_to_one_at_a_time() {
        let attached = Attached::default();
        let held = attached.enter("exe1");
        assert!(attached.enter_if_free("exe1").is_none());
        drop(held);
        let held = attached.enter_if_free("exe1").unwrap();
        assert_eq!(held.exec(), "exe1");
        assert!(attached.enter_if_free("exe2").is_some());
    }
}
