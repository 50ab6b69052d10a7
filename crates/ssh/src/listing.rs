//! Lists the user's sandboxes, and the shells that were left running in one.

use std::fmt::Write as _;

use burrow_api::{Exec, ExecState};
use burrow_client::{Client, ClientError, PageQuery, SandboxQuery};

use crate::attached_execs::ExecGuard;
use crate::connection::Connection;

/// The newest sandboxes that are listed, and the newest execs that are searched for detached shells.
const SHOWN_MAX: u32 = 50;
const SEARCHED: u32 = 100;

/// Shells offered at once: each is chosen with one digit.
const OFFERED_MAX: usize = 9;

/// A running shell that no channel is attached to.
#[derive(Debug)]
pub(crate) struct DetachedShell {
    pub(crate) guard: ExecGuard,
    pub(crate) started_ms: u64,
}

/// The newest first. Each is marked as attached from now on, so that two concurrent logins are not offered the same shell.
pub(crate) async fn detached_shells(
    connection: &Connection,
    sandbox: &str,
) -> Result<Vec<DetachedShell>, ClientError> {
    let client = connection.client();
    let newest = PageQuery { cursor: None, limit: Some(SEARCHED) };
    let execs = client.list_execs(sandbox, &newest).await?.items;
    let candidates: Vec<Exec> = execs.into_iter().filter(is_shell).take(OFFERED_MAX).collect();
    let mut found = Vec::new();
    for exec in candidates {
        let Some(guard) = connection.shared.attached.insert_if_free(&exec.id) else { continue };
        // The list may be outdated; only the sandbox itself knows, and it is about to be used anyway.
        if found.is_empty() {
            client.wake_sandbox(sandbox).await?;
        }
        let now = client.exec(sandbox, &exec.id).await?;
        if now.state == ExecState::Running {
            found.push(DetachedShell { guard, started_ms: now.started_ms });
        }
    }
    Ok(found)
}

fn is_shell(exec: &Exec) -> bool {
    exec.state == ExecState::Running && exec.terminal && exec.argv == burrow_api::login_shell()
}

/// The user's sandboxes, as text for a terminal.
pub(crate) async fn sandbox_list(client: &Client) -> Result<String, ClientError> {
    let newest = PageQuery { cursor: None, limit: Some(SHOWN_MAX) };
    let sandbox_list = client.list_sandboxes(&SandboxQuery::default(), &newest).await?;
    let mut text = String::new();
    for sandbox in &sandbox_list.items {
        let name = sandbox.name.as_ref().unwrap_or(&sandbox.id);
        let _ = writeln!(
            text,
            "{:<32}  {:<10}  {}",
            printable(name),
            sandbox.state.as_str(),
            printable(&sandbox.image)
        );
    }
    if sandbox_list.items.is_empty() {
        text.push_str("no sandboxes yet\n");
    }
    if sandbox_list.next_cursor.is_some() {
        text.push_str("… more sandboxes: `burrow ls` lists all\n");
    }
    text.push_str("log in as `NAME@host` to use one, or as `new@host` to create one\n");
    Ok(text)
}

/// Without control characters, which a terminal would interpret.
pub(crate) fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(100).collect()
}
