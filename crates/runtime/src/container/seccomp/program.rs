//! The table as a BPF program, and how it is loaded.
//!
//! ```text
//!   another architecture's ABI (int 0x80, x32, 32-bit ARM) ──► EPERM
//!   a number beyond the table, clone3, keys, Landlock ───────► ENOSYS
//!   clone, unshare, ioctl, personality, socket, socketpair ──► depends on the arguments
//!   a change of RLIMIT_CORE by setrlimit or prlimit64 ───────► no effect, and success (0)
//!   reflinks, in a machine with volumes ─────────────────────► EOPNOTSUPP, EXDEV
//!   in the table ────────────────────────────────────────────► allowed
//!   anything else ───────────────────────────────────────────► EPERM
//! ```
//!
//! Written by hand rather than by a library. A library's filter has one result per program and kills on a foreign
//! architecture: three stacked filters would triple the time of loading at every boot, and a 32-bit program would be
//! killed instead of getting an error. The kernel caches the results of a filter that depends only on the number, so an
//! allowed call costs almost nothing.

#![expect(unsafe_code, reason = "loading a seccomp filter has no safe interface")]

use std::io;

use super::table::{ALLOWED, CLONE3, JUDGED, NEWEST_KNOWN, UNKNOWN};

/// One BPF instruction, in the kernel's layout.
pub type Instruction = libc::sock_filter;

/// Set in the numbers of x86_64's second, 32-bit-pointer ABI. No other architecture has numbers this high.
pub(super) const X32_BIT: u32 = 0x4000_0000;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// Offsets in `struct seccomp_data`. Arguments are 64 bits wide; the filter reads their low halves, which come first on
/// both (little-endian) architectures. For the integers checked below the kernel ignores the high halves; for pointers
/// both halves matter.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const ARGUMENT_0: u32 = 16;
const ARGUMENT_1: u32 = 24;
const ARGUMENT_2: u32 = 32;
const ARGUMENT_3: u32 = 40;
/// Offset from the low half of an argument to its high half.
const HIGH_HALF: u32 = 4;

/// Namespaces that `unshare` may not create: all. A user namespace would give its creator every capability inside it,
/// and with them access to far more of the kernel than this filter is designed for.
const NEW_NAMESPACES: u32 = 0x0002_0000 // mount
    | 0x0200_0000 // cgroup
    | 0x0400_0000 // uts
    | 0x0800_0000 // ipc
    | 0x1000_0000 // user
    | 0x2000_0000 // pid
    | 0x4000_0000; // net
/// For `clone` this bit is part of the exit signal.
const NEW_TIME_NAMESPACE: u32 = 0x80;

/// Requests that affect things outside the sandbox or bypass its quota.
const IOCTLS_REFUSED: [u32; 9] = [
    0x5412,      // TIOCSTI: types into the terminal of an attached user
    0x541c,      // TIOCLINUX: the same by way of the console's selection
    0x5000_940e, // BTRFS_IOC_SUBVOL_CREATE: nested subvolumes are empty in snapshots and forks
    0x5000_9418, // BTRFS_IOC_SUBVOL_CREATE_V2
    0x5000_9401, // BTRFS_IOC_SNAP_CREATE
    0x5000_9417, // BTRFS_IOC_SNAP_CREATE_V2
    0x5000_940f, // BTRFS_IOC_SNAP_DESTROY
    0x5000_943f, // BTRFS_IOC_SNAP_DESTROY_V2
    0x4008_941a, // BTRFS_IOC_SUBVOL_SETFLAGS: a root made read-only could not be started again
];

/// Requests that make two files share their content on the disk. Btrfs has the same numbers.
const IOCTLS_OF_REFLINKS: [u32; 3] = [
    0x4004_9409, // FICLONE
    0x4020_940d, // FICLONERANGE
    0xc018_9436, // FIDEDUPERANGE
];
/// Another way to share content, if the files are on one disk.
const COPY_FILE_RANGE: &str = "copy_file_range";

/// Plain Linux, 32-bit machine name, old version number, query, and the fixed addresses of debuggers.
const PERSONALITIES_ALLOWED: [u32; 6] = [0, 0x8, 0x2_0000, 0x2_0008, 0x4_0000, 0xffff_ffff];

