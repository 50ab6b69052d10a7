//! `burrow merge`: merges the changes of a fork into its parent.

use burrow_api::{
    DiffNode, FileConflict, FileKind, MergeMemoryPolicy, MergePolicy, MergeReport, MergeRule, MergeSandbox,
};

use crate::commands::prelude::*;
use crate::print::paint::{self, Colour, paint};

/// Maximum number of paths shown of each kind; `--json` has all of them.
const SHOWN_MAX: usize = 30;

/// Merge the changes of a fork into the sandbox it came from
///
/// This is a three-way merge: the changes of the child since the common snapshot are applied to the parent. If both
/// changed a path differently, there is a conflict, and nothing is merged until a policy decides it. The parent may be
/// running: files are replaced atomically, and files that processes have open are reported. A snapshot of the parent is
/// taken first, so that a merge can be undone. The memory of the child is merged too.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow merge web-1 --into web                show the changes, and ask
  burrow merge web-1 --into web --yes          merge without asking
  burrow merge web-1 --into web --dry-run      only show the changes
  burrow merge web-1 --into web --policy '*.md=union' --policy '/srv/app/**=text' --policy theirs
  burrow snapshot restore SNAPSHOT --in-place web     undo; the output names the snapshot

Policies: fail (report a conflict), ours (keep the parent's version), theirs (take the child's version), union (lines of
both), text (line by line; a conflict if both changed the same lines). A policy without a pattern applies to all other
paths. Several children are merged in order. Exits with 1 if there are conflicts.")]
pub(crate) struct MergeArgs {
    /// Forks to merge
    #[arg(value_name = "CHILD", required = true)]
    children: Vec<String>,
    /// Sandbox to merge into
    #[arg(long, value_name = "PARENT")]
    into: String,
    /// Only show what would happen
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
    /// Policy for paths that both changed: GLOB=POLICY, or POLICY for all others; may be repeated, the first match
    /// counts
    #[arg(long = "policy", value_name = "[GLOB=]POLICY", value_parser = rule)]
    policies: Vec<(Option<String>, MergePolicy)>,
    /// Include noise: caches, temporary files, logs, pid files
    #[arg(long)]
    all: bool,
    /// Policy for the memory of the child: none, list, ours, theirs, both, fail
    #[arg(long, value_name = "POLICY", value_parser = memory_policy, default_value = "list")]
    memory: MergeMemoryPolicy,
    #[command(flatten)]
    format: Format,
}

pub(super) fn rule(text: &str) -> Result<(Option<String>, MergePolicy), String> {
    // A pattern may contain `=`.
    let (glob, word) = match text.rsplit_once('=') {
        Some((glob, word)) => (Some(glob.to_owned()), word),
        None => (None, text),
    };
    let policy = MergePolicy::ALL.into_iter().find(|policy| policy.as_str() == word);
    let policy = policy.ok_or_else(|| format!("`{word}` is not one of fail, ours, theirs, union, text"))?;
    Ok((glob, policy))
}

/// The policies of patterns, and the policy of all other paths.
pub(super) fn split(policies: Vec<(Option<String>, MergePolicy)>) -> (Vec<MergeRule>, MergePolicy) {
    let (mut rules, mut otherwise) = (Vec::new(), MergePolicy::Fail);
    for (glob, policy) in policies {
        match glob {
            Some(glob) => rules.push(MergeRule { glob, policy }),
            None => otherwise = policy,
        }
    }
    (rules, otherwise)
}

pub(super) fn memory_policy(text: &str) -> Result<MergeMemoryPolicy, String> {
    let policy = MergeMemoryPolicy::ALL.into_iter().find(|policy| policy.as_str() == text);
    policy.ok_or_else(|| format!("`{text}` is not one of none, list, ours, theirs, both, fail"))
}

pub(crate) async fn run(ctx: &Context, args: MergeArgs) -> Result<(), Stop> {
    let [child] = &args.children[..] else {
        return fail(
            "several children cannot be merged at once",
            "merge them one after the other: each merge is based on the previous one",
        );
    };
    let (policies, policy) = split(args.policies);
    let request = MergeSandbox {
        child: child.clone(),
        dry_run: args.dry_run,
        policies,
        policy,
        all: args.all,
        memory: args.memory,
    };
    if !args.dry_run && !args.yes {
        ask::require_terminal("could not merge", "add --yes, or preview with --dry-run")?;
        let foreseen = merge(ctx, &args.into, &MergeSandbox { dry_run: true, ..request.clone() }).await?;
        print::data(&shown(&foreseen, paint::colours_on_stdout()))?;
        if !foreseen.conflicts.is_empty() {
            return Err(conflicts(&foreseen));
        }
        if foreseen.total == 0 && !brings_memory(&foreseen) {
            return Ok(());
        }
        if !ask::confirm(&format!("Merge this into `{}`?", escape(&args.into)))? {
            return Err(Stop::Exit(CODE_GENERAL));
        }
    }
    let merged = merge(ctx, &args.into, &request).await?;
    report(&merged, &args.into, args.format)
}

/// Reports the result of a merge. A merge with conflicts is a failure.
pub(super) fn report(merged: &MergeReport, into: &str, format: Format) -> Result<(), Stop> {
    format.report(merged, shown(merged, paint::colours_on_stdout()).lines(), notes(merged, into))?;
    if merged.conflicts.is_empty() { Ok(()) } else { Err(conflicts(merged)) }
}

async fn merge(ctx: &Context, into: &str, request: &MergeSandbox) -> Result<MergeReport, Stop> {
    let merged =
        Progress::during(&format!("merging {}", request.child), ctx.client()?.merge_sandbox(into, request))
            .await;
    merged.or_fail(|| format!("could not merge `{}` into `{into}`", request.child))
}

