//! `burrow memory forget` and `erase`: out of sight, and gone for good.

use std::time::Duration;

use burrow_api::memory::{EntryFilter, EraseEntries, ErasedEntries, ForgetEntries, ForgottenEntries};
use clap::Args;

use super::flags::{FilterFlags, WriteFlags};
use crate::context::Context;
use crate::failure::{CODE_GENERAL, Failure, OrFail, Stop};
use crate::parse;
use crate::print::ask::{can_ask, confirm};
use crate::print::escape::escape;
use crate::print::{self, Format, quantity};

/// Ids of one request: what the API takes.
const IDS_MAX: usize = 1_000;

/// Forget entries: they are not found any more; earlier moments still have them
///
/// By id, by what they are (--kind, --meta and the others), or by age.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow memory forget web mem7h3k2m9pqx1c8r5v7y
  burrow memory forget web --kind observation --session nightly --dry-run
  burrow memory forget web --older-than 90d")]
pub(super) struct ForgetArgs {
    #[command(flatten)]
    which: WhichArgs,
}

/// Erase entries for good: from every version, branch, snapshot and index
///
/// For the law. Summaries that were made of them go along; entries that say the very same are named and stay. It cannot be
/// undone, and does not reach copies outside: other spaces, exports, backups, artifacts. Asks first.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow memory erase web mem7h3k2m9pqx1c8r5v7y
  burrow memory erase web --user alice --dry-run
  burrow memory erase web --user alice --yes")]
pub(super) struct EraseArgs {
    #[command(flatten)]
    which: WhichArgs,
    /// Do not ask
    #[arg(short = 'y', long)]
    yes: bool,
}

#[derive(Debug, Args)]
struct WhichArgs {
    #[command(flatten)]
    whose: WriteFlags,
    /// Ids of entries
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// What happened longer ago than this, e.g. 90d
    #[arg(long, value_name = "DURATION", value_parser = parse::duration_from_second, conflicts_with = "ids")]
    older_than: Option<Duration>,
    #[command(flatten)]
    filter: FilterFlags,
    /// Only tell what would go
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    format: Format,
}

/// What the API takes: exactly one of them.
#[derive(Debug, PartialEq)]
enum Which {
    Ids(Vec<String>),
    Filter(EntryFilter),
    OlderThan(u64),
}

impl WhichArgs {
    fn which(&self) -> Result<Which, &'static str> {
        let filter = self.filter.given();
        match (self.ids.is_empty(), filter, self.older_than) {
            (false, None, _) if self.ids.len() <= IDS_MAX => Ok(Which::Ids(self.ids.clone())),
            (false, None, _) => Err("give at most 1000 ids at once, or a filter"),
            (false, Some(_), _) => Err("give ids, or what the entries are like, not both"),
            (true, None, Some(age)) => Ok(Which::OlderThan(age.as_secs())),
            (true, Some(mut filter), Some(age)) => {
                // Both hold: the filter knows times as well.
                let before = quantity::now_ms().saturating_sub(age.as_secs().saturating_mul(1_000));
                filter.until_ms = Some(filter.until_ms.map_or(before, |until| until.min(before)));
                Ok(Which::Filter(filter))
            }
            (true, Some(filter), None) => Ok(Which::Filter(filter)),
            (true, None, None) => {
                Err("give ids, --older-than, or what they are like: --kind, --meta, --session, …")
            }
        }
    }
}

pub(super) async fn forget(ctx: &Context, args: ForgetArgs) -> Result<(), Stop> {
    let args = args.which;
    let what = || format!("could not forget entries of the memory of `{}`", args.whose.of);
    let which =
        args.which().map_err(|hint| Failure::new(format!("{}: nothing says which", what())).hint(hint))?;
    let request = forgetting(which, args.dry_run);
    let gone = args.whose.memory(ctx)?.forget(&request).await.or_fail(what)?;
    show(&gone, "forgotten", "would be forgotten", args.format)
}

fn forgetting(which: Which, dry_run: bool) -> ForgetEntries {
    match which {
        Which::Ids(ids) => ForgetEntries { ids, dry_run, ..ForgetEntries::default() },
        Which::Filter(filter) => ForgetEntries { filter: Some(filter), dry_run, ..ForgetEntries::default() },
        Which::OlderThan(seconds) => {
            ForgetEntries { older_than_seconds: Some(seconds), dry_run, ..ForgetEntries::default() }
        }
    }
}

