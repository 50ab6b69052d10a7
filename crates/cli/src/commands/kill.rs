//! `burrow kill`: a signal to an exec.

use burrow_api::SendSignal;

use super::target::ExecTarget;
use crate::commands::prelude::*;

/// Send a signal to an exec
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow kill exe7h3k…
  burrow kill -s KILL web                      the latest exec of a sandbox")]
pub(crate) struct KillArgs {
    /// Signal to send: TERM, SIGKILL, 9
    #[arg(short = 's', long, default_value = "TERM", value_parser = parse::signal)]
    signal: String,
    /// Signal only the first process, not the whole process group
    #[arg(long)]
    leader_only: bool,
    #[command(flatten)]
    target: ExecTarget,
}

pub(crate) async fn run(ctx: &Context, args: KillArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
    let exec = args.target.find(&client).await?;
    let signal = SendSignal { signal: args.signal.clone(), group: !args.leader_only };
    client
        .signal_exec(&exec.sandbox_id, &exec.id, &signal)
        .await
        .or_fail(|| format!("could not send {} to exec `{}`", args.signal, exec.id))
}
