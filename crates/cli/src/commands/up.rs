//! `burrow up`: starts the daemon, and imports or builds the default image.

use burrow_client::ClientError;
use tokio::time::Instant;

use super::host::{self, BackgroundDaemon};
use super::image;
use crate::commands::prelude::*;
use crate::local::LocalDaemon;

/// A daemon that adopts hundreds of sandboxes needs seconds; beyond this limit it hangs.
const READY_LIMIT: Duration = Duration::from_secs(120);
const READY_PAUSE: Duration = Duration::from_millis(100);

/// Start the daemon in the background and provide the default image
///
/// The image is imported from Burrow's package, or else built from Debian packages. Uses systemd if its unit is installed.
/// Running it again is safe: only missing parts are done.
#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// Configuration file of the daemon
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Neither import nor build the default image
    #[arg(long)]
    no_image: bool,
}

pub(crate) async fn run(ctx: &Context, args: UpArgs) -> Result<(), Stop> {
    if !ctx.is_local() {
        return fail(
            format!("could not start the daemon at `{}`: it is not this host", ctx.args.url),
            "unset BURROW_URL, or run `burrow up` there",
        );
    }
    let daemon = LocalDaemon::read(args.config.as_deref())?;
    let client = daemon.context(ctx).client()?;
    let started = match client.readiness().await {
        Ok(_) => None,
        Err(error) if error.is_unreachable() => start(&args, &daemon).await?,
        Err(error) => {
            return Err(error).or_fail("could not ask the daemon whether it is ready");
        }
    };
    wait(&client, started).await?;
    daemon.give_key_to_caller();
    // The first start wrote the key that this command did not find before.
    let client = daemon.context(ctx).client()?;
    if !args.no_image {
        image::provide_default(&client, daemon.packaged_image().as_deref()).await?;
    }
    welcome(&client.url());
    Ok(())
}

/// `None`: systemd starts it.
async fn start(args: &UpArgs, daemon: &LocalDaemon) -> Result<Option<BackgroundDaemon>, Stop> {
    let what = "could not start the daemon";
    if !host::is_root() {
        return fail(format!("{}: root is required", what), "sudo burrow up");
    }
    if host::has_unit() && args.config.is_none() {
        host::systemctl("start").await.or_fail(what)?;
        return Ok(None);
    }
    BackgroundDaemon::start(args.config.as_deref(), &daemon.config.state_dir).or_fail(what).map(Some)
}

async fn wait(client: &Client, mut started: Option<BackgroundDaemon>) -> Result<(), Stop> {
    let deadline = Instant::now() + READY_LIMIT;
    let progress = Progress::stages("daemon");
    loop {
        let waiting_for = match client.readiness().await {
            Ok(readiness) if readiness.ready => {
                progress.finish();
                return Ok(());
            }
            Ok(readiness) => readiness.waiting_for.join(", "),
            Err(ClientError::Connect { .. } | ClientError::Broken { .. }) => "starting".to_owned(),
            Err(error) => {
                return Err(error).or_fail("could not ask the daemon whether it is ready");
            }
        };
        progress.stage(&waiting_for, None);
        if let Some(started) = &mut started
            && let Ok(Some(status)) = started.child.try_wait()
        {
            return Err(start_failure(started, &format!("the daemon exited with {status}")));
        }
        if Instant::now() >= deadline {
            return Err(match &started {
                Some(started) => start_failure(started, "the daemon is not ready"),
                None => Failure::new(format!("the daemon is not ready; it waits for: {waiting_for}"))
                    .hint("see its log: `journalctl -u burrow`, or /var/log/burrow.log")
                    .into(),
            });
        }
        tokio::time::sleep(READY_PAUSE).await;
    }
}

fn start_failure(started: &BackgroundDaemon, what: &str) -> Stop {
    let words = started.log_tail();
    if !words.is_empty() {
        print::note(&words);
    }
    Failure::new(what)
        .hint(format!("`burrow doctor` checks this host; the log is `{}`", started.log.display()))
        .into()
}

fn welcome(url: &str) {
    print::note(format!("the daemon is ready at {url}"));
    print::note("next steps:");
    print::note("  burrow run --rm -- uname -a      a sandbox for one command");
    print::note("  burrow create --name dev         a persistent sandbox");
    print::note("  burrow shell dev                 a shell in it");
    print::note("  burrow doctor                    check this host");
}
