//! `burrow config`: the daemon's configuration.

use crate::commands::prelude::*;

/// Show the configuration of the daemon
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Examples:
  burrow config show
  burrow config paths --config /etc/burrow/config.toml")]
pub(crate) enum ConfigCommand {
    /// Print the directories and files of this host's daemon, which need not run
    #[cfg(feature = "daemon")]
    Paths {
        /// Configuration file of the daemon
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        #[command(flatten)]
        format: Format,
    },
    /// Show the configuration in effect, as JSON
    Show {
        /// Accepted for consistency; the output is always JSON
        #[arg(long, hide = true)]
        json: bool,
    },
}

pub(crate) async fn run(ctx: &Context, command: ConfigCommand) -> Result<(), Stop> {
    match command {
        #[cfg(feature = "daemon")]
        ConfigCommand::Paths { config, format } => {
            let paths = crate::local::LocalDaemon::read(config.as_deref())?.paths();
            format.show(&paths, |paths| {
                print::lines(paths.iter().map(|(name, value)| format!("{name}={value}")))
            })
        }
        ConfigCommand::Show { json: _ } => {
            let config = ctx.client()?.config().await.or_fail("could not read the configuration")?;
            print::json::pretty(&config)
        }
    }
}
