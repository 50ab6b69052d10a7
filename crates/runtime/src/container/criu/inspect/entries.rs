//! The processes of a machine, as `/proc` shows them.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;

use super::super::group::Group;

/// A process; includes zombies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The pid in our pid namespace.
    pub(super) outer: u32,
    /// The pid inside the machine.
    pub(super) inner: u32,
    pub(super) parent: u32,
    pub(super) session: u32,
    pub(super) zombie: bool,
    pub(super) traced: bool,
    pub(super) name: String,
}

/// The processes of a group and their zombies, which a cgroup does not list, by their pids inside the machine.
pub(super) fn entries(group: &Group) -> io::Result<BTreeMap<u32, Entry>> {
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

pub(super) fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name))
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// A process that ended while it was checked has no obstacles.
pub(super) fn default_if_gone<T: Default>(outcome: io::Result<T>) -> io::Result<T> {
    match outcome {
        Err(error) if is_gone(&error) => Ok(T::default()),
        other => other,
    }
}
