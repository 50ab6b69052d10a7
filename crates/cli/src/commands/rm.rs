//! `burrow rm`: deletes sandboxes.

use burrow_api::{CreateSnapshot, ErrorCode, SandboxState};

use super::power::try_all;
use crate::commands::prelude::*;

/// How long the snapshot of a deleted sandbox is kept.
const KEPT_SECONDS: u64 = 24 * 60 * 60;

/// Delete sandboxes with their data, running or not
///
/// A snapshot of a sandbox that is not ephemeral is kept for 24 hours: of its files, and of its processes if it is hibernated.
/// --purge keeps none. Earlier snapshots are kept, unless --snapshots is given. In a terminal, it asks before it deletes a sandbox that has
/// processes, running or asleep, and is not ephemeral.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow rm web
  burrow rm --purge web                        also frees its disk space at once
  burrow rm -f --snapshots web                 nothing of it is left")]
pub(crate) struct RmArgs {
    /// Keep no snapshot of their present state
    #[arg(long)]
    purge: bool,
    /// Delete their snapshots too; implies --purge
    #[arg(long)]
    snapshots: bool,
    /// Do not ask, and ignore sandboxes that do not exist
    #[arg(short = 'f', long)]
    force: bool,
    #[arg(required_unless_present = "force", value_name = "SANDBOX")]
    sandboxes: Vec<String>,
}

pub(crate) async fn run(ctx: &Context, args: RmArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
    if !args.force && ask::can_ask() {
        let in_use = with_processes(&client, &args.sandboxes).await;
        if !in_use.is_empty() && !ask::confirm(&format!("delete {} with all data?", in_use.join(", ")))? {
            print::note("nothing was deleted");
            return Err(Stop::Exit(CODE_GENERAL));
        }
    }
    let is_purge = args.purge || args.snapshots;
    try_all(&args.sandboxes, async |sandbox| {
        let kept = if is_purge { None } else { keep(&client, sandbox).await? };
        let deleted = match args.snapshots {
            true => client.delete_sandbox_with_snapshots(sandbox).await,
            false => client.delete_sandbox(sandbox).await,
        };
        match deleted {
            Err(error) if args.force && error.is_not_found() => return Ok(()),
            result => result.or_fail(|| format!("could not delete sandbox `{sandbox}`"))?,
        }
        if let Some(snapshot) = kept {
            let name = escape(sandbox);
            print::note(format!(
                "`{name}` is kept for 24h: `burrow snapshot restore {snapshot}` restores it, `burrow snapshot rm {snapshot}` \
                 deletes it"
            ));
        }
        Ok(())
    })
    .await
}

/// Takes a snapshot before the deletion; `None` if there is nothing to keep. A pool without space does not prevent the deletion.
async fn keep(client: &Client, sandbox: &str) -> Result<Option<String>, Stop> {
    // The deletion reports a sandbox that cannot be found.
    let Ok(found) = client.sandbox(sandbox).await else { return Ok(None) };
    let has_state = matches!(
        found.state,
        SandboxState::Running | SandboxState::Paused | SandboxState::Hibernated | SandboxState::Stopped
    );
    if found.ephemeral || !has_state {
        return Ok(None);
    }
    let request = CreateSnapshot {
        description: "before it was deleted".to_owned(),
        // Those of a hibernated sandbox are on disk already.
        files_only: found.state != SandboxState::Hibernated,
        expires_seconds: Some(KEPT_SECONDS),
        ..CreateSnapshot::default()
    };
    match client.create_snapshot(&found.id, &request).await {
        Ok(snapshot) => Ok(Some(snapshot.id)),
        Err(error) if error.code() == Some(ErrorCode::NoSpace) => {
            print::note(format!("no snapshot of `{}` is kept: {error}", escape(sandbox)));
            Ok(None)
        }
        Err(error) => {
            let what = format!("could not keep a snapshot of sandbox `{sandbox}`");
            let hint = format!("`burrow rm --purge {sandbox}` deletes it without one");
            Err(Failure::new(what).because(&error).hint(hint).into())
        }
    }
}

/// Those that have processes and are not ephemeral. What cannot be asked about is left to the deletion, which reports it.
async fn with_processes(client: &Client, sandboxes: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    for sandbox in sandboxes {
        if let Ok(sandbox) = client.sandbox(sandbox).await
            && !sandbox.ephemeral
            && matches!(
                sandbox.state,
                SandboxState::Running | SandboxState::Paused | SandboxState::Hibernated
            )
        {
            let name = escape(sandbox.name.as_deref().unwrap_or(&sandbox.id));
            found.push(format!("`{name}` ({})", print::json::word(sandbox.state)));
        }
    }
    found
}
