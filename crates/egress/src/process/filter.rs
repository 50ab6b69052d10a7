//! The system calls that the process may make; all others fail with `EPERM`.
//!
//! The list is short because the process only forwards bytes between sockets and records that it did. Even if an
//! attacker controls it, it cannot start programs, open files for writing, trace, mount, or create namespaces.

#![expect(unsafe_code, reason = "loading a seccomp filter has no safe interface")]

use std::io;

/// A system call and the reason why it is needed.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub name: &'static str,
    number: libc::c_long,
    pub why: &'static str,
}

macro_rules! calls {
    ($($why:literal: $($name:ident $number:ident),+;)+) => {
        &[$($(Call { name: stringify!($name), number: libc::$number, why: $why },)+)+]
    };
}

/// Calls that both architectures have.
pub const ALLOWED: &[Call] = calls! {
    "bytes of flows, listeners and the control socket":
        read SYS_read, write SYS_write, readv SYS_readv, writev SYS_writev, recvfrom SYS_recvfrom,
        sendto SYS_sendto, recvmsg SYS_recvmsg, sendmsg SYS_sendmsg, splice SYS_splice, pipe2 SYS_pipe2;
    "the C library's resolver asks for both families in one call": sendmmsg SYS_sendmmsg, recvmmsg SYS_recvmmsg;
    "connecting, accepting, closing":
        connect SYS_connect, accept4 SYS_accept4, bind SYS_bind, listen SYS_listen, shutdown SYS_shutdown,
        getsockname SYS_getsockname, getpeername SYS_getpeername, setsockopt SYS_setsockopt,
        getsockopt SYS_getsockopt, close SYS_close;
    "waiting": epoll_ctl SYS_epoll_ctl, epoll_pwait SYS_epoll_pwait, epoll_create1 SYS_epoll_create1,
        ppoll SYS_ppoll, eventfd2 SYS_eventfd2, timerfd_create SYS_timerfd_create, futex SYS_futex,
        clock_nanosleep SYS_clock_nanosleep, nanosleep SYS_nanosleep, sched_yield SYS_sched_yield,
        restart_syscall SYS_restart_syscall;
    "non-blocking mode, sizes of pipes": fcntl SYS_fcntl;
    "the runtime creates a pair at its start, to wake itself": socketpair SYS_socketpair;
    "the audit spool, a file that the daemon opened":
        pwrite64 SYS_pwrite64, fdatasync SYS_fdatasync, ftruncate SYS_ftruncate;
    "secrets are kept out of swap": mlock SYS_mlock;
    "the resolver reloads its configuration when it has changed":
        newfstatat SYS_newfstatat, fstat SYS_fstat, statx SYS_statx, lseek SYS_lseek, pread64 SYS_pread64,
        readlinkat SYS_readlinkat, faccessat SYS_faccessat, faccessat2 SYS_faccessat2, getcwd SYS_getcwd;
    "memory": mmap SYS_mmap, munmap SYS_munmap, mprotect SYS_mprotect, mremap SYS_mremap, madvise SYS_madvise,
        brk SYS_brk;
    "threads for lookups": set_robust_list SYS_set_robust_list, rseq SYS_rseq, gettid SYS_gettid,
        sched_getaffinity SYS_sched_getaffinity, sigaltstack SYS_sigaltstack, rt_sigprocmask SYS_rt_sigprocmask,
        rt_sigaction SYS_rt_sigaction, rt_sigreturn SYS_rt_sigreturn, exit SYS_exit, membarrier SYS_membarrier;
    "the end": exit_group SYS_exit_group, tgkill SYS_tgkill;
    "time and randomness": clock_gettime SYS_clock_gettime, gettimeofday SYS_gettimeofday, getrandom SYS_getrandom;
    "the resolver asks for its ids": getpid SYS_getpid, getuid SYS_getuid, geteuid SYS_geteuid, getgid SYS_getgid,
        getegid SYS_getegid, uname SYS_uname;
};

/// Older variants that x86_64 still has and the C library still uses.
#[cfg(target_arch = "x86_64")]
pub const ALLOWED_HERE: &[Call] = calls! {
    "older forms of waiting": poll SYS_poll, epoll_wait SYS_epoll_wait, time SYS_time;
    "older forms of reading file metadata": stat SYS_stat, lstat SYS_lstat, access SYS_access, readlink SYS_readlink;
    "set once per thread by the C library": arch_prctl SYS_arch_prctl;
};
#[cfg(not(target_arch = "x86_64"))]
pub const ALLOWED_HERE: &[Call] = &[];

/// Internet sockets, and Unix and netlink sockets, with which the C library queries the host's name service and
/// interfaces.
const FAMILIES: [u32; 4] =
    [libc::AF_UNIX as u32, libc::AF_INET as u32, libc::AF_INET6 as u32, libc::AF_NETLINK as u32];

