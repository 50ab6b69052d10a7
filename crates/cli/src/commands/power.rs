//! `burrow start|stop|pause|resume|hibernate|wake`, for one or several sandboxes.

use burrow_client::ClientError;

use crate::commands::prelude::*;

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

// Arguments of commands that take sandboxes only, which document themselves.
#[derive(Debug, Args)]
pub(crate) struct SandboxesArgs {
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

pub(crate) async fn pause(ctx: &Context, args: SandboxesArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
    each(&args.sandboxes, "pause", async |sandbox| client.pause_sandbox(sandbox).await.map(drop)).await
}

pub(crate) async fn resume(ctx: &Context, args: SandboxesArgs) -> Result<(), Stop> {
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

pub(crate) async fn wake(ctx: &Context, args: SandboxesArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
    let wake = async |sandbox: &str| {
        let _working = Progress::working(&format!("waking {sandbox}"));
        client.wake_sandbox(sandbox).await.map(drop)
    };
    each(&args.sandboxes, "wake", wake).await
}

pub(super) async fn each(
    sandboxes: &[String],
    verb: &str,
    act: impl AsyncFn(&str) -> Result<(), ClientError>,
) -> Result<(), Stop> {
    try_all(sandboxes, async |sandbox| {
        act(sandbox).await.or_fail(|| format!("could not {verb} sandbox `{sandbox}`"))
    })
    .await
}

/// Tries all items and reports each failure; the last one decides the exit code.
pub(super) async fn try_all(
    items: &[String],
    act: impl AsyncFn(&str) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let mut last = Ok(());
    for item in items {
        let Err(stop) = act(item).await else { continue };
        if let Err(Stop::Failed(failure)) = last {
            crate::print::note(format!("error: {failure}"));
        }
        last = Err(stop);
    }
    last
}
