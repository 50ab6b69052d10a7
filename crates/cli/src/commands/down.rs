//! `burrow down`: stops the daemon; sandboxes keep running.

use burrow_api::SandboxState;
use burrow_client::SandboxQuery;

use super::host::{self, RunningDaemon};
use crate::commands::prelude::*;
use crate::local::LocalDaemon;
use crate::log_file;

/// The daemon lets current requests finish, for 10 s at most, and then cleans up.
const END_LIMIT: Duration = Duration::from_secs(60);

/// Stop the daemon; sandboxes keep running
///
/// `burrow up` starts the daemon again, and it takes over the running sandboxes.
#[derive(Debug, Args)]
pub(crate) struct DownArgs {
    /// Configuration file of the daemon
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Stop all sandboxes first
    #[arg(long)]
    stop_sandboxes: bool,
}

pub(crate) async fn run(ctx: &Context, args: DownArgs) -> Result<(), Stop> {
    let what = "could not stop the daemon";
    if !ctx.is_local() {
        return fail(
            format!("{}: `{}` is not this host", what, ctx.args.url),
            "unset BURROW_URL, or run `burrow down` there",
        );
    }
    let daemon = LocalDaemon::read(args.config.as_deref())?;
    let client = daemon.context(ctx).client()?;
    let answers = client.health().await.is_ok();
    if args.stop_sandboxes && answers {
        stop_all(&client).await?;
    }
    // A configuration file on the command line means another daemon than that of the unit.
    let named = args.config.is_some() || std::env::var_os(burrow_daemon::PATH_VARIABLE).is_some();
    if !named && host::has_unit() && host::unit_is_active().await {
        host::systemctl("stop").await.or_fail(what)?;
        print::note("the daemon has stopped");
        return Ok(());
    }
    let Some(running) = RunningDaemon::find(&daemon.pid_file()) else {
        if answers && !host::is_root() {
            return fail(format!("{}: root is required", what), "sudo burrow down");
        }
        if answers {
            return fail(
                format!("{}: a daemon answers at `{}`, but it has no pid file", what, client.url()),
                "stop it where it was started, e.g. with Ctrl-C in its terminal",
            );
        }
        print::note("the daemon is not running");
        return Ok(());
    };
    running.terminate().or_fail(what)?;
    if !running.ended(END_LIMIT).await.or_fail(what)? {
        return fail(
            format!("{}: it did not exit within {} s", what, END_LIMIT.as_secs()),
            format!("see its log: {}", log_file::PATH),
        );
    }
    print::note(match args.stop_sandboxes {
        true => "all sandboxes and the daemon have stopped; `burrow up` starts it again",
        false => "the daemon has stopped; sandboxes keep running, `burrow up` starts it again",
    });
    Ok(())
}

async fn stop_all(client: &Client) -> Result<(), Stop> {
    for state in [SandboxState::Running, SandboxState::Paused] {
        let query = SandboxQuery { labels: Vec::new(), state: Some(state) };
        let sandboxes = client.all_sandboxes(&query).await.or_fail("could not list sandboxes")?;
        for sandbox in sandboxes {
            match client.stop_sandbox(&sandbox.id, None).await {
                // It has stopped meanwhile, and was deleted if it was ephemeral.
                Err(error) if error.is_not_found() => {}
                result => {
                    result.or_fail(|| format!("could not stop sandbox `{}`", sandbox.id))?;
                }
            }
        }
    }
    Ok(())
}
