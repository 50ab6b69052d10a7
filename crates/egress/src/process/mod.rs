//! The role `burrow egress-process`: serves the listeners of all sandboxes.
//!
//! ```text
//! started as root, with the control socket as its standard input
//!   ──► own session, fixed limits, no core, not dumpable
//!   ──► one lookup, to load what the resolver needs; the certificates with which hosts are verified
//!   ──► own uid and gid, no capability, no_new_privs ──► system call filter ──► serve
//! ```
//!
//! It outlives the daemon, and continues with the policies it has. It ends on request, or after a time without daemon
//! and sandboxes.

mod confinement;
pub mod filter;
mod serve;

use std::io;
use std::os::fd::OwnedFd;

pub use filter::confine;

use crate::intercept::Roots;

/// Threads that forward bytes. More would not help: the kernel does the work.
const WORKERS: usize = 2;

/// Threads for lookups, and a few to spare.
const BLOCKING_THREADS_MAX: usize = crate::proxy::LOOKUPS_MAX + 8;

/// Lookups need little stack, and there may be many.
const STACK_BYTES: usize = 512 * 1024;

/// The options that the supervisor passes on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// The user to run as.
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// The uid that may use the control socket.
    pub(crate) owner: u32,
}

impl Options {
    /// The options as command line arguments.
    pub(crate) fn arguments(self) -> [String; 6] {
        let number = |number: u32| number.to_string();
        let [uid, gid, owner] = ["--uid", "--gid", "--owner"].map(str::to_owned);
        [uid, number(self.uid), gid, number(self.gid), owner, number(self.owner)]
    }

    /// Parses the last six of `arguments`.
    fn parse(arguments: &[String]) -> Option<Self> {
        let last = arguments.len().checked_sub(6)?;
        match &arguments[last..] {
            [a, uid, b, gid, c, owner] if a == "--uid" && b == "--gid" && c == "--owner" => {
                Some(Self { uid: uid.parse().ok()?, gid: gid.parse().ok()?, owner: owner.parse().ok()? })
            }
            _ => None,
        }
    }
}

/// Runs the role and never returns. The supervisor starts it; its arguments are read here. `confine` loads the system
/// call filter: [`confine`], or a replacement in tests.
pub fn main(confine: impl FnOnce() -> io::Result<()>) -> ! {
    let arguments: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let code = match Options::parse(&arguments) {
        None => {
            print_error("only the daemon can start this role");
            2
        }
        Some(options) => match run(options, confine) {
            Ok(()) => 0,
            Err((step, error)) => {
                print_error(&format!("could not {step}: {error}"));
                1
            }
        },
    };
    std::process::exit(code)
}

fn run(options: Options, confine: impl FnOnce() -> io::Result<()>) -> Result<(), (&'static str, io::Error)> {
    let at = |step: &'static str| move |error: io::Error| (step, error);
    let listener = confinement::take_listener().map_err(at("take the control socket"))?;
    confinement::set_session_and_limits().map_err(at("create a session and set limits"))?;
    confinement::warm_up();
    let roots = confinement::roots();
    confinement::drop_privileges(options).map_err(at("drop privileges"))?;
    // Listens again in this process: clients see the uid and pid of the process that called `listen` last.
    rustix::net::listen(&listener, 16).map_err(|error| ("listen", error.into()))?;
    confine().map_err(at("load the system call filter"))?;
    serve_until_quit(options, listener, roots).map_err(at("serve"))
}

fn serve_until_quit(options: Options, listener: OwnedFd, roots: Roots) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_stack_size(STACK_BYTES)
        .thread_name("burrow-egress")
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(serve::serve(options, listener, roots));
    // Lookups that hang must not delay the exit.
    runtime.shutdown_background();
    outcome
}

fn print_error(text: &str) {
    use std::io::Write;
    // If standard error is closed, there is no other place to report to.
    let _ = writeln!(io::stderr(), "burrow egress: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_parsed_as_they_are_formatted() {
        let options = Options { uid: 7, gid: 8, owner: 0 };
        let mut arguments = vec!["burrow".to_owned(), "egress".to_owned()];
        assert_eq!(Options::parse(&arguments), None);
        arguments.extend(options.arguments());
        assert_eq!(Options::parse(&arguments), Some(options));
    }
}
