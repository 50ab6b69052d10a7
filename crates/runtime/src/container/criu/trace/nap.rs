//! Continues and restarts the sleeping system call of a traced thread.
//!
//! ```text
//! held ─► restart ─► asleep, with a kernel timer ─► interrupt ─► held, as before
//! ```
//!
//! The kernel keeps the end of an interrupted sleep in the thread's restart block and continues the sleep when the thread
//! resumes. A system call that overwrites the restart block, or a return from a signal handler, loses it. CRIU does both.

use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::{CallSite, CodePosition, Interrupted, Registers, STOPS_MAX, Stop, Tracee, ended, request};

/// Kernel functions, as `wchan` shows them, of a thread that waits in a restarted sleep. `wchan` skips the functions of the
/// sleep itself, which belong to the scheduler; it shows those of other restarted calls (poll, futex, processor-time clocks).
const ASLEEP: [&str; 6] = [
    "do_syscall_64",
    "x64_sys_call",
    "entry_SYSCALL_64_after_hwframe",
    "__x64_sys_restart_syscall",
    "__do_sys_restart_syscall",
    "hrtimer_nanosleep_restart",
];

/// The same of a thread that waits in a restarted `poll`. No other restarted call polls.
const POLLS: [&str; 3] = ["poll_schedule_timeout", "do_sys_poll", "do_poll"];

/// A thread waits within microseconds, unless its sandbox is throttled.
const NAP_TIMEOUT: Duration = Duration::from_secs(2);

/// How a thread waits after its call was restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Nap {
    /// In a sleep with a timer.
    Asleep,
    /// In `poll`.
    Polling,
    /// In another call.
    Other,
    /// Not any more: the call has returned. There is nothing to interrupt.
    Over,
    /// The kernel does not show it.
    Unseen,
}

