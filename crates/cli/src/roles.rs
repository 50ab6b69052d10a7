//! The program's other roles: the daemon itself, and the helpers of it that must start without any thread.
//!
//! The launcher creates processes inside namespaces, which a threaded program cannot do safely; the egress process gives
//! up its powers, which every thread would have to do. So they are told apart by the first argument, before the command
//! line is parsed or a runtime is started.

use std::ffi::OsStr;
use std::path::PathBuf;

use burrow_daemon::ServeOptions;

use crate::failure::{Failure, Stop};

/// Takes over, and does not come back, when the program was started as the daemon's helper.
pub(crate) fn take_over(role: Option<&OsStr>) {
    if role.is_some_and(|role| role == "launcher") {
        burrow_daemon::roles::launcher();
    }
    if role.is_some_and(|role| role == burrow_daemon::roles::EGRESS) {
        burrow_daemon::roles::egress();
    }
}

/// Runs the daemon until it is told to end.
pub(crate) fn serve(config: Option<PathBuf>, accept_rollback: bool) -> Result<(), Stop> {
    burrow_daemon::run(ServeOptions { config, accept_rollback }).map_err(|error| {
        let mut failure = Failure::new("could not run the daemon").because(&error);
        failure.hint = error.hint();
        failure.into()
    })
}