fn conflicts(merged: &MergeReport) -> Stop {
    let count = quantity::count(merged.conflicts.len() as u64, "conflict", "conflicts");
    Failure::new(format!("{count}: nothing was merged"))
        .hint("decide with --policy 'GLOB=ours' (or theirs, union, text), or change one of the two sandboxes")
        .into()
}

fn brings_memory(merged: &MergeReport) -> bool {
    merged.memory.as_ref().is_some_and(|memory| {
        memory.added + memory.joined + memory.updated + memory.kv + memory.skills + memory.artifacts > 0
    })
}

/// The changes and the conflicts.
fn shown(merged: &MergeReport, colours: bool) -> String {
    let mut text = String::new();
    let kinds = [
        ("added", '+', Colour::Good),
        ("changed", '~', Colour::Asleep),
        ("merged", 'm', Colour::Asleep),
        ("deleted", '-', Colour::Bad),
    ];
    for (kind, sign, colour) in kinds {
        let paths = merged.changes.get(kind).map(Vec::as_slice).unwrap_or_default();
        for path in paths.iter().take(SHOWN_MAX) {
            push(&mut text, &format!("{sign} {}", escape(path)), colour, colours);
        }
        if paths.len() > SHOWN_MAX {
            push(
                &mut text,
                &format!("{sign} … and {} more {kind}", paths.len() - SHOWN_MAX),
                Colour::Faint,
                colours,
            );
        }
    }
    for moved in merged.moved.iter().take(SHOWN_MAX) {
        let line = format!("> the change of {} is applied to {}", escape(&moved.from), escape(&moved.to));
        push(&mut text, &line, Colour::Faint, colours);
    }
    for conflict in merged.conflicts.iter().take(SHOWN_MAX) {
        push(&mut text, &conflict_line(conflict), Colour::Bad, colours);
        for (label, node) in
            [("base", &conflict.base), ("ours", &conflict.ours), ("theirs", &conflict.theirs)]
        {
            text.push_str(&format!("    {label:7}{}\n", side(node.as_ref())));
        }
    }
    text
}

fn push(text: &mut String, line: &str, colour: Colour, colours: bool) {
    text.push_str(&if colours { paint(line, colour) } else { line.to_owned() });
    text.push('\n');
}

fn conflict_line(conflict: &FileConflict) -> String {
    format!("! {}: {}", escape(&conflict.path), conflict.kind.words())
}

fn side(node: Option<&DiffNode>) -> String {
    let Some(node) = node else { return "missing".to_owned() };
    let what = match (node.kind, &node.target) {
        (FileKind::Directory, _) => "directory".to_owned(),
        (FileKind::Symlink, target) => format!("→ {}", escape(target.as_deref().unwrap_or_default())),
        (FileKind::File, _) => quantity::bytes(node.size),
        (FileKind::Other, _) => "special file".to_owned(),
    };
    format!("{what}, mode {}, owner {}:{}", node.mode, node.uid, node.gid)
}

/// Notes about the merge.
fn notes(merged: &MergeReport, into: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let paths = quantity::count(merged.total, "path", "paths");
    match (merged.applied, merged.conflicts.is_empty()) {
        (true, _) => lines.push(format!(
            "{paths} merged into `{}`, which was paused for {}",
            escape(into),
            quantity::pause(merged.pause_us)
        )),
        (false, true) if merged.dry_run && merged.total > 0 => lines.push(format!("{paths} would be merged")),
        (false, true) => lines.push("nothing to merge".to_owned()),
        (false, false) => {}
    }
    if let Some(memory) = merged.memory.as_ref().filter(|_| brings_memory(merged)) {
        lines.push(format!(
            "memory: {} added, {} updated, {} unchanged, {} keys, {} skills, {} artifacts",
            memory.added, memory.updated, memory.joined, memory.kv, memory.skills, memory.artifacts
        ));
    }
    for open in merged.open.iter().take(SHOWN_MAX) {
        lines.push(format!(
            "{} is open in {} ({}), which uses the old file until it opens it again",
            escape(&open.path),
            escape(&open.program),
            open.pid
        ));
    }
    let noise: u64 = merged.noise.iter().map(|noise| noise.count).sum();
    if noise > 0 {
        lines.push(format!("left out as noise: {noise} paths (--all includes them)"));
    }
    if let Some(undo) = &merged.undo {
        lines.push(format!("undo: burrow snapshot restore {} --in-place {}", escape(&undo.id), escape(into)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_applies_to_a_pattern_or_to_all_paths() {
        assert_eq!(rule("theirs"), Ok((None, MergePolicy::Theirs)));
        assert_eq!(rule("/a=b/**=text"), Ok((Some("/a=b/**".to_owned()), MergePolicy::Text)));
        assert!(rule("*.md=mine").is_err());
        assert_eq!(memory_policy("both"), Ok(MergeMemoryPolicy::Both));
        assert!(memory_policy("some").is_err());
    }

    #[test]
    fn conflicts_show_all_three_sides() {
        let node = DiffNode {
            kind: FileKind::File,
            size: 3,
            mode: "0644".to_owned(),
            uid: 0,
            gid: 0,
            target: None,
            xattrs: Vec::new(),
        };
        let conflict = FileConflict {
            path: "/a\u{7}".to_owned(),
            kind: burrow_api::MergeConflictKind::DeletedByTheirs,
            base: Some(node.clone()),
            ours: Some(node),
            theirs: None,
        };
        assert_eq!(conflict_line(&conflict), "! /a\\x07: the child deleted what the parent changed");
        assert_eq!(side(conflict.base.as_ref()), "3 B, mode 0644, owner 0:0");
        assert_eq!(side(conflict.theirs.as_ref()), "missing");
    }
}
