//! `burrow kv`: working memory, JSON values by key.

mod change;
mod show;
mod watch;

use clap::{Args, Subcommand};

use crate::context::Context;
use crate::failure::Stop;

/// The exit code if the key does not exist.
const CODE_ABSENT: u8 = 4;
/// The exit code if a condition did not hold.
const CODE_CONFLICT: u8 = 3;

/// Manage working memory: JSON values by key
///
/// Values have versions and may expire. The exit code is 4 if the key does not exist, and 3 if a condition did not hold
/// because of a concurrent change.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow kv set web plan/step 3
  burrow kv get web plan/step
  burrow kv set web lock/build \"$$\" --ttl 5m --if-absent
  burrow kv cas web plan/step 4 --version 17
  burrow kv incr web counters/deploys
  burrow kv watch web plan/")]
pub(crate) struct KvArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Get(show::GetArgs),
    Set(change::SetArgs),
    Rm(change::RmArgs),
    Ls(show::LsArgs),
    Incr(change::IncrArgs),
    Cas(change::CasArgs),
    Batch(change::BatchArgs),
    Watch(watch::WatchArgs),
    History(show::HistoryArgs),
}

pub(crate) async fn run(ctx: &Context, args: KvArgs) -> Result<(), Stop> {
    match args.action {
        Action::Get(args) => show::get(ctx, args).await,
        Action::Set(args) => change::set(ctx, args).await,
        Action::Rm(args) => change::remove(ctx, args).await,
        Action::Ls(args) => show::list(ctx, args).await,
        Action::Incr(args) => change::increment(ctx, args).await,
        Action::Cas(args) => change::compare_and_set(ctx, args).await,
        Action::Batch(args) => change::batch(ctx, args).await,
        Action::Watch(args) => watch::run(ctx, args).await,
        Action::History(args) => show::history(ctx, args).await,
    }
}
