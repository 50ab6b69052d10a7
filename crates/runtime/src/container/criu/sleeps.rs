//! Keeps sleeping system calls across a dump and a restore: a thread sleeps for the time that was left.
//!
//! CRIU lets these calls return `EINTR`. Programs then sleep for the whole time again, or stop waiting too early. Only the
//! kernel knows when an interrupted sleep ends. It lists the end among all timers of the host, without the thread. So each
//! thread that may sleep is held and resumed for moments, in its own set of rounds. The timer that is listed in exactly those
//! rounds belongs to the thread:
//!
//! ```text
//!             round 1   2   3   4   5   6
//! thread 0          ·   z   ·   z   ·   z      another timer of the host that starts or expires meanwhile is listed
//! thread 1          z   ·   ·   z   ·   z      from one round on, or up to one round, which is no thread's set
//! thread 2          ·   z   z   ·   ·   z
//! ```
//!
//! Afterwards each thread starts a sleep for the time left, which is interrupted at once; the kernel continues it when the
//! thread resumes.
//!
//! A thread whose timer cannot be identified sees an interrupted call.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt as _;

use rustix::fs::{Mode, OFlags, openat};
use serde::{Deserialize, Serialize};

use super::hold::{HeldThreads, inner_pid};
use super::trace::{CallSite, CodePosition, Interrupted, Kind, Nap, Tracee};

/// All timers of the host that run, by processor.
const TIMERS: &str = "/proc/timer_list";
/// An entry takes 150 bytes, so this is enough for a hundred thousand threads.
const TIMERS_BYTES_MAX: u64 = 16 << 20;
/// The first lines contain the time.
const HEAD_BYTES: u64 = 256;
/// The function of a timer that ends a thread's sleep.
const WAKES_A_THREAD: &str = ", hrtimer_wakeup,";

/// In a dump's directory.
const FILE: &str = "burrow-sleeps.json";
const FILE_BYTES_MAX: u64 = 1 << 20;

/// At most this many sleeps are restored: one message of 64 KiB passes them between processes. Further threads see an
/// interrupted call.
const SLEEPS_MAX: usize = 300;
/// At least this many pairs of rounds: an unrelated timer is unlikely to match a pattern of six rounds.
const PAIRS_MIN: u32 = 3;
/// The kernel's list can miss a timer when others expire while it is read.
const ATTEMPTS_MAX: u32 = 4;

/// A thread's sleep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sleep {
    /// Process and thread, by their ids inside the sandbox.
    pid: u32,
    tid: u32,
    at: CodePosition,
    /// When it ends, in nanoseconds of the host's uptime.
    until: u64,
    /// Where the kernel writes the time left, or zero.
    left_at: u64,
}

/// The sleeps at the time of a dump.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct StoredSleeps {
    /// The time of the dump, in nanoseconds of its host's uptime.
    pub(super) now: u64,
    pub(super) sleeps: Vec<Sleep>,
}

impl StoredSleeps {
    pub(super) fn is_empty(&self) -> bool {
        self.sleeps.is_empty()
    }
}

/// A thread that may sleep.
struct SleepingThread<'a> {
    inner_pid: u32,
    pid: u32,
    thread: &'a mut Tracee,
    interrupted: Interrupted,
    until: Option<u64>,
    /// It does not sleep, or not any more.
    awake: bool,
    /// It waits in `poll`.
    polls: bool,
}

/// Makes threads repeat a `poll` without a timeout, and finds the threads that sleep, among those that were interrupted when they were seized and have made no call since.
pub(super) fn note(held: &mut HeldThreads) -> io::Result<Vec<Sleep>> {
    let mut sleepers = Vec::new();
    for (inner_pid, pid, thread) in held.threads() {
        thread.repeat_poll(false)?;
        if let Some(interrupted) = thread.interrupted()? {
            let (awake, polls) = (false, false);
            sleepers.push(SleepingThread { inner_pid, pid, thread, interrupted, until: None, awake, polls });
        }
    }
    sleepers.truncate(SLEEPS_MAX);
    if sleepers.is_empty() {
        return Ok(Vec::new());
    }
    // The host does not show its timers to this process.
    let Ok(began) = now() else { return Ok(Vec::new()) };
    for _ in 0..ATTEMPTS_MAX {
        let mut unknown: Vec<_> =
            sleepers.iter_mut().filter(|sleeper| sleeper.until.is_none() && !sleeper.awake).collect();
        if unknown.is_empty() || !observe(&mut unknown)? {
            break;
        }
    }
    for sleeper in sleepers.iter().filter(|sleeper| sleeper.polls) {
        sleeper.thread.repeat_poll(true)?;
    }
    let now = now()?;
    let mut sleeps = Vec::new();
    for sleeper in &sleepers {
        let (Some(until), Some(tid)) = (sleeper.until, inner_pid(sleeper.thread.tid())?) else { continue };
        let left_at = match sleeper.interrupted.kind {
            Kind::Sleep { left_at } => left_at,
            Kind::Unknown { left_at } => {
                let memory = File::open(format!("/proc/{}/mem", sleeper.pid))?;
                let noted =
                    |at: &u64| noted_at(&memory, *at, until).is_some_and(|at| (began..=now).contains(&at));
                left_at.into_iter().find(noted).unwrap_or(0)
            }
        };
        sleeps.push(Sleep { pid: sleeper.inner_pid, tid, at: sleeper.interrupted.at, until, left_at });
    }
    Ok(sleeps)
}

