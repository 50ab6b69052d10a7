//! `burrow memory stats|merge|consolidate|check|rebuild`: statistics and maintenance.

use burrow_api::memory::{
    ConsolidateMemory, ConsolidatedMemory, EntryPolicy, KvPolicy, MemoryCheck, MemoryStats, MergeMemory,
    MergedMemory, SpaceAccess,
};

use super::arguments;
use super::flags::{ReadArgs, WriteArgs, WriteFlags};
use crate::commands::prelude::*;

/// Maximum number of problems shown; --json has all of them.
const PROBLEMS_SHOWN: usize = 20;

/// Merge the memory of a fork into that of its parent
///
/// Duplicates are joined. Conflicts are listed, and the state of the parent is kept until --entries or --kv decide
/// them: in this merge, or in a later one of the same fork.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow fork web --name try
  burrow memory merge web --from try --dry-run
  burrow memory merge web --from try --kv theirs
  burrow memory merge web --from try --entries both      decides the conflicts of an earlier merge")]
pub(crate) struct MergeArgs {
    #[command(flatten)]
    target: WriteFlags,
    /// Sandbox to merge from
    #[arg(long, value_name = "SANDBOX")]
    from: String,
    /// Which side wins if both changed an entry, also for conflicts of an earlier merge; by default they are listed
    #[arg(long, value_name = "WHO", value_parser = parse::one_of::<EntryPolicy>([
        parse::word("ours", "Keep the version of the parent"),
        parse::word("theirs", "Take the version of the fork"),
        parse::word("both", "Keep both versions"),
    ]))]
    entries: Option<EntryPolicy>,
    /// Which side wins if both changed a key, a skill or an artifact
    #[arg(long, value_name = "WHO", value_parser = parse::one_of::<KvPolicy>([
        parse::word("ours", "Keep the version of the parent"),
        parse::word("theirs", "Take the version of the fork"),
        parse::word("fail", "Merge nothing"),
    ]))]
    kv: Option<KvPolicy>,
    /// Only show what would happen
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    format: Format,
}

/// Compact old memory: join duplicates, summarise old sessions, move the rest to the cold tier
///
/// This also happens automatically. No data is lost: summaries cite their sources, and cold entries stay in exports, in
/// reads as of earlier, and in searches with --cold.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow memory consolidate web --dry-run
  burrow memory consolidate web --older-than 30d
  burrow memory consolidate web --keep 0.5                keep half of the entries warm")]
pub(crate) struct ConsolidateArgs {
    #[command(flatten)]
    target: WriteFlags,
    /// Only entries older than this, e.g. 30d
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    older_than: Option<Duration>,
    /// Share of the entries that stay warm
    #[arg(long, value_name = "SHARE", value_parser = arguments::share)]
    keep: Option<f32>,
    /// Maximum number of entries to examine
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    entries: Option<u64>,
    /// Time limit, e.g. 30s
    #[arg(long, value_name = "DURATION", value_parser = parse::duration_positive)]
    budget: Option<Duration>,
    /// Only show what would happen
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    format: Format,
}

pub(super) async fn stats(ctx: &Context, args: ReadArgs) -> Result<(), Stop> {
    let stats = args.target.memory(ctx)?.stats().await;
    let stats =
        stats.or_fail(|| format!("could not get the statistics of the memory of `{}`", args.target.of))?;
    args.format.show(&stats, |stats| table::facts(facts(stats)))
}

fn facts(stats: &MemoryStats) -> Vec<(&'static str, String)> {
    let space = match &stats.name {
        Some(name) => format!("{name} ({})", stats.space),
        None => stats.space.clone(),
    };
    let kinds: Vec<_> = stats.by_kind.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    let entries = match kinds.is_empty() {
        true => stats.entries.to_string(),
        false => format!("{} ({})", stats.entries, kinds.join(", ")),
    };
    let vectors = match stats.vectors.pending {
        0 => format!("{} of {}", stats.vectors.covered, stats.vectors.model),
        pending => format!("{} of {}, {pending} pending", stats.vectors.covered, stats.vectors.model),
    };
    let attached: Vec<_> = stats
        .attached
        .iter()
        .map(|attached| match attached.access {
            SpaceAccess::Read => format!("{} (read)", attached.space),
            SpaceAccess::ReadWrite => format!("{} (read-write)", attached.space),
        })
        .collect();
    let mut facts = vec![
        ("space", space),
        ("branch", stats.branch.clone()),
        ("number", stats.seq.to_string()),
        ("entries", entries),
        ("text", quantity::bytes(stats.text_bytes)),
        ("cold", stats.cold.to_string()),
        ("superseded", stats.superseded.to_string()),
        ("sessions", stats.sessions.to_string()),
        ("keys", stats.kv_keys.to_string()),
        ("skills", stats.skills.to_string()),
        ("artifacts", stats.artifacts.to_string()),
        ("vectors", vectors),
        ("attached", attached.join(", ")),
    ];
    facts.retain(|(_, value)| !value.is_empty());
    facts
}

