//! `burrow rm`: deletes sandboxes.

use super::power::each;
use crate::commands::prelude::*;

/// Delete sandboxes with their data, running or not
///
/// Their snapshots are kept, unless --snapshots is given.
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// Delete their snapshots too
    #[arg(long)]
    snapshots: bool,
    /// Ignore sandboxes that do not exist
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
