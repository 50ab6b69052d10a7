//! `burrow update`: other limits, other labels, another reach.

use burrow_api::{UpdateNetwork, UpdateSandbox};
use clap::Args;

use super::flags::{LimitFlags, NetworkFlags};
use crate::context::Context;
use crate::failure::{Failure, OrFail, Stop};
use crate::parse;
use crate::print::{self, Format};

/// Change the limits, the labels and the reach of a sandbox, also while it runs
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow update web --ram 2G --cpu 2
  burrow update web --label tier=gold --unlabel tmp
  burrow update web --allow '*.example.com' --disallow example.org
  burrow update web --net none                 cuts what it has open")]
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
    #[command(flatten)]
    format: Format,
}

pub(crate) async fn run(ctx: &Context, args: UpdateArgs) -> Result<(), Stop> {
    let network =
        UpdateNetwork { remove: args.disallow, remove_sets: args.disallow_sets, ..args.network.change() };
    let network = Some(network).filter(|network| *network != UpdateNetwork::default());
    if args.limits.is_empty() && args.labels.is_empty() && args.unlabels.is_empty() && network.is_none() {
        return Err(Failure::new(format!(
            "could not update sandbox `{}`: nothing to change was given",
            args.sandbox
        ))
        .hint("give --ram, --cpu, --disk, --pids, --label, --unlabel, --net, --allow or --disallow")
        .into());
    }
    let set = args.labels.into_iter().map(|(key, value)| (key, Some(value)));
    let removed = args.unlabels.into_iter().map(|key| (key, None));
    let update = UpdateSandbox {
        limits: args.limits.over(None),
        labels: removed.chain(set).collect(),
        network,
        ..UpdateSandbox::default()
    };
    let updated = ctx.client()?.update_sandbox(&args.sandbox, &update).await;
    let updated = updated.or_fail(|| format!("could not update sandbox `{}`", args.sandbox))?;
    if args.format.json { print::json::pretty(&updated) } else { Ok(()) }
}
