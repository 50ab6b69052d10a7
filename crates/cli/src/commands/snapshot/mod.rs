//! `burrow snapshot`: takes, lists, restores and deletes snapshots.

mod changes;
mod create;
mod policy;
mod remove;
mod restore;
mod show;

use burrow_api::SnapshotKind;

use super::tree;
use crate::commands::prelude::*;

subcommands! {
    /// Manage snapshots
    ///
    /// A snapshot contains the files, the configuration and, unless omitted, the processes of a sandbox at one instant. It
    /// outlives its sandbox.
    #[command(after_help = "\
Examples:
  burrow snapshot create web --name before-upgrade
  burrow snapshot restore before-upgrade --in-place web     roll back; can be undone
  burrow snapshot restore before-upgrade --name web2        a new sandbox from it
  burrow snapshot policy web --every 15m --keep 10
  burrow snapshot rm --older-than 30d --sandbox web

A snapshot is given by name, by id, or by the first characters of its id.")]
    pub(crate) enum SnapshotCommand {
        Create(create::CreateArgs) => create::run,
        Ls(show::LsArgs) => show::list,
        Tree(tree::SnapshotTreeArgs) => tree::snapshots,
        Inspect(show::InspectArgs) => show::inspect,
        Rm(remove::RmArgs) => remove::run,
        Restore(restore::RestoreArgs) => restore::run,
        Policy(policy::PolicyArgs) => policy::run,
    }
}

fn kind(text: &str) -> Result<SnapshotKind, String> {
    let kinds = "manual, policy, before-restore, exec, fork, before-rotate, before-merge";
    parse::api_word(text).map_err(|_| format!("a kind is one of {kinds}"))
}