/// Families whose sockets are allowed with any type and protocol: Unix, and packet sockets, which the kernel refuses without
/// `CAP_NET_RAW`. Dozens of other families exist, each with a history of vulnerabilities.
const SOCKET_FAMILIES_ALLOWED: [u32; 2] = [UNIX, PACKET_FAMILY];
const PACKET_FAMILY: u32 = 17;
/// Allowed for some protocols.
const NETLINK: u32 = 16;
/// `NETLINK_ROUTE`: `getifaddrs`, `getaddrinfo`, Go, Node and `ip` read interfaces and addresses with it.
/// `NETLINK_SOCK_DIAG`: `ss`. `NETLINK_KOBJECT_UEVENT`: libudev and libusb do not start without it.
///
/// Not `NETLINK_USERSOCK` (2), with which processes send each other messages that no memory limit counts; and none of those
/// that only configure the kernel or load modules: `NETLINK_NETFILTER` (12), `NETLINK_XFRM` (6), `NETLINK_CRYPTO` (21),
/// `NETLINK_GENERIC` (16). Libraries that try one of these (`NETLINK_AUDIT` in PAM, generic netlink in `ethtool`) continue
/// without it after the error of a kernel that lacks it.
const NETLINK_PROTOCOLS: [u32; 3] = [0, 4, 15];
/// IPv4 and IPv6: allowed for some types and protocols.
const INET_FAMILIES: [u32; 2] = [2, 10];
const UNIX: u32 = 1;

/// The part of a socket's type that is not `SOCK_CLOEXEC` or `SOCK_NONBLOCK`.
const SOCKET_TYPE_MASK: u32 = 0xf;
const STREAM: u32 = 1;
const DATAGRAM: u32 = 2;
const RAW: u32 = 3;
/// The old name of packet sockets, in the family of IPv4.
const PACKET: u32 = 10;
/// The default, and TCP by name. Not MPTCP (262), SCTP (132) or SMC (256).
const STREAM_PROTOCOLS: [u32; 2] = [0, 6];
/// The default, UDP by name, and `ping` without privileges (ICMP, ICMPv6). Not UDP-Lite (136) or L2TP (115).
const DATAGRAM_PROTOCOLS: [u32; 4] = [0, 17, 1, 58];

/// The resource whose limit must stay as the launcher set it. A soft limit of exactly one byte prevents the kernel from
/// starting the program of a piped `core_pattern`, as the host's root, when a process inside crashes. A limit of 0
/// would not.
const RLIMIT_CORE: u32 = 4;

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const EPERM: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
const ENOSYS: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
const EXDEV: u32 = libc::SECCOMP_RET_ERRNO | libc::EXDEV as u32;
const EOPNOTSUPP: u32 = libc::SECCOMP_RET_ERRNO | libc::EOPNOTSUPP as u32;
/// Success, without running the call.
const IGNORED: u32 = libc::SECCOMP_RET_ERRNO;
const EPROTONOSUPPORT: u32 = libc::SECCOMP_RET_ERRNO | libc::EPROTONOSUPPORT as u32;
const ESOCKTNOSUPPORT: u32 = libc::SECCOMP_RET_ERRNO | libc::ESOCKTNOSUPPORT as u32;
const EAFNOSUPPORT: u32 = libc::SECCOMP_RET_ERRNO | libc::EAFNOSUPPORT as u32;

const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const AND: u32 = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
const JUMP_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const JUMP_ALWAYS: u32 = libc::BPF_JMP | libc::BPF_JA;
const JUMP_GREATER_OR_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
const JUMP_ANY_BIT: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

/// Whether files may share their content on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reflinks {
    Allowed,
    /// For a machine with volumes, which are on one disk with its own files. Shared content counts against the quota of
    /// the file system that wrote it, however long the other one keeps it: through a volume, either quota could be
    /// exceeded. Programs get the errors of disks without this feature, and copy instead.
    Refused,
}

/// The whole filter. Building it takes microseconds; the launcher does it once for each kind of machine.
pub fn program(reflinks: Reflinks) -> Vec<Instruction> {
    let mut code = vec![
        statement(LOAD, ARCH),
        jump(JUMP_EQUAL, ARCHITECTURE, 1, 0),
        statement(RETURN, EPERM),
        statement(LOAD, NUMBER),
        jump(JUMP_ANY_BIT, X32_BIT, 0, 1),
        statement(RETURN, EPERM),
    ];
    code.extend(search(&spans(reflinks), reflinks));
    code
}

