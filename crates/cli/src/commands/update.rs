//! `burrow update`: other limits, other labels.

use burrow_api::UpdateSandbox;
use clap::Args;

use super::flags::LimitFlags;
use crate::context::Context;
use crate::failure::{Failure, OrFail, Stop};
use crate::parse;
use crate::print::{self, Format};

/// Change the limits and labels of a sandbox, also while it runs
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow update web --ram 2G --cpu 2
  burrow update web --label tier=gold --unlabel tmp")]
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
    format: Format,
}

pub(crate) async fn run(ctx: &Context, args: UpdateArgs) -> Result<(), Stop> {
    if args.limits.is_empty() && args.labels.is_empty() && args.unlabels.is_empty() {
        return Err(Failure::new(format!(
            "could not update sandbox `{}`: nothing to change was given",
            args.sandbox
        ))
        .hint("give --ram, --cpu, --disk, --pids, --label or --unlabel")
        .into());
    }
    let set = args.labels.into_iter().map(|(key, value)| (key, Some(value)));
    let removed = args.unlabels.into_iter().map(|key| (key, None));
    let update = UpdateSandbox {
        limits: args.limits.over(None),
        labels: removed.chain(set).collect(),
        ..UpdateSandbox::default()
    };
    let updated = ctx.client()?.update_sandbox(&args.sandbox, &update).await;
    let updated = updated.or_fail(|| format!("could not update sandbox `{}`", args.sandbox))?;
    if args.format.json { print::json::pretty(&updated) } else { Ok(()) }
}
