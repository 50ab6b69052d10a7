//! `burrow snapshot`: takes, lists, restores and deletes snapshots.

mod changes;
mod create;
mod policy;
mod remove;
mod restore;
mod show;

use burrow_api::SnapshotKind;
use clap::{Args, Subcommand};

use super::tree;
use crate::context::Context;
use crate::failure::Stop;

/// Manage snapshots
///
/// A snapshot contains the files, the configuration and, unless omitted, the processes of a sandbox at one instant. It
/// outlives its sandbox.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow snapshot create web --name before-upgrade
  burrow snapshot restore before-upgrade --in-place web     roll back; can be undone
  burrow snapshot restore before-upgrade --name web2        a new sandbox from it
  burrow snapshot policy web --every 15m --keep 10
  burrow snapshot rm --older-than 30d --sandbox web

A snapshot is given by name, by id, or by the first characters of its id.")]
pub(crate) struct SnapshotArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Create(create::CreateArgs),
    Ls(show::LsArgs),
    Tree(tree::SnapshotTreeArgs),
    Inspect(show::InspectArgs),
    Rm(remove::RmArgs),
    Restore(restore::RestoreArgs),
    Policy(policy::PolicyArgs),
}

pub(crate) async fn run(ctx: &Context, args: SnapshotArgs) -> Result<(), Stop> {
    match args.action {
        Action::Create(args) => create::run(ctx, args).await,
        Action::Ls(args) => show::list(ctx, args).await,
        Action::Tree(args) => tree::snapshots(ctx, args).await,
        Action::Inspect(args) => show::inspect(ctx, args).await,
        Action::Rm(args) => remove::run(ctx, args).await,
        Action::Restore(args) => restore::run(ctx, args).await,
        Action::Policy(args) => policy::run(ctx, args).await,
    }
}

const KINDS: [SnapshotKind; 7] = [
    SnapshotKind::Manual,
    SnapshotKind::Policy,
    SnapshotKind::BeforeRestore,
    SnapshotKind::Exec,
    SnapshotKind::Fork,
    SnapshotKind::BeforeRotate,
    SnapshotKind::BeforeMerge,
];

fn kind(text: &str) -> Result<SnapshotKind, String> {
    KINDS.into_iter().find(|kind| kind.as_str() == text).ok_or_else(|| {
        let names: Vec<_> = KINDS.iter().map(|kind| kind.as_str()).collect();
        format!("a kind is one of {}", names.join(", "))
    })
}
