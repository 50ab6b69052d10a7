//! The machine as a whole: snapshots, sleep, how it does.

use burrow_api::{CreateSnapshot, RestoreSandbox, Snapshot};
use burrow_client::SnapshotQuery;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::{tool, tool_router};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::cut;
use crate::said::{Said, failed, lines};
use crate::server::Server;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TakeSnapshot {
    /// Lower-case letters, digits and hyphens; unique.
    #[schemars(length(min = 1, max = 63))]
    name: Option<String>,
    /// What state this is, for later.
    #[serde(default)]
    #[schemars(length(max = 4096))]
    description: String,
    /// Leave running processes out.
    #[serde(default)]
    files_only: bool,
    /// Another sandbox, by name or id; your own when absent.
    #[schemars(length(min = 1, max = 63))]
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Restore {
    /// Name or id.
    #[schemars(length(min = 1, max = 63))]
    snapshot: String,
    /// Leave its processes out, and boot from the files.
    #[serde(default)]
    files_only: bool,
    /// Another sandbox, by name or id; your own when absent.
    #[schemars(length(min = 1, max = 63))]
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Snapshots {
    /// Where to read on in a long list, as an earlier answer told it; 0 when absent.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100_000_000))]
    offset: usize,
    /// Another sandbox, by name or id; your own when absent.
    #[schemars(length(min = 1, max = 63))]
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    /// Another sandbox, by name or id; your own when absent.
    #[schemars(length(min = 1, max = 63))]
    sandbox: Option<String>,
}

#[tool_router(router = state_tools, vis = "pub(crate)")]
impl Server {
    /// Keep the whole machine as it is now: files, running processes and memory. Takes milliseconds.
    #[tool(annotations(title = "Take a snapshot", destructive_hint = false))]
    async fn snapshot(&self, Parameters(take): Parameters<TakeSnapshot>) -> Said {
        let sandbox = self.which(take.sandbox).await?;
        let request = CreateSnapshot {
            name: take.name,
            description: take.description,
            files_only: take.files_only,
            ..CreateSnapshot::default()
        };
        let taken = self.place.client.create_snapshot(&sandbox, &request).await;
        let taken = taken.map_err(failed("take the snapshot"))?;
        Ok(format!("taken: {}\n`restore` goes back to it, `diff` shows what changed since", line(&taken)))
    }

    /// Snapshots of the machine.
    #[tool(annotations(title = "List snapshots", read_only_hint = true))]
    async fn snapshots(&self, Parameters(wanted): Parameters<Snapshots>) -> Said {
        let sandbox = self.which(wanted.sandbox).await?;
        let query = SnapshotQuery { sandbox: Some(sandbox), ..SnapshotQuery::default() };
        let found = self.place.client.all_snapshots(&query).await.map_err(failed("list the snapshots"))?;
        cut::page(&lines(found.iter().map(line).collect(), "none yet"), wanted.offset)
    }

    /// Go back to a snapshot: files, processes and memory become what they were then.
    #[tool(annotations(title = "Restore a snapshot", destructive_hint = true))]
    async fn restore(&self, Parameters(restore): Parameters<Restore>) -> Said {
        let sandbox = self.which(restore.sandbox).await?;
        let request = RestoreSandbox { snapshot: restore.snapshot.clone(), files_only: restore.files_only };
        let restored = self.place.client.restore_sandbox(&sandbox, &request).await;
        restored.map_err(failed("restore the snapshot"))?;
        Ok(format!("the machine is as it was at {}", restore.snapshot))
    }

    /// Put the machine to sleep: it costs nothing, keeps its processes, and wakes by itself at the next use.
    #[tool(annotations(title = "Sleep", destructive_hint = false, idempotent_hint = true))]
    async fn sleep(&self, Parameters(which): Parameters<Which>) -> Said {
        let sandbox = self.which(which.sandbox).await?;
        self.place.client.hibernate_sandbox(&sandbox).await.map_err(failed("put the machine to sleep"))?;
        Ok("asleep; any use wakes it".to_owned())
    }

    /// What the machine is and how it does: name, id, state, limits, network policy.
    #[tool(annotations(title = "Status", read_only_hint = true))]
    async fn status(&self, Parameters(which): Parameters<Which>) -> Said {
        let sandbox = self.which(which.sandbox).await?;
        let row = self.place.client.sandbox(&sandbox).await.map_err(failed("look at the sandbox"))?;
        cut::page(&crate::said::json(&row)?, 0)
    }
}

fn line(snapshot: &Snapshot) -> String {
    let name = snapshot.name.as_deref().unwrap_or("-");
    let kept = if snapshot.processes { "files and processes" } else { "files" };
    format!("{}  {name}  {kept}  {}", snapshot.id, snapshot.description)
}