pub(super) async fn erase(ctx: &Context, args: EraseArgs) -> Result<(), Stop> {
    let EraseArgs { which: args, yes } = args;
    let what = || format!("could not erase entries of the memory of `{}`", args.whose.of);
    let which =
        args.which().map_err(|hint| Failure::new(format!("{}: nothing says which", what())).hint(hint))?;
    let memory = args.whose.memory(ctx)?;
    let plan = forgetting(which, args.dry_run);
    let mut request = EraseEntries {
        ids: plan.ids,
        filter: plan.filter,
        older_than_seconds: plan.older_than_seconds,
        dry_run: true,
    };
    if !args.dry_run && !yes {
        if !can_ask() {
            let failure =
                Failure::new(format!("{}: it cannot be undone, and nobody is there to ask", what()));
            return Err(failure.hint("add --yes, or look first with --dry-run").into());
        }
        let doomed = memory.erase(&request).await.or_fail(what)?;
        let count = quantity::count(usize::try_from(doomed.count).unwrap_or(usize::MAX), "entry", "entries");
        let question = format!(
            "erase {count} of `{}` from every version and snapshot, for good?",
            escape(&args.whose.of)
        );
        if !confirm(&question)? {
            return Err(Stop::Exit(CODE_GENERAL));
        }
    }
    request.dry_run = args.dry_run;
    let gone = memory.erase(&request).await.or_fail(what)?;
    show_erased(&gone, &args.whose.of, args.format)
}

fn show_erased(gone: &ErasedEntries, of: &str, format: Format) -> Result<(), Stop> {
    if format.json {
        return print::json::pretty(gone);
    }
    let ids: String = gone.ids.iter().chain(&gone.summaries).map(|id| format!("{id}\n")).collect();
    print::data(&ids)?;
    erased_notes(gone, of).iter().for_each(|note| print::note(note));
    Ok(())
}

fn erased_notes(gone: &ErasedEntries, of: &str) -> Vec<String> {
    let counted =
        |count: u64| quantity::count(usize::try_from(count).unwrap_or(usize::MAX), "entry", "entries");
    let verb = if gone.dry_run { "would be erased" } else { "erased" };
    let mut notes = vec![format!("{} {verb}", counted(gone.count))];
    if !gone.summaries.is_empty() {
        notes.push(format!("of them {} are summaries that were made of the others", gone.summaries.len()));
    }
    if gone.branches > 1 {
        notes
            .push(format!("they lay on {} branches: forks and restored selves had them, too", gone.branches));
    }
    if !gone.copies.is_empty() {
        notes.push(format!("copies that say the same are still there: {}", gone.copies.join(" ")));
        notes.push(format!("hint: `burrow memory erase {} ID…` takes them as well", escape(of)));
    }
    notes
}

fn show(gone: &ForgottenEntries, done: &str, planned: &str, format: Format) -> Result<(), Stop> {
    if format.json {
        return print::json::pretty(gone);
    }
    let ids: String = gone.ids.iter().map(|id| format!("{id}\n")).collect();
    print::data(&ids)?;
    let count = quantity::count(usize::try_from(gone.count).unwrap_or(usize::MAX), "entry", "entries");
    print::note(&format!("{count} {}", if gone.dry_run { planned } else { done }));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: WhichArgs,
    }

    fn which(line: &str) -> Result<Which, &'static str> {
        Line::try_parse_from(["x"].into_iter().chain(line.split_whitespace())).unwrap().args.which()
    }

    #[test]
    fn entries_are_meant_by_id_by_kind_or_by_age_and_never_all_by_accident() {
        assert_eq!(which("web mem1 mem2").unwrap(), Which::Ids(vec!["mem1".to_owned(), "mem2".to_owned()]));
        assert_eq!(which("web --older-than 90d").unwrap(), Which::OlderThan(90 * 86_400));
        assert!(
            matches!(which("web --kind error").unwrap(), Which::Filter(filter) if filter.kinds == ["error"])
        );
        assert!(which("web").is_err());
        assert!(which("web mem1 --kind error").is_err());
    }

    #[test]
    fn an_erasure_tells_what_went_along_and_what_is_still_there() {
        let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        let mut gone = ErasedEntries {
            count: 2,
            ids: ids(&["mem1", "mem2"]),
            summaries: Vec::new(),
            copies: Vec::new(),
            branches: 1,
            dry_run: false,
        };
        assert_eq!(erased_notes(&gone, "web"), ["2 entries erased"]);
        gone = ErasedEntries {
            count: 3,
            summaries: ids(&["mem3"]),
            copies: ids(&["mem4"]),
            branches: 2,
            ..gone
        };
        let notes = erased_notes(&gone, "web").join("\n");
        for told in
            ["3 entries erased", "1 are summaries", "2 branches", "still there: mem4", "memory erase web"]
        {
            assert!(notes.contains(told), "{told} in {notes}");
        }
    }

    #[test]
    fn age_and_kind_together_must_both_hold() {
        match which("web --older-than 1h --kind error").unwrap() {
            Which::Filter(filter) => {
                assert!(filter.until_ms.unwrap() <= quantity::now_ms() - 3_600_000);
                assert_eq!(filter.kinds, ["error"]);
            }
            other @ (Which::Ids(_) | Which::OlderThan(_)) => panic!("{other:?}"),
        }
    }
}
