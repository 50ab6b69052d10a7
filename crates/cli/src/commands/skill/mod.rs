//! `burrow skill`: procedural memory, steps that agents can run again.

mod add;
mod promote;
mod run;
mod show;

use clap::{Args, Subcommand};

use crate::context::Context;
use crate::failure::Stop;

/// Manage skills: steps that can be run again, with their outcomes
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow skill promote web --name deploy --last 4       from the last commands
  burrow skill add web deploy --file deploy.yaml
  burrow skill search web 'roll out a new version'
  burrow skill run web deploy -p host=db-3
  burrow skill show web deploy")]
pub(crate) struct SkillArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Add(add::AddArgs),
    Promote(promote::PromoteArgs),
    Search(show::SearchArgs),
    Ls(show::LsArgs),
    Show(show::ShowArgs),
    Versions(show::VersionsArgs),
    Run(run::RunArgs),
    Outcome(run::OutcomeArgs),
    Rm(show::RmArgs),
}

pub(crate) async fn run(ctx: &Context, args: SkillArgs) -> Result<(), Stop> {
    match args.action {
        Action::Add(args) => add::run(ctx, args).await,
        Action::Promote(args) => promote::run(ctx, args).await,
        Action::Search(args) => show::search(ctx, args).await,
        Action::Ls(args) => show::list(ctx, args).await,
        Action::Show(args) => show::show(ctx, args).await,
        Action::Versions(args) => show::versions(ctx, args).await,
        Action::Run(args) => run::run(ctx, args).await,
        Action::Outcome(args) => run::outcome(ctx, args).await,
        Action::Rm(args) => show::remove(ctx, args).await,
    }
}

/// `NAME=VALUE`
fn parameter(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` is not NAME=VALUE")),
    }
}