/// Consecutive numbers with the same result, from `first` up to the next span.
#[derive(Clone, Copy, Debug)]
struct Span {
    first: u32,
    answer: Answer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Always(u32),
    /// Depends on the arguments of the call with that name.
    Judged(&'static str),
}

/// All possible numbers, divided into spans.
fn spans(reflinks: Reflinks) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for number in 0..=NEWEST_KNOWN + 1 {
        let is = |call: &&super::Call| call.number() == Some(number);
        let answer = match JUDGED.iter().find(is) {
            Some(call) => Answer::Judged(call.name),
            None if number == CLONE3 || number > NEWEST_KNOWN => Answer::Always(ENOSYS),
            None if UNKNOWN.iter().any(|call| is(&call)) => Answer::Always(ENOSYS),
            None => match ALLOWED.iter().find(is) {
                Some(call) if reflinks == Reflinks::Refused && call.name == COPY_FILE_RANGE => {
                    Answer::Always(EXDEV)
                }
                Some(_) => Answer::Always(ALLOW),
                None => Answer::Always(EPERM),
            },
        };
        if spans.last().is_none_or(|last| last.answer != answer) {
            spans.push(Span { first: number, answer });
        }
    }
    spans
}

/// A binary search for the number's span. The kernel runs a new filter once for every possible number, to cache which
/// ones it always allows. It does so at each boot, where a linear search would cost 0.2 ms.
fn search(spans: &[Span], reflinks: Reflinks) -> Vec<Instruction> {
    if let [only] = spans {
        return match only.answer {
            Answer::Always(value) => vec![statement(RETURN, value)],
            Answer::Judged(name) => judge(name, reflinks),
        };
    }
    let (below, from) = spans.split_at(spans.len() / 2);
    let (left, right) = (search(below, reflinks), search(from, reflinks));
    let mut code = match u8::try_from(left.len()) {
        Ok(skip) => vec![jump(JUMP_GREATER_OR_EQUAL, from[0].first, skip, 0)],
        // A conditional jump reaches 255 instructions.
        Err(_) => vec![
            jump(JUMP_GREATER_OR_EQUAL, from[0].first, 0, 1),
            statement(
                JUMP_ALWAYS,
                u32::try_from(left.len()).expect("a filter has at most 4096 instructions"),
            ),
        ],
    };
    code.extend(left);
    code.extend(right);
    code
}

/// Instructions that end in a result for the call's arguments.
fn judge(name: &str, reflinks: Reflinks) -> Vec<Instruction> {
    match name {
        "clone" => refuse_bits(ARGUMENT_0, NEW_NAMESPACES),
        "unshare" => refuse_bits(ARGUMENT_0, NEW_NAMESPACES | NEW_TIME_NAMESPACE),
        "ioctl" => ioctl(reflinks),
        "personality" => one_of(ARGUMENT_0, &PERSONALITIES_ALLOWED, ALLOW, EPERM),
        "socket" => socket(),
        "socketpair" => socketpair(),
        "setrlimit" => one_of(ARGUMENT_0, &[RLIMIT_CORE], IGNORED, ALLOW),
        "prlimit64" => prlimit(),
        unknown => unreachable!("`{unknown}` is in JUDGED but nothing judges it"),
    }
}

fn refuse_bits(argument: u32, bits: u32) -> Vec<Instruction> {
    vec![
        statement(LOAD, argument),
        jump(JUMP_ANY_BIT, bits, 0, 1),
        statement(RETURN, EPERM),
        statement(RETURN, ALLOW),
    ]
}

fn ioctl(reflinks: Reflinks) -> Vec<Instruction> {
    let mut code = vec![statement(LOAD, ARGUMENT_1)];
    code.extend(answers(&IOCTLS_REFUSED, EPERM));
    if reflinks == Reflinks::Refused {
        code.extend(answers(&IOCTLS_OF_REFLINKS, EOPNOTSUPP));
    }
    code.push(statement(RETURN, ALLOW));
    code
}

/// The errors are those of a kernel built without the family, type or protocol, which programs handle. Go tries MPTCP
/// for every listener and falls back to TCP on `EPROTONOSUPPORT`.
fn socket() -> Vec<Instruction> {
    let mut code = vec![statement(LOAD, ARGUMENT_0)];
    code.extend(answers(&SOCKET_FAMILIES_ALLOWED, ALLOW));
    code.extend(when(NETLINK, one_of(ARGUMENT_2, &NETLINK_PROTOCOLS, ALLOW, EPROTONOSUPPORT)));
    for family in INET_FAMILIES {
        code.extend(when(family, inet_socket()));
    }
    code.push(statement(RETURN, EAFNOSUPPORT));
    code
}

fn inet_socket() -> Vec<Instruction> {
    let mut code = vec![statement(LOAD, ARGUMENT_1), statement(AND, SOCKET_TYPE_MASK)];
    code.extend(when(STREAM, one_of(ARGUMENT_2, &STREAM_PROTOCOLS, ALLOW, EPROTONOSUPPORT)));
    code.extend(when(DATAGRAM, one_of(ARGUMENT_2, &DATAGRAM_PROTOCOLS, ALLOW, EPROTONOSUPPORT)));
    // The kernel returns the same error without `CAP_NET_RAW`, but loads a module first for some protocols.
    code.extend(answers(&[RAW, PACKET], EPERM));
    code.push(statement(RETURN, ESOCKTNOSUPPORT));
    code
}

