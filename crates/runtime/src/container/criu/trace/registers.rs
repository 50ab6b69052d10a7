//! A thread's registers, and how each architecture passes a system call.
#![expect(unsafe_code, reason = "ptrace has no safe interface")]

use std::io;
use std::mem::MaybeUninit;

const NT_PRSTATUS: usize = 1;

/// `syscall`.
#[cfg(target_arch = "x86_64")]
pub(super) const SYSCALL_INSTRUCTION: [u8; 2] = [0x0f, 0x05];
/// `svc #0`.
#[cfg(target_arch = "aarch64")]
pub(super) const SYSCALL_INSTRUCTION: [u8; 4] = [0x01, 0x00, 0x00, 0xd4];

// The kernel's own error numbers for calls that are to be restarted.
#[cfg(target_arch = "x86_64")]
const RESTART_SYS: i64 = -512;
#[cfg(target_arch = "x86_64")]
const RESTART_NO_INTR: i64 = -513;
#[cfg(target_arch = "x86_64")]
const RESTART_NO_HANDLER: i64 = -514;
#[cfg(target_arch = "x86_64")]
const RESTART_BLOCK: i64 = -516;

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
            // A 32-bit process has another set, and calls by other means.
            return Err(io::ErrorKind::Unsupported.into());
        }
        // SAFETY: the kernel has filled all of it, as it says by the length.
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

    /// These, changed so that the next instruction is the call.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn for_call(mut self, instruction: u64, number: libc::c_long, arguments: [u64; 6]) -> Self {
        let registers = &mut self.0;
        registers.rip = instruction;
        registers.rax = number.cast_unsigned();
        // Not within a call, or the kernel would try to restart the one it believes was interrupted.
        registers.orig_rax = u64::MAX;
        [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9] = arguments;
        self
    }

    /// These, so that the thread goes on right also if nobody looks at the call it was interrupted in: the kernel restarts
    /// that only on its way back from the stop it was found in, and we have sent it another way.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn settled(mut self) -> Self {
        let registers = &mut self.0;
        let in_call = registers.orig_rax.cast_signed() >= 0;
        match registers.rax.cast_signed() {
            RESTART_SYS | RESTART_NO_INTR | RESTART_NO_HANDLER if in_call => {
                registers.rax = registers.orig_rax;
                registers.rip -= SYSCALL_INSTRUCTION.len() as u64;
            }
            // What was slept so far is known to the kernel only, which must have it asked for by another call.
            RESTART_BLOCK if in_call => registers.rax = (-i64::from(libc::EINTR)).cast_unsigned(),
            _ => {}
        }
        registers.orig_rax = u64::MAX;
        self
    }

    /// The kernel has seen to restarts before it stops a thread.
    #[cfg(target_arch = "aarch64")]
    pub(super) fn settled(self) -> Self {
        self
    }

    #[cfg(target_arch = "x86_64")]
    pub(super) fn answer(&self) -> u64 {
        self.0.rax
    }

    /// These, changed so that the next instruction is the call. The kernel decides about restarts by a register of its
    /// own, which a stop outside of a call leaves at "none".
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
