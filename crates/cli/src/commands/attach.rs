//! `burrow attach`: attaches to a running exec and replays its output.

use burrow_api::ExecState;

use super::target::ExecTarget;
use crate::commands::prelude::*;
use crate::interact::detach::DetachKeys;
use crate::interact::{Interaction, interact, outcome};

/// Attach to a running exec and replay its output
///
/// Press Ctrl-P Ctrl-Q in a terminal, or Ctrl-C outside of one, to detach; the exec keeps running.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow attach web                            the latest exec of a sandbox
  burrow attach exe7h3k…                       an exec by its id
  burrow attach --from 4096 --no-stdin web")]
pub(crate) struct AttachArgs {
    #[command(flatten)]
    target: ExecTarget,
    /// Offset of the first byte to replay; all output that is still stored by default
    #[arg(long, value_name = "OFFSET", default_value_t = 0, conflicts_with = "no_replay")]
    from: u64,
    /// Show only new output
    #[arg(long)]
    no_replay: bool,
    /// Do not forward standard input
    #[arg(long)]
    no_stdin: bool,
    /// Forward signals such as Ctrl-C to the exec, as `exec` does
    #[arg(long)]
    forward_signals: bool,
    /// Key sequence to detach; empty for none
    #[arg(long, value_name = "KEYS", default_value = "ctrl-p,ctrl-q")]
    detach_keys: DetachKeys,
}

pub(crate) async fn run(ctx: &Context, args: AttachArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
    let mut exec = args.target.find(&client).await?;
    if args.no_replay && exec.state == ExecState::Running {
        // Only the sandbox knows how much the exec has written so far; attaching wakes the sandbox anyway.
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
    outcome::exit_as(&client, end, &exec.id).await
}
