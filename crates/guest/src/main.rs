//! `burrow-guest`: PID 1 of every sandbox.

fn main() -> std::process::ExitCode {
    burrow_guest::agent::run()
}
