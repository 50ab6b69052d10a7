//! `burrow`: the daemon and its command line in one program.

use std::process::ExitCode;

fn main() -> ExitCode {
    burrow_cli::main()
}
