//! `burrow serve`: the daemon, in the foreground.

use std::path::PathBuf;

use clap::Args;

use crate::failure::Stop;
use crate::roles;

/// Run the daemon in the foreground
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Configuration file; /etc/burrow/config.toml when it exists
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Go on though catalog and pool are of different times; what the catalog does not know is removed
    #[arg(long)]
    accept_rollback: bool,
    /// Leave the terminal's session first, so that closing it does not end the daemon
    #[arg(long, hide = true)]
    new_session: bool,
}

pub(crate) fn run(args: ServeArgs) -> Result<(), Stop> {
    if args.new_session {
        // Fails only for the leader of a process group, which has a session or group of its own already.
        let _ = rustix::process::setsid();
    }
    roles::serve(args.config, args.accept_rollback)
}
