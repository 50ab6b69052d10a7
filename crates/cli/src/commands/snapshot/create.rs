//! `burrow snapshot create`: a point to come back to.

use std::time::Duration;

use burrow_api::{CreateSnapshot, Snapshot};
use clap::Args;

use super::changes;
use crate::context::Context;
use crate::failure::{OrFail, Stop};
use crate::parse;
use crate::print::{self, Format, quantity};
use crate::transfer::progress::Progress;

/// Take a snapshot of a sandbox that runs, sleeps or is stopped, and print its id
///
/// Standard error tells how long the sandbox stood still, and which paths changed since the snapshot before.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow snapshot create web --name before-upgrade --description 'as tested on Monday'
  burrow snapshot create web --files-only --expires 7d --label nightly=yes
  id=$(burrow snapshot create web 2>/dev/null)")]
pub(super) struct CreateArgs {
    /// Sandbox to take it of
    sandbox: String,
    /// Name to use wherever its id is
    #[arg(long)]
    name: Option<String>,
    /// A few words for people
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    description: String,
    /// Label, for `snapshot ls --label`; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse::label)]
    labels: Vec<(String, String)>,
    /// Leave the processes out: quicker, smaller, and possible whatever runs
    #[arg(long)]
    files_only: bool,
    /// Delete it after this time, e.g. 7d
    #[arg(long, value_name = "DURATION", value_parser = parse::duration_from_second)]
    expires: Option<Duration>,
    #[command(flatten)]
    format: Format,
}

pub(super) async fn run(ctx: &Context, args: CreateArgs) -> Result<(), Stop> {
    let request = CreateSnapshot {
        name: args.name,
        description: args.description,
        labels: args.labels.into_iter().collect(),
        files_only: args.files_only,
        expires_seconds: args.expires.map(|expires| expires.as_secs()),
    };
    let working = Progress::working(&format!("taking a snapshot of {}", args.sandbox));
    let snapshot = ctx.client()?.create_snapshot(&args.sandbox, &request).await;
    drop(working);
    let snapshot = snapshot.or_fail(|| format!("could not take a snapshot of sandbox `{}`", args.sandbox))?;
    if args.format.json {
        return print::json::pretty(&snapshot);
    }
    print::line(&snapshot.id)?;
    for line in told(&snapshot) {
        print::note(&line);
    }
    Ok(())
}

fn told(snapshot: &Snapshot) -> Vec<String> {
    let held = match snapshot.processes {
        true => format!("files and processes ({} of RAM)", quantity::bytes(snapshot.ram_bytes)),
        false => "files".to_owned(),
    };
    let mut lines =
        vec![format!("it holds {held}; the sandbox stood still for {}", quantity::pause(snapshot.pause_us))];
    lines.extend(changes::shown(&snapshot.changes));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_holds_and_the_pause_are_told_before_the_changes() {
        let mut snapshot = super::super::show::example();
        assert_eq!(
            told(&snapshot)[0],
            "it holds files and processes (64.0 MiB of RAM); the sandbox stood still for 12.3 ms"
        );
        snapshot.processes = false;
        assert_eq!(told(&snapshot)[0], "it holds files; the sandbox stood still for 12.3 ms");
        assert_eq!(told(&snapshot)[1], "1 path changed since snapshot `snp0`:");
    }
}
