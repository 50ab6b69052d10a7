//! Ends processes that hold too much of the host's RAM in the queues of netlink sockets.
//!
//! ```text
//!   each second, each sandbox:  unread messages of its network namespaces > limit ?
//!     first time           ─► every process that holds a socket with unread messages is killed, except the first process
//!     again, a second later ─► all processes are killed
//! ```
//!
//! Sockets are not attributed to processes: forks share them, a socket in transit over another one belongs to none, and a process
//! may hold a few bytes to hide the rest. The second step does not need the owner.
//!
//! The kernel charges these queues to no cgroup, and limits neither their number nor their sum: a socket of 1.5 KiB, which
//! is charged, may hold more than 200 KiB, which are not. No hook that a host is certain to have counts netlink sockets. A
//! program that listens for changes of the network has some KiB unread, and only for moments.
//!
//! The table of a namespace is expensive to read: the kernel walks the netlink sockets of all namespaces. So a sandbox that
//! has used no processor time since the last check is skipped, because only its own processes fill the queues, except in one
//! check of [`FULL_CHECK_EVERY`]; and the table of a namespace without netlink sockets is not read.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use burrow_model::SandboxId;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::shared_state::Shared;
use crate::cgroup::Group;

/// Between two checks of all sandboxes.
const INTERVAL: Duration = Duration::from_secs(1);

/// One check of this many also covers sandboxes that seem idle: events of the host reach their sockets, too.
const FULL_CHECK_EVERY: u32 = 16;

/// Unread messages of one sandbox: 75 full queues of the usual size.
const UNREAD_BYTES_MAX: u64 = 16 << 20;

/// Runs until the driver is dropped.
pub(super) fn spawn(shared: &Arc<Shared>) -> io::Result<()> {
    let shared = Arc::downgrade(shared);
    thread::Builder::new().name("netlink-watch".to_owned()).spawn(move || watch(&shared)).map(drop)
}

fn watch(shared: &Weak<Shared>) {
    let mut watched: HashMap<SandboxId, WatchState> = HashMap::new();
    loop {
        thread::sleep(INTERVAL);
        let Some(shared) = shared.upgrade() else { return };
        let Some(groups) = &shared.groups else { return };
        // A sandbox that ends meanwhile is not found, which is no error.
        let present = groups.inventory().unwrap_or_default();
        watched.retain(|id, _| groups.group(id).exists());
        for id in present {
            let group = groups.group(&id);
            // Before the check: what is used later is noticed by the next one.
            let cpu_us = group.cpu_us().ok();
            // Sandboxes that start together are not all checked together.
            let new = || WatchState { cpu_us: None, skipped: first_turn(&id), above: false };
            let last = watched.entry(id.clone()).or_insert_with(new);
            if !last.is_due(cpu_us) {
                continue;
            }
            match check(&group, &id, last.above) {
                Ok(above) => last.above = above,
                Err(error) => {
                    // It is checked again, whatever it uses.
                    *last = WatchState { cpu_us: None, above: false, ..*last };
                    tracing::debug!(%id, %error, "could not check the netlink sockets");
                }
            }
        }
    }
}

/// What the last check of a sandbox found.
#[derive(Clone, Copy, Debug)]
struct WatchState {
    /// The processor time that it had used; `None` if that is not known.
    cpu_us: Option<u64>,
    /// Checks that were skipped since.
    skipped: u32,
    /// Whether it was above the limit.
    above: bool,
}

impl WatchState {
    /// Whether to check it now. Remembers the processor time.
    fn is_due(&mut self, cpu_us: Option<u64>) -> bool {
        let is_idle = cpu_us.is_some() && cpu_us == self.cpu_us && !self.above;
        if is_idle && self.skipped + 1 < FULL_CHECK_EVERY {
            self.skipped += 1;
            return false;
        }
        // Only a full check begins a new period, so that the sandboxes stay spread over it.
        if is_idle {
            self.skipped = 0;
        }
        self.cpu_us = cpu_us;
        true
    }
}

/// A number below [`FULL_CHECK_EVERY`] that differs between sandboxes.
fn first_turn(id: &SandboxId) -> u32 {
    id.as_str().bytes().fold(0, |sum, byte| sum + u32::from(byte)) % FULL_CHECK_EVERY
}