pub(super) async fn merge(ctx: &Context, args: MergeArgs) -> Result<(), Stop> {
    let what = || format!("could not merge the memory of `{}` into that of `{}`", args.from, args.target.of);
    let request =
        MergeMemory { from: args.from.clone(), dry_run: args.dry_run, entries: args.entries, kv: args.kv };
    let merged = Progress::during("merging", args.target.memory(ctx)?.merge(&request)).await;
    let merged = merged.or_fail(what)?;
    args.format.show(&merged, |merged| print::lines(merge_lines(merged)))
}

fn merge_lines(merged: &MergedMemory) -> Vec<String> {
    let verb = if merged.dry_run { "would be " } else { "" };
    let mut lines = vec![format!(
        "{} entries {verb}added, {} joined, {} updated; {} keys, {} skills, {} artifacts merged",
        merged.added, merged.joined, merged.updated, merged.kv, merged.skills, merged.artifacts
    )];
    for both in &merged.contradictions {
        lines.push(format!(
            "conflict: {} in the parent, {} in the fork: {}",
            escape(&both.ours),
            escape(&both.theirs),
            escape(&both.why)
        ));
    }
    for key in &merged.kv_conflicts {
        let taken = match key.taken {
            KvPolicy::Ours => "ours was kept",
            KvPolicy::Theirs => "theirs was taken",
            KvPolicy::Fail => "nothing was merged",
        };
        lines.push(format!("both changed key `{}`: {taken}", escape(&key.key)));
    }
    lines
}

pub(super) async fn consolidate(ctx: &Context, args: ConsolidateArgs) -> Result<(), Stop> {
    let what = || format!("could not consolidate the memory of `{}`", args.target.of);
    let request = ConsolidateMemory {
        dry_run: args.dry_run,
        older_than_seconds: args.older_than.map(|age| age.as_secs()),
        entries: args.entries,
        budget_ms: args.budget.map(quantity::millis),
        target_share: args.keep,
    };
    let done = Progress::during("consolidating", args.target.memory(ctx)?.consolidate(&request)).await;
    let done = done.or_fail(what)?;
    args.format.show(&done, |done| print::lines(consolidation_lines(done)))
}

fn consolidation_lines(done: &ConsolidatedMemory) -> Vec<String> {
    let verb = if done.dry_run { "would be " } else { "" };
    let mut lines = vec![format!(
        "{} examined: {} {verb}joined, {} {verb}rolled up, {} {verb}cooled; {} warm before, {} after",
        done.examined, done.joined, done.rolled_up, done.cooled, done.before, done.after
    )];
    if done.fell_back > 0 {
        let count = done.fell_back;
        lines.push(format!(
            "{count} of the summaries are sentences of their sources, because the endpoint failed"
        ));
    }
    lines.extend(done.summaries.iter().map(|id| format!("summary {}", escape(id))));
    if done.more {
        lines.push("the budget was exceeded before the end: run it again".to_owned());
    }
    lines
}

pub(super) async fn check(ctx: &Context, args: WriteArgs) -> Result<(), Stop> {
    let check = Progress::during("checking", args.target.memory(ctx)?.check()).await;
    let check = check.or_fail(|| format!("could not check the memory of `{}`", args.target.of))?;
    verdict(&check, &args.target.of, args.format)
}

pub(super) async fn rebuild(ctx: &Context, args: WriteArgs) -> Result<(), Stop> {
    let check = Progress::during("rebuilding", args.target.memory(ctx)?.rebuild()).await;
    let check = check.or_fail(|| format!("could not rebuild the indices of `{}`", args.target.of))?;
    verdict(&check, &args.target.of, args.format)
}