/// Resumes the threads in rounds and records which timers are listed in which rounds. Returns `false` if the host does not show
/// it.
fn observe(sleepers: &mut [&mut SleepingThread<'_>]) -> io::Result<bool> {
    let rounds = rounds_for(sleepers.len());
    let mut seen: HashMap<u64, u32> = HashMap::new();
    for round in 0..rounds {
        let Some(ends) = observe_once(sleepers, round)? else { return Ok(false) };
        for end in ends {
            *seen.entry(end).or_default() |= 1 << round;
        }
    }
    for (index, sleeper) in sleepers.iter_mut().enumerate() {
        let its_rounds = pattern(index, rounds);
        let mut ends = seen.iter().filter(|(_, rounds)| **rounds == its_rounds).map(|(end, _)| *end);
        if let (Some(end), None, false) = (ends.next(), ends.next(), sleeper.awake) {
            sleeper.until = Some(end);
        }
    }
    Ok(true)
}

/// The ends of all restarted sleeps on this host, while the threads of the round sleep.
fn observe_once(sleepers: &mut [&mut SleepingThread<'_>], round: u32) -> io::Result<Option<Vec<u64>>> {
    let mut napping = Vec::new();
    let begun = begin_round(sleepers, round, &mut napping);
    let listed = File::open(TIMERS).and_then(|file| {
        let mut text = String::new();
        file.take(TIMERS_BYTES_MAX).read_to_string(&mut text).map(|_| text)
    });
    // All threads, whatever failed.
    let woken = napping.into_iter().map(|index| sleepers[index].thread.wake()).fold(Ok(()), io::Result::and);
    let visible = begun?;
    woken?;
    Ok(listed.ok().filter(|_| visible).map(|text| ends(&text)))
}

/// Resumes the threads of a round, and lists those that must be interrupted afterwards. Returns `false` if the kernel does not
/// show whether they sleep.
fn begin_round(
    sleepers: &mut [&mut SleepingThread<'_>],
    round: u32,
    napping: &mut Vec<usize>,
) -> io::Result<bool> {
    for (index, sleeper) in sleepers.iter_mut().enumerate() {
        if sleeper.awake || pattern(index, u32::BITS) & (1 << round) == 0 {
            continue;
        }
        let nap = sleeper.thread.nap();
        // A thread whose `nap` failed midway is interrupted as well.
        if !matches!(nap, Ok(Nap::Over)) {
            napping.push(index);
        }
        let nap = nap?;
        if nap == Nap::Unseen {
            return Ok(false);
        }
        // Where the number of the call is lost, only the way it waits identifies a sleep.
        let known = matches!(sleeper.interrupted.kind, Kind::Sleep { .. });
        sleeper.polls = nap == Nap::Polling;
        sleeper.awake = !(nap == Nap::Asleep || (nap == Nap::Other && known));
    }
    Ok(true)
}

/// Two rounds for each bit of the largest index: one for the threads whose index has the bit set, one for the others.
fn rounds_for(count: usize) -> u32 {
    2 * (usize::BITS - count.saturating_sub(1).leading_zeros()).max(PAIRS_MIN)
}

/// The rounds of the thread with this index, as bits.
fn pattern(index: usize, rounds: u32) -> u32 {
    (0..rounds)
        .filter(|round| ((index >> (round / 2)) & 1 == 1) == (round % 2 == 0))
        .fold(0, |rounds, round| rounds | 1 << round)
}

/// Restarts the sleeps of threads that still stand where they slept; `now` is by the clock of `Sleep::until`. The threads must
/// make no further calls before they resume.
///
/// A thread whose sleep cannot be restarted sees an interrupted call: no reason to lose the sandbox's processes.
pub(super) fn restart(held: &mut HeldThreads, sleeps: &[Sleep], now: u64) -> io::Result<()> {
    let mut sites: HashMap<u32, CallSite> = HashMap::new();
    for (inner, pid, thread) in held.threads() {
        let mut of_process = sleeps.iter().filter(|sleep| sleep.pid == inner).peekable();
        if of_process.peek().is_none() {
            continue;
        }
        let tid = inner_pid(thread.tid())?;
        let Some(sleep) = of_process.find(|sleep| Some(sleep.tid) == tid) else { continue };
        let site = match sites.entry(pid) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => match CallSite::find(pid) {
                Ok(site) => new.insert(site),
                // For example, a process without a vDSO.
                Err(_) => continue,
            },
        };
        thread.start_sleep(site, sleep.at, sleep.until.saturating_sub(now), sleep.left_at)?;
    }
    Ok(())
}

/// Writes the sleeps beside the images of a dump.
pub(super) fn write(images: BorrowedFd<'_>, sleeps: &[Sleep]) -> io::Result<()> {
    if sleeps.is_empty() {
        return Ok(());
    }
    let kept = StoredSleeps { now: now()?, sleeps: sleeps.to_vec() };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(images, FILE, flags, Mode::RUSR | Mode::WUSR)?;
    File::from(file).write_all(&serde_json::to_vec(&kept)?)
}

/// The sleeps of a dump; none in a dump of an older version.
pub(super) fn read(images: BorrowedFd<'_>) -> io::Result<StoredSleeps> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match openat(images, FILE, flags, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => return Ok(StoredSleeps::default()),
        file => File::from(file?),
    };
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// When the kernel wrote the time left of a sleep to an address, if it did.
fn noted_at(memory: &File, address: u64, until: u64) -> Option<u64> {
    let mut bytes = [0; 16];
    memory.read_exact_at(&mut bytes, address).ok()?;
    let [seconds, nanoseconds] =
        [&bytes[..8], &bytes[8..]].map(|word| word.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word)));
    until.checked_sub(seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)?)
}

