//! Looks at a machine's processes for what CRIU cannot take along, before it tries.
//!
//! CRIU finds most of it itself, midway and in its own words; some it finds at the restore only, when the processes are
//! gone. Here every obstacle is named with its process, nothing has happened yet, and the machine runs on untouched.
//!
//! What is looked for: descriptors ([`descriptors`]), mappings, sessions that cannot be made again ([`sessions`]),
//! tracing, namespaces within; and at the last moment what passes by itself, such as [`netlink`].

mod descriptors;
mod netlink;
mod sessions;

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use super::copied::{Descriptors, is_too_long};
use super::group::Group;
use super::hold::{STOPPED, UNINTERRUPTIBLE, state_of, threads_of};
use super::trace::waiting_stops;

/// Obstacles that are reported; one is enough to refuse.
const OBSTACLES_MAX: usize = 32;

/// Something that keeps a machine from being dumped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Obstacle {
    /// As the machine numbers its processes.
    pub pid: u32,
    /// The program's name.
    pub name: String,
    pub reason: Reason,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// A descriptor of a kind that cannot be made again.
    Descriptor { descriptor: u32, what: String },
    /// A mapping of such a kind.
    Mapping { what: String },
    /// The program it executes is in no file.
    Program,
    /// Its working directory has a path that no system call takes.
    Directory,
    /// A debugger is at it: only one tracer can be.
    Traced,
    /// It is in a namespace that is not the machine's.
    Namespace { kind: &'static str },
    /// It and its session's leader have ended, and nobody has taken note yet: passes within moments.
    EndedSession { leader: u32 },
    /// It has just made a process to execute another program in, which has not done so yet: passes as well.
    Spawning,
    /// The kernel has told it something that it has not read yet: passes if it reads.
    Unread,
    /// It was sent a signal that stops it, and has not taken note yet: passes as well.
    Stopping,
    /// The leader of its session has ended, and none of its ancestors is of that session.
    LostSession { leader: u32 },
}

impl Reason {
    /// Whether waiting a little may help.
    pub(crate) fn passes(&self) -> bool {
        match self {
            Self::EndedSession { .. } | Self::Spawning | Self::Stopping | Self::Unread => true,
            Self::Descriptor { .. }
            | Self::Mapping { .. }
            | Self::Program
            | Self::Directory
            | Self::Traced
            | Self::Namespace { .. }
            | Self::LostSession { .. } => false,
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} (`{}`) {}", self.pid, self.name, self.reason)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Descriptor { descriptor, what } => write!(f, "has {what} open as descriptor {descriptor}"),
            Self::Mapping { what } => write!(f, "has {what} in its memory"),
            Self::Program => f.write_str("executes a program that is in no file"),
            Self::Directory => f.write_str("works in a directory whose path is longer than 4095 bytes"),
            Self::Spawning => f.write_str("is just starting a program"),
            Self::Stopping => f.write_str("is just being stopped by a signal"),
            Self::Unread => f.write_str("has not read what the kernel told it over netlink"),
            Self::Traced => f.write_str("is being traced by a debugger"),
            Self::Namespace { kind } => write!(f, "is in a {kind} namespace of its own"),
            Self::EndedSession { leader } => {
                write!(f, "and the leader of its session, {leader}, are just ending")
            }
            Self::LostSession { leader } => {
                write!(f, "is in a session whose leader, {leader}, has ended, under a parent outside of it")
            }
        }
    }
}

/// A process, dead ones that nobody has taken note of included.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    /// As our pid namespace numbers it.
    outer: u32,
    /// As its machine does.
    inner: u32,
    parent: u32,
    session: u32,
    zombie: bool,
    traced: bool,
    name: String,
}

/// All obstacles in the processes of a v2 cgroup; none for a machine that can be dumped. What they do meanwhile is not
/// seen, so the last look is one at a frozen machine.
pub(crate) fn obstacles(group: &Path) -> io::Result<Vec<Obstacle>> {
    in_group(&Group::at(group))
}

pub(super) fn in_group(group: &Group) -> io::Result<Vec<Obstacle>> {
    let entries = entries(group)?;
    let mut found = sessions::check(&entries);
    let home = entries.values().find(|entry| entry.inner == 1).map(|entry| entry.outer);
    let mut seen = descriptors::Seen::default();
    for entry in entries.values().filter(|entry| !entry.zombie) {
        let mut report = |reason| found.push(Obstacle { pid: entry.inner, name: entry.name.clone(), reason });
        if entry.traced {
            report(Reason::Traced);
        }
        if fs::read_link(format!("/proc/{}/exe", entry.outer))
            .is_ok_and(|program| program.to_string_lossy().starts_with("/memfd:"))
        {
            report(Reason::Program);
        }
        if fs::read_link(format!("/proc/{}/cwd", entry.outer)).is_err_and(|error| is_too_long(&error)) {
            report(Reason::Directory);
        }
        if let Some(kind) = home.and_then(|home| foreign_namespace(home, entry.outer)) {
            report(Reason::Namespace { kind });
        }
        gone_is_fine(mappings(entry.outer))?.into_iter().for_each(&mut report);
        gone_is_fine(descriptors::check(entry.outer, entry.inner, &mut seen))?
            .into_iter()
            .for_each(&mut report);
        if found.len() >= OBSTACLES_MAX {
            break;
        }
    }
    found.truncate(OBSTACLES_MAX);
    Ok(found)
}

