//! `burrow`: the daemon and its command line in one program.

use std::process::ExitCode;

use burrow_daemon::ClearingAllocator;

/// The global allocator must be defined in the program. `burrow serve` makes it clear freed memory.
#[global_allocator]
static MEMORY: ClearingAllocator = ClearingAllocator;

fn main() -> ExitCode {
    burrow_cli::main()
}
