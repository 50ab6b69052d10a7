//! A thread's registers, and how each architecture passes a system call.
#![expect(unsafe_code, reason = "ptrace has no safe interface")]

use std::io;
use std::mem::MaybeUninit;

use serde::{Deserialize, Serialize};

const NT_PRSTATUS: usize = 1;

/// `syscall`.
#[cfg(target_arch = "x86_64")]
pub(super) const SYSCALL_INSTRUCTION: [u8; 2] = [0x0f, 0x05];
/// `svc #0`.
#[cfg(target_arch = "aarch64")]
pub(super) const SYSCALL_INSTRUCTION: [u8; 4] = [0x01, 0x00, 0x00, 0xd4];

// The kernel's internal error numbers for calls that are to be restarted.
#[cfg(target_arch = "x86_64")]
const RESTART_SYS: i64 = -512;
#[cfg(target_arch = "x86_64")]
const RESTART_NO_INTR: i64 = -513;
#[cfg(target_arch = "x86_64")]
const RESTART_NO_HANDLER: i64 = -514;
#[cfg(target_arch = "x86_64")]
const RESTART_BLOCK: i64 = -516;

/// A call that the kernel continues by itself, with the state that it has stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "there the registers do not tell"))]
pub(in super::super) struct Interrupted {
    pub(in super::super) kind: Kind,
    pub(in super::super) at: CodePosition,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "there the registers do not tell"))]
pub(in super::super) enum Kind {
    /// A sleep, with the address for the remaining time, or zero.
    Sleep { left_at: u64 },
    /// It was restarted before, so the number of the call is lost. If it is a sleep, the address is one of these, or
    /// zero.
    Unknown { left_at: [u64; 2] },
}

/// The position of a thread in its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct CodePosition {
    instruction: u64,
    stack: u64,
}

#[derive(Clone, Copy)]
pub(super) struct Registers(libc::user_regs_struct);

impl Registers {
    pub(super) fn read(tid: libc::pid_t) -> io::Result<Self> {
        let mut registers = MaybeUninit::<libc::user_regs_struct>::uninit();
        let size = size_of::<libc::user_regs_struct>();
        let mut span = libc::iovec { iov_base: registers.as_mut_ptr().cast(), iov_len: size };
        super::request(
            libc::PTRACE_GETREGSET as libc::c_uint,
            tid,
            NT_PRSTATUS,
            (&raw mut span).expose_provenance(),
        )?;
        if span.iov_len != size {
            // A 32-bit process has another register set, and makes system calls in another way.
            return Err(io::ErrorKind::Unsupported.into());
        }
        // SAFETY: the kernel has filled all of it, as the length shows.
        Ok(Self(unsafe { registers.assume_init() }))
    }

    pub(super) fn write(&self, tid: libc::pid_t) -> io::Result<()> {
        let size = size_of::<libc::user_regs_struct>();
        let mut span = libc::iovec { iov_base: (&raw const self.0).cast_mut().cast(), iov_len: size };
        super::request(
            libc::PTRACE_SETREGSET as libc::c_uint,
            tid,
            NT_PRSTATUS,
            (&raw mut span).expose_provenance(),
        )
        .map(drop)
    }

