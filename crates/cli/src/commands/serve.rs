//! `burrow serve`: the daemon, in the foreground.

use crate::commands::prelude::*;
use crate::{log_file, roles};

/// Run the daemon in the foreground
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Configuration file; /etc/burrow/config.toml by default, if it exists
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Start although the catalog and the pool do not match; delete disks that are not in the catalog
    #[arg(long)]
    accept_rollback: bool,
    /// Start a new session, so that closing the terminal does not end the daemon
    #[arg(long, hide = true)]
    new_session: bool,
    /// Rotate this file, which standard output and standard error are appended to
    #[arg(long, value_name = "FILE", hide = true)]
    log_file: Option<PathBuf>,
}

/// Blocks; the daemon creates its own runtime.
pub(crate) fn serve(args: ServeArgs) -> Result<(), Stop> {
    if args.new_session {
        // Fails only for the leader of a process group, which has its own session or group already.
        let _ = rustix::process::setsid();
    }
    if let Some(path) = args.log_file {
        log_file::keep_small(path).or_fail("could not watch the size of the log")?;
    }
    roles::serve(args.config, args.accept_rollback)
}

pub(crate) async fn run(_: &Context, args: ServeArgs) -> Result<(), Stop> {
    serve(args)
}
