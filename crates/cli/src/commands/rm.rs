//! `burrow rm`: deletes sandboxes.

use burrow_api::SandboxState;

use super::power::each;
use crate::commands::prelude::*;

/// Delete sandboxes with their data, running or not
///
/// Their snapshots are kept, unless --snapshots is given. In a terminal, it asks before it deletes a sandbox that has
/// processes, running or asleep, and is not ephemeral.
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
        let in_use = with_processes(&client, &args.sandboxes).await;
        if !in_use.is_empty() && !ask::confirm(&format!("delete {} with all data?", in_use.join(", ")))? {
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
