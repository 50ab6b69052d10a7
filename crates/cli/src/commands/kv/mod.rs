//! `burrow kv`: working memory, JSON values by key.

mod change;
mod show;
mod watch;

/// The exit code if the key does not exist.
const CODE_ABSENT: u8 = 4;
/// The exit code if a condition did not hold.
const CODE_CONFLICT: u8 = 3;

subcommands! {
    /// Manage working memory: JSON values by key
    ///
    /// Values have versions and may expire. The exit code is 4 if the key does not exist, and 3 if a condition did not hold
    /// because of a concurrent change.
    #[command(after_help = "\
Examples:
  burrow kv set web plan/step 3
  burrow kv get web plan/step
  burrow kv set web lock/build \"$$\" --ttl 5m --if-absent
  burrow kv cas web plan/step 4 --version 17
  burrow kv incr web counters/deploys
  burrow kv watch web plan/")]
    pub(crate) enum KvCommand {
        Get(show::GetArgs) => show::get,
        Set(change::SetArgs) => change::set,
        Rm(change::RmArgs) => change::remove,
        Ls(show::LsArgs) => show::list,
        Incr(change::IncrArgs) => change::increment,
        Cas(change::CasArgs) => change::compare_and_set,
        Batch(change::BatchArgs) => change::batch,
        Watch(watch::WatchArgs) => watch::run,
        History(show::HistoryArgs) => show::history,
    }
}
