//! `burrow snapshot create`: takes a snapshot.

use burrow_api::{CreateSnapshot, Snapshot};

use super::changes;
use crate::commands::prelude::*;

/// Take a snapshot of a sandbox in any state, and print its id
///
/// Standard error reports how long the sandbox was paused, and which paths changed since the previous snapshot.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow snapshot create web --name before-upgrade --description 'as tested on Monday'
  burrow snapshot create web --files-only --expires 7d --label nightly=yes
  id=$(burrow snapshot create web 2>/dev/null)")]
pub(crate) struct CreateArgs {
    /// Sandbox to snapshot
    sandbox: String,
    /// Name, accepted wherever an id is
    #[arg(long)]
    name: Option<String>,
    /// Description
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    description: String,
    /// Label, for `snapshot ls --label`; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse::label)]
    labels: Vec<(String, String)>,
    /// Omit the processes: faster, smaller, and possible with any process
    #[arg(long)]
    files_only: bool,
    /// Delete the snapshot after this time, e.g. 7d
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
    let snapshot = Progress::during(
        &format!("taking a snapshot of {}", args.sandbox),
        ctx.client()?.create_snapshot(&args.sandbox, &request),
    )
    .await;
    let snapshot = snapshot.or_fail(|| format!("could not take a snapshot of sandbox `{}`", args.sandbox))?;
    args.format.report(&snapshot, [&snapshot.id], notes(&snapshot))
}

fn notes(snapshot: &Snapshot) -> Vec<String> {
    let content = match snapshot.processes {
        true => format!("files and processes ({} of RAM)", quantity::bytes(snapshot.ram_bytes)),
        false => "files".to_owned(),
    };
    let mut lines = vec![format!(
        "the snapshot contains {content}; the sandbox was paused for {}",
        quantity::pause(snapshot.pause_us)
    )];
    lines.extend(changes::shown(&snapshot.changes));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_and_pause_are_reported_before_the_changes() {
        let mut snapshot = super::super::show::example();
        assert_eq!(
            notes(&snapshot)[0],
            "the snapshot contains files and processes (64.0 MiB of RAM); the sandbox was paused for 12.3 ms"
        );
        snapshot.processes = false;
        assert_eq!(notes(&snapshot)[0], "the snapshot contains files; the sandbox was paused for 12.3 ms");
        assert_eq!(notes(&snapshot)[1], "1 path changed since snapshot `snp0`:");
    }
}