/// Of the allowed families only Unix supports pairs. For other families the kernel creates both sockets, of any type
/// and protocol, before it returns the error.
fn socketpair() -> Vec<Instruction> {
    let mut code = vec![statement(LOAD, ARGUMENT_0)];
    code.extend(answers(&[UNIX], ALLOW));
    code.extend(answers(&SOCKET_FAMILIES_ALLOWED, EOPNOTSUPP));
    code.extend(answers(&[NETLINK], EOPNOTSUPP));
    code.extend(answers(&INET_FAMILIES, EOPNOTSUPP));
    code.push(statement(RETURN, EAFNOSUPPORT));
    code
}

/// Reading a limit is allowed, and so is setting any but [`RLIMIT_CORE`]. A change of that one succeeds without effect:
/// programs that hold secrets (`gpg`, `ssh-agent`) set it to 0 and exit if they cannot, and with a limit of one byte no
/// core file is written either. A call that also requests the old limit would return with it unset, so it gets `EPERM`.
fn prlimit() -> Vec<Instruction> {
    let null = |argument: u32, then: u32| {
        vec![
            statement(LOAD, argument),
            jump(JUMP_EQUAL, 0, 0, 3),
            statement(LOAD, argument + HIGH_HALF),
            jump(JUMP_EQUAL, 0, 0, 1),
            statement(RETURN, then),
        ]
    };
    let (new, old) = (ARGUMENT_2, ARGUMENT_3);
    let mut code = vec![statement(LOAD, ARGUMENT_1), jump(JUMP_EQUAL, RLIMIT_CORE, 1, 0)];
    code.push(statement(RETURN, ALLOW));
    code.extend(null(new, ALLOW));
    code.extend(null(old, IGNORED));
    code.push(statement(RETURN, EPERM));
    code
}

/// Runs `block`, which ends with a result, if the loaded value is `value`.
fn when(value: u32, block: Vec<Instruction>) -> impl Iterator<Item = Instruction> {
    let length = u8::try_from(block.len()).expect("a block is shorter than the reach of a jump");
    std::iter::once(jump(JUMP_EQUAL, value, 0, length)).chain(block)
}

fn one_of(argument: u32, values: &[u32], listed: u32, otherwise: u32) -> Vec<Instruction> {
    let mut code = vec![statement(LOAD, argument)];
    code.extend(answers(values, listed));
    code.push(statement(RETURN, otherwise));
    code
}

/// Ends with the result if the loaded value is one of the values, and continues otherwise.
fn answers(values: &[u32], answer: u32) -> impl Iterator<Item = Instruction> {
    values.iter().flat_map(move |value| [jump(JUMP_EQUAL, *value, 0, 1), statement(RETURN, answer)])
}

const fn statement(code: u32, value: u32) -> Instruction {
    jump(code, value, 0, 0)
}

const fn jump(code: u32, value: u32, if_true: u8, if_false: u8) -> Instruction {
    // Every code above fits in 16 bits, the width of the kernel's field.
    Instruction { code: code as u16, jt: if_true, jf: if_false, k: value }
}