/// The number of readable bytes, and non-blocking mode.
const IOCTLS: [u32; 2] = [0x541b, 0x5421];

/// The name of a thread, and of a memory mapping.
const PRCTLS: [u32; 2] = [libc::PR_SET_NAME as u32, 0x5356_4d41];

/// Flags of any access other than reading.
const OPEN_FOR_WRITING: u32 = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) as u32;

/// The flags of all namespaces in which a thread could be started.
const NEW_NAMESPACES: u32 = 0x7e02_0080;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// Offsets in `struct seccomp_data`, of the low halves of arguments.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const ARGUMENTS: u32 = 16;

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const EPERM: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
/// For `clone3`, whose flags a filter cannot read: the C library then uses `clone`.
const ENOSYS: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;

const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const ANY_BIT: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

/// Loads the filter, permanently. The process has only one thread now; later threads inherit the filter.
pub fn confine() -> io::Result<()> {
    let mut code = program();
    let length = u16::try_from(code.len()).map_err(io::Error::other)?;
    let filter = libc::sock_fprog { len: length, filter: code.as_mut_ptr() };
    // SAFETY: `filter` points at `code`, which lives until the call returns; the kernel copies it.
    let outcome = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn program() -> Vec<libc::sock_filter> {
    let mut code =
        vec![step(LOAD, ARCH), jump(EQUAL, ARCHITECTURE, 1, 0), step(RETURN, EPERM), step(LOAD, NUMBER)];
    for call in ALLOWED.iter().chain(ALLOWED_HERE) {
        code.extend([jump(EQUAL, number(call.number), 0, 1), step(RETURN, ALLOW)]);
    }
    code.extend([jump(EQUAL, number(libc::SYS_clone3), 0, 1), step(RETURN, ENOSYS)]);
    one_of(&mut code, libc::SYS_socket, 0, &FAMILIES);
    one_of(&mut code, libc::SYS_ioctl, 1, &IOCTLS);
    one_of(&mut code, libc::SYS_prctl, 0, &PRCTLS);
    none_of(&mut code, libc::SYS_openat, 2, OPEN_FOR_WRITING);
    none_of(&mut code, libc::SYS_clone, 0, NEW_NAMESPACES);
    code.push(step(RETURN, EPERM));
    code
}

/// Allows a call if its argument is one of `values`.
fn one_of(code: &mut Vec<libc::sock_filter>, call: libc::c_long, argument: u32, values: &[u32]) {
    let length = u8::try_from(2 + 2 * values.len()).unwrap_or(u8::MAX);
    code.extend([jump(EQUAL, number(call), 0, length), step(LOAD, ARGUMENTS + 8 * argument)]);
    for value in values {
        code.extend([jump(EQUAL, *value, 0, 1), step(RETURN, ALLOW)]);
    }
    code.push(step(RETURN, EPERM));
}

/// Allows a call if its argument has none of `bits`.
fn none_of(code: &mut Vec<libc::sock_filter>, call: libc::c_long, argument: u32, bits: u32) {
    code.extend([
        jump(EQUAL, number(call), 0, 4),
        step(LOAD, ARGUMENTS + 8 * argument),
        jump(ANY_BIT, bits, 0, 1),
        step(RETURN, EPERM),
        step(RETURN, ALLOW),
    ]);
}

fn number(call: libc::c_long) -> u32 {
    u32::try_from(call).unwrap_or(u32::MAX)
}

fn step(code: u32, k: u32) -> libc::sock_filter {
    jump(code, k, 0, 0)
}

fn jump(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: u16::try_from(code).unwrap_or(u16::MAX), jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_is_listed_twice_and_each_has_a_reason() {
        let calls: Vec<_> = ALLOWED.iter().chain(ALLOWED_HERE).collect();
        let mut numbers: Vec<_> = calls.iter().map(|call| call.number).collect();
        numbers.sort_unstable();
        assert!(numbers.windows(2).all(|pair| pair[0] != pair[1]));
        assert!(calls.iter().all(|call| !call.why.is_empty() && !call.name.is_empty()));
    }

    #[test]
    fn calls_that_would_help_an_attacker_are_refused() {
        for refused in [
            libc::SYS_execve,
            libc::SYS_execveat,
            libc::SYS_ptrace,
            libc::SYS_process_vm_readv,
            libc::SYS_setns,
            libc::SYS_unshare,
            libc::SYS_mount,
            libc::SYS_bpf,
            libc::SYS_io_uring_setup,
            libc::SYS_userfaultfd,
            libc::SYS_kill,
            libc::SYS_setresuid,
            libc::SYS_memfd_create,
            libc::SYS_openat2,
        ] {
            assert!(!ALLOWED.iter().chain(ALLOWED_HERE).any(|call| call.number == refused), "{refused}");
        }
    }
}