impl Tracee {
    /// The call that was interrupted, if it may be a sleep with a timer.
    pub(in super::super) fn interrupted(&self) -> io::Result<Option<Interrupted>> {
        match Registers::read(self.tid) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(None),
            registers => Ok(registers?.interrupted()),
        }
    }

    /// Makes an interrupted `poll` without a timeout be called again when the thread resumes. CRIU would let it return
    /// `EINTR`, and not every program repeats it. For `restarted` see [`Registers::with_poll_repeated`].
    pub(in super::super) fn repeat_poll(&self, restarted: bool) -> io::Result<()> {
        let changed = match Registers::read(self.tid) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => None,
            registers => registers?.with_poll_repeated(restarted),
        };
        changed.map_or(Ok(()), |changed| changed.write(self.tid))
    }

    /// Restarts the interrupted call, and returns when the thread waits in it. [`Self::wake`] must interrupt it afterwards.
    pub(in super::super) fn nap(&mut self) -> io::Result<Nap> {
        // A sleep may have ended by itself just before the last `wake`. Resumed, the thread would run its program's code.
        if self.interrupted()?.is_none() {
            return Ok(Nap::Over);
        }
        self.masked = Some(self.signal_mask()?);
        self.set_signal_mask(u64::MAX)?;
        self.run_to_syscall_stop()?;
        self.go_on(libc::PTRACE_SYSCALL)?;
        let begin = Instant::now();
        loop {
            // Read before the stop is asked for: a thread that has just stopped would seem to wait in another call. Empty while
            // the thread runs.
            let waits_in = fs::read_to_string(format!("/proc/{}/wchan", self.tid))?;
            match self.current_stop()? {
                None => {}
                Some(Stop::Ended) => return Err(ended("while it slept")),
                Some(Stop::Syscall) => {
                    self.leave_call()?;
                    self.run_to_interruption()?;
                    self.unmask()?;
                    return Ok(Nap::Over);
                }
                Some(Stop::Signal(signal)) => {
                    self.redeliver_later(signal);
                    self.go_on(libc::PTRACE_SYSCALL)?;
                    continue;
                }
                Some(Stop::Interrupted(_)) => {
                    self.go_on(libc::PTRACE_SYSCALL)?;
                    continue;
                }
            }
            match waits_in.trim() {
                "" | "0" if begin.elapsed() > NAP_TIMEOUT => return Ok(Nap::Unseen),
                "" | "0" => thread::yield_now(),
                name if ASLEEP.contains(&name) => return Ok(Nap::Asleep),
                name if POLLS.iter().any(|poll| name.starts_with(poll)) => return Ok(Nap::Polling),
                _ => return Ok(Nap::Other),
            }
        }
    }

    /// Interrupts the call that [`Self::nap`] restarted. The thread is then interrupted as before, or its call has returned.
    pub(in super::super) fn wake(&mut self) -> io::Result<()> {
        request(libc::PTRACE_INTERRUPT, self.tid, 0, 0)?;
        self.run_to_interruption()?;
        self.unmask()
    }

    /// Restores the signal mask if [`Self::nap`] has changed it.
    pub(super) fn unmask(&mut self) -> io::Result<()> {
        match self.masked.take() {
            Some(mask) => self.set_signal_mask(mask),
            None => Ok(()),
        }
    }

    /// Makes a thread that stands at `place`, behind an interrupted sleep, sleep for `nanoseconds` once it resumes. The kernel
    /// writes the time left to `left_at` whenever that sleep is interrupted. Returns `false` if it stands elsewhere or cannot sleep.
    ///
    /// The thread must make no further system calls before it resumes.
    pub(in super::super) fn start_sleep(
        &mut self,
        site: &CallSite,
        place: CodePosition,
        nanoseconds: u64,
        left_at: u64,
    ) -> io::Result<bool> {
        let before = Registers::read(self.tid)?;
        if !before.is_interrupted_at(place) {
            return Ok(false);
        }
        self.masked = Some(self.signal_mask()?);
        self.set_signal_mask(u64::MAX)?;
        let slept = site.with(timespec(nanoseconds), |address| {
            let call = before.for_call(site.instruction, libc::SYS_nanosleep, [address, left_at, 0, 0, 0, 0]);
            call.write(self.tid)?;
            self.run_to_syscall_stop()?;
            // Requested before the sleep begins, so the sleep is interrupted at once.
            request(libc::PTRACE_INTERRUPT, self.tid, 0, 0)?;
            self.go_on(libc::PTRACE_SYSCALL)?;
            self.run_to_interruption()?;
            Registers::read(self.tid)
        });
        let after = match &slept {
            Ok(registers) if registers.interrupted().is_some() => before.to_be_continued(),
            Ok(registers) if registers.answer() == 0 => before.answered(0),
            // For example, `left_at` is not mapped any more. The program sees an interrupted call.
            Ok(_) | Err(_) => before.settled(),
        };
        after.write(self.tid)?;
        self.unmask()?;
        // The thread is consistent again even if that failed: its program sees an interrupted call.
        Ok(slept.is_ok())
    }

    /// Waits for the stop that `PTRACE_INTERRUPT` requested, outside any system call.
    fn run_to_interruption(&mut self) -> io::Result<()> {
        for _ in 0..STOPS_MAX {
            match self.wait()? {
                Stop::Ended => return Err(ended("while it was woken")),
                Stop::Interrupted(_) => return Ok(()),
                Stop::Syscall => self.leave_call()?,
                Stop::Signal(signal) => {
                    self.redeliver_later(signal);
                    self.go_on(libc::PTRACE_CONT)?;
                }
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    /// Continues from the stop at the end of a call to the stop before the thread returns to its program. The stop at the end
    /// of a call discards earlier interrupt requests, so it requests another one.
    fn leave_call(&self) -> io::Result<()> {
        request(libc::PTRACE_INTERRUPT, self.tid, 0, 0)?;
        self.go_on(libc::PTRACE_CONT)
    }
}

/// `struct timespec` of 64-bit kernels.
fn timespec(nanoseconds: u64) -> [u8; 16] {
    const SECOND: u64 = 1_000_000_000;
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&(nanoseconds / SECOND).to_ne_bytes());
    bytes[8..].copy_from_slice(&(nanoseconds % SECOND).to_ne_bytes());
    bytes
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use std::process::Command;

    use super::super::{Kind, OnTracerExit};
    use super::*;

    #[test]
    fn a_sleep_continues_and_can_be_started_again() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        while fs::read_to_string(format!("/proc/{}/wchan", child.id())).unwrap() != "hrtimer_nanosleep" {
            thread::yield_now();
        }
        let mut held = Tracee::seize(child.id(), OnTracerExit::Dies).unwrap().unwrap();
        let site = CallSite::find(child.id()).unwrap();
        let first = held.interrupted().unwrap().unwrap();
        let Kind::Sleep { left_at } = first.kind else { panic!("{first:?}") };
        for _ in 0..3 {
            assert_eq!(held.nap().unwrap(), Nap::Asleep);
            held.wake().unwrap();
            let again = held.interrupted().unwrap().unwrap();
            assert_eq!(again.at, first.at);
            assert!(
                matches!(again.kind, Kind::Unknown { left_at: places } if left_at == 0 || places.contains(&left_at))
            );
        }
        // Whatever it is made to call, the sleep is no longer known.
        held.call(&site, libc::SYS_getpid, [0; 6]).unwrap();
        assert_eq!(held.interrupted().unwrap(), None);
        assert!(held.start_sleep(&site, first.at, 1_000_000, left_at).unwrap());
        thread::sleep(Duration::from_millis(5));
        assert_eq!(held.nap().unwrap(), Nap::Over);
        assert_eq!(held.interrupted().unwrap(), None);
        let stands_at = held.instruction().unwrap();
        assert_eq!(held.nap().unwrap(), Nap::Over);
        assert_eq!(held.instruction().unwrap(), stands_at, "the thread does not run");
        drop(held);
        assert!(child.wait().unwrap().success(), "it slept enough");
    }
}
