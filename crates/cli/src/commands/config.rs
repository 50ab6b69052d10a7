//! `burrow config`: the daemon's configuration.

use clap::{Args, Subcommand};

use crate::context::Context;
use crate::failure::{OrFail, Stop};
use crate::print;

/// The daemon's configuration
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show the configuration in effect, as JSON
    Show {
        /// JSON is what it prints anyway
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
