//! Stops a thread of another process, and makes system calls in it.
//!
//! ```text
//! seize ─► interrupt ─► stopped ── call: registers, one `syscall` instruction, registers back ──► detach: resumes
//! ```
//!
//! The instruction is an existing one in the kernel's vDSO; no code is written. The traced thread does not notice: no
//! signal is delivered meanwhile (its mask is full), its own seccomp filters are not applied, its registers and the few
//! borrowed bytes of its memory are restored.
//!
//! The kernel ties a tracee to the *thread* that seized it, so none of this may move to another thread.
#![expect(unsafe_code, reason = "ptrace has no safe interface")]

mod nap;
mod registers;

use std::fs::{self, File};
use std::io;
use std::marker::PhantomData;
use std::os::unix::fs::FileExt as _;
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

pub(super) use nap::Nap;
pub(super) use registers::{CodePosition, Interrupted, Kind};
use registers::{Registers, SYSCALL_INSTRUCTION};

/// Signals that stop a thread between two of our requests; with more than this, the thread is given up.
const STOPS_MAX: u32 = 64;

/// A thread stops within microseconds, and our system calls take no longer.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to poll for a stop before sleeping.
const SPIN: Duration = Duration::from_millis(1);

/// The vDSO is two to four pages.
const VDSO_BYTES_MAX: u64 = 64 * 1024;

const PTRACE_EVENT_STOP: i32 = 128;
const SYSCALL_STOP: i32 = libc::SIGTRAP | 0x80;

/// What happens to a held thread if this process is killed meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnTracerExit {
    /// It is incomplete and must not be mistaken for a working machine. It can be restored again.
    Dies,
    /// It was a working machine before, and must remain one.
    Continues,
}

/// The signals that stop a process, as a mask.
pub(super) const STOP_SIGNALS: u64 =
    bit(libc::SIGSTOP) | bit(libc::SIGTSTP) | bit(libc::SIGTTIN) | bit(libc::SIGTTOU);

/// A thread that is stopped for tracing. Dropping it resumes it.
#[derive(Debug)]
pub(super) struct Tracee {
    tid: libc::pid_t,
    /// The signal that had stopped its process before tracing, if any. The kernel stops the process again when it is
    /// detached.
    stopped_by: Option<i32>,
    /// A signal that was intercepted and must be delivered again.
    pending_signal: Option<i32>,
    /// Its original signal mask, while it sleeps in a restarted call.
    masked: Option<u64>,
    _bound_to_this_thread: PhantomData<*const ()>,
}

impl Tracee {
    /// Stops a thread. `None` when it has ended.
    pub(super) fn seize(tid: u32, on_tracer_exit: OnTracerExit) -> io::Result<Option<Self>> {
        match Self::request_stop(tid, on_tracer_exit)? {
            Some(begun) => begun.stopped(),
            None => Ok(None),
        }
    }

