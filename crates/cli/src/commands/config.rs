//! `burrow config`: the daemon's configuration.

use crate::commands::prelude::*;

/// Show the configuration of the daemon
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show the configuration in effect, as JSON
    Show {
        /// Accepted for consistency; the output is always JSON
        #[arg(long, hide = true)]
        json: bool,
    },
}

pub(crate) async fn run(ctx: &Context, command: ConfigCommand) -> Result<(), Stop> {
    match command {
        ConfigCommand::Show { json: _ } => {
            let config = ctx.client()?.config().await.or_fail("could not read the configuration")?;
            print::json::pretty(&config)
        }
    }
}
