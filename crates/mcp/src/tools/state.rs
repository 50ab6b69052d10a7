//! Tools for the whole sandbox: snapshots, restore, sleep, status.

use burrow_api::{CreateSnapshot, RestoreSandbox, Snapshot};
use burrow_client::SnapshotQuery;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::{tool, tool_router};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::paging;
use crate::results::{TextResult, failed, lines};
use crate::server::Server;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TakeSnapshot {
    /// Lower-case letters, digits and hyphens; unique.
    #[schemars(length(min = 1, max = 63))]
    name: Option<String>,
    /// What this state is, for later.
    #[serde(default)]
    #[schemars(length(max = 4096))]
    description: String,
    /// Leave out running processes.
    #[serde(default)]
    files_only: bool,
    /// A fork; your own sandbox if absent.
    #[schemars(length(min = 1, max = 63))]
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Restore {
    /// Name or id.
    #[schemars(length(min = 1, max = 63))]
    snapshot: String,
    /// Restore only the files, and boot from them.
    #[serde(default)]
    files_only: bool,
    /// A fork; your own sandbox if absent.
    #[schemars(length(min = 1, max = 63))]
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Snapshots {
    /// Offset in a long list, from an earlier answer; 0 if absent.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100_000_000))]
    offset: usize,
    /// A fork; your own sandbox if absent.
    #[schemars(length(min = 1, max = 63))]
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SandboxArgument {
    /// A fork; your own sandbox if absent.
    #[schemars(length(min = 1, max = 63))]
    sandbox: Option<String>,
}

#[tool_router(router = state_tools, vis = "pub(crate)")]
impl Server {
    /// Save the current state of the whole sandbox: files, running processes and memory. Takes milliseconds.
    #[tool(annotations(title = "Take a snapshot", destructive_hint = false))]
    async fn sandbox_snapshot(&self, Parameters(take): Parameters<TakeSnapshot>) -> TextResult {
        let (client, sandbox) = self.which(take.sandbox).await?;
        let request = CreateSnapshot {
            name: take.name,
            description: take.description,
            files_only: take.files_only,
            ..CreateSnapshot::default()
        };
        let taken = client.create_snapshot(&sandbox, &request).await;
        let taken = taken.map_err(failed("take the snapshot"))?;
        Ok(format!(
            "snapshot taken: {}\n`sandbox_restore` restores it, `sandbox_diff` shows what has changed since",
            line(&taken)
        ))
    }

    /// List the snapshots of the sandbox.
    #[tool(annotations(title = "List snapshots", read_only_hint = true))]
    async fn sandbox_snapshot_list(&self, Parameters(wanted): Parameters<Snapshots>) -> TextResult {
        let (client, sandbox) = self.which(wanted.sandbox).await?;
        let query = SnapshotQuery { sandbox: Some(sandbox), ..SnapshotQuery::default() };
        let found = client.all_snapshots(&query).await.map_err(failed("list the snapshots"))?;
        paging::page(&lines(found.iter().map(line).collect(), "none yet"), wanted.offset)
    }

    /// Restore a snapshot: files, processes and memory return to their state at that time.
    #[tool(annotations(title = "Restore a snapshot", destructive_hint = true))]
    async fn sandbox_restore(&self, Parameters(restore): Parameters<Restore>) -> TextResult {
        let (client, sandbox) = self.which(restore.sandbox).await?;
        let request = RestoreSandbox { snapshot: restore.snapshot.clone(), files_only: restore.files_only };
        let restored = client.restore_sandbox(&sandbox, &request).await;
        restored.map_err(failed("restore the snapshot"))?;
        Ok(format!("the sandbox was restored to {}", restore.snapshot))
    }

    /// Put the sandbox to sleep: it uses no RAM or CPU, keeps its processes, and wakes by itself at the next use.
    #[tool(annotations(title = "Sleep", destructive_hint = false, idempotent_hint = true))]
    async fn sandbox_hibernate(&self, Parameters(which): Parameters<SandboxArgument>) -> TextResult {
        let (client, sandbox) = self.which(which.sandbox).await?;
        client.hibernate_sandbox(&sandbox).await.map_err(failed("put the sandbox to sleep"))?;
        Ok("asleep; any use wakes it".to_owned())
    }

    /// The sandbox's name, id, state, limits and network policy.
    #[tool(annotations(title = "Status", read_only_hint = true))]
    async fn sandbox_status(&self, Parameters(which): Parameters<SandboxArgument>) -> TextResult {
        let (client, sandbox) = self.which(which.sandbox).await?;
        let row = client.sandbox(&sandbox).await.map_err(failed("read the state of the sandbox"))?;
        paging::page(&crate::results::json(&row)?, 0)
    }
}

fn line(snapshot: &Snapshot) -> String {
    let name = snapshot.name.as_deref().unwrap_or("-");
    let contents = if snapshot.processes { "files and processes" } else { "files" };
    format!("{}  {name}  {contents}  {}", snapshot.id, snapshot.description)
}
