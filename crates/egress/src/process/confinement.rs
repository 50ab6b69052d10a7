//! What the process gives up before it serves anybody.

#![expect(unsafe_code, reason = "dropping privileges and marking a process have no safe interface")]

use std::io;
use std::net::ToSocketAddrs;
use std::os::fd::{AsFd, OwnedFd};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::Options;
use crate::intercept::Roots;

/// The standard streams: descriptors above them are closed.
const FIRST_FOREIGN_DESCRIPTOR: libc::c_uint = 3;

/// What it may write to any file: a segment of the audit spool, which the daemon gives it; and its standard error, for the
/// words of a panic.
const FILE_BYTES_MAX: u64 = burrow_audit::spool::SEGMENT_BYTES_MAX;

/// The control socket came as standard input; null takes its place there.
pub(super) fn take_listener() -> io::Result<OwnedFd> {
    let listener = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), FIRST_FOREIGN_DESCRIPTOR as i32)?;
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    // Before all others are closed, or it would be closed twice.
    drop(null);
    close_others(&listener)?;
    Ok(listener)
}

/// Closes what was inherited by mistake: all but the standard streams and `keep`.
fn close_others(keep: &OwnedFd) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let keep = libc::c_uint::try_from(keep.as_fd().as_raw_fd()).map_err(io::Error::other)?;
    for (first, last) in [(FIRST_FOREIGN_DESCRIPTOR, keep.saturating_sub(1)), (keep + 1, libc::c_uint::MAX)] {
        if first > last {
            continue;
        }
        // SAFETY: no descriptor in this range is owned by anything in this program: it has only just started.
        let outcome = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        if outcome != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// A session of its own, so that no signal to the daemon's group reaches it; and limits.
pub(super) fn settle() -> io::Result<()> {
    // Fails only for a process that leads its group already, which is as good.
    let _ = rustix::process::setsid();
    rustix::process::chdir("/")?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let exactly = |bound: u64| Rlimit { current: Some(bound), maximum: Some(bound) };
    setrlimit(Resource::Core, exactly(0))?;
    setrlimit(Resource::Fsize, exactly(FILE_BYTES_MAX))?;
    // Two descriptors per connection: as many as there may be.
    let files = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: files.maximum, maximum: files.maximum })?;
    // SAFETY: ignoring a signal runs no code of ours; a write beyond the limit then fails instead of killing.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    Ok(())
}

/// Looks something up, so that the resolver's configuration is read, and what it names loaded, while all is possible. A
/// name that needs no answer from the network: a host without one must not hold up the start.
pub(super) fn warm_up() {
    // Whether there is an answer does not matter.
    let _ = ("localhost", 0).to_socket_addrs().map(Iterator::count);
}

/// Reads the certificates by which hosts are verified. Without any, no host is trusted, and nothing is decrypted.
pub(super) fn roots() -> Roots {
    Roots::new(rustls_native_certs::load_native_certs().certs)
}

/// Becomes the uid and gid it was given, for good.
pub(super) fn drop_privileges(options: Options) -> io::Result<()> {
    // SAFETY: the process has one thread, so there is none that would keep what this one gives up.
    unsafe {
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
        if libc::geteuid() == 0 {
            check(libc::setgroups(0, std::ptr::null()))?;
            check(libc::setresgid(options.gid, options.gid, options.gid))?;
            // With the last uid 0 go all capabilities, permitted and effective.
            check(libc::setresuid(options.uid, options.uid, options.uid))?;
        }
        // After the change of uid, which resets it: not even a process of the same uid may look into this one.
        check(libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0))?;
    }
    Ok(())
}

fn check(outcome: libc::c_int) -> io::Result<()> {
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
