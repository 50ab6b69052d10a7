//! `burrow memory forget` and `erase`: hide entries, or remove them permanently.

use burrow_api::memory::{EntryFilter, EraseEntries, ErasedEntries, ForgetEntries, ForgottenEntries};

use super::flags::{FilterFlags, WriteFlags};
use crate::commands::prelude::*;
use crate::print::ask::{confirm, require_terminal};

/// Maximum number of ids in one request of the API.
const IDS_MAX: usize = 1_000;

/// Hide entries from now on; reads as of earlier still find them
///
/// Entries are selected by id, by filter (--kind, --meta and others), or by age.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow memory forget web mem7h3k2m9pqx1c8r5v7y
  burrow memory forget web --kind observation --session nightly --dry-run
  burrow memory forget web --older-than 90d")]
pub(crate) struct ForgetArgs {
    #[command(flatten)]
    selection: SelectionArgs,
}

/// Erase entries permanently from every version, branch, snapshot and index
///
/// For legal obligations to delete data. Summaries made from the entries are erased too; other entries with the same
/// text are reported and kept. This cannot be undone, and does not cover copies in other spaces, exports, backups and
/// artifacts. Asks for confirmation.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow memory erase web mem7h3k2m9pqx1c8r5v7y
  burrow memory erase web --user alice --dry-run
  burrow memory erase web --user alice --yes")]
pub(crate) struct EraseArgs {
    #[command(flatten)]
    selection: SelectionArgs,
    /// Do not ask for confirmation
    #[arg(short = 'y', long)]
    yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SelectionArgs {
    #[command(flatten)]
    target: WriteFlags,
    /// Ids of entries
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// Entries older than this, e.g. 90d
    #[arg(long, value_name = "DURATION", value_parser = parse::duration_from_second, conflicts_with = "ids")]
    older_than: Option<Duration>,
    #[command(flatten)]
    filter: FilterFlags,
    /// Only show the entries, without changing them
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    format: Format,
}

/// The selection in the API: exactly one of these.
#[derive(Debug, PartialEq)]
enum Selection {
    Ids(Vec<String>),
    Filter(EntryFilter),
    OlderThan(u64),
}

impl SelectionArgs {
    fn request(&self, what: &str) -> Result<ForgetEntries, Stop> {
        let invalid = || format!("{what}: no valid selection of entries was given");
        let selection = self.selection().map_err(|hint| Failure::new(invalid()).hint(hint))?;
        let request = ForgetEntries { dry_run: self.dry_run, ..ForgetEntries::default() };
        Ok(match selection {
            Selection::Ids(ids) => ForgetEntries { ids, ..request },
            Selection::Filter(filter) => ForgetEntries { filter: Some(filter), ..request },
            Selection::OlderThan(age) => ForgetEntries { older_than_seconds: Some(age), ..request },
        })
    }

    fn selection(&self) -> Result<Selection, &'static str> {
        let filter = self.filter.given();
        match (self.ids.is_empty(), filter, self.older_than) {
            (false, None, _) if self.ids.len() <= IDS_MAX => Ok(Selection::Ids(self.ids.clone())),
            (false, None, _) => Err("give at most 1000 ids at once, or a filter"),
            (false, Some(_), _) => Err("give either ids or a filter"),
            (true, None, Some(age)) => Ok(Selection::OlderThan(age.as_secs())),
            (true, Some(mut filter), Some(age)) => {
                // Both must hold: the filter has times as well.
                let before = quantity::now_ms().saturating_sub(age.as_secs().saturating_mul(1_000));
                filter.until_ms = Some(filter.until_ms.map_or(before, |until| until.min(before)));
                Ok(Selection::Filter(filter))
            }
            (true, Some(filter), None) => Ok(Selection::Filter(filter)),
            (true, None, None) => Err("give ids, --older-than, or a filter: --kind, --meta, --session, …"),
        }
    }
}

pub(super) async fn forget(ctx: &Context, args: ForgetArgs) -> Result<(), Stop> {
    let args = args.selection;
    let what = || format!("could not forget entries of the memory of `{}`", args.target.of);
    let request = args.request(&what())?;
    let gone = args.target.memory(ctx)?.forget(&request).await.or_fail(what)?;
    show(&gone, args.format)
}

