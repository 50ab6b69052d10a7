//! `burrow memory`: the memory of agents.

mod add;
pub(crate) mod arguments;
mod context;
mod entries;
pub(crate) mod flags;
mod forget;
pub(crate) mod input;
mod maintenance;
pub(crate) mod related;
pub(crate) mod sandbox_flags;
mod search;
pub(crate) mod show;
pub(crate) mod transfer;

use clap::{Args, Subcommand};

use crate::context::Context;
use crate::failure::Stop;

/// Manage the memory of agents: add, search, context for prompts
///
/// A sandbox's own memory is included in its snapshots, restores and forks. A space is memory that outlives sandboxes:
/// see `burrow space`, and --memory and --attach of create, run and update.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow memory add web 'the deploy key is on db-2'
  burrow memory search web 'where is the deploy key'
  burrow memory context web 'deploy the new version'      a block for a prompt
  burrow memory context web                               recent work
  burrow memory search web 'api key' --as-of before-upgrade
  burrow memory merge web --from try                      entries of a fork

Working memory is `burrow kv`, procedures are `burrow skill`, files are `burrow artifact`.")]
pub(crate) struct MemoryArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Add(add::AddArgs),
    Search(search::SearchArgs),
    Context(context::ContextArgs),
    Turn(context::TurnArgs),
    Ls(entries::LsArgs),
    Get(entries::GetArgs),
    Update(entries::UpdateArgs),
    Forget(forget::ForgetArgs),
    Erase(forget::EraseArgs),
    History(entries::HistoryArgs),
    Sessions(entries::SessionsArgs),
    Export(transfer::ExportArgs),
    Import(transfer::ImportArgs),
    Stats(maintenance::StatsArgs),
    Merge(maintenance::MergeArgs),
    Consolidate(maintenance::ConsolidateArgs),
    Check(maintenance::CheckArgs),
    Rebuild(maintenance::RebuildArgs),
}

pub(crate) async fn run(ctx: &Context, args: MemoryArgs) -> Result<(), Stop> {
    match args.action {
        Action::Add(args) => add::run(ctx, args).await,
        Action::Search(args) => search::run(ctx, args).await,
        Action::Context(args) => context::context(ctx, args).await,
        Action::Turn(args) => context::turn(ctx, args).await,
        Action::Ls(args) => entries::list(ctx, args).await,
        Action::Get(args) => entries::get(ctx, args).await,
        Action::Update(args) => entries::update(ctx, args).await,
        Action::Forget(args) => forget::forget(ctx, args).await,
        Action::Erase(args) => forget::erase(ctx, args).await,
        Action::History(args) => entries::history(ctx, args).await,
        Action::Sessions(args) => entries::sessions(ctx, args).await,
        Action::Export(args) => transfer::export(ctx, args).await,
        Action::Import(args) => transfer::import(ctx, args).await,
        Action::Stats(args) => maintenance::stats(ctx, args).await,
        Action::Merge(args) => maintenance::merge(ctx, args).await,
        Action::Consolidate(args) => maintenance::consolidate(ctx, args).await,
        Action::Check(args) => maintenance::check(ctx, args).await,
        Action::Rebuild(args) => maintenance::rebuild(ctx, args).await,
    }
}