fn verdict(check: &MemoryCheck, of: &str, format: Format) -> Result<(), Stop> {
    let (counted, mut notes) = check_lines(check);
    if !check.ok {
        notes.push(format!(
            "hint: `burrow memory rebuild {}` rebuilds the indices from the log; to repair an artifact, store the same \
             content again",
            escape(of)
        ));
    }
    format.report(check, [counted], notes)?;
    if check.ok { Ok(()) } else { Err(Stop::Exit(CODE_GENERAL)) }
}

fn check_lines(check: &MemoryCheck) -> (String, Vec<String>) {
    let parts: Vec<_> =
        check.parts.iter().map(|part| format!("{} {}", escape(&part.part), part.count)).collect();
    let word = if check.ok { "intact" } else { "damaged" };
    let counted = format!("{word}: {}", parts.join(", "));
    let mut problems: Vec<_> = check
        .problems
        .iter()
        .take(PROBLEMS_SHOWN)
        .map(|problem| format!("problem: {}", escape(problem)))
        .collect();
    if check.problems.len() > PROBLEMS_SHOWN {
        problems.push(format!("… and {} more: --json shows them", check.problems.len() - PROBLEMS_SHOWN));
    }
    (counted, problems)
}

#[cfg(test)]
mod tests {
    use super::*;
    use burrow_api::memory::{Contradiction, MemoryPart, MergeConflict, VectorCoverage};

    #[test]
    fn a_check_is_a_verdict_with_counts_followed_by_problems() {
        let part = |part: &str, count| MemoryPart { part: part.to_owned(), count };
        let mut check = MemoryCheck {
            ok: true,
            parts: vec![part("entries", 3), part("words", 3)],
            problems: Vec::new(),
            took_ms: 1,
        };
        assert_eq!(check_lines(&check), ("intact: entries 3, words 3".to_owned(), Vec::new()));
        check.ok = false;
        check.problems = (0..30).map(|n| format!("row {n}\u{1b}")).collect();
        let (counted, problems) = check_lines(&check);
        assert!(counted.starts_with("damaged: "));
        assert_eq!(problems.len(), PROBLEMS_SHOWN + 1);
        assert_eq!(problems[0], "problem: row 0\\x1b");
    }

    #[test]
    fn conflicts_of_a_merge_are_reported() {
        let merged = MergedMemory {
            dry_run: true,
            added: 2,
            joined: 1,
            updated: 0,
            contradictions: vec![Contradiction {
                ours: "mem1".to_owned(),
                theirs: "mem2".to_owned(),
                why: "both changed it".to_owned(),
            }],
            kv: 1,
            kv_conflicts: vec![MergeConflict {
                key: "plan".to_owned(),
                ours: Some("3".to_owned()),
                theirs: None,
                taken: KvPolicy::Ours,
            }],
            skills: 0,
            artifacts: 0,
        };
        assert_eq!(
            merge_lines(&merged),
            [
                "2 entries would be added, 1 joined, 0 updated; 1 keys, 0 skills, 0 artifacts merged",
                "conflict: mem1 in the parent, mem2 in the fork: both changed it",
                "both changed key `plan`: ours was kept"
            ]
        );
    }

    #[test]
    fn statistics_show_the_progress_of_vectors() {
        let stats = MemoryStats {
            space: "spc1".to_owned(),
            name: Some("ops".to_owned()),
            branch: "brn1".to_owned(),
            sandbox: None,
            seq: 9,
            entries: 7,
            by_kind: [("fact".to_owned(), 2), ("note".to_owned(), 5)].into(),
            cold: 0,
            superseded: 0,
            sessions: 1,
            kv_keys: 0,
            skills: 0,
            artifacts: 0,
            text_bytes: 4096,
            vectors: VectorCoverage { model: "builtin".to_owned(), covered: 5, pending: 2 },
            attached: Vec::new(),
        };
        let facts = facts(&stats);
        let fact =
            |name: &str| facts.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str());
        assert_eq!(fact("space"), Some("ops (spc1)"));
        assert_eq!(fact("entries"), Some("7 (fact 2, note 5)"));
        assert_eq!(fact("vectors"), Some("5 of builtin, 2 pending"));
        assert_eq!(fact("attached"), None);
    }
}