/// The time by the kernel's own clock, in nanoseconds. In a time namespace, `clock_gettime` returns another one.
pub(super) fn now() -> io::Result<u64> {
    let mut head = Vec::new();
    File::open(TIMERS)?.take(HEAD_BYTES).read_to_end(&mut head)?;
    let head = String::from_utf8_lossy(&head);
    let now = head.lines().find_map(|line| line.strip_prefix("now at ")?.split(' ').next()?.parse().ok());
    now.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The ends of restarted sleeps in a list of timers. Unlike those of first sleeps, they are exact, without slack.
fn ends(timers: &str) -> Vec<u64> {
    let (mut offset, mut wakes, mut found) = (0, false, Vec::new());
    for line in timers.lines() {
        if let Some(rest) = line.trim_start().strip_prefix(".offset:") {
            offset =
                rest.split_whitespace().next().and_then(|offset| offset.parse::<u64>().ok()).unwrap_or(0);
        } else if let Some(rest) = line.strip_prefix(" # expires at ") {
            let range = rest.split(' ').next().and_then(|range| range.split_once('-'));
            if let (true, Some((earliest, latest))) = (wakes, range)
                && earliest == latest
            {
                found.extend(latest.parse::<u64>().ok().and_then(|end| end.checked_sub(offset)));
            }
        } else {
            wakes = line.contains(WAKES_A_THREAD);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "Timer List Version: v0.10\nHRTIMER_MAX_CLOCK_BASES: 8\nnow at 1000 nsecs\n\ncpu: 0\n clock 0:\n  \
        .base:       00000000d8223853\n  .index:      0\n  .resolution: 1 nsecs\n  .offset:     0 nsecs\nactive timers:\n \
        #0: <000000000c302325>, hrtimer_wakeup, S:01\n # expires at 2000-2050 nsecs [in 1000 to 1050 nsecs]\n \
        #1: <000000002a895e2f>, tick_nohz_handler, S:01\n # expires at 3000-3000 nsecs [in 2000 to 2000 nsecs]\n \
        #2: <00000000b6414e51>, hrtimer_wakeup, S:01\n # expires at 4000-4000 nsecs [in 3000 to 3000 nsecs]\n clock 2:\n  \
        .index:      2\n  .offset:     500 nsecs\nactive timers:\n \
        #0: <00000000b6414e51>, hrtimer_wakeup, S:01\n # expires at 5500-5500 nsecs [in 4500 to 4500 nsecs]\n";

    #[test]
    fn the_ends_of_interrupted_sleeps_are_found_among_other_timers() {
        assert_eq!(ends(LIST), [4000, 5000]);
        assert!(ends("").is_empty());
    }

    #[test]
    fn each_thread_has_its_own_rounds_which_no_other_timer_matches() {
        for count in [1, 2, 3, 8, 9, 100, SLEEPS_MAX] {
            let rounds = rounds_for(count);
            assert!((6..=32).contains(&rounds));
            let patterns: std::collections::HashSet<u32> =
                (0..count).map(|index| pattern(index, rounds)).collect();
            assert_eq!(patterns.len(), count);
            for end in 0..=rounds {
                let goes = (1_u64 << end) - 1;
                let comes = !goes & ((1 << rounds) - 1);
                assert!(patterns.iter().all(|pattern| ![goes, comes].contains(&u64::from(*pattern))));
            }
        }
    }
}
