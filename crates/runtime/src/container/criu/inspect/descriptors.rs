//! Open files, sockets and devices that CRIU cannot open again.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};

use rustix::fs::{OFlags, fcntl_getfl, fstatfs};
use rustix::net::sockopt::{socket_domain, socket_protocol, socket_type};
use rustix::net::{AddressFamily, SocketType};

use super::super::process_descriptors::Descriptors;
use super::super::renamed_sockets;
use super::obstacle::Reason;

/// Objects that the kernel creates without a file, and that CRIU restores.
const KNOWN_KINDS: [&str; 8] =
    ["[eventfd]", "[eventpoll]", "inotify", "[inotify]", "[fanotify]", "[signalfd]", "[timerfd]", "[pidfd]"];

/// The largest deleted file that is kept in the images; the same limit as in the request.
pub(in super::super) const DELETED_BYTES_MAX: u64 = 64 << 20;

/// A path that is longer than any system call accepts.
const TOO_LONG: &str = "a file whose path is longer than 4095 bytes";

/// The magic number of that file system.
const MESSAGE_QUEUES: rustix::fs::FsWord = 0x1980_0202;

const IPPROTO_MPTCP: u32 = 262;
const IPPROTO_SCTP: u32 = 132;

/// The size of CRIU's table of pipes; CRIU fails when it is full.
const PIPES_MAX: usize = 1024;

/// The objects that were already checked, through this or another process.
#[derive(Debug, Default)]
pub(super) struct CheckedObjects {
    files: HashSet<(u64, u64)>,
    pipes: usize,
}

/// The obstacles among a process's descriptors. `inner` is its pid inside the machine.
pub(super) fn check(pid: u32, inner: u32, seen: &mut CheckedObjects) -> io::Result<Vec<Reason>> {
    let mut found = Vec::new();
    let descriptors = Descriptors::of(pid)?;
    for (descriptor, link) in descriptors.list()? {
        let Ok(metadata) = descriptors.metadata(descriptor) else { continue };
        let Some(link) = link else {
            found.push(Reason::Descriptor { descriptor, what: TOO_LONG.to_owned() });
            continue;
        };
        let link = link.to_string_lossy();
        // Checked first, as the result depends on which process has it open.
        let of_proc = unopenable_in_proc(inner, &link, metadata.is_dir());
        let what = if of_proc.is_some() {
            of_proc
        } else if let Some(kind) = link.strip_prefix("anon_inode:") {
            // All of these share one inode, so the inode cannot be used to remember them.
            unknown_kind(kind)
        } else if metadata.file_type().is_fifo() {
            let pipe = descriptors.copy(descriptor).ok();
            pipe.and_then(|pipe| unknown_pipe(&pipe, &link, &metadata, seen))
        } else if !seen.files.insert((metadata.dev(), metadata.ino())) {
            None
        } else if metadata.file_type().is_socket() {
            // A descriptor that is closed meanwhile is no obstacle.
            descriptors.copy(descriptor).ok().and_then(|socket| unknown_socket(&socket, pid))
        } else {
            unknown_file(&metadata, &link).or_else(|| message_queue(&descriptors, descriptor, &link))
        };
        found.extend(what.map(|what| Reason::Descriptor { descriptor, what }));
    }
    Ok(found)
}

/// Files in `/proc` that a restore would open before they exist: CRIU creates processes before it opens files, threads
/// only afterwards, and does not open directories of other processes. It notices neither in the dump.
fn unopenable_in_proc(inner: u32, link: &str, is_directory: bool) -> Option<String> {
    let mut parts = link.strip_prefix("/proc/")?.split('/');
    let process: u32 = parts.next()?.parse().ok()?;
    let of_thread = match (parts.next(), parts.next()) {
        (Some("task"), Some(thread)) => thread.parse() != Ok(inner),
        _ => false,
    };
    let of_other = is_directory && process != inner;
    (of_thread || of_other).then(|| format!("`{link}`"))
}

fn unknown_kind(kind: &str) -> Option<String> {
    (!KNOWN_KINDS.contains(&kind)).then(|| match kind {
        "[io_uring]" => "an io_uring".to_owned(),
        "[userfaultfd]" => "a userfaultfd".to_owned(),
        "[perf_event]" => "a performance counter".to_owned(),
        other => format!("a kernel object of kind `{other}`"),
    })
}

