//! Holds all threads of a machine stopped, while steps that CRIU does not perform are made in its processes.
//!
//! ```text
//! frozen (by the cgroup) ──► every thread seized ──► thawed ──► system calls in some of them ──► all detached at once
//! ```
//!
//! A frozen process cannot make system calls, and a thawed one would run: so its threads are seized first and thawed
//! then. None of them ever runs its own code.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::group::Group;
use super::locks::Lock;
use super::trace::{CallSite, OnTracerExit, Tracee};

/// A frozen group cannot create threads; this only bounds memory beyond the machine's own limit.
const THREADS_MAX: usize = 1 << 16;

/// Threads that were detached in a freezing group are frozen again within microseconds, one after the other.
const REST_TIMEOUT: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_micros(20);

/// The pid of a machine's first process, inside the machine.
const FIRST: u32 = 1;

/// All threads of a machine, stopped. Dropping it resumes them.
#[derive(Debug)]
pub(super) struct HeldThreads {
    /// The processes, by their pids inside the machine.
    processes: HashMap<u32, Process>,
}

#[derive(Debug)]
struct Process {
    pid: u32,
    threads: Vec<Tracee>,
}

impl HeldThreads {
    /// Seizes all threads in `group`, which is freezing or frozen, and thaws the group.
    pub(super) fn take(group: &Group, on_tracer_exit: OnTracerExit) -> io::Result<Self> {
        group.await_frozen()?;
        let mut begun = Vec::new();
        for pid in group.processes()? {
            let Some(inner_pid) = inner_pid(pid)? else { continue };
            let mut threads = Vec::new();
            for tid in threads_of(pid)? {
                // A thread that waits for its `vfork` child cannot stop, nor run before the child continues.
                if state_of(pid, tid)? != Some(UNINTERRUPTIBLE) {
                    threads.extend(Tracee::request_stop(tid, on_tracer_exit)?);
                }
            }
            begun.push((inner_pid, pid, threads));
        }
        if begun.iter().map(|(_, _, threads)| threads.len()).sum::<usize>() > THREADS_MAX {
            return Err(io::Error::other("the machine has too many threads"));
        }
        let mut processes = HashMap::new();
        for (inner_pid, pid, threads) in begun {
            let threads: io::Result<Vec<_>> =
                threads.into_iter().filter_map(|thread| thread.stopped().transpose()).collect();
            processes.insert(inner_pid, Process { pid, threads: threads? });
        }
        group.thaw()?;
        Ok(Self { processes })
    }

    /// Lets the machine's first process run while the others stay stopped.
    pub(super) fn resume_first(&mut self) {
        self.processes.remove(&FIRST);
    }

    /// Brings all processes that a signal had stopped into the only stopped state that a dump keeps; see
    /// [`Tracee::normalize_stop`]. Returns whether there are any.
    pub(super) fn normalize_stop(&mut self) -> io::Result<bool> {
        let mut any = false;
        for thread in self.processes.values_mut().flat_map(|process| &mut process.threads) {
            any |= thread.normalize_stop()?;
        }
        Ok(any)
    }

