//! `burrow rm`: deletes sandboxes.

use clap::Args;

use super::power::each;
use crate::context::Context;
use crate::failure::Stop;

/// Delete sandboxes with all they hold, running or not
///
/// Snapshots taken of them stay, unless --snapshots is given.
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// Delete the snapshots taken of them, too
    #[arg(long)]
    snapshots: bool,
    /// One that does not exist is no failure
    #[arg(short = 'f', long)]
    force: bool,
    #[arg(required_unless_present = "force", value_name = "SANDBOX")]
    sandboxes: Vec<String>,
}

pub(crate) async fn run(ctx: &Context, args: RmArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
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