/// A POSIX message queue looks like a file at the root of a separate file system.
fn message_queue(descriptors: &Descriptors, descriptor: u32, link: &str) -> Option<String> {
    let top = link.starts_with('/') && link.matches('/').count() == 1;
    let kind =
        top.then(|| descriptors.copy(descriptor).ok()).flatten().and_then(|file| fstatfs(file).ok())?;
    (kind.f_type == MESSAGE_QUEUES).then(|| format!("the message queue `{link}`"))
}

fn unknown_file(metadata: &fs::Metadata, link: &str) -> Option<String> {
    let kind = metadata.file_type();
    let device = metadata.rdev();
    let (major, minor) = (libc::major(device), libc::minor(device));
    if kind.is_char_device() {
        // Memory devices, terminals, and tunnel devices of the network.
        let known =
            matches!((major, minor), (1, 3 | 5 | 7 | 8 | 9) | (5, 0..=2) | (4 | 136..=143, _) | (10, 200));
        (!known).then(|| format!("the device `{link}`"))
    } else if kind.is_block_device() {
        Some(format!("the device `{link}`"))
    } else if kind.is_file() && metadata.nlink() == 0 && !link.starts_with("/memfd:") {
        let (size, mib) = (metadata.blocks() * 512, 1 << 20);
        (size > DELETED_BYTES_MAX).then(|| format!("the deleted file `{link}` of {} MiB", size / mib))
    } else {
        None
    }
}

/// Queries the pipe itself: only its writing end has the flag.
fn unknown_pipe(
    pipe: &OwnedFd,
    link: &str,
    metadata: &fs::Metadata,
    seen: &mut CheckedObjects,
) -> Option<String> {
    if fcntl_getfl(pipe).is_ok_and(|flags| flags.contains(OFlags::DIRECT)) {
        return Some("a pipe in packet mode".to_owned());
    }
    let is_new = link.starts_with("pipe:") && seen.files.insert((metadata.dev(), metadata.ino()));
    seen.pipes += usize::from(is_new);
    // Reported once: all further pipes are the same.
    (is_new && seen.pipes == PIPES_MAX + 1).then(|| format!("a pipe beyond the maximum of {PIPES_MAX}"))
}

/// Queries the socket itself.
fn unknown_socket(socket: &OwnedFd, pid: u32) -> Option<String> {
    let family = socket_domain(socket).ok()?;
    let kind = socket_type(socket).ok()?;
    let protocol = socket_protocol(socket).ok()?.map_or(0, |protocol| protocol.as_raw().get());
    let known = match family {
        AddressFamily::UNIX => [SocketType::STREAM, SocketType::DGRAM, SocketType::SEQPACKET].contains(&kind),
        AddressFamily::INET | AddressFamily::INET6 => ![IPPROTO_MPTCP, IPPROTO_SCTP].contains(&protocol),
        AddressFamily::NETLINK | AddressFamily::PACKET => true,
        _ => false,
    };
    if !known {
        return Some(format!("a socket of family {}, protocol {protocol}", family.as_raw()));
    }
    let unknown = family == AddressFamily::UNIX
        && renamed_sockets::socket_file(socket, pid).ok()? == renamed_sockets::SocketFile::Unknown;
    unknown.then(|| "a Unix socket whose file was moved to another directory".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_threads_and_directories_of_other_processes_are_obstacles() {
        for (link, is_directory) in [
            ("/proc/7/task/9/schedstat", false),
            ("/proc/8/task/8/stat", false),
            ("/proc/8", true),
            ("/proc/8/fd", true),
        ] {
            assert_eq!(unopenable_in_proc(7, link, is_directory), Some(format!("`{link}`")));
        }
        for (link, is_directory) in [
            ("/proc/7/task/7/stat", false),
            ("/proc/7/fd", true),
            ("/proc/8/stat", false),
            ("/proc", true),
            ("/proc/sys/kernel", true),
            ("/process/8", true),
        ] {
            assert_eq!(unopenable_in_proc(7, link, is_directory), None, "{link}");
        }
    }
}
