//! `burrow`: the daemon and its command line in one program.

use std::process::ExitCode;

use burrow_daemon::Clearing;

/// Here, since a program has one. `burrow serve` has it clear what is freed.
#[global_allocator]
static MEMORY: Clearing = Clearing;

fn main() -> ExitCode {
    burrow_cli::main()
}
