//! Removes what a CRIU that was killed during a dump has left behind, in the processes and among their files.
//!
//! CRIU injects its own code, the *parasite*, into one process after the other, and communicates with it over a socket.
//! When CRIU dies, the parasite sees the end of the socket and restores the process's registers, but stays mapped. The
//! names that CRIU gave to deleted files remain, too.
//!
//! One moment is not covered: while CRIU makes a process call `mmap` and similar calls, before the parasite exists, the
//! process has registers and an instruction that only CRIU could restore. If CRIU dies then, the process ends with
//! `SIGTRAP`. Therefore the OOM killer never selects CRIU during a dump (see [`super::spawn`]).

use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::group::Group;
use super::hold::HeldThreads;
use super::links;
use super::process_descriptors::Descriptors;
use super::trace::OnTracerExit;

/// The name of the parasite's memory in `/proc`.
const PARASITE: &str = "/memfd:CRIUMFD (deleted)";

/// The suffix in `/proc` of a file whose original name was deleted.
const DELETED: &[u8] = b" (deleted)";

/// Unmaps the parasite from all processes of a frozen machine, which is frozen again afterwards. Returns `false` if a
/// process still executes it: it ends within microseconds when the machine runs again.
pub(super) fn unmap(group: &Group) -> io::Result<bool> {
    let mut held = HeldThreads::take(group, OnTracerExit::Continues)?;
    let mut gone = true;
    for (inner_pid, pid) in held.pids() {
        let mapped = mapped(&fs::read_to_string(format!("/proc/{pid}/maps"))?);
        let instructions = if mapped.is_empty() { Vec::new() } else { held.instructions(inner_pid)? };
        if instructions.iter().any(|at| mapped.iter().any(|(start, end)| (start..end).contains(&at))) {
            gone = false;
            continue;
        }
        for (start, end) in mapped {
            held.call(inner_pid, libc::SYS_munmap, [start, end - start, 0, 0, 0, 0])?;
        }
    }
    held.detach_frozen(group)?;
    Ok(gone)
}

/// The address ranges of the parasite in a process.
fn mapped(maps: &str) -> Vec<(u64, u64)> {
    let range = |line: &str| {
        let (start, end) = line.split_whitespace().next()?.split_once('-')?;
        Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
    };
    maps.lines().filter(|line| line.ends_with(PARASITE)).filter_map(range).collect()
}

/// Removes the names that CRIU gave to deleted files that the machine's processes have open.
pub(super) fn remove_names(group: &Group, root: &Path) -> io::Result<()> {
    for pid in group.processes()? {
        let Ok(descriptors) = Descriptors::of(pid) else { continue };
        for (descriptor, link) in descriptors.list()? {
            let Some(path) = link.and_then(|link| deleted_path(link.as_bytes())) else { continue };
            if let Ok(file) = descriptors.metadata(descriptor) {
                links::remove_remaps(root, &path, (file.dev(), file.ino()))?;
            }
        }
    }
    Ok(())
}

/// The path that a deleted file had, beneath the root.
fn deleted_path(link: &[u8]) -> Option<PathBuf> {
    let path = link.strip_suffix(DELETED)?.strip_prefix(b"/")?;
    Some(PathBuf::from(std::ffi::OsString::from_vec(path.to_vec())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_parasites_memory_is_recognised() {
        let maps = "7f00-7f10 r-xs 00000000 00:01 31798   /memfd:CRIUMFD (deleted)\n\
                    7f10-7f40 rw-s 00005000 00:01 31798   /memfd:CRIUMFD (deleted)\n\
                    8000-9000 rw-s 00000000 00:01 7       /memfd:other (deleted)\n\
                    a000-b000 r-xp 00000000 00:01 9       /usr/lib/CRIUMFD\n";
        assert_eq!(mapped(maps), [(0x7f00, 0x7f10), (0x7f10, 0x7f40)]);
    }

    #[test]
    fn deleted_files_are_recognised_by_the_kernels_suffix() {
        assert_eq!(deleted_path(b"/srv/log (deleted)"), Some(PathBuf::from("srv/log")));
        for other in [&b"/srv/log"[..], b"socket:[7]", b"pipe:[7] (deleted)"] {
            assert_eq!(deleted_path(other), None);
        }
    }
}
