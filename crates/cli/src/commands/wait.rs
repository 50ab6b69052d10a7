//! `burrow wait`: waits for the end of an exec.

use burrow_client::WaitOutcome;

use super::target::ExecTarget;
use crate::commands::prelude::*;
use crate::interact::outcome;

/// Wait for an exec to end and exit with its code
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  id=$(burrow exec -d web -- make test)
  burrow wait $id && echo passed
  burrow wait --timeout 5m --json $id")]
pub(crate) struct WaitArgs {
    /// Stop waiting after this time, with exit code 124; the exec keeps running
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    timeout: Option<Duration>,
    #[command(flatten)]
    target: ExecTarget,
    #[command(flatten)]
    format: Format,
}

pub(crate) async fn run(ctx: &Context, args: WaitArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
    let exec = args.target.find(&client).await?;
    let what = || format!("could not wait for exec `{}`", exec.id);
    match client.wait_exec(&exec.sandbox_id, &exec.id, args.timeout).await.or_fail(what)? {
        WaitOutcome::Ended(exec) => {
            if args.format.json {
                print::json::pretty(&exec)?;
            }
            outcome::explain(&client, &exec).await;
            match outcome::exit_code(&exec) {
                0 => Ok(()),
                code => Err(Stop::Exit(code)),
            }
        }
        WaitOutcome::StillRunning(exec) => {
            let failure = Failure::new(format!("exec `{}` is still running", exec.id));
            Err(Stop::from(failure).with_code(CODE_TIMED_OUT))
        }
    }
}
