//! The system call filter of a sandbox.
//!
//! One filter, an allow-list ([`table`]): calls that are not in it fail with `EPERM`. It is loaded while PID 1 still
//! has its capabilities, because `no_new_privs` stays off: `sudo` works inside, and every process of the sandbox
//! inherits the filter whatever it executes. A filter cannot be removed.
//!
//! A machine with volumes has a more restrictive one ([`Reflinks`]). It is chosen at its boot: volumes are only
//! attached and detached between a stop and a boot, and a dump contains the filters.

mod cases;
mod program;
mod table;

use std::io;

pub use cases::{ArgumentCase, FilterAnswer, argument_cases};
pub use program::{Instruction, Reflinks, program};
pub use table::{ALLOWED, CLONE3, Call, JUDGED, NEWEST_KNOWN, UNFILTERED, UNKNOWN};

/// The filter's result for a system call number of this architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Allowed,
    /// Depends on the arguments.
    Judged,
    /// `EPERM`.
    Refused,
    /// `ENOSYS`, as from an older kernel.
    Unknown,
}

/// The table's result for a number, for tests that compare it with the behaviour in a sandbox without volumes; not
/// valid for [`UNFILTERED`].
pub fn verdict(number: u32) -> Verdict {
    let has = |calls: &[Call]| calls.iter().any(|call| call.number() == Some(number));
    match number {
        CLONE3 => Verdict::Unknown,
        _ if number & program::X32_BIT != 0 => Verdict::Refused,
        _ if number > NEWEST_KNOWN => Verdict::Unknown,
        _ if has(UNKNOWN) => Verdict::Unknown,
        _ if has(ALLOWED) => Verdict::Allowed,
        _ if has(JUDGED) => Verdict::Judged,
        _ => Verdict::Refused,
    }
}

/// Applies the filter to the calling thread, and to all processes that it will start. It cannot be undone.
///
/// Needs `CAP_SYS_ADMIN` in the caller's user namespace, since `no_new_privs` is not set.
pub fn enter(program: &[Instruction]) -> io::Result<()> {
    program::load(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_is_listed_twice() {
        let all = || ALLOWED.iter().chain(JUDGED).chain(UNKNOWN);
        let mut names: Vec<_> = all().map(|call| call.name).collect();
        let mut numbers: Vec<_> = all().filter_map(Call::number).collect();
        names.sort_unstable();
        numbers.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
        assert!(numbers.windows(2).all(|pair| pair[0] != pair[1]));
        assert!(numbers.last().is_some_and(|last| *last <= NEWEST_KNOWN));
    }

    #[test]
    fn the_numbers_are_those_of_this_architecture() {
        for (name, number) in [
            ("read", libc::SYS_read),
            ("execve", libc::SYS_execve),
            ("statx", libc::SYS_statx),
            ("ptrace", libc::SYS_ptrace),
            ("close_range", libc::SYS_close_range),
            ("mq_timedsend", libc::SYS_mq_timedsend),
            ("landlock_restrict_self", libc::SYS_landlock_restrict_self),
            ("pkey_mprotect", libc::SYS_pkey_mprotect),
        ] {
            let call = ALLOWED.iter().chain(UNKNOWN).find(|call| call.name == name).unwrap();
            assert_eq!(call.number().map(i64::from), Some(number), "{name}");
        }
        assert_eq!(i64::from(CLONE3), libc::SYS_clone3);
    }

    #[test]
    fn calls_that_mainly_help_attackers_are_refused() {
        for number in [
            libc::SYS_add_key,
            libc::SYS_keyctl,
            libc::SYS_request_key,
            libc::SYS_bpf,
            libc::SYS_perf_event_open,
            libc::SYS_userfaultfd,
            libc::SYS_io_uring_setup,
            libc::SYS_io_uring_enter,
            libc::SYS_io_uring_register,
            libc::SYS_kexec_load,
            libc::SYS_kexec_file_load,
            libc::SYS_init_module,
            libc::SYS_finit_module,
            libc::SYS_delete_module,
            libc::SYS_open_by_handle_at,
            libc::SYS_mount,
            libc::SYS_umount2,
            libc::SYS_pivot_root,
            libc::SYS_move_mount,
            libc::SYS_open_tree,
            libc::SYS_fsopen,
            libc::SYS_fsmount,
            libc::SYS_fsconfig,
            libc::SYS_mount_setattr,
            libc::SYS_setns,
            libc::SYS_swapon,
            libc::SYS_swapoff,
            libc::SYS_reboot,
            libc::SYS_settimeofday,
            libc::SYS_clock_settime,
            libc::SYS_clock_adjtime,
            libc::SYS_adjtimex,
            libc::SYS_sethostname,
            libc::SYS_setdomainname,
            libc::SYS_syslog,
            libc::SYS_acct,
            libc::SYS_quotactl,
            libc::SYS_fanotify_init,
            libc::SYS_vhangup,
            libc::SYS_pidfd_getfd,
        ] {
            let number = u32::try_from(number).unwrap();
            assert_eq!(verdict(number), Verdict::Refused, "{number}");
        }
    }
}
