//! `burrow completion`: completions for shells.

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap_complete::Shell;

use crate::commands::prelude::*;

/// Print completions for a shell
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow completion bash > /etc/bash_completion.d/burrow
  burrow completion zsh > \"${fpath[1]}/_burrow\"
  burrow completion fish > ~/.config/fish/completions/burrow.fish")]
pub(crate) struct CompletionArgs {
    #[arg(value_parser = PossibleValuesParser::new(["bash", "zsh", "fish"]).try_map(|shell| shell.parse::<Shell>()))]
    shell: Shell,
}

pub(crate) async fn run(_: &Context, args: CompletionArgs) -> Result<(), Stop> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::command(), "burrow", &mut script);
    print::data(&String::from_utf8_lossy(&script))
}
