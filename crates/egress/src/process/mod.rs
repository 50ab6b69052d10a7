//! The role `burrow egress`: the process behind every sandbox's doors.
//!
//! ```text
//! started as root, with the control socket as its standard input
//!   ──► own session, no limits raised later, no core, not dumpable
//!   ──► one lookup, so that all the resolver needs is loaded; the certificates by which hosts are verified
//!   ──► own uid and gid, no capability, no_new_privs ──► system call filter ──► serve
//! ```
//!
//! It outlives the daemon, and goes on with the policies it has. It ends when it is told to, or when it has had neither
//! daemon nor sandbox for a while.

mod confinement;
pub mod filter;
mod serve;

use std::io;
use std::os::fd::OwnedFd;

pub use filter::confine;

use crate::intercept::Roots;

/// Threads that carry bytes. More would not help: the kernel does the work.
const WORKERS: usize = 2;

/// Threads for lookups, and a few to spare.
const BLOCKING_THREADS_MAX: usize = crate::proxy::LOOKUPS_MAX + 8;

/// Lookups need little of it, and there may be many.
const STACK_BYTES: usize = 512 * 1024;

/// What the supervisor tells it on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// Who to run as.
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Who may control it.
    pub(crate) owner: u32,
}

impl Options {
    /// As arguments.
    pub(crate) fn arguments(self) -> [String; 6] {
        let number = |number: u32| number.to_string();
        let [uid, gid, owner] = ["--uid", "--gid", "--owner"].map(str::to_owned);
        [uid, number(self.uid), gid, number(self.gid), owner, number(self.owner)]
    }

    /// The last six of `arguments`.
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

/// Runs the role, and does not come back. It is started by the supervisor, whose arguments it reads. `confine` loads the
/// system call filter: [`confine`], or in a test something else.
pub fn main(confine: impl FnOnce() -> io::Result<()>) -> ! {
    let arguments: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let code = match Options::parse(&arguments) {
        None => {
            complain("this role is started by `burrow serve`, not by hand");
            2
        }
        Some(options) => match run(options, confine) {
            Ok(()) => 0,
            Err((step, error)) => {
                complain(&format!("could not {step}: {error}"));
                1
            }
        },
    };
    std::process::exit(code)
}

fn run(options: Options, confine: impl FnOnce() -> io::Result<()>) -> Result<(), (&'static str, io::Error)> {
    let at = |step: &'static str| move |error: io::Error| (step, error);
    let listener = confinement::take_listener().map_err(at("take the control socket"))?;
    confinement::settle().map_err(at("settle"))?;
    confinement::warm_up();
    let roots = confinement::roots();
    confinement::drop_privileges(options).map_err(at("drop privileges"))?;
    // Again by us: whoever connects sees the uid and pid of who called this last.
    rustix::net::listen(&listener, 16).map_err(|error| ("listen", error.into()))?;
    confine().map_err(at("load the system call filter"))?;
    serve_until_told(options, listener, roots).map_err(at("serve"))
}

fn serve_until_told(options: Options, listener: OwnedFd, roots: Roots) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_stack_size(STACK_BYTES)
        .thread_name("burrow-egress")
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(serve::serve(options, listener, roots));
    // Lookups that hang must not hold up the end.
    runtime.shutdown_background();
    outcome
}

fn complain(text: &str) {
    use std::io::Write;
    // If nobody reads it, nobody can be told.
    let _ = writeln!(io::stderr(), "burrow egress: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_as_they_are_written() {
        let options = Options { uid: 7, gid: 8, owner: 0 };
        let mut arguments = vec!["burrow".to_owned(), "egress".to_owned()];
        assert_eq!(Options::parse(&arguments), None);
        arguments.extend(options.arguments());
        assert_eq!(Options::parse(&arguments), Some(options));
    }
}
