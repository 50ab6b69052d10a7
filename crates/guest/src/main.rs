//! `burrow-guest`: PID 1 of every sandbox, and under the name `burrow-memory` what programs inside remember with.

use std::path::Path;

fn main() -> std::process::ExitCode {
    let mut arguments = std::env::args_os();
    let called = arguments.next();
    let name = called.as_deref().and_then(|called| Path::new(called).file_name());
    if name.is_some_and(|name| name == burrow_guest::memory::NAME) {
        return burrow_guest::memory::run(arguments);
    }
    burrow_guest::agent::run()
}
