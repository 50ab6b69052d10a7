//! `burrow start|stop|pause|resume|hibernate|wake`, for one or several sandboxes.

use std::time::Duration;

use burrow_client::ClientError;
use clap::Args;

use crate::context::Context;
use crate::failure::{OrFail, Stop};
use crate::parse;
use crate::transfer::progress::Progress;

/// Stop sandboxes: end their processes, keep their files
#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    #[arg(required = true, value_name = "SANDBOX")]
    sandboxes: Vec<String>,
    /// Time for processes to end before they are killed
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    grace: Option<Duration>,
}

/// Start stopped sandboxes with their services
#[derive(Debug, Args)]
pub(crate) struct StartArgs {
    #[arg(required = true, value_name = "SANDBOX")]
    sandboxes: Vec<String>,
    /// Boot a hibernated sandbox from its files, and discard its processes
    #[arg(long)]
    files_only: bool,
}

/// Pause sandboxes: freeze their processes, keep their RAM
///
/// Any use wakes them.
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

/// Hibernate sandboxes: save their processes to disk, free RAM
///
/// Any use wakes them. Processes continue where they were; connections to the outside are closed. If a process cannot
/// be saved, the command fails and the sandbox keeps running.
#[derive(Debug, Args)]
pub(crate) struct HibernateArgs {
    #[arg(required = true, value_name = "SANDBOX")]
    sandboxes: Vec<String>,
    /// Hibernate also where no trial can show whether the processes can be restored
    #[arg(long)]
    untried: bool,
}

/// Wake sandboxes that are paused, hibernated or stopped
#[derive(Debug, Args)]
pub(crate) struct WakeArgs {
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
    let start = async |sandbox: &str| match args.files_only {
        true => client.start_sandbox_from_files(sandbox).await.map(drop),
        false => client.start_sandbox(sandbox).await.map(drop),
    };
    each(&args.sandboxes, "start", start).await
}

pub(crate) async fn pause(ctx: &Context, args: PauseArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
    each(&args.sandboxes, "pause", async |sandbox| client.pause_sandbox(sandbox).await.map(drop)).await
}

pub(crate) async fn resume(ctx: &Context, args: ResumeArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
    each(&args.sandboxes, "resume", async |sandbox| client.resume_sandbox(sandbox).await.map(drop)).await
}

pub(crate) async fn hibernate(ctx: &Context, args: HibernateArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
    let hibernate = async |sandbox: &str| {
        let _working = Progress::working(&format!("hibernating {sandbox}"));
        match args.untried {
            true => client.hibernate_sandbox_untried(sandbox).await.map(drop),
            false => client.hibernate_sandbox(sandbox).await.map(drop),
        }
    };
    each(&args.sandboxes, "hibernate", hibernate).await
}

pub(crate) async fn wake(ctx: &Context, args: WakeArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
    let wake = async |sandbox: &str| {
        let _working = Progress::working(&format!("waking {sandbox}"));
        client.wake_sandbox(sandbox).await.map(drop)
    };
    each(&args.sandboxes, "wake", wake).await
}

/// Tries all sandboxes and reports each failure; the last one decides the exit code.
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
