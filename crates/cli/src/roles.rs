//! The other roles of the program: the daemon, and its helpers, which must start without threads.
//!
//! The launcher creates processes inside namespaces, which a threaded program cannot do safely; the egress process
//! drops its privileges, which every thread would have to do. So the first argument selects the role, before the
//! command line is parsed or a runtime is started.

use std::ffi::OsStr;
use std::path::PathBuf;

use burrow_daemon::ServeOptions;

use crate::failure::{Failure, Stop};

/// Runs a helper of the daemon, and does not return, if the program was started as one.
pub(crate) fn take_over(role: Option<&OsStr>) {
    if role.is_some_and(|role| role == "launcher") {
        burrow_daemon::roles::launcher();
    }
    if role.is_some_and(|role| role == burrow_daemon::roles::EGRESS) {
        burrow_daemon::roles::egress();
    }
}

/// Runs the daemon until it is stopped.
pub(crate) fn serve(config: Option<PathBuf>, accept_rollback: bool) -> Result<(), Stop> {
    burrow_daemon::run(ServeOptions { config, accept_rollback }).map_err(|error| {
        Failure::new("could not run the daemon").because(&error).hint_if(error.hint()).into()
    })
}