/// Returns whether the sandbox is above the limit; `again` is what the last check returned.
fn check(group: &Group<'_>, id: &SandboxId, again: bool) -> io::Result<bool> {
    let pids = group.pids()?;
    let unread = unread_of_all(&pids)?;
    let bytes = total(&unread);
    if bytes <= UNREAD_BYTES_MAX {
        return Ok(false);
    }
    if group.is_frozen()? {
        // It cannot receive more by itself, and is checked again when it runs.
        return Ok(again);
    }
    if again {
        tracing::warn!(%id, bytes, "killing the sandbox: unread netlink messages still use too much RAM");
        group.kill()?;
        return Ok(true);
    }
    for pid in pids.into_iter().filter(|pid| !is_first(*pid) && holds_any(*pid, &unread)) {
        tracing::warn!(%id, pid, bytes, "killing a process: unread netlink messages use too much RAM");
        // One that cannot be killed must not protect the others. The next check kills all.
        if let Err(error) = kill(group, pid) {
            tracing::debug!(%id, pid, %error, "could not kill a process");
        }
    }
    Ok(true)
}

/// The pid is checked after the process was opened, so no later process with this pid is killed.
fn kill(group: &Group<'_>, pid: u32) -> io::Result<()> {
    let Some(raw) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(()) };
    let process = match pidfd_open(raw, PidfdFlags::empty()) {
        Ok(process) => process,
        Err(rustix::io::Errno::SRCH) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if group.has(pid)? {
        pidfd_send_signal(&process, Signal::KILL)?;
    }
    Ok(())
}

/// Unread bytes in all network namespaces of these processes except the host's, where CRIU works, by the inodes of sockets.
fn unread_of_all(pids: &[u32]) -> io::Result<HashMap<u64, u64>> {
    let mut seen = HashSet::from([fs::read_link("/proc/self/ns/net")?]);
    let mut unread = HashMap::new();
    for pid in pids {
        // It may have ended.
        let Ok(namespace) = fs::read_link(format!("/proc/{pid}/ns/net")) else { continue };
        if !seen.contains(&namespace)
            && let Some(of_namespace) = unread_of(*pid)?
        {
            seen.insert(namespace);
            unread.extend(of_namespace);
        }
    }
    Ok(unread)
}

