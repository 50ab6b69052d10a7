//! `burrow completion`: completions for shells.

use clap::builder::PossibleValuesParser;
use clap_complete::env::Shells;

use crate::commands::prelude::*;
use crate::names;

/// Print completions for a shell
///
/// The script completes commands, options, and the names of sandboxes, snapshots, images, volumes, secrets and host sets, which
/// it gets from the daemon.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow completion bash > /etc/bash_completion.d/burrow
  echo 'source <(burrow completion zsh)' >> ~/.zshrc
  burrow completion fish > ~/.config/fish/completions/burrow.fish")]
pub(crate) struct CompletionArgs {
    #[arg(value_parser = PossibleValuesParser::new(["bash", "zsh", "fish"]))]
    shell: String,
}

pub(crate) async fn run(_: &Context, args: CompletionArgs) -> Result<(), Stop> {
    let mut script = Vec::new();
    let shells = Shells::builtins();
    let shell = shells.completer(&args.shell).expect("the parser accepts only known shells");
    let written = shell.write_registration(names::VARIABLE, "burrow", "burrow", "burrow", &mut script);
    written.or_fail("could not write the script")?;
    print::data(&String::from_utf8_lossy(&script))
}
