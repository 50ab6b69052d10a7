//! Checks a machine's processes for state that CRIU cannot dump or restore, before CRIU tries.
//!
//! CRIU itself finds most of it halfway through the dump, in its own words; some only at the restore, when the
//! processes no longer exist. This check names every obstacle with its process before anything has happened, and does
//! not affect the running machine.
//!
//! It checks descriptors ([`descriptors`]), mappings, sessions that cannot be restored ([`sessions`]), tracing, nested
//! namespaces; and immediately before the dump temporary obstacles, such as [`netlink`] and [`tcp`].

mod descriptors;
mod entries;
mod netlink;
mod obstacle;
mod sessions;
mod tcp;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;

use super::group::Group;
use super::hold::{STOPPED, UNINTERRUPTIBLE, state_of, threads_of};
use super::process_descriptors::{Descriptors, is_too_long};
use super::trace::waiting_stops;
use entries::{default_if_gone, entries, field};
pub(crate) use obstacle::{Obstacle, Reason};

/// Maximum number of reported obstacles; one is enough to refuse.
const OBSTACLES_MAX: usize = 32;

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