/// Unread bytes in the network namespace of a process; `None` if it has ended.
fn unread_of(pid: u32) -> io::Result<Option<HashMap<u64, u64>>> {
    if fs::read_to_string(format!("/proc/{pid}/net/protocols")).is_ok_and(|table| has_none(&table)) {
        return Ok(Some(HashMap::new()));
    }
    match fs::read_to_string(format!("/proc/{pid}/net/netlink")) {
        Ok(table) => Ok(Some(parse(&table))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        // Reading through a process that ends.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a table of protocols shows that the namespace has no netlink sockets of processes.
fn has_none(protocols: &str) -> bool {
    const SOCKETS: usize = 2;
    let row = protocols.lines().find(|line| line.split_whitespace().next() == Some("NETLINK"));
    row.and_then(|row| row.split_whitespace().nth(SOCKETS)) == Some("0")
}

fn parse(table: &str) -> HashMap<u64, u64> {
    const RECEIVED: usize = 4;
    const INODE: usize = 9;
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let received: u64 = words.get(RECEIVED)?.parse().ok()?;
        let inode: u64 = words.get(INODE)?.parse().ok()?;
        (received != 0 && inode != 0).then_some((inode, received))
    };
    table.lines().filter_map(row).collect()
}

fn total(unread: &HashMap<u64, u64>) -> u64 {
    unread.values().sum()
}

/// Whether it is the first process of the sandbox, and not of a pid namespace that was created inside.
fn is_first(pid: u32) -> bool {
    first_of_sandbox(&fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default())
}

/// Its pid on the host, then the one in the sandbox.
fn first_of_sandbox(status: &str) -> bool {
    let Some(pids) = status.lines().find_map(|line| line.strip_prefix("NSpid:")) else { return false };
    pids.split_whitespace().skip(1).eq(["1"])
}

/// Whether a process holds a socket with unread messages; false if it has ended.
fn holds_any(pid: u32, unread: &HashMap<u64, u64>) -> bool {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let mut links = entries.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    links.any(|link| {
        let inode = link.to_str().and_then(|link| link.strip_prefix("socket:[")?.strip_suffix(']'));
        inode.and_then(|inode| inode.parse().ok()).is_some_and(|inode: u64| unread.contains_key(&inode))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unread_messages_are_summed_and_those_of_the_kernel_are_not() {
        let table = "\
sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode
0000000000000000 0   1284       00000111 1408     0        0     2        0        77
0000000000000000 0   1285       00000111 0        0        0     2        0        78
0000000000000000 0   1286       00000111 212992   0        0     2        0        79
0000000000000000 15  0          00000000 512      0        0     2        0        0
";
        let unread = parse(table);
        assert_eq!(unread, HashMap::from([(77, 1408), (79, 212_992)]));
        assert_eq!(total(&unread), 214_400);
    }

    #[test]
    fn a_namespace_has_no_netlink_sockets_only_if_the_kernel_says_so() {
        let table = |count: &str| {
            format!(
                "protocol  size sockets  memory press maxhdr  slab module\nNETLINK   1120 {count}  -1   NI  0   no\nUNIX 1088 7 -1\n"
            )
        };
        assert!(has_none(&table("0")));
        assert!(!has_none(&table("3")));
        assert!(!has_none("UNIX 1088 0 -1\n"));
        assert!(!has_none(""));
        // This process opens one, in the namespace that it reads.
        let _socket = rustix::net::socket(
            rustix::net::AddressFamily::NETLINK,
            rustix::net::SocketType::RAW,
            // Protocol 0: routes.
            None,
        )
        .unwrap();
        assert!(!has_none(&fs::read_to_string("/proc/self/net/protocols").unwrap()));
    }

    #[test]
    fn a_sandbox_that_runs_is_checked_each_time_and_an_idle_one_sometimes() {
        let mut running = WatchState { cpu_us: None, skipped: 0, above: false };
        assert!((1..50).all(|used| running.is_due(Some(used))));
        let mut idle = WatchState { cpu_us: None, skipped: 3, above: false };
        assert!(idle.is_due(Some(7)), "it is new");
        let checked: Vec<_> = (0..40).filter(|_| idle.is_due(Some(7))).collect();
        assert_eq!(checked, [12, 28]);
        assert!(idle.is_due(Some(8)), "it has run");
        let mut above = WatchState { cpu_us: Some(7), skipped: 0, above: true };
        assert!(above.is_due(Some(7)), "it is killed in the next check");
        let mut unknown = WatchState { cpu_us: None, skipped: 0, above: false };
        assert!((0..40).all(|_| unknown.is_due(None)));
    }

    #[test]
    fn forks_that_share_a_socket_all_hold_it() {
        use std::os::fd::AsRawFd as _;
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let link = fs::read_link(format!("/proc/self/fd/{}", socket.as_raw_fd())).unwrap();
        let inode = link.to_str().unwrap().trim_start_matches("socket:[").trim_end_matches(']');
        let unread = HashMap::from([(inode.parse().unwrap(), 1)]);
        let own = std::process::id();
        let input = std::os::fd::OwnedFd::from(socket.try_clone().unwrap());
        let mut child = std::process::Command::new("sleep").arg("60").stdin(input).spawn().unwrap();
        assert!(holds_any(own, &unread) && holds_any(child.id(), &unread));
        assert!(!holds_any(own, &HashMap::from([(0, 1)])));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!holds_any(child.id(), &unread));
    }

    #[test]
    fn only_the_first_process_of_the_sandbox_is_spared() {
        assert!(first_of_sandbox("Name:\tinit\nNSpid:\t4711\t1\nThreads:\t1\n"));
        // Others, one of CRIU on the host, and the first one of a namespace that was created inside.
        for pids in ["4711\t2", "1", "4711", "4711\t12\t1"] {
            assert!(!first_of_sandbox(&format!("NSpid:\t{pids}\n")), "{pids}");
        }
        assert!(!first_of_sandbox(""));
    }
}
