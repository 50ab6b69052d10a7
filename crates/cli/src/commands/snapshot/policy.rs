//! `burrow snapshot policy`: automatic snapshots of a sandbox.

use burrow_api::{Sandbox, SnapshotPolicy, SnapshotPolicyRequest, UpdateSandbox, defaults};

use crate::commands::prelude::*;

/// Show or set the automatic snapshots of a sandbox
///
/// They are taken while the sandbox is active: a sandbox that sleeps does not change. When there are more than --keep,
/// the oldest of them are deleted; other snapshots are kept.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow snapshot policy web                               show the policy
  burrow snapshot policy web --every 15m --keep 10
  burrow snapshot policy web --off")]
pub(crate) struct PolicyArgs {
    sandbox: String,
    /// Period, at least 10s
    #[arg(long, value_name = "DURATION", value_parser = parse::duration_from_second)]
    every: Option<Duration>,
    /// Number of snapshots to keep
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    keep: Option<u32>,
    /// Omit the processes
    #[arg(long)]
    files_only: bool,
    /// Take no more snapshots; existing ones are kept
    #[arg(long, conflicts_with_all = ["every", "keep", "files_only"])]
    off: bool,
    #[command(flatten)]
    format: Format,
}

pub(super) async fn run(ctx: &Context, args: PolicyArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
    let what = || format!("could not set the snapshot policy of sandbox `{}`", args.sandbox);
    let sandbox = client.sandbox(&args.sandbox).await.or_fail(what)?;
    let Some(policy) = requested_policy(&args, sandbox.snapshot_policy)
        .map_err(|hint| Failure::new(format!("{}: no period was given", what())).hint(hint))?
    else {
        return show(&sandbox, args.format);
    };
    let update = UpdateSandbox { snapshot_policy: Some(policy), ..UpdateSandbox::default() };
    let updated = client.update_sandbox(&args.sandbox, &update).await.or_fail(what)?;
    show(&updated, args.format)
}

/// The requested policy, based on the current one; `None` when no change is requested.
fn requested_policy(
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
    // A new period replaces the policy; without one, only the given parts change.
    let files_only = args.files_only || (args.every.is_none() && known.is_some_and(|known| known.files_only));
    Ok(Some(SnapshotPolicyRequest { every_seconds, keep, files_only }))
}

fn show(sandbox: &Sandbox, format: Format) -> Result<(), Stop> {
    format.show(&sandbox.snapshot_policy, |_| print::line(line(sandbox)))
}

fn line(sandbox: &Sandbox) -> String {
    match sandbox.snapshot_policy {
        None => "no automatic snapshots".to_owned(),
        Some(policy) => {
            let content = if policy.files_only { "files" } else { "files and processes" };
            let every = quantity::period(policy.every_seconds);
            format!("every {every} while active, {content}; the last {} are kept", policy.keep)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, known: Option<SnapshotPolicy>, expected: Option<(u64, u32, bool)>) {
        let args = parse::arguments(&format!("web {line}"));
        let found = requested_policy(&args, known).unwrap();
        let found = found.map(|policy| (policy.every_seconds, policy.keep, policy.files_only));
        assert_eq!(found, expected, "{line}");
    }

    #[test]
    fn omitted_parts_are_unchanged() {
        let known = Some(SnapshotPolicy { every_seconds: 60, keep: 3, files_only: true });
        check("", known, None);
        check("--every 15m", None, Some((900, 10, false)));
        check("--every 15m", known, Some((900, 3, false)));
        check("--keep 5", known, Some((60, 5, true)));
        check("--files-only --every 1m --keep 1", None, Some((60, 1, true)));
        check("--off", known, Some((0, 3, false)));
        let keep = parse::arguments("web --keep 5");
        assert!(requested_policy(&keep, None).is_err(), "no period was given");
    }
}
