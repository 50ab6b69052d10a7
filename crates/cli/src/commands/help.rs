//! `burrow help`: the help of the program or of a command.

use clap::builder::StyledStr;

use crate::commands::prelude::*;
use crate::print::paint;

/// Show this list, or the help of a command
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow help
  burrow help snapshot create")]
pub(crate) struct HelpArgs {
    /// Command, with its subcommands
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
}

pub(crate) async fn run(_: &Context, args: HelpArgs) -> Result<(), Stop> {
    let help = text(&args.command)?;
    print::data(&if paint::colours_on_stdout() { help.ansi().to_string() } else { help.to_string() })
}

/// The help of the command at `path`; an empty path is the program.
pub(crate) fn text(path: &[String]) -> Result<StyledStr, Stop> {
    let mut root = crate::command();
    // Gives each command its full name and the global options.
    root.build();
    let mut command = &mut root;
    for name in path {
        command = command.find_subcommand_mut(name).ok_or_else(|| {
            Failure::new(format!("unknown command `{}`", path.join(" ")))
                .hint("`burrow help` lists the commands")
        })?;
    }
    Ok(command.render_long_help())
}
