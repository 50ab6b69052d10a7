//! The machine as a whole: snapshots, forks, sleep.

use burrow_api::{CreateSnapshot, ForkSandbox, RestoreSandbox, Snapshot};
use burrow_client::SnapshotQuery;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::{tool, tool_router};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::said::{Said, failed};
use crate::server::Server;

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[serde(deny_unknown_fields)]
pub(super) struct TakeSnapshot {
    /// Lower-case letters, digits and hyphens; unique.
    name: Option<String>,
    /// What state this is, for later.
    #[serde(default)]
    description: String,
    /// Leave running processes out.
    #[serde(default)]
    files_only: bool,
    /// Another sandbox, by name or id; your own when absent.
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[serde(deny_unknown_fields)]
pub(super) struct Restore {
    /// Name or id.
    snapshot: String,
    /// Leave its processes out, and boot from the files.
    #[serde(default)]
    files_only: bool,
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[serde(deny_unknown_fields)]
pub(super) struct Fork {
    /// How many; 1 when absent.
    #[schemars(range(min = 1, max = 64))]
    count: Option<u32>,
    /// Delete them this long after they were made; never when absent.
    ttl_seconds: Option<u64>,
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    /// Another sandbox, by name or id; your own when absent.
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[serde(deny_unknown_fields)]
pub(super) struct Delete {
    /// A fork, by name or id. Your own sandbox cannot be deleted from here.
    sandbox: String,
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
        Ok(format!("taken: {}", line(&taken)))
    }

    /// Snapshots of this machine, newest first.
    #[tool(annotations(title = "List snapshots", read_only_hint = true))]
    async fn snapshots(&self, Parameters(which): Parameters<Which>) -> Said {
        let sandbox = self.which(which.sandbox).await?;
        let query = SnapshotQuery { sandbox: Some(sandbox), ..SnapshotQuery::default() };
        let found = self.place.client.all_snapshots(&query).await.map_err(failed("list the snapshots"))?;
        let lines: Vec<String> = found.iter().take(200).map(line).collect();
        Ok(if lines.is_empty() { "none yet".to_owned() } else { lines.join("\n") })
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

    /// Copy the running machine, with files, processes and memory, to try something in the copies. Give a copy's id as
    /// `sandbox` to the other tools.
    #[tool(annotations(title = "Fork the machine", destructive_hint = false))]
    async fn fork(&self, Parameters(fork): Parameters<Fork>) -> Said {
        let sandbox = self.which(fork.sandbox).await?;
        let request = ForkSandbox {
            count: fork.count.unwrap_or(1),
            names: Vec::new(),
            files_only: false,
            labels: None,
            ephemeral: false,
            ttl_seconds: fork.ttl_seconds,
        };
        let forked = self.place.client.fork_sandbox(&sandbox, &request).await;
        let forked = forked.map_err(failed("fork the machine"))?;
        let mut lines: Vec<String> = forked.children.into_iter().map(|child| child.id).collect();
        lines.extend(forked.failed.into_iter().map(|why| format!("failed: {}", why.message)));
        Ok(lines.join("\n"))
    }

    /// Delete a fork that is not needed any more, with all it holds.
    #[tool(annotations(title = "Delete a fork", destructive_hint = true))]
    async fn delete_fork(&self, Parameters(delete): Parameters<Delete>) -> Said {
        let client = &self.place.client;
        let found = client.sandbox(&delete.sandbox).await.map_err(failed("look up the fork"))?;
        if self.place.known() == Some(found.id.as_str()) {
            return Err("that is your own sandbox, which cannot be deleted from here".to_owned());
        }
        client.delete_sandbox(&found.id).await.map_err(failed("delete the fork"))?;
        Ok(format!("deleted {}", found.id))
    }

    /// Put the machine to sleep: it costs nothing, keeps its processes, and wakes by itself at the next use.
    #[tool(annotations(title = "Sleep", destructive_hint = false, idempotent_hint = true))]
    async fn sleep(&self, Parameters(which): Parameters<Which>) -> Said {
        let sandbox = self.which(which.sandbox).await?;
        self.place.client.hibernate_sandbox(&sandbox).await.map_err(failed("put the machine to sleep"))?;
        Ok("asleep; any use wakes it".to_owned())
    }

    /// What the machine is and how it does: state, limits, use of CPU, RAM and disk.
    #[tool(annotations(title = "Status", read_only_hint = true))]
    async fn status(&self, Parameters(which): Parameters<Which>) -> Said {
        let sandbox = self.which(which.sandbox).await?;
        let row = self.place.client.sandbox(&sandbox).await.map_err(failed("look at the sandbox"))?;
        crate::said::json(&row)
    }
}

fn line(snapshot: &Snapshot) -> String {
    let name = snapshot.name.as_deref().unwrap_or("-");
    let kept = if snapshot.processes { "files and processes" } else { "files" };
    format!("{}  {name}  {kept}  {}", snapshot.id, snapshot.description)
}
