//! Copies of the machine: fork, compare, merge, throw away.

use std::fmt::Write as _;

use burrow_api::{ChangeKind, Diff, DiffRequest, ForkSandbox, MergePolicy, MergeSandbox, Merged, OriginKind};
use rmcp::handler::server::wrapper::Parameters;
use rmcp::{tool, tool_router};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::cut;
use crate::said::{Said, failed, json};
use crate::server::Server;

/// Paths of a merge that are named, of each kind; the others are counted.
const NAMED_MAX: usize = 50;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Fork {
    /// How many; 1 when absent.
    #[schemars(range(min = 1, max = 64))]
    count: Option<u32>,
    /// Delete them this long after they were made; never when absent.
    #[schemars(range(min = 1, max = 31_536_000))]
    ttl_seconds: Option<u64>,
    /// Another sandbox, by name or id; your own when absent.
    #[schemars(length(min = 1, max = 63))]
    sandbox: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Compare {
    /// What is there before: a snapshot or a sandbox, by name or id.
    #[schemars(length(min = 1, max = 300))]
    from: String,
    /// What is there after: a snapshot or a sandbox, by name or id; your own sandbox when absent.
    #[schemars(length(min = 1, max = 300))]
    to: Option<String>,
    /// Only paths that one of these patterns matches, such as `*.py` or `/srv/**`.
    #[serde(default)]
    #[schemars(length(max = 100), inner(length(min = 1, max = 1024)))]
    globs: Vec<String>,
    /// Also the lines of text files that differ.
    #[serde(default)]
    lines: bool,
    /// Where to read on in a long answer, as an earlier one told it; 0 when absent.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100_000_000))]
    offset: usize,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum OnConflict {
    /// Nothing is merged.
    #[default]
    Fail,
    /// What is here stays.
    Ours,
    /// What the fork has comes.
    Theirs,
    /// The lines of both.
    Union,
    /// Line by line; a conflict where both changed the same lines.
    Text,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Merge {
    /// The fork whose work is brought, by name or id.
    #[schemars(length(min = 1, max = 63))]
    from: String,
    /// Where to; your own sandbox when absent.
    #[schemars(length(min = 1, max = 63))]
    into: Option<String>,
    /// What is done where both changed the same file; `fail` when absent.
    #[serde(default)]
    on_conflict: OnConflict,
    /// Only say what would happen.
    #[serde(default)]
    dry_run: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Delete {
    /// A fork, by name or id. Nothing else can be deleted from here.
    #[schemars(length(min = 1, max = 63))]
    sandbox: String,
}

#[tool_router(router = fork_tools, vis = "pub(crate)")]
impl Server {
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

    /// Which files differ between two states of the machine: since a snapshot, or between a fork and its parent.
    #[tool(annotations(title = "Compare", read_only_hint = true))]
    async fn diff(&self, Parameters(compare): Parameters<Compare>) -> Said {
        let to = self.which(compare.to).await?;
        let request = DiffRequest {
            from: compare.from,
            to,
            globs: compare.globs,
            all: false,
            content: compare.lines,
            limit: None,
        };
        let diff = self.place.client.diff(&request).await.map_err(failed("compare"))?;
        cut::page(&shown(&diff), compare.offset)
    }

    /// Bring what a fork did into the sandbox that it came from: files, and what it remembers. Where there are conflicts,
    /// nothing is changed.
    #[tool(annotations(title = "Merge a fork", destructive_hint = true))]
    async fn merge(&self, Parameters(merge): Parameters<Merge>) -> Said {
        let parent = self.which(merge.into).await?;
        let request = MergeSandbox {
            child: merge.from,
            dry_run: merge.dry_run,
            policy: merge.on_conflict.into(),
            ..MergeSandbox::default()
        };
        let merged = self.place.client.merge_sandbox(&parent, &request).await;
        outcome(&merged.map_err(failed("merge the fork"))?)
    }

    /// Delete a fork that is not needed any more, with all it holds.
    #[tool(annotations(title = "Delete a fork", destructive_hint = true))]
    async fn delete_fork(&self, Parameters(delete): Parameters<Delete>) -> Said {
        let client = &self.place.client;
        let found = client.sandbox(&delete.sandbox).await.map_err(failed("look up the fork"))?;
        if self.place.known().await?.as_ref() == Some(&found.id) {
            return Err("that is your own sandbox, which cannot be deleted from here".to_owned());
        }
        // A slip of the model's must not cost somebody the sandbox of another conversation.
        if found.origin.as_ref().is_none_or(|origin| origin.kind != OriginKind::Fork) {
            return Err(format!("`{}` is no fork: only forks can be deleted from here", delete.sandbox));
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
                "\n[… more lines differ: `diff` with this path as its only glob …]"
            } else {
                ""
            };
            let _ = write!(text, "\n{}{cut}", lines.hunks.trim_end());
        }
    }
    if diff.cut {
        text.push_str("\n[… more paths differ: narrow it with `globs` …]");
    }
    text
}

fn outcome(merged: &Merged) -> Said {
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
        let _ = write!(text, "\n`restore` of {} undoes it", undo.id);
    }
    if let Some(memory) = merged.memory.as_ref().filter(|memory| !memory.contradictions.is_empty()) {
        let told = json(&memory.contradictions)?;
        let (told, whole) = cut::beginning(&told, 4000);
        let more = if whole { "" } else { "…" };
        let _ = write!(text, "\nwhat both remember and cannot both hold: {told}{more}");
    }
    if merged.conflicts.is_empty() || merged.dry_run {
        return Ok(text);
    }
    Err(format!("{text}\nhint: change one side, or set `on_conflict` to `text`, `ours`, `theirs` or `union`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(conflicts: &[&str], applied: bool) -> Merged {
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
    fn a_merge_that_did_nothing_says_why_and_what_to_do() {
        let told = outcome(&merged(&["/b"], false)).unwrap_err();
        assert!(
            told.contains("conflict  /b") && told.contains("hint: ") && told.contains("`theirs`"),
            "{told}"
        );
        assert_eq!(outcome(&merged(&[], true)).unwrap(), "merged 1 paths of sbx2\nadded  /a");
    }
}
