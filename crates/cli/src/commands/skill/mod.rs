//! `burrow skill`: procedural memory, steps that agents can run again.

use crate::commands::memory::flags::{ReadArgs, ReadNamedArgs, RemoveArgs};

mod add;
mod promote;
mod run;
mod show;

subcommands! {
    /// Manage skills: steps that can be run again, with their outcomes
    #[command(after_help = "\
Examples:
  burrow skill promote web --name deploy --last 4       from the last commands
  burrow skill add web deploy --file deploy.yaml
  burrow skill search web 'roll out a new version'
  burrow skill run web deploy -p host=db-3
  burrow skill show web deploy")]
    pub(crate) enum SkillCommand {
        Add(add::AddArgs) => add::run,
        Promote(promote::PromoteArgs) => promote::run,
        Search(show::SearchArgs) => show::search,
        /// List skills
        #[command(visible_alias = "list")]
        Ls(ReadArgs) => show::list,
        Show(show::ShowArgs) => show::show,
        /// List the versions of a skill, oldest first
        Versions(ReadNamedArgs) => show::versions,
        Run(run::RunArgs) => run::run,
        Outcome(run::OutcomeArgs) => run::outcome,
        /// Remove skills; reads as of earlier still find them
        Rm(RemoveArgs) => show::remove,
    }
}

/// `NAME=VALUE`
fn parameter(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` is not NAME=VALUE")),
    }
}
