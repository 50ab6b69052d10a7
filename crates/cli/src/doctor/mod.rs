//! Checks this host, one file per area, without changing it. `repair` runs the commands that fix a problem.
//!
//! Most checks work without the daemon, since it may be down because of the problem.

mod cgroups;
mod check;
mod daemon;
mod disk;
mod kernel;
mod network;
mod packages;
mod processes;
mod program;
pub(crate) mod repair;
mod secrets;

use std::path::Path;

pub(crate) use self::check::{Check, Verdict};
use crate::context::Context;
use crate::failure::Stop;
use crate::local::LocalDaemon;

pub(crate) async fn examine(ctx: &Context, config: Option<&Path>) -> Vec<Check> {
    let (daemon, problem) = match LocalDaemon::read(config) {
        Ok(daemon) => (Some(daemon), None),
        Err(stop) => (None, Some(configuration(stop))),
    };
    let local = daemon.as_ref().map(|daemon| daemon.context(ctx));
    let ctx = local.as_ref().unwrap_or(ctx);
    let daemon = daemon.as_ref();
    let areas = [
        ("kernel", kernel::examine()),
        ("cgroups", cgroups::examine()),
        ("disk", disk::examine(daemon).await),
        ("network", network::examine(ctx, daemon).await),
        ("processes", processes::examine(daemon).await),
        ("secrets", secrets::examine(daemon)),
        ("daemon", problem.into_iter().chain(daemon::examine(ctx).await).collect()),
    ];
    let of_area =
        |(area, checks): (_, Vec<Check>)| checks.into_iter().map(move |check| Check { area, ..check });
    areas.into_iter().flat_map(of_area).collect()
}

/// With an unreadable configuration, the daemon does not start.
fn configuration(stop: Stop) -> Check {
    let check = |found: String| Check::fail("configuration", found);
    match stop {
        Stop::Failed(failure) => check(failure.to_string()).fix_if(failure.hint),
        Stop::Exit(_) | Stop::BrokenPipe => check("it could not be read".to_owned()),
    }
}