/// What is in the way only at moments, of a machine that is frozen.
pub(super) fn passing(group: &Group) -> io::Result<Vec<Obstacle>> {
    let entries = entries(group)?;
    let mut found = netlink::check(&entries)?;
    for entry in entries.into_values().filter(|entry| !entry.zombie) {
        let mut report = |reason| found.push(Obstacle { pid: entry.inner, name: entry.name.clone(), reason });
        for tid in gone_is_fine(threads_of(entry.outer))? {
            let state = state_of(entry.outer, tid)?;
            if state == Some(UNINTERRUPTIBLE) {
                report(Reason::Spawning);
            }
            let status = format!("/proc/{}/task/{tid}/status", entry.outer);
            let stops = gone_is_fine(fs::read_to_string(status))?;
            if state != Some(STOPPED) && waiting_stops(&stops) != 0 {
                report(Reason::Stopping);
            }
        }
    }
    Ok(found)
}

/// The first process that has a socket open, by the socket's inode, as an obstacle.
pub(super) fn socket(group: &Group, inode: u64, what: &str) -> io::Result<Option<Obstacle>> {
    let link = OsString::from(format!("socket:[{inode}]"));
    for entry in entries(group)?.into_values().filter(|entry| !entry.zombie) {
        let list = gone_is_fine(Descriptors::of(entry.outer).and_then(|process| process.list()))?;
        if let Some((descriptor, _)) = list.into_iter().find(|(_, to)| to.as_ref() == Some(&link)) {
            let reason = Reason::Descriptor { descriptor, what: what.to_owned() };
            return Ok(Some(Obstacle { pid: entry.inner, name: entry.name, reason }));
        }
    }
    Ok(None)
}

/// RAM that the images will need at most, by what the kernel says of each process. Shared pages count for each.
pub(crate) fn ram_bytes(group: &Path) -> io::Result<u64> {
    let mut kib = 0;
    for pid in Group::at(group).processes()? {
        let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { continue };
        for name in ["RssAnon:", "RssShmem:", "VmSwap:"] {
            kib += field(&status, name)
                .and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok())
                .unwrap_or(0);
        }
    }
    Ok(kib * 1024)
}

/// The processes of a group and their dead children, which a cgroup does not list, by the machine's numbers.
fn entries(group: &Group) -> io::Result<BTreeMap<u32, Entry>> {
    let mut outer: HashSet<u32> = group.processes()?.into_iter().collect();
    for pid in outer.clone() {
        outer.extend(gone_is_fine(children(pid))?);
    }
    let mut entries = BTreeMap::new();
    for pid in outer {
        match fs::read_to_string(format!("/proc/{pid}/status")) {
            Ok(status) => entries.extend(entry(pid, &status).map(|entry| (entry.inner, entry))),
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    // Parents are known by our numbers so far.
    let inner: BTreeMap<u32, u32> = entries.values().map(|entry| (entry.outer, entry.inner)).collect();
    for entry in entries.values_mut() {
        entry.parent = inner.get(&entry.parent).copied().unwrap_or(0);
    }
    Ok(entries)
}

fn children(pid: u32) -> io::Result<Vec<u32>> {
    let mut children = Vec::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = fs::read_to_string(thread?.path().join("children"))?;
        children.extend(text.split_whitespace().filter_map(|word| word.parse::<u32>().ok()));
    }
    Ok(children)
}

/// Reads `/proc/<pid>/status`; `None` for a process outside of any machine.
fn entry(outer: u32, status: &str) -> Option<Entry> {
    let second = |name| field(status, name)?.split_whitespace().nth(1)?.parse().ok();
    let number = |name| field(status, name)?.trim().parse::<u32>().ok();
    Some(Entry {
        outer,
        inner: second("NSpid:")?,
        parent: number("PPid:")?,
        session: second("NSsid:")?,
        zombie: field(status, "State:")?.trim_start().starts_with(['Z', 'X']),
        traced: number("TracerPid:")? != 0,
        name: field(status, "Name:")?.trim().to_owned(),
    })
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name))
}

/// Mounts within may differ; of the other kinds a machine has one each.
fn foreign_namespace(home: u32, pid: u32) -> Option<&'static str> {
    ["user", "pid", "net", "ipc", "uts", "cgroup"].into_iter().find(|kind| {
        let link = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/{kind}"));
        matches!((link(home), link(pid)), (Ok(home), Ok(own)) if home != own)
    })
}

/// Device memory, and what the kernel shares with a process by a descriptor that cannot be made again.
fn mappings(pid: u32) -> io::Result<Vec<Reason>> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let paths = maps.lines().filter_map(|line| line.splitn(6, ' ').nth(5)).map(str::trim_start);
    let foreign = |path: &&str| {
        let device =
            path.starts_with("/dev/") && !path.starts_with("/dev/shm/") && !path.starts_with("/dev/zero");
        device || path.starts_with("anon_inode:")
    };
    let mut found: Vec<&str> = paths.filter(foreign).collect();
    found.dedup();
    Ok(found.into_iter().map(|path| Reason::Mapping { what: format!("`{path}`") }).collect())
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// A process that ended while it was looked at has nothing that could be in the way.
fn gone_is_fine<T: Default>(outcome: io::Result<T>) -> io::Result<T> {
    match outcome {
        Err(error) if is_gone(&error) => Ok(T::default()),
        other => other,
    }
}