pub(super) async fn erase(ctx: &Context, args: EraseArgs) -> Result<(), Stop> {
    let EraseArgs { selection: args, yes } = args;
    let what = || format!("could not erase entries of the memory of `{}`", args.target.of);
    let memory = args.target.memory(ctx)?;
    let plan = args.request(&what())?;
    let mut request = EraseEntries {
        ids: plan.ids,
        filter: plan.filter,
        older_than_seconds: plan.older_than_seconds,
        dry_run: true,
    };
    if !args.dry_run && !yes {
        require_terminal(&what(), "add --yes, or preview with --dry-run")?;
        let doomed = memory.erase(&request).await.or_fail(what)?;
        let count = quantity::count(doomed.count, "entry", "entries");
        let of = escape(&args.target.of);
        if !confirm(&format!("erase {count} of `{of}` permanently from every version and snapshot?"))? {
            return Err(Stop::Exit(CODE_GENERAL));
        }
    }
    request.dry_run = args.dry_run;
    let gone = memory.erase(&request).await.or_fail(what)?;
    show_erased(&gone, &args.target.of, args.format)
}

fn show_erased(gone: &ErasedEntries, of: &str, format: Format) -> Result<(), Stop> {
    format.report(gone, gone.ids.iter().chain(&gone.summaries), erased_notes(gone, of))
}

fn erased_notes(gone: &ErasedEntries, of: &str) -> Vec<String> {
    let verb = if gone.dry_run { "would be erased" } else { "erased" };
    let mut notes = vec![format!("{} {verb}", quantity::count(gone.count, "entry", "entries"))];
    if !gone.summaries.is_empty() {
        notes.push(format!("{} of them are summaries of the others", gone.summaries.len()));
    }
    if gone.branches > 1 {
        notes
            .push(format!("they were on {} branches, including forks and restored sandboxes", gone.branches));
    }
    if !gone.copies.is_empty() {
        notes.push(format!("other entries with the same text are kept: {}", gone.copies.join(" ")));
        notes.push(format!("hint: `burrow memory erase {} ID…` erases them too", escape(of)));
    }
    notes
}

fn show(gone: &ForgottenEntries, format: Format) -> Result<(), Stop> {
    let count = quantity::count(gone.count, "entry", "entries");
    let verb = if gone.dry_run { "would be forgotten" } else { "forgotten" };
    format.report(gone, &gone.ids, [format!("{count} {verb}")])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(line: &str) -> Result<Selection, &'static str> {
        parse::arguments::<SelectionArgs>(line).selection()
    }

    #[test]
    fn entries_are_selected_by_id_by_kind_or_by_age_and_never_all_by_accident() {
        assert_eq!(
            selection("web mem1 mem2").unwrap(),
            Selection::Ids(vec!["mem1".to_owned(), "mem2".to_owned()])
        );
        assert_eq!(selection("web --older-than 90d").unwrap(), Selection::OlderThan(90 * 86_400));
        assert!(
            matches!(selection("web --kind error").unwrap(), Selection::Filter(filter) if filter.kinds == ["error"])
        );
        assert!(selection("web").is_err());
        assert!(selection("web mem1 --kind error").is_err());
    }

    #[test]
    fn an_erasure_reports_summaries_branches_and_copies() {
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
        for part in [
            "3 entries erased",
            "1 of them are summaries",
            "2 branches",
            "are kept: mem4",
            "memory erase web",
        ] {
            assert!(notes.contains(part), "{part} in {notes}");
        }
    }

    #[test]
    fn age_and_kind_together_must_both_hold() {
        match selection("web --older-than 1h --kind error").unwrap() {
            Selection::Filter(filter) => {
                assert!(filter.until_ms.unwrap() <= quantity::now_ms() - 3_600_000);
                assert_eq!(filter.kinds, ["error"]);
            }
            other @ (Selection::Ids(_) | Selection::OlderThan(_)) => panic!("{other:?}"),
        }
    }
}
