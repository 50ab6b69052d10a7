//! `burrow completion`: completions for shells.

use clap::{Args, ValueEnum};
use clap_complete::Shell;

use crate::failure::Stop;
use crate::print;

/// Print completions for a shell
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow completion bash > /etc/bash_completion.d/burrow
  burrow completion zsh > \"${fpath[1]}/_burrow\"
  burrow completion fish > ~/.config/fish/completions/burrow.fish")]
pub(crate) struct CompletionArgs {
    #[arg(value_enum)]
    shell: ShellName,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ShellName {
    Bash,
    Zsh,
    Fish,
}

pub(crate) fn run(args: CompletionArgs) -> Result<(), Stop> {
    let shell = match args.shell {
        ShellName::Bash => Shell::Bash,
        ShellName::Zsh => Shell::Zsh,
        ShellName::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut crate::command(), "burrow", &mut script);
    print::data(&String::from_utf8_lossy(&script))
}