    /// Detaches all threads into the freezing group, and returns when they are all frozen, including those that were
    /// stopped by a signal.
    ///
    /// The kernel reports a group as frozen while its threads are held, and for a moment after they were detached. If a
    /// stopped thread is seized in that moment, it is not found to be stopped.
    pub(super) fn detach_frozen(self, group: &Group) -> io::Result<()> {
        group.freeze()?;
        let threads: Vec<(u32, u32)> = self
            .processes
            .values()
            .flat_map(|process| process.threads.iter().map(|thread| (process.pid, thread.tid())))
            .collect();
        drop(self);
        let deadline = Instant::now() + REST_TIMEOUT;
        for (pid, tid) in threads {
            while matches!(state_of(pid, tid)?, Some(RUNNING | TRACED)) {
                if Instant::now() > deadline {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                thread::sleep(LOOK_AGAIN);
            }
        }
        group.await_frozen()
    }

    /// The held processes: their pids inside the machine and on the host.
    pub(super) fn pids(&self) -> Vec<(u32, u32)> {
        self.processes.iter().map(|(inner_pid, process)| (*inner_pid, process.pid)).collect()
    }

    /// Every held thread, with the pid of its process inside the machine, and its tid on the host.
    pub(super) fn threads(&mut self) -> impl Iterator<Item = (u32, u32, &mut Tracee)> {
        self.processes.iter_mut().flat_map(|(inner_pid, process)| {
            let pid = process.pid;
            process.threads.iter_mut().map(move |thread| (*inner_pid, pid, thread))
        })
    }

    /// Makes a system call in one of the processes.
    pub(super) fn call(
        &mut self,
        inner_pid: u32,
        number: libc::c_long,
        arguments: [u64; 6],
    ) -> io::Result<u64> {
        let process = self.processes.get_mut(&inner_pid).ok_or(io::ErrorKind::NotFound)?;
        let site = CallSite::find(process.pid)?;
        let thread = process.threads.first_mut().ok_or(io::ErrorKind::NotFound)?;
        thread.call(&site, number, arguments)
    }

    /// The instruction pointers of one process's threads.
    pub(super) fn instructions(&self, inner_pid: u32) -> io::Result<Vec<u64>> {
        let process = self.processes.get(&inner_pid).ok_or(io::ErrorKind::NotFound)?;
        process.threads.iter().map(Tracee::instruction).collect()
    }

    /// Sets every lock again, in the process that it belongs to.
    pub(super) fn set_locks(&mut self, locks: &[Lock]) -> io::Result<()> {
        let mut sites: HashMap<u32, CallSite> = HashMap::new();
        for lock in locks {
            let gone = || {
                io::Error::new(io::ErrorKind::NotFound, format!("process {} does not exist", lock.inner_pid))
            };
            let process = self.processes.get_mut(&lock.inner_pid).ok_or_else(gone)?;
            let site = match sites.entry(process.pid) {
                std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
                std::collections::hash_map::Entry::Vacant(new) => new.insert(CallSite::find(process.pid)?),
            };
            let thread = process.threads.first_mut().ok_or_else(gone)?;
            set(thread, site, lock)?;
        }
        Ok(())
    }
}

fn set(thread: &mut Tracee, site: &CallSite, lock: &Lock) -> io::Result<()> {
    let descriptor = u64::try_from(lock.descriptor).map_err(|_| io::ErrorKind::InvalidData)?;
    let set = u64::try_from(libc::F_SETLK).expect("a command is a small number");
    site.with(flock(lock), |address| {
        thread.call(site, libc::SYS_fcntl, [descriptor, set, address, 0, 0, 0]).map(drop)
    })
}

/// `struct flock` of 64-bit kernels: two shorts, padding, two longs, an int, padding.
fn flock(lock: &Lock) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..2].copy_from_slice(&lock.kind.to_ne_bytes());
    let from_start = i16::try_from(libc::SEEK_SET).expect("it is zero");
    bytes[2..4].copy_from_slice(&from_start.to_ne_bytes());
    bytes[8..16].copy_from_slice(&lock.start.to_ne_bytes());
    bytes[16..24].copy_from_slice(&lock.length.to_ne_bytes());
    bytes
}

/// The pid or tid inside the machine; `None` when it has ended.
pub(super) fn inner_pid(pid: u32) -> io::Result<Option<u32>> {
    let status = match fs::read_to_string(format!("/proc/{pid}/status")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    // The first is ours, the second the machine's; more would be of nested namespaces, which CRIU does not use.
    Ok(numbers.and_then(|numbers| numbers.split_whitespace().nth(1)).and_then(|number| number.parse().ok()))
}

pub(super) fn threads_of(pid: u32) -> io::Result<Vec<u32>> {
    let mut threads = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        threads.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    Ok(threads)
}

/// The state of a thread that no signal reaches. In a frozen group there is one reason for it: the thread has created a
/// child by `vfork`, and waits until it executes a program.
pub(super) const UNINTERRUPTIBLE: u8 = b'D';
/// Stopped by a signal, and not traced.
pub(super) const STOPPED: u8 = b'T';
const RUNNING: u8 = b'R';
const TRACED: u8 = b't';

/// The letter of a thread's state in `/proc`; `None` when it has ended.
pub(super) fn state_of(pid: u32, tid: u32) -> io::Result<Option<u8>> {
    match fs::read(format!("/proc/{pid}/task/{tid}/stat")) {
        // The name before it may contain anything, including parentheses.
        Ok(stat) => Ok(stat.iter().rposition(|byte| *byte == b')').and_then(|at| stat.get(at + 2).copied())),
        Err(error)
            if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
