//! Checks this host, one file per area, without changing it.
//!
//! Most checks work without the daemon, since it may be down because of the problem.

mod cgroups;
mod daemon;
mod disk;
mod kernel;
mod network;
mod packages;
mod processes;
mod program;
mod secrets;

use std::path::Path;

use serde::Serialize;

use crate::context::Context;
use crate::failure::Stop;
use crate::local::LocalDaemon;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Ok,
    /// For information; nothing is missing.
    Note,
    /// Something optional does not work.
    Warn,
    /// Something required does not work.
    Fail,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Check {
    pub(crate) area: &'static str,
    pub(crate) name: &'static str,
    pub(crate) verdict: Verdict,
    /// The finding, with the reason of a problem.
    pub(crate) found: String,
    /// The command that fixes the problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fix: Option<String>,
}

impl Check {
    fn new(name: &'static str, verdict: Verdict, found: impl Into<String>) -> Self {
        Self { area: "", name, verdict, found: found.into(), fix: None }
    }

    pub(crate) fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self::new(name, Verdict::Ok, found)
    }

    pub(crate) fn note(name: &'static str, found: impl Into<String>) -> Self {
        Self::new(name, Verdict::Note, found)
    }

    pub(crate) fn warn(name: &'static str, found: impl Into<String>) -> Self {
        Self::new(name, Verdict::Warn, found)
    }

    pub(crate) fn fail(name: &'static str, found: impl Into<String>) -> Self {
        Self::new(name, Verdict::Fail, found)
    }

    pub(crate) fn fix(self, command: impl Into<String>) -> Self {
        self.fix_if(Some(command))
    }

    pub(crate) fn fix_if(mut self, command: Option<impl Into<String>>) -> Self {
        self.fix = command.map(Into::into);
        self
    }
}

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
