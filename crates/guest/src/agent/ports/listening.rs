//! Lists the listening ports and their processes: sockets from `/proc/net`, owners by inode from `/proc/<pid>/fd`.
//!
//! The agent may read the descriptors only of processes that run as the same user; it is root without the right to
//! trace others. The scanning thread therefore takes each process's file system user for a moment, because the kernel
//! compares that. Processes, descriptors and sockets are all limited, since programs inside choose their number.

#![expect(unsafe_code, reason = "a thread's file system user has no safe interface")]

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::agent::users;
use crate::protocol::{ListeningPort, PORT, PortProcess};

/// Lines read of a `/proc/net` table: listeners come first in it.
const LINES_MAX: usize = 65_536;

/// Entries of the answer.
const PORTS_MAX: usize = 1024;

/// More processes than a sandbox has by default.
const PROCESSES_MAX: usize = 16_384;

/// Descriptors read in total: some 0.2 s of work.
const DESCRIPTORS_MAX: usize = 200_000;

/// The length of a command line; the answer contains up to a thousand of them.
const COMMAND_BYTES_MAX: u64 = 256;

/// TCP_LISTEN, as `/proc/net/tcp` writes it.
const LISTEN: &str = "0A";

#[derive(Clone, Debug, PartialEq, Eq)]
struct Socket {
    address: IpAddr,
    port: u16,
    uid: u32,
    inode: u64,
}

/// Carries out [`crate::protocol::Request::ListPorts`].
pub(in crate::agent) async fn list() -> Vec<ListeningPort> {
    tokio::task::spawn_blocking(scan).await.unwrap_or_default()
}

fn scan() -> Vec<ListeningPort> {
    let mut sockets = table("/proc/net/tcp");
    sockets.extend(table("/proc/net/tcp6"));
    // The agent's own listener is not shown.
    sockets.retain(|socket| socket.port != PORT);
    let owners = owners(&sockets);
    let names = users::names().users;
    let user = |uid: u32| names.get(&uid).cloned().unwrap_or_else(|| uid.to_string());
    let mut ports: BTreeMap<(u16, u32, u32), ListeningPort> = BTreeMap::new();
    for socket in sockets {
        let pid = owners.get(&socket.inode).copied();
        let key = (socket.port, pid.unwrap_or(0), socket.uid);
        if ports.len() >= PORTS_MAX && !ports.contains_key(&key) {
            continue;
        }
        let port = ports.entry(key).or_insert_with(|| ListeningPort {
            port: socket.port,
            addresses: Vec::new(),
            user: user(socket.uid),
            process: pid.map(describe),
        });
        let address = socket.address.to_string();
        // Several sockets of one port (SO_REUSEPORT) are one listener.
        if !port.addresses.contains(&address) {
            port.addresses.push(address);
        }
    }
    ports.into_values().collect()
}

/// The listening sockets of one table.
fn table(path: &str) -> Vec<Socket> {
    let Ok(file) = File::open(path) else { return Vec::new() };
    let lines = BufReader::new(file).lines().skip(1).take(LINES_MAX);
    lines.map_while(Result::ok).filter_map(|line| parse(&line)).collect()
}

fn parse(line: &str) -> Option<Socket> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (address, port) = fields.next()?.split_once(':')?;
    if fields.nth(1)? != LISTEN {
        return None;
    }
    let uid = fields.nth(3)?.parse().ok()?;
    let inode = fields.nth(1)?.parse().ok()?;
    Some(Socket { address: parse_address(address)?, port: u16::from_str_radix(port, 16).ok()?, uid, inode })
}

/// Words of 32 bits in the host's byte order, each holding bytes in network order.
fn parse_address(text: &str) -> Option<IpAddr> {
    let word = |text: &str| u32::from_str_radix(text, 16).ok().map(u32::to_ne_bytes);
    match text.len() {
        8 => Some(Ipv4Addr::from(word(text)?).into()),
        32 => {
            let mut bytes = [0; 16];
            for (index, part) in bytes.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(text.get(index * 8..index * 8 + 8)?)?);
            }
            Some(Ipv6Addr::from(bytes).into())
        }
        _ => None,
    }
}