    /// These registers, changed so that the next instruction is the call.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn for_call(mut self, instruction: u64, number: libc::c_long, arguments: [u64; 6]) -> Self {
        let registers = &mut self.0;
        registers.rip = instruction;
        registers.rax = number.cast_unsigned();
        // Not within a call; else the kernel would try to restart the call that it considers interrupted.
        registers.orig_rax = u64::MAX;
        [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9] = arguments;
        self
    }

    /// These registers, so that the thread resumes correctly even if the interrupted call is not handled: the kernel
    /// restarts it only on the way back from the stop in which it was found, and our calls have changed that way.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn settled(mut self) -> Self {
        let registers = &mut self.0;
        let in_call = registers.orig_rax.cast_signed() >= 0;
        match registers.rax.cast_signed() {
            RESTART_SYS | RESTART_NO_INTR | RESTART_NO_HANDLER if in_call => {
                registers.rax = registers.orig_rax;
                registers.rip -= SYSCALL_INSTRUCTION.len() as u64;
            }
            // Only the kernel knows how long the thread has slept, and only another call can continue the sleep.
            RESTART_BLOCK if in_call => registers.rax = (-i64::from(libc::EINTR)).cast_unsigned(),
            _ => {}
        }
        registers.orig_rax = u64::MAX;
        self
    }

    /// The kernel has handled restarts before it stops a thread.
    #[cfg(target_arch = "aarch64")]
    pub(super) fn settled(self) -> Self {
        self
    }

    /// These registers, changed so that an interrupted `poll` without a timeout is called again. `None` if another call was
    /// interrupted, or the poll has a timeout, of which only the kernel knows how much is left. `restarted`: the kernel has
    /// restarted the call before, so its number is lost, and it is known to be `poll` by the way it waits.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn with_poll_repeated(mut self, restarted: bool) -> Option<Self> {
        const SIGN_OF_INT: u64 = 1 << 31;
        let registers = &mut self.0;
        let call = registers.orig_rax.cast_signed();
        let polls = call == libc::SYS_poll || (restarted && call == libc::SYS_restart_syscall);
        let endless = registers.rdx & SIGN_OF_INT != 0;
        if registers.rax.cast_signed() != RESTART_BLOCK || !polls || !endless {
            return None;
        }
        registers.rax = libc::SYS_poll.cast_unsigned();
        registers.rip -= SYSCALL_INSTRUCTION.len() as u64;
        registers.orig_rax = u64::MAX;
        Some(self)
    }

    /// That architecture has no `poll`, and the kernel repeats `ppoll`.
    #[cfg(target_arch = "aarch64")]
    pub(super) fn with_poll_repeated(self, _restarted: bool) -> Option<Self> {
        None
    }

    /// The interrupted call of the thread, if the kernel itself continues it and it may be a sleep.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn interrupted(&self) -> Option<Interrupted> {
        let registers = &self.0;
        if registers.rax.cast_signed() != RESTART_BLOCK {
            return None;
        }
        let kind = match registers.orig_rax.cast_signed() {
            libc::SYS_nanosleep => Kind::Sleep { left_at: registers.rsi },
            libc::SYS_clock_nanosleep => Kind::Sleep { left_at: registers.r10 },
            libc::SYS_restart_syscall => Kind::Unknown { left_at: [registers.rsi, registers.r10] },
            _ => return None,
        };
        Some(Interrupted { kind, at: CodePosition { instruction: registers.rip, stack: registers.rsp } })
    }

    /// The kernel has changed the registers for the restart before it stops a thread, so the call is unknown.
    #[cfg(target_arch = "aarch64")]
    pub(super) fn interrupted(&self) -> Option<Interrupted> {
        None
    }

    /// Whether the thread is after an interrupted call at this position, before the result is known.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn is_interrupted_at(&self, at: CodePosition) -> bool {
        let registers = &self.0;
        let interrupted = [RESTART_BLOCK, -i64::from(libc::EINTR)].contains(&registers.rax.cast_signed());
        interrupted && (CodePosition { instruction: registers.rip, stack: registers.rsp }) == at
    }

    #[cfg(target_arch = "aarch64")]
    pub(super) fn is_interrupted_at(&self, _at: CodePosition) -> bool {
        false
    }

    /// These registers, so that the kernel continues the call that was interrupted last. It checks when it resumes the
    /// thread from a stop that is not at a system call.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn to_be_continued(mut self) -> Self {
        self.0.rax = RESTART_BLOCK.cast_unsigned();
        self.0.orig_rax = libc::SYS_restart_syscall.cast_unsigned();
        self
    }

    #[cfg(target_arch = "aarch64")]
    pub(super) fn to_be_continued(self) -> Self {
        self
    }

    /// These registers, as after a call with this result.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn answered(mut self, answer: u64) -> Self {
        self.0.rax = answer;
        self.0.orig_rax = u64::MAX;
        self
    }

    #[cfg(target_arch = "aarch64")]
    pub(super) fn answered(mut self, answer: u64) -> Self {
        self.0.regs[0] = answer;
        self
    }

    #[cfg(target_arch = "x86_64")]
    pub(super) fn instruction(&self) -> u64 {
        self.0.rip
    }

    #[cfg(target_arch = "aarch64")]
    pub(super) fn instruction(&self) -> u64 {
        self.0.pc
    }

    #[cfg(target_arch = "x86_64")]
    pub(super) fn answer(&self) -> u64 {
        self.0.rax
    }

    /// These registers, changed so that the next instruction is the call. The kernel decides about restarts by an
    /// internal register, which has the value "none" after a stop outside a call.
    #[cfg(target_arch = "aarch64")]
    pub(super) fn for_call(mut self, instruction: u64, number: libc::c_long, arguments: [u64; 6]) -> Self {
        let registers = &mut self.0;
        registers.pc = instruction;
        registers.regs[8] = number.cast_unsigned();
        registers.regs[..6].copy_from_slice(&arguments);
        self
    }

    #[cfg(target_arch = "aarch64")]
    pub(super) fn answer(&self) -> u64 {
        self.0.regs[0]
    }
}