    /// Requests a stop; many stops can be requested before the first thread has stopped.
    pub(super) fn request_stop(tid: u32, on_tracer_exit: OnTracerExit) -> io::Result<Option<PendingStop>> {
        let tid = libc::pid_t::try_from(tid).map_err(|_| io::ErrorKind::InvalidInput)?;
        let base = match on_tracer_exit {
            OnTracerExit::Dies => libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL,
            OnTracerExit::Continues => libc::PTRACE_O_TRACESYSGOOD,
        };
        let options = [base | libc::PTRACE_O_SUSPEND_SECCOMP, base];
        let mut seized = Err(io::ErrorKind::InvalidInput.into());
        for options in options {
            seized = request(libc::PTRACE_SEIZE, tid, 0, options as usize);
            match &seized {
                // A kernel without that option, or a daemon that is restricted itself.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EPERM)) => {}
                _ => break,
            }
        }
        match seized {
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) || is_zombie(tid) => return Ok(None),
            Err(error) => return Err(error),
        }
        request(libc::PTRACE_INTERRUPT, tid, 0, 0)?;
        Ok(Some(PendingStop(Self {
            tid,
            stopped_by: None,
            pending_signal: None,
            masked: None,
            _bound_to_this_thread: PhantomData,
        })))
    }

    pub(super) fn tid(&self) -> u32 {
        self.tid.unsigned_abs()
    }

    /// The address of its next instruction.
    pub(super) fn instruction(&self) -> io::Result<u64> {
        Ok(Registers::read(self.tid)?.instruction())
    }

    /// Makes a system call in this thread, and returns its result.
    pub(super) fn call(
        &mut self,
        site: &CallSite,
        number: libc::c_long,
        arguments: [u64; 6],
    ) -> io::Result<u64> {
        let before = Registers::read(self.tid)?;
        let mask = self.signal_mask()?;
        self.set_signal_mask(u64::MAX)?;
        let outcome = self.step_through(&before.for_call(site.instruction, number, arguments));
        // Also if the call failed midway: its changes of the registers must not remain.
        before.settled().write(self.tid)?;
        self.set_signal_mask(mask)?;
        outcome
    }

    /// Makes a stopped process be stopped by `SIGSTOP`, with no other stop signal pending. Returns whether it was
    /// stopped.
    ///
    /// CRIU supports two of the four stop signals, and mistakes pending signals for the ones that stop the process. A
    /// stopped process collects pending signals, for example of children that end. And CRIU stops a process twice that
    /// is stopped again.
    pub(super) fn normalize_stop(&mut self) -> io::Result<bool> {
        let Some(signal) = self.stopped_by else { return Ok(false) };
        let waiting = pending_stops(self.tid)?;
        if waiting == 0 && signal == libc::SIGSTOP {
            return Ok(true);
        }
        if waiting & bit(libc::SIGSTOP) == 0 {
            // SAFETY: sends a signal; takes no pointers. The thread is stopped, so the tid is still its own.
            let sent = unsafe { libc::syscall(libc::SYS_tkill, self.tid, libc::SIGSTOP) };
            if sent != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        let mask = self.signal_mask()?;
        let taken = self.consume_stop_signals();
        self.set_signal_mask(mask)?;
        taken?;
        Ok(true)
    }

    /// Consumes every pending stop signal, and leaves the thread stopped by the last one, as by `SIGSTOP`. It never
    /// runs its own code: a signal intercepts it each time.
    fn consume_stop_signals(&mut self) -> io::Result<()> {
        let mut given = 0;
        for _ in 0..STOPS_MAX {
            let waiting = pending_stops(self.tid)?;
            self.set_signal_mask(!waiting)?;
            request(libc::PTRACE_CONT, self.tid, 0, given)?;
            given = 0;
            match self.wait()? {
                Stop::Ended => return Err(ended("while its stop signals were consumed")),
                Stop::Interrupted(stopped_by) if waiting == 0 => {
                    self.stopped_by = stopped_by;
                    return Ok(());
                }
                Stop::Signal(_) if pending_stops(self.tid)? == 0 => given = libc::SIGSTOP as usize,
                Stop::Interrupted(_) | Stop::Syscall | Stop::Signal(_) => {}
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    fn step_through(&mut self, registers: &Registers) -> io::Result<u64> {
        registers.write(self.tid)?;
        for _entry_then_exit in 0..2 {
            self.run_to_syscall_stop()?;
        }
        let answer = Registers::read(self.tid)?.answer();
        match i32::try_from(answer.cast_signed()) {
            Ok(error @ -4095..=-1) => Err(io::Error::from_raw_os_error(-error)),
            _ => Ok(answer),
        }
    }

    fn run_to_syscall_stop(&mut self) -> io::Result<()> {
        for _ in 0..STOPS_MAX {
            self.go_on(libc::PTRACE_SYSCALL)?;
            match self.wait()? {
                Stop::Ended => return Err(ended("in a system call")),
                Stop::Syscall => return Ok(()),
                Stop::Interrupted(_) => {}
                Stop::Signal(signal) => self.redeliver_later(signal),
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    /// Only signals that cannot be blocked get here. A stop signal among them is delivered later, unless the thread is
    /// stopped anyway.
    fn redeliver_later(&mut self, signal: i32) {
        let stops = bit(signal) & STOP_SIGNALS != 0;
        if !(stops && self.stopped_by.is_some()) {
            self.pending_signal = Some(signal);
        }
    }

    fn go_on(&self, how: libc::c_uint) -> io::Result<()> {
        request(how, self.tid, 0, 0).map(drop)
    }

    /// Waits for its next stop, for a limited time: the kernel would wait forever for a thread in an uninterruptible
    /// sleep.
    fn wait(&self) -> io::Result<Stop> {
        let request_stop = Instant::now();
        loop {
            match self.current_stop()? {
                Some(stop) => return Ok(stop),
                None if request_stop.elapsed() > STOP_TIMEOUT => return Err(io::ErrorKind::TimedOut.into()),
                None if request_stop.elapsed() > SPIN => thread::sleep(SPIN),
                None => thread::yield_now(),
            }
        }
    }

    /// The stop that it has reached, if any.
    fn current_stop(&self) -> io::Result<Option<Stop>> {
        loop {
            let mut status = 0;
            // SAFETY: waits for our own tracee; `status` outlives the call.
            let waited = unsafe { libc::waitpid(self.tid, &raw mut status, libc::__WALL | libc::WNOHANG) };
            let error = io::Error::last_os_error();
            match waited {
                0 => return Ok(None),
                -1 if error.kind() == io::ErrorKind::Interrupted => {}
                -1 => return Err(error),
                _ => return Ok(Some(Stop::of(status))),
            }
        }
    }

    fn signal_mask(&self) -> io::Result<u64> {
        let mut mask = 0_u64;
        let address = (&raw mut mask).addr();
        request(libc::PTRACE_GETSIGMASK as libc::c_uint, self.tid, size_of::<u64>(), address)?;
        Ok(mask)
    }

    fn set_signal_mask(&self, mask: u64) -> io::Result<()> {
        let address = (&raw const mask).addr();
        request(libc::PTRACE_SETSIGMASK as libc::c_uint, self.tid, size_of::<u64>(), address).map(drop)
    }
}

/// A thread whose stop was requested.
#[derive(Debug)]
pub(super) struct PendingStop(Tracee);

impl PendingStop {
    /// Waits until it has stopped; `None` if it has ended instead.
    pub(super) fn stopped(self) -> io::Result<Option<Tracee>> {
        let Self(mut tracee) = self;
        for _ in 0..STOPS_MAX {
            match tracee.wait()? {
                Stop::Ended => return Ok(None),
                Stop::Interrupted(stopped_by) => {
                    tracee.stopped_by = stopped_by;
                    return Ok(Some(tracee));
                }
                Stop::Syscall => tracee.go_on(libc::PTRACE_CONT)?,
                Stop::Signal(signal) => {
                    tracee.redeliver_later(signal);
                    tracee.go_on(libc::PTRACE_CONT)?;
                }
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        // Only after a failure midway.
        let _ = self.unmask();
        // A thread that has died meanwhile cannot be detached.
        let _ = request(libc::PTRACE_DETACH, self.tid, 0, 0);
        if let Some(signal) = self.pending_signal {
            // SAFETY: sends a signal; takes no pointers. The process is stopped or gone, so the pid is still its own.
            unsafe { libc::kill(self.tid, signal) };
        }
    }
}

enum Stop {
    Ended,
    /// By our request; with the signal that had stopped it before, if any.
    Interrupted(Option<i32>),
    /// At the entry or the exit of a system call.
    Syscall,
    Signal(i32),
}

impl Stop {
    fn of(status: i32) -> Self {
        if !libc::WIFSTOPPED(status) {
            return Self::Ended;
        }
        match (status >> 16, libc::WSTOPSIG(status)) {
            (PTRACE_EVENT_STOP, libc::SIGTRAP) => Self::Interrupted(None),
            (PTRACE_EVENT_STOP, signal) => Self::Interrupted(Some(signal)),
            (_, SYSCALL_STOP) => Self::Syscall,
            (_, signal) => Self::Signal(signal),
        }
    }
}

/// The addresses of a system call instruction in a process, and of a few bytes of its memory to pass a structure in.
#[derive(Debug)]
pub(super) struct CallSite {
    instruction: u64,
    memory: File,
    borrowed: u64,
}

impl CallSite {
    pub(super) fn find(pid: u32) -> io::Result<Self> {
        let memory = File::options().read(true).write(true).open(format!("/proc/{pid}/mem"))?;
        let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
        let missing = |what| io::Error::new(io::ErrorKind::NotFound, what);
        let instruction =
            instruction_in(&maps, &memory)?.ok_or_else(|| missing("the process has no vDSO"))?;
        let borrowed =
            writable_in(&maps).ok_or_else(|| missing("the process has no private writable memory"))?;
        Ok(Self { instruction, memory, borrowed })
    }

    /// Runs `act` with `bytes` at the address that it receives, and restores the original bytes.
    pub(super) fn with<const N: usize, T>(
        &self,
        bytes: [u8; N],
        act: impl FnOnce(u64) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut before = [0; N];
        self.memory.read_exact_at(&mut before, self.borrowed)?;
        self.memory.write_all_at(&bytes, self.borrowed)?;
        let outcome = act(self.borrowed);
        self.memory.write_all_at(&before, self.borrowed)?;
        outcome
    }
}

fn instruction_in(maps: &str, memory: &File) -> io::Result<Option<u64>> {
    let Some((start, end)) = maps.lines().find(|line| line.ends_with("[vdso]")).and_then(range) else {
        return Ok(None);
    };
    let mut code = vec![0; usize::try_from((end - start).min(VDSO_BYTES_MAX)).unwrap_or(0)];
    memory.read_exact_at(&mut code, start)?;
    let step = SYSCALL_INSTRUCTION.len();
    // On architectures with fixed-length instructions, only aligned ones count.
    let aligned = if cfg!(target_arch = "x86_64") { 1 } else { step };
    let found =
        code.windows(step).enumerate().find(|(at, bytes)| at % aligned == 0 && *bytes == SYSCALL_INSTRUCTION);
    Ok(found.map(|(at, _)| start + at as u64))
}

/// The end of the stack, where the program's arguments are: always mapped, and always private.
fn writable_in(maps: &str) -> Option<u64> {
    const ROOM: u64 = 64;
    let private = |line: &&str| line.split_whitespace().nth(1) == Some("rw-p");
    let stack = maps.lines().filter(private).find(|line| line.ends_with("[stack]"));
    let (_, end) = stack.or_else(|| maps.lines().find(private)).and_then(range)?;
    Some(end - ROOM)
}

fn range(line: &str) -> Option<(u64, u64)> {
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
}

/// The error of a thread that ended where it should have stopped.
fn ended(when: &str) -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, format!("a thread ended {when}"))
}

/// A signal as a bit of the kernel's masks.
const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

fn pending_stops(tid: libc::pid_t) -> io::Result<u64> {
    Ok(waiting_stops(&fs::read_to_string(format!("/proc/{tid}/status"))?))
}

/// The signals that would stop a thread as soon as it runs, according to `/proc`.
pub(super) fn waiting_stops(status: &str) -> u64 {
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
    };
    let waiting = (mask("SigPnd:") | mask("ShdPnd:")) & STOP_SIGNALS;
    // Blocked signals remain pending; SIGSTOP cannot be blocked.
    waiting & (!mask("SigBlk:") | bit(libc::SIGSTOP))
}

fn is_zombie(tid: libc::pid_t) -> bool {
    let stat = fs::read_to_string(format!("/proc/{tid}/stat"));
    stat.is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X'])))
}

fn request(what: libc::c_uint, tid: libc::pid_t, address: usize, data: usize) -> io::Result<libc::c_long> {
    // SAFETY: the requests here that write to our memory get, in `data`, the address of an object that is large enough and
    // outlives the call; the others take numbers.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_ptrace,
            libc::c_long::from(what),
            libc::c_long::from(tid),
            ptr::without_provenance::<u8>(address),
            ptr::with_exposed_provenance::<u8>(data),
        )
    };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::MetadataExt as _;
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A process that sleeps, with a file as its standard input.
    fn sleeper(input: &File) -> Child {
        Command::new("sleep").arg("1000").stdin(Stdio::from(input.try_clone().unwrap())).spawn().unwrap()
    }

    fn file() -> File {
        let path = std::env::temp_dir().join(format!(
            "burrow-trace-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        fs::remove_file(path).unwrap();
        file
    }

    fn state(child: &Child) -> String {
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        stat.rsplit_once(") ").unwrap().1[..1].to_owned()
    }

    #[test]
    fn a_call_runs_in_the_process_and_leaves_no_trace() {
        let file = file();
        let mut child = sleeper(&file);
        let maps = || fs::read_to_string(format!("/proc/{}/maps", child.id())).unwrap();
        // Until it sleeps, it is still starting.
        while fs::read_to_string(format!("/proc/{}/wchan", child.id())).unwrap() != "hrtimer_nanosleep" {
            std::thread::yield_now();
        }
        let before = maps();
        let mut thread = Tracee::seize(child.id(), OnTracerExit::Dies).unwrap().unwrap();
        let site = CallSite::find(child.id()).unwrap();
        for _ in 0..3 {
            assert_eq!(thread.call(&site, libc::SYS_getpid, [0; 6]).unwrap(), u64::from(child.id()));
        }
        let refused = thread.call(&site, libc::SYS_close, [999, 0, 0, 0, 0, 0]).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EBADF));
        // A write lock on the first byte: `struct flock` with its kind, and a length of one.
        let mut lock = [0; 32];
        lock[0] = 1;
        lock[16] = 1;
        let set = u64::try_from(libc::F_SETLK).unwrap();
        site.with(lock, |at| thread.call(&site, libc::SYS_fcntl, [0, set, at, 0, 0, 0])).unwrap();
        drop(thread);

        let held = format!(" {} ", child.id());
        let inode = format!(":{} 0 0", file.metadata().unwrap().ino());
        let locks = fs::read_to_string("/proc/locks").unwrap();
        assert!(locks.lines().any(|line| line.contains(&held) && line.contains(&inode)), "{locks}");
        assert_eq!(maps(), before);
        while state(&child) != "S" {
            assert!(child.try_wait().unwrap().is_none(), "it continues to sleep");
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_stopped_process_stays_stopped() {
        let mut child = sleeper(&file());
        let pid = i32::try_from(child.id()).unwrap();
        // SAFETY: sends a signal to our child, which is not reaped yet.
        unsafe { libc::kill(pid, libc::SIGSTOP) };
        while state(&child) != "T" {
            std::thread::yield_now();
        }
        let mut thread = Tracee::seize(child.id(), OnTracerExit::Dies).unwrap().unwrap();
        let site = CallSite::find(child.id()).unwrap();
        assert_eq!(thread.call(&site, libc::SYS_getpid, [0; 6]).unwrap(), u64::from(child.id()));
        drop(thread);
        while state(&child) != "T" {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn an_ended_process_cannot_be_seized() {
        let mut child = Command::new("true").spawn().unwrap();
        while state(&child) != "Z" {
            std::thread::yield_now();
        }
        assert!(Tracee::seize(child.id(), OnTracerExit::Dies).unwrap().is_none());
        child.wait().unwrap();
    }
}
