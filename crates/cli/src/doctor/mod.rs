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
    fn new(area: &'static str, name: &'static str, verdict: Verdict, found: impl Into<String>) -> Self {
        Self { area, name, verdict, found: found.into(), fix: None }
    }

    pub(crate) fn ok(area: &'static str, name: &'static str, found: impl Into<String>) -> Self {
        Self::new(area, name, Verdict::Ok, found)
    }

    pub(crate) fn note(area: &'static str, name: &'static str, found: impl Into<String>) -> Self {
        Self::new(area, name, Verdict::Note, found)
    }

    pub(crate) fn warn(area: &'static str, name: &'static str, found: impl Into<String>) -> Self {
        Self::new(area, name, Verdict::Warn, found)
    }

    pub(crate) fn fail(area: &'static str, name: &'static str, found: impl Into<String>) -> Self {
        Self::new(area, name, Verdict::Fail, found)
    }

    pub(crate) fn fix(mut self, command: impl Into<String>) -> Self {
        self.fix = Some(command.into());
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
    let mut checks = kernel::examine();
    checks.extend(cgroups::examine());
    checks.extend(disk::examine(daemon.as_ref()).await);
    checks.extend(network::examine(ctx, daemon.as_ref()).await);
    checks.extend(processes::examine(daemon.as_ref()).await);
    checks.extend(secrets::examine(daemon.as_ref()));
    checks.extend(problem);
    checks.extend(daemon::examine(ctx).await);
    checks
}

/// With an unreadable configuration, the daemon does not start.
fn configuration(stop: Stop) -> Check {
    let check = |found: String| Check::fail("daemon", "configuration", found);
    match stop {
        Stop::Failed(failure) => {
            let shown = check(failure.to_string());
            match failure.hint {
                Some(hint) => shown.fix(hint),
                None => shown,
            }
        }
        Stop::Exit(_) | Stop::BrokenPipe => check("it could not be read".to_owned()),
    }
}
