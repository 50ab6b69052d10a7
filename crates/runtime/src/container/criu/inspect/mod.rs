//! Checks a machine's processes for state that CRIU cannot dump or restore, before CRIU tries.
//!
//! CRIU itself finds most of it halfway through the dump, in its own words; some only at the restore, when the
//! processes no longer exist. This check names every obstacle with its process before anything has happened, and does
//! not affect the running machine.
//!
//! It checks descriptors ([`descriptors`]), mappings, sessions that cannot be restored ([`sessions`]), tracing, nested
//! namespaces; and immediately before the dump temporary obstacles, such as [`netlink`] and [`tcp`].

mod descriptors;
mod netlink;
mod sessions;
mod tcp;

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use super::group::Group;
use super::hold::{STOPPED, UNINTERRUPTIBLE, state_of, threads_of};
use super::process_descriptors::{Descriptors, is_too_long};
use super::trace::waiting_stops;

/// Maximum number of reported obstacles; one is enough to refuse.
const OBSTACLES_MAX: usize = 32;

/// A reason why a machine cannot be dumped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Obstacle {
    /// The pid inside the machine.
    pub pid: u32,
    /// The program's name.
    pub name: String,
    pub reason: Reason,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// A descriptor of a kind that cannot be restored.
    Descriptor { descriptor: u32, what: String },
    /// A mapping of such a kind.
    Mapping { what: String },
    /// Its program is in no file.
    Program,
    /// The path of its working directory is longer than any system call accepts.
    Directory,
    /// A debugger traces it, and a process can only have one tracer.
    Traced,
    /// It is in another namespace than the machine's.
    Namespace { kind: &'static str },
    /// It and its session's leader have ended, and were not reaped yet: passes within moments.
    EndedSession { leader: u32 },
    /// It has just created a process that is about to execute another program: passes as well.
    Spawning,
    /// It has unread netlink messages: passes if it reads them.
    Unread,
    /// A connection within the machine, of which CRIU does not restore the other end: passes as well, if the server
    /// accepts or it reads.
    Connection { descriptor: u32, what: &'static str },
    /// It was sent a signal that stops it, and has not stopped yet: passes as well.
    Stopping,
    /// The leader of its session has ended, and none of its ancestors is of that session.
    LostSession { leader: u32 },
}

impl Reason {
    /// Whether it may disappear within moments.
    pub(crate) fn passes(&self) -> bool {
        match self {
            Self::EndedSession { .. }
            | Self::Spawning
            | Self::Stopping
            | Self::Unread
            | Self::Connection { .. } => true,
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
            Self::Connection { descriptor, what } => write!(f, "has {what} open as descriptor {descriptor}"),
            Self::Mapping { what } => write!(f, "has {what} in its memory"),
            Self::Program => f.write_str("executes a program that has no file"),
            Self::Directory => f.write_str("works in a directory whose path is longer than 4095 bytes"),
            Self::Spawning => f.write_str("is just starting a program"),
            Self::Stopping => f.write_str("is just being stopped by a signal"),
            Self::Unread => f.write_str("has unread netlink messages"),
            Self::Traced => f.write_str("is being traced by a debugger"),
            Self::Namespace { kind } => write!(f, "is in its own {kind} namespace"),
            Self::EndedSession { leader } => {
                write!(f, "and the leader of its session, {leader}, are just ending")
            }
            Self::LostSession { leader } => {
                write!(
                    f,
                    "is in a session whose leader, {leader}, has ended, with a parent in another session"
                )
            }
        }
    }
}

/// A process; includes zombies.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    /// The pid in our pid namespace.
    outer: u32,
    /// The pid inside the machine.
    inner: u32,
    parent: u32,
    session: u32,
    zombie: bool,
    traced: bool,
    name: String,
}

/// All obstacles in the processes of a v2 cgroup; empty for a machine that can be dumped. Later changes are not
/// noticed, so the last check is made on the frozen machine.
pub(crate) fn obstacles(group: &Path) -> io::Result<Vec<Obstacle>> {
    in_group(&Group::at(group))
}

pub(super) fn in_group(group: &Group) -> io::Result<Vec<Obstacle>> {
    let entries = entries(group)?;
    let mut found = sessions::check(&entries);
    let home = entries.values().find(|entry| entry.inner == 1).map(|entry| entry.outer);
    let mut seen = descriptors::CheckedObjects::default();
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
        default_if_gone(mappings(entry.outer))?.into_iter().for_each(&mut report);
        default_if_gone(descriptors::check(entry.outer, entry.inner, &mut seen))?
            .into_iter()
            .for_each(&mut report);
        if found.len() >= OBSTACLES_MAX {
            break;
        }
    }
    found.truncate(OBSTACLES_MAX);
    Ok(found)
}

/// The temporary obstacles of a frozen machine.
pub(super) fn passing(group: &Group) -> io::Result<Vec<Obstacle>> {
    let entries = entries(group)?;
    let mut found = netlink::check(&entries)?;
    found.extend(tcp::check(&entries)?);
    for entry in entries.into_values().filter(|entry| !entry.zombie) {
        let mut report = |reason| found.push(Obstacle { pid: entry.inner, name: entry.name.clone(), reason });
        for tid in default_if_gone(threads_of(entry.outer))? {
            let state = state_of(entry.outer, tid)?;
            if state == Some(UNINTERRUPTIBLE) {
                report(Reason::Spawning);
            }
            let status = format!("/proc/{}/task/{tid}/status", entry.outer);
            let stops = default_if_gone(fs::read_to_string(status))?;
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
        let list = default_if_gone(Descriptors::of(entry.outer).and_then(|process| process.list()))?;
        if let Some((descriptor, _)) = list.into_iter().find(|(_, to)| to.as_ref() == Some(&link)) {
            let reason = Reason::Descriptor { descriptor, what: what.to_owned() };
            return Ok(Some(Obstacle { pid: entry.inner, name: entry.name, reason }));
        }
    }
    Ok(None)
}

/// The maximum RAM that the images will need, from the kernel's numbers for each process. Shared pages count for each.
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

/// The processes of a group and their zombies, which a cgroup does not list, by their pids inside the machine.
fn entries(group: &Group) -> io::Result<BTreeMap<u32, Entry>> {
    let mut outer: HashSet<u32> = group.processes()?.into_iter().collect();
    for pid in outer.clone() {
        outer.extend(default_if_gone(children(pid))?);
    }
    let mut entries = BTreeMap::new();
    for pid in outer {
        match fs::read_to_string(format!("/proc/{pid}/status")) {
            Ok(status) => entries.extend(entry(pid, &status).map(|entry| (entry.inner, entry))),
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    // Parents are known by our pids so far.
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

/// Parses `/proc/<pid>/status`; `None` for a process outside of any machine.
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

/// Mount namespaces inside may differ; of the other kinds a machine has one each.
fn foreign_namespace(home: u32, pid: u32) -> Option<&'static str> {
    ["user", "pid", "net", "ipc", "uts", "cgroup"].into_iter().find(|kind| {
        let link = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/{kind}"));
        matches!((link(home), link(pid)), (Ok(home), Ok(own)) if home != own)
    })
}

/// Device memory, and memory that the kernel shares with a process by a descriptor that cannot be restored.
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

/// A process that ended while it was checked has no obstacles.
fn default_if_gone<T: Default>(outcome: io::Result<T>) -> io::Result<T> {
    match outcome {
        Err(error) if is_gone(&error) => Ok(T::default()),
        other => other,
    }
}
