//! `burrow attach`: back to an exec that runs, with what was missed.

use burrow_api::ExecState;
use clap::Args;

use super::target::ExecTarget;
use crate::context::Context;
use crate::failure::{OrFail as _, Stop};
use crate::interact::detach::DetachKeys;
use crate::interact::{Interaction, interact, outcome};

/// Attach to an exec: replay its output, then follow it and pass input on
///
/// Ctrl-P Ctrl-Q in a terminal, or Ctrl-C outside of one, leaves it running.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow attach web                            the latest exec of a sandbox
  burrow attach exe7h3k…                       one by its id
  burrow attach --from 4096 --no-stdin web")]
pub(crate) struct AttachArgs {
    #[command(flatten)]
    target: ExecTarget,
    /// First byte of output to replay; all that is still held by default
    #[arg(long, value_name = "OFFSET", default_value_t = 0, conflicts_with = "no_replay")]
    from: u64,
    /// Show only what comes from now on
    #[arg(long)]
    no_replay: bool,
    /// Do not pass standard input on
    #[arg(long)]
    no_stdin: bool,
    /// Pass signals such as Ctrl-C on to it, as `exec` does
    #[arg(long)]
    forward_signals: bool,
    /// Keys that leave it running; empty for none
    #[arg(long, value_name = "KEYS", default_value = "ctrl-p,ctrl-q")]
    detach_keys: DetachKeys,
}

pub(crate) async fn run(ctx: &Context, args: AttachArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
    let mut exec = args.target.find(&client).await?;
    if args.no_replay && exec.state == ExecState::Running {
        // How much it has written so far only its sandbox can tell, which is going to be woken anyway.
        let what = || format!("could not attach to exec `{}`", exec.id);
        client.wake_sandbox(&exec.sandbox_id).await.or_fail(what)?;
        exec = client.exec(&exec.sandbox_id, &exec.id).await.or_fail(what)?;
    }
    let running = exec.state == ExecState::Running;
    let interaction = Interaction {
        sandbox: exec.sandbox_id.clone(),
        exec: exec.id.clone(),
        input: running && !args.no_stdin,
        terminal: running && exec.terminal,
        detach_keys: args.detach_keys,
        offset: if args.no_replay { exec.output_end } else { args.from },
        forward_signals: args.forward_signals,
    };
    let end = interact(&client, interaction).await?;
    outcome::pass_on(&client, end, &exec.id).await
}
