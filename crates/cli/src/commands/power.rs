//! `burrow start|stop|pause|resume`, for one or several sandboxes.

use std::time::Duration;

use burrow_client::ClientError;
use clap::Args;

use crate::context::Context;
use crate::failure::{OrFail, Stop};
use crate::parse;

/// Stop sandboxes: processes end, files stay
#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    #[arg(required = true, value_name = "SANDBOX")]
    sandboxes: Vec<String>,
    /// Time for processes to end by themselves
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    grace: Option<Duration>,
}

/// Start stopped sandboxes, with their services
#[derive(Debug, Args)]
pub(crate) struct StartArgs {
    #[arg(required = true, value_name = "SANDBOX")]
    sandboxes: Vec<String>,
}

/// Pause sandboxes: no processor time, RAM stays; any use wakes them
#[derive(Debug, Args)]
pub(crate) struct PauseArgs {
    #[arg(required = true, value_name = "SANDBOX")]
    sandboxes: Vec<String>,
}

/// Resume paused sandboxes
#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    #[arg(required = true, value_name = "SANDBOX")]
    sandboxes: Vec<String>,
}

pub(crate) async fn stop(ctx: &Context, args: StopArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
    each(&args.sandboxes, "stop", async |sandbox| client.stop_sandbox(sandbox, args.grace).await.map(drop))
        .await
}

pub(crate) async fn start(ctx: &Context, args: StartArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
    each(&args.sandboxes, "start", async |sandbox| client.start_sandbox(sandbox).await.map(drop)).await
}

pub(crate) async fn pause(ctx: &Context, args: PauseArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
    each(&args.sandboxes, "pause", async |sandbox| client.pause_sandbox(sandbox).await.map(drop)).await
}

pub(crate) async fn resume(ctx: &Context, args: ResumeArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
    each(&args.sandboxes, "resume", async |sandbox| client.resume_sandbox(sandbox).await.map(drop)).await
}

/// All are tried, the failed ones told of; the last failure is the command's.
pub(super) async fn each(
    sandboxes: &[String],
    verb: &str,
    act: impl AsyncFn(&str) -> Result<(), ClientError>,
) -> Result<(), Stop> {
    let mut last = Ok(());
    for sandbox in sandboxes {
        let result = act(sandbox).await.or_fail(|| format!("could not {verb} sandbox `{sandbox}`"));
        if let Err(Stop::Failed(failure)) = &last
            && result.is_err()
        {
            crate::print::note(&format!("error: {failure}"));
        }
        if result.is_err() {
            last = result;
        }
    }
    last
}