pub(super) fn load(program: &[Instruction]) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))?;
    let program = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    // SAFETY: the kernel copies `len` instructions from `filter`, which the caller's slice keeps alive; it writes
    // nothing.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::c_long::from(libc::SECCOMP_SET_MODE_FILTER),
            0,
            &raw const program,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::super::{FilterAnswer, Verdict, argument_cases, verdict};
    use super::*;

    /// Interprets the program as the kernel would. Knows only the instructions used above.
    fn run(program: &[Instruction], architecture: u32, number: u32, arguments: [u64; 4]) -> u32 {
        let mut accumulator = 0;
        let mut at = 0;
        loop {
            let Instruction { code, jt, jf, k } = program[at];
            at += 1;
            let taken = match u32::from(code) {
                LOAD => {
                    accumulator = match k {
                        NUMBER => number,
                        ARCH => architecture,
                        at => {
                            let argument = arguments[usize::try_from((at - ARGUMENT_0) / 8).unwrap()];
                            let half = if at % 8 == 0 { argument } else { argument >> 32 };
                            u32::try_from(half & u64::from(u32::MAX)).unwrap()
                        }
                    };
                    continue;
                }
                AND => {
                    accumulator &= k;
                    continue;
                }
                RETURN => return k,
                JUMP_EQUAL => accumulator == k,
                JUMP_ALWAYS => {
                    at += usize::try_from(k).unwrap();
                    continue;
                }
                JUMP_GREATER_OR_EQUAL => accumulator >= k,
                JUMP_ANY_BIT => accumulator & k != 0,
                other => panic!("unknown instruction {other:#x}"),
            };
            at += usize::from(if taken { jt } else { jf });
        }
    }

    fn number(name: &str) -> u32 {
        JUDGED.iter().find(|call| call.name == name).and_then(super::super::Call::number).unwrap()
    }

    #[test]
    fn the_program_matches_the_table() {
        let program = program(Reflinks::Allowed);
        assert!(program.len() < 4096, "{} instructions are more than the kernel accepts", program.len());
        for number in (0..2 * NEWEST_KNOWN).chain([X32_BIT, X32_BIT | 1, u32::MAX]) {
            let answer = run(&program, ARCHITECTURE, number, [0; 4]);
            match verdict(number) {
                Verdict::Allowed => assert_eq!(answer, ALLOW, "{number}"),
                Verdict::Refused => assert_eq!(answer, EPERM, "{number}"),
                Verdict::Unknown => assert_eq!(answer, ENOSYS, "{number}"),
                Verdict::Judged => {}
            }
        }
    }

    #[test]
    fn a_foreign_architecture_is_always_refused() {
        let program = program(Reflinks::Refused);
        for number in 0..2 * NEWEST_KNOWN {
            assert_eq!(run(&program, 0x4000_0003, number, [0; 4]), EPERM);
            assert_eq!(run(&program, ARCHITECTURE, number | X32_BIT, [0; 4]), EPERM);
        }
    }

    #[test]
    fn arguments_are_checked_as_in_the_cases() {
        let program = program(Reflinks::Allowed);
        let cases = argument_cases();
        for case in &cases {
            let expected = match case.filter {
                FilterAnswer::Allow => ALLOW,
                FilterAnswer::Errno(errno) => libc::SECCOMP_RET_ERRNO | errno,
            };
            let found = run(&program, ARCHITECTURE, case.number, case.arguments);
            assert_eq!(found, expected, "{}", case.line);
        }
        for call in JUDGED {
            let covers = |wanted: fn(&FilterAnswer) -> bool| {
                cases.iter().any(|case| case.call == call.name && wanted(&case.filter))
            };
            assert!(covers(|answer| *answer == FilterAnswer::Allow), "{} is never allowed", call.name);
            assert!(covers(|answer| *answer != FilterAnswer::Allow), "{} is never refused", call.name);
        }
    }

    #[test]
    fn every_namespace_and_every_listed_ioctl_is_refused() {
        let program = program(Reflinks::Allowed);
        let check = |name: &str, arguments: [u64; 4]| {
            assert_eq!(run(&program, ARCHITECTURE, number(name), arguments), EPERM, "{name} {arguments:#x?}");
        };
        for bit in (0..32).filter(|bit| NEW_NAMESPACES >> bit & 1 == 1) {
            check("clone", [1 << bit | 17, 0, 0, 0]);
            check("unshare", [1 << bit, 0, 0, 0]);
        }
        for request in IOCTLS_REFUSED {
            check("ioctl", [3, request.into(), 0, 0]);
        }
    }

    #[test]
    fn with_volumes_only_reflinks_differ() {
        let (without, with) = (program(Reflinks::Allowed), program(Reflinks::Refused));
        assert!(with.len() < 4096, "{} instructions are more than the kernel accepts", with.len());
        let both = |number, arguments| {
            [&without, &with].map(|program| run(program, ARCHITECTURE, number, arguments))
        };
        let copy = ALLOWED.iter().find(|call| call.name == COPY_FILE_RANGE).unwrap().number().unwrap();
        assert_eq!(both(copy, [3, 0, 0, 0]), [ALLOW, EXDEV]);
        let ioctl = number("ioctl");
        for request in IOCTLS_OF_REFLINKS {
            assert_eq!(both(ioctl, [4, request.into(), 0, 0]), [ALLOW, EOPNOTSUPP], "{request:#x}");
        }
        for request in IOCTLS_REFUSED.into_iter().chain([0x5401]) {
            let [without, with] = both(ioctl, [4, request.into(), 0, 0]);
            assert_eq!(without, with, "{request:#x}");
        }
        for number in (0..2 * NEWEST_KNOWN).filter(|number| *number != copy) {
            let [without, with] = both(number, [0; 4]);
            assert_eq!(without, with, "{number}");
        }
    }
}