/// The oldest process that has each socket open, by inode.
fn owners(sockets: &[Socket]) -> HashMap<u64, u32> {
    let mut owners: HashMap<u64, u32> = HashMap::new();
    let mut missing = sockets.iter().map(|socket| socket.inode).collect::<std::collections::HashSet<_>>();
    let mut pids: Vec<u32> = fs::read_dir("/proc").map_or_else(
        |_| Vec::new(),
        |entries| entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect(),
    );
    pids.sort_unstable();
    let mut left = DESCRIPTORS_MAX;
    for pid in pids.into_iter().take(PROCESSES_MAX) {
        if missing.is_empty() || left == 0 {
            break;
        }
        let Some(_guise) = FileSystemIdsGuard::of(pid) else { continue };
        let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { continue };
        for descriptor in descriptors.flatten().take(left) {
            left -= 1;
            let Some(inode) = fs::read_link(descriptor.path()).ok().and_then(|link| inode(link.to_str()?))
            else {
                continue;
            };
            if missing.remove(&inode) {
                owners.insert(inode, pid);
            }
        }
    }
    owners
}

/// The inode in `socket:[4711]`.
fn inode(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

fn describe(pid: u32) -> PortProcess {
    let read = |file: &str| {
        let mut bytes = Vec::new();
        if let Ok(file) = File::open(format!("/proc/{pid}/{file}")) {
            let _ = file.take(COMMAND_BYTES_MAX).read_to_end(&mut bytes);
        }
        let text = String::from_utf8_lossy(&bytes).replace('\0', " ");
        text.trim().to_owned()
    };
    PortProcess { pid, name: read("comm"), command: read("cmdline") }
}

/// Changes this thread's file system user and group while it reads one process; dropping it restores the agent's own.
struct FileSystemIdsGuard;

impl FileSystemIdsGuard {
    fn of(pid: u32) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let id = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_ascii_whitespace().next()?.parse::<u32>().ok()
        };
        let (uid, gid) = (id("Uid:")?, id("Gid:")?);
        let guard = Self;
        set_file_system_ids(uid, gid);
        Some(guard)
    }
}

impl Drop for FileSystemIdsGuard {
    fn drop(&mut self) {
        set_file_system_ids(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    }
}

/// The group first: as another user, this thread may not choose its group any more.
fn set_file_system_ids(uid: u32, gid: u32) {
    // SAFETY: both calls take an integer and change only the calling thread's credentials; if refused, they change
    // nothing.
    unsafe {
        libc::setfsgid(gid);
        libc::setfsuid(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_both_address_families_are_parsed() {
        let v4 = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0000 100 0 0 10 0";
        let socket = parse(v4).unwrap();
        assert_eq!((socket.port, socket.uid, socket.inode), (8080, 1000, 4711));
        assert_eq!(socket.address, IpAddr::from([127, 0, 0, 1]));
        let v6 = "   1: 00000000000000000000000001000000:0050 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 99 1";
        let socket = parse(v6).unwrap();
        assert_eq!((socket.port, socket.address), (80, IpAddr::from(Ipv6Addr::LOCALHOST)));
        for other in ["", "sl local", &v4.replace(" 0A ", " 01 "), &v4.replace(":1F90", "")] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_listener_is_listed_with_its_process() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let found = scan();
        let found = found.iter().find(|entry| entry.port == port).expect("the port is listed");
        assert_eq!(found.addresses, ["127.0.0.1"]);
        let process = found.process.as_ref().expect("the process is known");
        assert_eq!(process.pid, std::process::id());
        assert!(!process.name.is_empty() && process.command.len() as u64 <= COMMAND_BYTES_MAX * 3);
    }

    #[test]
    fn a_scan_restores_the_file_system_user_of_the_thread() {
        scan();
        // Both calls return the previous value. SAFETY: an invalid id changes nothing.
        let (uid, gid) = unsafe { (libc::setfsuid(u32::MAX), libc::setfsgid(u32::MAX)) };
        assert_eq!(u32::try_from(uid).unwrap(), rustix::process::geteuid().as_raw());
        assert_eq!(u32::try_from(gid).unwrap(), rustix::process::getegid().as_raw());
    }
}
