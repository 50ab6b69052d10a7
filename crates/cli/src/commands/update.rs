//! `burrow update`: changes limits, labels, network policy, sleep policy and memory of a sandbox.

use burrow_api::{UpdateNetwork, UpdateSandbox};

use super::flags::{LimitFlags, NetworkFlags};
use super::life::{LifeFlags, lacks_snapshot};
use super::memory::sandbox_flags::MemoryFlags;
use super::volume::VolumeFlags;
use crate::commands::prelude::*;

/// Change limits, labels, network and policies of a sandbox
///
/// Most changes also apply to a running sandbox.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow update web --ram 2G --cpu 2
  burrow update web --net-rate 10              10 MiB/s each way; --net-rate none removes the limit
  burrow update web --label tier=gold --unlabel tmp
  burrow update web --allow '*.example.com' --disallow example.org
  burrow update web --net none                 closes open connections
  burrow update web --sleep-after 5m --hibernate-after 1h --stop-after never
  burrow update web --rotate-every 7d --from known-good
  burrow update web --attach handbook:ro --remember errors
  burrow update web --volume data:/data        of a stopped sandbox; replaces its volumes")]
pub(crate) struct UpdateArgs {
    sandbox: String,
    #[command(flatten)]
    limits: LimitFlags,
    /// Label to set; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse::label)]
    labels: Vec<(String, String)>,
    /// Label to remove; may be repeated
    #[arg(long = "unlabel", value_name = "KEY")]
    unlabels: Vec<String>,
    #[command(flatten)]
    network: NetworkFlags,
    /// Rule to remove; may be repeated
    #[arg(long = "disallow", value_name = "RULE", value_parser = parse::rule)]
    disallow: Vec<String>,
    /// Host set to remove; may be repeated
    #[arg(long = "disallow-set", value_name = "NAME")]
    disallow_sets: Vec<String>,
    /// Denied address block to remove; may be repeated
    #[arg(long = "undeny", value_name = "BLOCK")]
    undeny: Vec<String>,
    #[command(flatten)]
    life: LifeFlags,
    /// Snapshot that --rotate-every restores
    #[arg(long, value_name = "SNAPSHOT", requires = "rotate_every")]
    from: Option<String>,
    #[command(flatten)]
    memory: MemoryFlags,
    /// Memory space to detach; may be repeated
    #[arg(long = "unattach", value_name = "SPACE")]
    unattach: Vec<String>,
    #[command(flatten)]
    volumes: VolumeFlags,
    /// Remove its volumes; the sandbox must be stopped
    #[arg(long, conflicts_with = "volumes")]
    no_volumes: bool,
    #[command(flatten)]
    format: Format,
}

pub(crate) async fn run(ctx: &Context, args: UpdateArgs) -> Result<(), Stop> {
    let network = UpdateNetwork {
        remove: args.disallow,
        remove_sets: args.disallow_sets,
        remove_deny: args.undeny,
        ..args.network.change()
    };
    let network = Some(network).filter(|network| *network != UpdateNetwork::default());
    let plain = args.limits.is_empty() && args.labels.is_empty() && args.unlabels.is_empty();
    let plain = plain && args.memory.is_empty() && args.unattach.is_empty();
    let plain = plain && args.volumes.volumes.is_empty() && !args.no_volumes;
    if plain && network.is_none() && args.life.is_empty() {
        return fail(
            format!("could not update sandbox `{}`: no change was given", args.sandbox),
            "give --ram, --cpu, --disk, --label, --net, --allow, --sleep-after or another option; see `burrow update --help`",
        );
    }
    let client = ctx.client()?;
    let what = || format!("could not update sandbox `{}`", args.sandbox);
    let mut update = UpdateSandbox {
        limits: args.limits.over(None),
        labels: parse::label_changes(args.labels, args.unlabels),
        network,
        volumes: Some(args.volumes.volumes).filter(|volumes| args.no_volumes || !volumes.is_empty()),
        ..UpdateSandbox::default()
    };
    let known = match args.life.rotates() && args.from.is_none() {
        true => client.sandbox(&args.sandbox).await.or_fail(what)?.rotate,
        false => None,
    };
    update.memory = args.memory.change(&client, &args.sandbox, &args.unattach).await.or_fail(what)?;
    args.life.change(args.from.as_deref(), known.as_ref(), &mut update);
    if lacks_snapshot(update.rotate.as_ref()) {
        return fail(
            format!("{}: a rotation needs a snapshot to restore", what()),
            "add --from SNAPSHOT; `burrow snapshot ls` lists them",
        );
    }
    let updated = client.update_sandbox(&args.sandbox, &update).await.or_fail(what)?;
    args.format.show(&updated, |_| Ok(()))
}
