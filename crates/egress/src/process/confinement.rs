//! Drops privileges and inherited resources before the process serves sandboxes.

#![expect(unsafe_code, reason = "dropping privileges and marking a process have no safe interface")]

use std::io;
use std::net::ToSocketAddrs;
use std::os::fd::{AsFd, OwnedFd};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::Options;
use crate::intercept::Roots;

/// The standard streams: descriptors above them are closed.
const FIRST_FOREIGN_DESCRIPTOR: libc::c_uint = 3;

/// Limit for writing to any file: a segment of the audit spool, which the daemon passes, and standard error, for the
/// message of a panic.
const FILE_BYTES_MAX: u64 = burrow_audit::spool::SEGMENT_BYTES_MAX;

/// Takes the control socket from standard input, and puts `/dev/null` in its place.
pub(super) fn take_listener() -> io::Result<OwnedFd> {
    let listener = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), FIRST_FOREIGN_DESCRIPTOR as i32)?;
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    // Before the other descriptors are closed, or it would be closed twice.
    drop(null);
    close_others(&listener)?;
    Ok(listener)
}

/// Closes descriptors that were inherited by mistake: all but the standard streams and `keep`.
fn close_others(keep: &OwnedFd) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let keep = libc::c_uint::try_from(keep.as_fd().as_raw_fd()).map_err(io::Error::other)?;
    for (first, last) in [(FIRST_FOREIGN_DESCRIPTOR, keep.saturating_sub(1)), (keep + 1, libc::c_uint::MAX)] {
        if first > last {
            continue;
        }
        // SAFETY: no descriptor in this range is owned by anything in this program: it has just started.
        let outcome = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        if outcome != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Creates a session, so that signals to the daemon's process group do not reach this process, and sets resource
/// limits.
pub(super) fn set_session_and_limits() -> io::Result<()> {
    // Fails only for a process group leader, for which it is unnecessary.
    let _ = rustix::process::setsid();
    rustix::process::chdir("/")?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let exactly = |bound: u64| Rlimit { current: Some(bound), maximum: Some(bound) };
    setrlimit(Resource::Core, exactly(0))?;
    setrlimit(Resource::Fsize, exactly(FILE_BYTES_MAX))?;
    // Two descriptors per connection: use the maximum.
    let files = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: files.maximum, maximum: files.maximum })?;
    // SAFETY: ignoring a signal runs none of our code; a write beyond the limit then fails instead of killing the
    // process.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    Ok(())
}

/// Resolves a name, so that the C library reads the resolver's configuration and loads its modules while it still
/// can. The name needs no answer from the network, so a host without network does not delay the start.
pub(super) fn warm_up() {
    // The result does not matter.
    let _ = ("localhost", 0).to_socket_addrs().map(Iterator::count);
}

/// Loads the certificates with which hosts are verified. Without any, no host is trusted and nothing is intercepted.
pub(super) fn roots() -> Roots {
    Roots::new(rustls_native_certs::load_native_certs().certs)
}

/// Changes to the given uid and gid, permanently.
pub(super) fn drop_privileges(options: Options) -> io::Result<()> {
    // SAFETY: the process has one thread, so no other thread keeps the privileges.
    unsafe {
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
        if libc::geteuid() == 0 {
            check(libc::setgroups(0, std::ptr::null()))?;
            check(libc::setresgid(options.gid, options.gid, options.gid))?;
            // Giving up the last uid 0 also clears all permitted and effective capabilities.
            check(libc::setresuid(options.uid, options.uid, options.uid))?;
        }
        // After the change of uid, which resets it: prevents even processes of the same uid from reading this
        // process's memory.
        check(libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0))?;
    }
    Ok(())
}

fn check(outcome: libc::c_int) -> io::Result<()> {
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
