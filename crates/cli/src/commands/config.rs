//! `burrow config`: the daemon's configuration.

use clap::{Args, Subcommand};

use crate::context::Context;
use crate::failure::{OrFail, Stop};
use crate::print;

/// Show the configuration of the daemon
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show the configuration in effect, as JSON
    Show {
        /// Accepted for consistency; the output is always JSON
        #[arg(long, hide = true)]
        json: bool,
    },
}

pub(crate) async fn run(ctx: &Context, args: ConfigArgs) -> Result<(), Stop> {
    match args.action {
        Action::Show { json: _ } => {
            let config =
                ctx.client()?.config().await.or_fail(|| "could not read the configuration".to_owned())?;
            print::json::pretty(&config)
        }
    }
}
