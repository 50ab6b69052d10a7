//! `burrow rm`: deletes sandboxes.

use burrow_api::SandboxState;

use super::power::each;
use crate::commands::prelude::*;

/// Delete sandboxes with their data, running or not
///
/// Their snapshots are kept, unless --snapshots is given. In a terminal, it asks before it deletes a running sandbox that is not
/// ephemeral.
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// Delete their snapshots too
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
        let running = running(&client, &args.sandboxes).await;
        if !running.is_empty() && !ask::confirm(&format!("delete {} with all data?", running.join(", ")))? {
            print::note("nothing was deleted");
            return Err(Stop::Exit(CODE_GENERAL));
        }
    }
    let delete = async |sandbox: &str| {
        let result = match args.snapshots {
            true => client.delete_sandbox_with_snapshots(sandbox).await,
            false => client.delete_sandbox(sandbox).await,
        };
        match result {
            Err(error) if args.force && error.is_not_found() => Ok(()),
            result => result,
        }
    };
    each(&args.sandboxes, "delete", delete).await
}

/// Those that run and are not ephemeral. What cannot be asked about is left to the deletion, which reports it.
async fn running(client: &Client, sandboxes: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    for sandbox in sandboxes {
        if let Ok(sandbox) = client.sandbox(sandbox).await
            && sandbox.state == SandboxState::Running
            && !sandbox.ephemeral
        {
            found.push(format!("`{}` (running)", escape(sandbox.name.as_deref().unwrap_or(&sandbox.id))));
        }
    }
    found
}
