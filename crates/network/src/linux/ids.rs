//! The host uids and gids of sandboxes.
//!
//! ```text
//!   inside         0 ..= 65535
//!   on the host    BASE ..= BASE + 65535     ids of its processes; a range per sandbox
//!   on disk        100000 ..= 165535         ids of its files; the same for all sandboxes, so images are stored once
//! ```
//!
//! The kernel counts many resources per uid of the host: descriptors in flight over Unix sockets, pipe buffers, epoll
//! watches, keys. If all sandboxes had one range, a sandbox that used up such a limit would leave none to the others.
//! An idmapped mount translates between the host's ids and those on disk.
//!
//! Invariant: no two sandboxes of this process have the same range, and a range is not assigned while a process that is
//! older than this one has it. Another daemon on the host chooses at random among as many ranges.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use super::namespace::{self, UID_BASE, UID_COUNT};
use super::netlink::SlotError;

/// Above the owners of namespaces, see `namespace::OWNER_BASE`, and below -1, which is not a valid id.
const FIRST: u32 = 0x6000_0000;
const END: u32 = 0xf000_0000;
const COUNT: u32 = (END - FIRST) / UID_COUNT;

static RANGES: LazyLock<Mutex<Ranges>> =
    LazyLock::new(|| Mutex::new(Ranges { held: HashMap::new(), seen: in_use() }));

/// The ids of one sandbox on this host.
#[derive(Debug)]
pub struct HostIds {
    pub range: Arc<IdRange>,
    /// A user namespace for idmapped mounts: it maps the ids on disk to the range, and the host's root to itself. Files
    /// of the host's root keep their owner, which has no id inside the sandbox.
    pub mounts: OwnedFd,
}

impl HostIds {
    /// Reserves a free range. Blocks for a millisecond.
    pub fn reserve() -> Result<Self, SlotError> {
        let range = IdRange::reserve()?;
        let mounts = namespace::make_user(&format!("0 0 1\n{UID_BASE} {} {UID_COUNT}", range.base()))?;
        Ok(Self { range: Arc::new(range), mounts })
    }
}

/// [`UID_COUNT`] uids of the host, and as many gids, reserved until this is dropped.
#[derive(Debug)]
pub struct IdRange {
    base: u32,
}

impl IdRange {
    fn reserve() -> Result<Self, SlotError> {
        let reserved = ranges().reserve(namespace::random_below(COUNT));
        let base = reserved.ok_or_else(|| SlotError {
            step: "reserve a range of uids",
            source: io::Error::from_raw_os_error(libc::EUSERS),
        })?;
        Ok(Self { base })
    }

    /// The range of a running process; `None` if it has the ids that are used on disk, as machines of older versions
    /// have.
    pub fn of_process(pid: u32) -> io::Result<Option<Self>> {
        let map = fs::read_to_string(format!("/proc/{pid}/uid_map"))?;
        let base = base_in(&map);
        if let Some(base) = base {
            ranges().hold(base);
        }
        Ok(base.map(|base| Self { base }))
    }

    /// The host id of uid 0 inside.
    pub fn base(&self) -> u32 {
        self.base
    }
}

impl Drop for IdRange {
    fn drop(&mut self) {
        ranges().release(self.base);
    }
}

fn ranges() -> MutexGuard<'static, Ranges> {
    RANGES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The ranges in use, by their first id.
#[derive(Debug)]
struct Ranges {
    /// Reference counts of ranges: a machine may be adopted by more than one driver.
    held: HashMap<u32, u32>,
    /// Ranges that processes had when this process began, until their machines are adopted.
    seen: HashSet<u32>,
}

impl Ranges {
    /// Reserves the first free range, starting with the `start`th.
    fn reserve(&mut self, start: u32) -> Option<u32> {
        let nth = |index: u32| FIRST + index % COUNT * UID_COUNT;
        let is_free = |base: &u32| !self.held.contains_key(base) && !self.seen.contains(base);
        let base = (start..start + COUNT).map(nth).find(is_free)?;
        self.held.insert(base, 1);
        Some(base)
    }

    fn hold(&mut self, base: u32) {
        self.seen.remove(&base);
        *self.held.entry(base).or_default() += 1;
    }

    fn release(&mut self, base: u32) {
        if let Some(count) = self.held.get_mut(&base) {
            *count -= 1;
            if *count == 0 {
                self.held.remove(&base);
            }
        }
    }
}

/// The ranges of all processes of this host.
fn in_use() -> HashSet<u32> {
    let Ok(processes) = fs::read_dir("/proc") else { return HashSet::new() };
    let is_process = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    let names = processes.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let maps = names.filter(|name| is_process(name));
    // A process that has ended meanwhile has none.
    maps.filter_map(|pid| base_in(&fs::read_to_string(format!("/proc/{pid}/uid_map")).ok()?)).collect()
}

/// The range in a process's `uid_map`, if it is one of ours.
fn base_in(map: &str) -> Option<u32> {
    let mut words = map.split_whitespace().map(str::parse::<u32>);
    let (Some(Ok(0)), Some(Ok(base)), Some(Ok(UID_COUNT)), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return None;
    };
    ((FIRST..END).contains(&base) && base.is_multiple_of(UID_COUNT)).then_some(base)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none() -> Ranges {
        Ranges { held: HashMap::new(), seen: HashSet::new() }
    }

    #[test]
    fn a_range_is_assigned_once_until_it_is_released() {
        let mut ranges = none();
        let last = COUNT - 1;
        assert_eq!(ranges.reserve(last), Some(END - UID_COUNT));
        assert_eq!(ranges.reserve(last), Some(FIRST), "wraps around to the next one");
        ranges.hold(FIRST);
        ranges.release(FIRST);
        assert_eq!(ranges.reserve(0), Some(FIRST + UID_COUNT), "the first is still held");
        ranges.release(FIRST);
        assert_eq!(ranges.reserve(0), Some(FIRST));
    }

    #[test]
    fn ranges_that_were_in_use_are_free_after_their_machines_were_adopted_and_ended() {
        let mut ranges = Ranges { seen: HashSet::from([FIRST]), ..none() };
        assert_eq!(ranges.reserve(0), Some(FIRST + UID_COUNT));
        ranges.hold(FIRST);
        ranges.release(FIRST);
        assert_eq!(ranges.reserve(0), Some(FIRST));
    }

    #[test]
    fn reserving_fails_when_all_ranges_are_taken() {
        let mut ranges = none();
        for start in 0..COUNT {
            assert!(ranges.reserve(start).is_some());
        }
        assert_eq!(ranges.reserve(7), None);
    }

    #[test]
    fn only_complete_ranges_of_ours_are_recognized() {
        let base = |map: &str| base_in(map);
        assert_eq!(base("         0 1610612736      65536\n"), Some(0x6000_0000));
        assert_eq!(base("0 4026466304 65536"), Some(0xefff_0000));
        for other in ["0 0 4294967295", "0 100000 65536", "0 1610612737 65536", "1 1610612736 65536", ""] {
            assert_eq!(base(other), None, "{other}");
        }
        assert_eq!(base("0 1610612736 65536\n65536 7 1\n"), None);
    }

    #[test]
    fn two_sandboxes_have_different_ids() {
        let (one, other) = (HostIds::reserve().unwrap(), HostIds::reserve().unwrap());
        assert_ne!(one.range.base(), other.range.base());
    }
}
