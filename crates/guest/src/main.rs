//! `burrow-guest`: PID 1 of every sandbox. Called as `burrow-memory` it is the command with which programs inside use
//! memory; called as `burrow-guest sftp` it serves files over SSH.

use std::path::Path;

use burrow_guest::protocol::{VM_READER_ROLE, VM_ROLE, VM_TRIAL_ROLE};

fn main() -> std::process::ExitCode {
    let mut arguments = std::env::args_os();
    let called = arguments.next();
    let name = called.as_deref().and_then(|called| Path::new(called).file_name());
    if name.is_some_and(|name| name == burrow_guest::memory::NAME) {
        return burrow_guest::memory::run(arguments);
    }
    let mut arguments = arguments.peekable();
    // PID 1 gets its arguments from the launcher or the kernel; the role is for processes that are started later.
    if std::process::id() != 1
        && arguments.peek().is_some_and(|argument| argument == burrow_guest::sftp::ROLE)
    {
        return burrow_guest::sftp::run();
    }
    // The kernel of a microVM passes the role among the parameters that it does not know; a container's launcher
    // passes no argument.
    for argument in arguments {
        if argument == VM_ROLE {
            return burrow_guest::agent::run_vm();
        }
        if argument == VM_READER_ROLE {
            burrow_guest::agent::run_vm_reader();
        }
        if argument == VM_TRIAL_ROLE {
            burrow_guest::agent::end_vm();
        }
    }
    burrow_guest::agent::run()
}
