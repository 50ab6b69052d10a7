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

subcommands! {
    /// Manage the memory of agents: add, search, context for prompts
    ///
    /// A sandbox's own memory is included in its snapshots, restores and forks. A space is memory that outlives sandboxes:
    /// see `burrow space`, and --memory and --attach of create, run and update.
    #[command(after_help = "\
Examples:
  burrow memory add web 'the deploy key is on db-2'
  burrow memory search web 'where is the deploy key'
  burrow memory context web 'deploy the new version'      a block for a prompt
  burrow memory context web                               recent work
  burrow memory search web 'api key' --as-of before-upgrade
  burrow memory merge web --from try                      entries of a fork

Working memory is `burrow kv`, procedures are `burrow skill`, files are `burrow artifact`.")]
    pub(crate) enum MemoryCommand {
        Add(add::AddArgs) => add::run,
        Search(search::SearchArgs) => search::run,
        Context(context::ContextArgs) => context::context,
        Turn(context::TurnArgs) => context::turn,
        Ls(entries::LsArgs) => entries::list,
        Get(entries::GetArgs) => entries::get,
        Update(entries::UpdateArgs) => entries::update,
        Forget(forget::ForgetArgs) => forget::forget,
        Erase(forget::EraseArgs) => forget::erase,
        History(entries::HistoryArgs) => entries::history,
        Sessions(entries::SessionsArgs) => entries::sessions,
        Export(transfer::ExportArgs) => transfer::export,
        Import(transfer::ImportArgs) => transfer::import,
        /// Show statistics of the memory: entries, sizes, index coverage
        #[command(after_help = "\
Examples:
  burrow memory stats web
  burrow memory stats space:ops --json")]
        Stats(flags::ReadArgs) => maintenance::stats,
        Merge(maintenance::MergeArgs) => maintenance::merge,
        Consolidate(maintenance::ConsolidateArgs) => maintenance::consolidate,
        /// Check that the memory is intact, and that its indices match the log
        ///
        /// The exit code is 1 if there are problems.
        #[command(after_help = "\
Examples:
  burrow memory check web
  burrow memory check space:ops || burrow memory rebuild space:ops")]
        Check(flags::WriteArgs) => maintenance::check,
        /// Rebuild the indices from the log
        Rebuild(flags::WriteArgs) => maintenance::rebuild,
    }
}
