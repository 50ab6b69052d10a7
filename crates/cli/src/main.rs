//! `burrow`: the daemon and its command line in one program.

use std::process::ExitCode;

/// The global allocator must be defined in the program. `burrow serve` makes it clear freed memory.
#[cfg(feature = "daemon")]
#[global_allocator]
static MEMORY: burrow_daemon::ClearingAllocator = burrow_daemon::ClearingAllocator;

fn main() -> ExitCode {
    burrow_cli::main()
}
