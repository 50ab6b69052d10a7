//! Tools for copies of the sandbox: fork, compare, merge, delete.

use std::fmt::Write as _;

use burrow_api::{
    ChangeKind, Diff, DiffRequest, ForkSandbox, MergePolicy, MergeReport, MergeSandbox, OriginKind,
};
use burrow_client::Client;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::{tool, tool_router};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::paging;
use crate::results::{TextResult, failed, json};
use crate::server::Server;

/// Maximum number of paths that are listed, of each kind; the others are counted.
const NAMED_MAX: usize = 50;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Fork {
    /// Number of copies; 1 if absent.
    #[schemars(range(min = 1, max = 64))]
    count: Option<u32>,
    /// Delete the copies after this time; never if absent.
    #[schemars(range(min = 1, max = 31_536_000))]
    ttl_seconds: Option<u64>,
    /// A fork; your own sandbox if absent.
    #[schemars(length(min = 1, max = 63))]
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Compare {
    /// The state before: a snapshot or a sandbox; if absent, the state in which `to` was forked.
    #[schemars(length(min = 1, max = 300))]
    from: Option<String>,
    /// The state after: a fork or a snapshot; your own sandbox if absent.
    #[schemars(length(min = 1, max = 300))]
    to: Option<String>,
    /// Only paths that match one of these patterns, such as `*.py` or `/srv/**`.
    #[serde(default)]
    #[schemars(length(max = 100), inner(length(min = 1, max = 1024)))]
    globs: Vec<String>,
    /// Also return the lines.
    #[serde(default)]
    lines: bool,
    /// From an earlier answer; 0 if absent.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100_000_000))]
    offset: usize,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(super) enum OnConflict {
    // Documented at the field: descriptions of the values would make the schema four times as long.
    #[default]
    Fail,
    Ours,
    Theirs,
    Union,
    Text,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Merge {
    /// The fork to merge, by name or id.
    #[schemars(length(min = 1, max = 63))]
    from: String,
    /// The target sandbox; your own if absent.
    #[schemars(length(min = 1, max = 63))]
    into: Option<String>,
    /// If both changed a file: `fail` (the default), keep `ours` (the target's) or `theirs`, keep the lines of both (`union`),
    /// or merge by lines (`text`).
    #[serde(default)]
    on_conflict: OnConflict,
    /// Only report what would happen.
    #[serde(default)]
    dry_run: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Delete {
    /// A fork, by name or id.
    #[schemars(length(min = 1, max = 63))]
    sandbox: String,
}

#[tool_router(router = fork_tools, vis = "pub(crate)")]
impl Server {
    /// Copy the running sandbox, with files, processes and memory, to try something in the copies. Returns their ids, to be
    /// passed as `sandbox`.
    #[tool(annotations(title = "Fork the sandbox", destructive_hint = false))]
    async fn sandbox_fork(&self, Parameters(fork): Parameters<Fork>) -> TextResult {
        let (client, sandbox) = self.which(fork.sandbox).await?;
        let request = ForkSandbox {
            count: fork.count.unwrap_or(1),
            names: Vec::new(),
            files_only: false,
            labels: None,
            ephemeral: false,
            ttl_seconds: fork.ttl_seconds,
        };
        let forked = client.fork_sandbox(&sandbox, &request).await;
        let forked = forked.map_err(failed("fork the sandbox"))?;
        let mut lines: Vec<String> = forked.children.into_iter().map(|child| child.id).collect();
        lines.extend(forked.failed.into_iter().map(|why| format!("failed: {}", why.message)));
        Ok(lines.join("\n"))
    }

    /// List the files that differ: what a fork changed itself (only `to` given), or what changed since a snapshot.
    #[tool(annotations(title = "Compare", read_only_hint = true))]
    async fn sandbox_diff(&self, Parameters(compare): Parameters<Compare>) -> TextResult {
        let (client, to) = self.which(compare.to).await?;
        let from = match compare.from {
            Some(from) => from,
            None => fork_point(&client, &to).await?,
        };
        let request =
            DiffRequest { from, to, globs: compare.globs, all: false, content: compare.lines, limit: None };
        let diff = client.diff(&request).await.map_err(failed("compare"))?;
        paging::page(&shown(&diff), compare.offset)
    }

    /// Merge a fork into the sandbox that it was forked from: its files, and what it remembers.
    #[tool(annotations(title = "Merge a fork", destructive_hint = true))]
    async fn sandbox_merge(&self, Parameters(merge): Parameters<Merge>) -> TextResult {
        let (client, parent) = self.which(merge.into).await?;
        let request = MergeSandbox {
            child: merge.from,
            dry_run: merge.dry_run,
            policy: merge.on_conflict.into(),
            ..MergeSandbox::default()
        };
        let merged = client.merge_sandbox(&parent, &request).await;
        outcome(&merged.map_err(failed("merge the fork"))?)
    }

    /// Delete a fork, with everything in it.
    #[tool(annotations(title = "Delete a fork", destructive_hint = true))]
    async fn sandbox_delete_fork(&self, Parameters(delete): Parameters<Delete>) -> TextResult {
        let (client, own) = self.own.reach().await?;
        let found = client.sandbox(&delete.sandbox).await.map_err(failed("find the fork"))?;
        if own == found.id {
            return Err("that is your own sandbox, which this tool cannot delete".to_owned());
        }
        // A mistake of the model must not delete the sandbox of another conversation.
        if found.origin.as_ref().is_none_or(|origin| origin.kind != OriginKind::Fork) {
            return Err(format!("`{}` is not a fork: this tool deletes only forks", delete.sandbox));
        }
        client.delete_sandbox(&found.id).await.map_err(failed("delete the fork"))?;
        Ok(format!("deleted {}", found.id))
    }
}

impl From<OnConflict> for MergePolicy {
    fn from(choice: OnConflict) -> Self {
        match choice {
            OnConflict::Fail => Self::Fail,
            OnConflict::Ours => Self::Ours,
            OnConflict::Theirs => Self::Theirs,
            OnConflict::Union => Self::Union,
            OnConflict::Text => Self::Text,
        }
    }
}

/// The snapshot in which a fork began. What its parent changed since then is no change of the fork.
async fn fork_point(client: &Client, sandbox: &str) -> Result<String, String> {
    let found = client.sandbox(sandbox).await.map_err(failed("find the fork"))?;
    match found.origin {
        Some(origin) if origin.kind == OriginKind::Fork => Ok(origin.snapshot),
        Some(_) | None => Err(format!(
            "`{sandbox}` is not a fork: give `from`, a snapshot (`sandbox_snapshot` takes one) or another sandbox"
        )),
    }
}

fn shown(diff: &Diff) -> String {
    if diff.entries.is_empty() {
        return "no difference".to_owned();
    }
    let mut text = format!("{} added, {} changed, {} deleted", diff.added, diff.changed, diff.deleted);
    for entry in &diff.entries {
        let change = match entry.change {
            ChangeKind::Added => "added",
            ChangeKind::Changed => "changed",
            ChangeKind::Deleted => "deleted",
        };
        let what: Vec<&str> = entry.what.iter().map(|aspect| aspect.as_str()).collect();
        let what = if what.is_empty() { String::new() } else { format!(" ({})", what.join(", ")) };
        let _ = write!(text, "\n{change}  {}{what}", entry.path);
        if let Some(lines) = &entry.lines {
            let cut = if lines.cut {
                "\n[… more lines differ: call `sandbox_diff` with this path as the only glob …]"
            } else {
                ""
            };
            let _ = write!(text, "\n{}{cut}", lines.hunks.trim_end());
        }
    }
    if diff.cut {
        text.push_str("\n[… more paths differ: restrict them with `globs` …]");
    }
    text
}

fn outcome(merged: &MergeReport) -> TextResult {
    let mut text = match (merged.applied, merged.dry_run, merged.conflicts.is_empty()) {
        (true, _, _) => format!("merged {} paths of {}", merged.total, merged.child),
        (false, true, true) => format!("would merge {} paths of {}", merged.total, merged.child),
        (false, false, true) => "there was nothing to merge".to_owned(),
        (false, _, false) => {
            format!("nothing was merged: {} paths were changed on both sides", merged.conflicts.len())
        }
    };
    for conflict in merged.conflicts.iter().take(NAMED_MAX) {
        let _ = write!(text, "\nconflict  {}", conflict.path);
    }
    for (change, paths) in &merged.changes {
        for path in paths.iter().take(NAMED_MAX) {
            let _ = write!(text, "\n{change}  {path}");
        }
        if paths.len() > NAMED_MAX {
            let _ = write!(text, "\n[… {} more {change} …]", paths.len() - NAMED_MAX);
        }
    }
    if let Some(undo) = &merged.undo {
        let _ = write!(text, "\nto undo the merge, `sandbox_restore` {}", undo.id);
    }
    if let Some(memory) = merged.memory.as_ref().filter(|memory| !memory.contradictions.is_empty()) {
        let contradictions = json(&memory.contradictions)?;
        let (contradictions, whole) = paging::beginning(&contradictions, 4000);
        let more = if whole { "" } else { "…" };
        let _ = write!(text, "\nmemories of both that contradict each other: {contradictions}{more}");
    }
    if merged.conflicts.is_empty() || merged.dry_run {
        return Ok(text);
    }
    Err(format!("{text}\nhint: change one side, or set `on_conflict` to `text`, `ours`, `theirs` or `union`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(conflicts: &[&str], applied: bool) -> MergeReport {
        let conflicts: Vec<_> = conflicts
            .iter()
            .map(|path| serde_json::json!({ "path": path, "kind": "both-changed", "base": null, "ours": null, "theirs": null }))
            .collect();
        serde_json::from_value(serde_json::json!({
            "id": null, "parent": "sbx1", "child": "sbx2", "base": "snp1", "dry_run": false, "applied": applied,
            "undo": null, "changes": { "added": ["/a"] }, "moved": [], "total": 1, "cut": false, "conflicts": conflicts,
            "open": [], "noise": [], "memory": null, "pause_us": 0,
        }))
        .unwrap()
    }

    #[test]
    fn a_merge_with_conflicts_names_them_and_gives_a_hint() {
        let answer = outcome(&merged(&["/b"], false)).unwrap_err();
        assert!(
            answer.contains("conflict  /b") && answer.contains("hint: ") && answer.contains("`theirs`"),
            "{answer}"
        );
        assert_eq!(outcome(&merged(&[], true)).unwrap(), "merged 1 paths of sbx2\nadded  /a");
    }
}
