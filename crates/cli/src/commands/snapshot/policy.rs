//! `burrow snapshot policy`: snapshots that a sandbox takes by itself.

use std::time::Duration;

use burrow_api::{Sandbox, SnapshotPolicy, SnapshotPolicyRequest, UpdateSandbox, defaults};
use clap::Args;

use crate::context::Context;
use crate::failure::{Failure, OrFail, Stop};
use crate::parse;
use crate::print::{self, Format, quantity};

/// Show or set which snapshots a sandbox takes by itself
///
/// They are taken while it works: a sandbox that sleeps has nothing new. Beyond --keep the oldest of them go; others stay.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow snapshot policy web                               what is in force
  burrow snapshot policy web --every 15m --keep 10
  burrow snapshot policy web --off")]
pub(super) struct PolicyArgs {
    sandbox: String,
    /// How often, at least 10s
    #[arg(long, value_name = "DURATION", value_parser = parse::duration_from_second)]
    every: Option<Duration>,
    /// How many to keep
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    keep: Option<u32>,
    /// Leave the processes out
    #[arg(long)]
    files_only: bool,
    /// Take no more; those there are stay
    #[arg(long, conflicts_with_all = ["every", "keep", "files_only"])]
    off: bool,
    #[command(flatten)]
    format: Format,
}

pub(super) async fn run(ctx: &Context, args: PolicyArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
    let what = || format!("could not set the snapshot policy of sandbox `{}`", args.sandbox);
    let sandbox = client.sandbox(&args.sandbox).await.or_fail(what)?;
    let Some(policy) = wanted(&args, sandbox.snapshot_policy)
        .map_err(|hint| Failure::new(format!("{}: nothing says how often", what())).hint(hint))?
    else {
        return show(&sandbox, args.format);
    };
    let update = UpdateSandbox { snapshot_policy: Some(policy), ..UpdateSandbox::default() };
    let updated = client.update_sandbox(&args.sandbox, &update).await.or_fail(what)?;
    show(&updated, args.format)
}

/// What is asked for over what is there; `None` when nothing is asked for.
fn wanted(
    args: &PolicyArgs,
    known: Option<SnapshotPolicy>,
) -> Result<Option<SnapshotPolicyRequest>, &'static str> {
    let keep = args.keep.or(known.map(|known| known.keep)).unwrap_or(defaults::SNAPSHOT_KEEP);
    if args.off {
        return Ok(Some(SnapshotPolicyRequest { every_seconds: 0, keep, files_only: false }));
    }
    if args.every.is_none() && args.keep.is_none() && !args.files_only {
        return Ok(None);
    }
    let every = args.every.map(|every| every.as_secs()).or(known.map(|known| known.every_seconds));
    let every_seconds = every.ok_or("add --every DURATION, e.g. 15m")?;
    // A period that is given anew says all; without one, the rest is changed.
    let files_only = args.files_only || (args.every.is_none() && known.is_some_and(|known| known.files_only));
    Ok(Some(SnapshotPolicyRequest { every_seconds, keep, files_only }))
}

fn show(sandbox: &Sandbox, format: Format) -> Result<(), Stop> {
    if format.json { print::json::pretty(&sandbox.snapshot_policy) } else { print::line(&line(sandbox)) }
}

fn line(sandbox: &Sandbox) -> String {
    match sandbox.snapshot_policy {
        None => "no snapshots by themselves".to_owned(),
        Some(policy) => {
            let holds = if policy.files_only { "files" } else { "files and processes" };
            let every = quantity::period(policy.every_seconds);
            format!("every {every} while it works, {holds}; the last {} are kept", policy.keep)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: PolicyArgs,
    }

    #[track_caller]
    fn check(line: &str, known: Option<SnapshotPolicy>, expected: Option<(u64, u32, bool)>) {
        let args = Line::parse_from(["x", "web"].into_iter().chain(line.split_whitespace())).args;
        let found = wanted(&args, known).unwrap();
        let found = found.map(|policy| (policy.every_seconds, policy.keep, policy.files_only));
        assert_eq!(found, expected, "{line}");
    }

    #[test]
    fn what_is_not_given_stays() {
        let known = Some(SnapshotPolicy { every_seconds: 60, keep: 3, files_only: true });
        check("", known, None);
        check("--every 15m", None, Some((900, 10, false)));
        check("--every 15m", known, Some((900, 3, false)));
        check("--keep 5", known, Some((60, 5, true)));
        check("--files-only --every 1m --keep 1", None, Some((60, 1, true)));
        check("--off", known, Some((0, 3, false)));
        let keep = Line::parse_from(["x", "web", "--keep", "5"]).args;
        assert!(wanted(&keep, None).is_err(), "nothing says how often");
    }
}
