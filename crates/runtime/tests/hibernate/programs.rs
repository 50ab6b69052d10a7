//! Programs of a distribution, with the real network driver: the state that they have besides RAM.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use burrow_model::SandboxId;
use burrow_network::Network as _;
use burrow_network::linux::{LinuxNetwork, Options};
use burrow_runtime::{BootOptions, RestoreOptions, Runtime as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::support::{Host, Plot, in_network, options, poll, unified};
use super::{LIMITS, dump, plainly, restore, try_dump};

/// Writes a row every few milliseconds, and records how many there are.
const WRITES_A_DATABASE: &str = r#"
import sqlite3, time, os
db = sqlite3.connect("/data.db", isolation_level=None)
db.execute("pragma journal_mode=wal")
db.execute("create table t(n integer)")
reader = sqlite3.connect("/data.db", isolation_level=None)
cursor = reader.execute("select * from t union all select 1")
cursor.fetchone()  # A reader's mark is held, too.
n = 0
while True:
    n += 1
    db.execute("insert into t values(?)", (n,))
    open("/n.new", "w").write(str(n))
    os.rename("/n.new", "/n")
    time.sleep(.005)
"#;

/// Exchanges data with itself over every interface, and with every client.
const TALKS: &str = r#"
import os, select, socket, threading, time
def note(name, text):
    open(name + ".new", "w").write(text)
    os.rename(name + ".new", name)
def pair(host, family, name):
    listener = socket.socket(family); listener.bind((host, 0)); listener.listen()
    def serve():
        one, _ = listener.accept()
        while True: one.sendall(one.recv(100))
    threading.Thread(target=serve).start()
    other = socket.socket(family); other.connect(listener.getsockname())
    def talk():
        n = 0
        while True:
            n += 1
            other.sendall(b"x"); assert other.recv(100) == b"x"
            note("/" + name, str(n))
            time.sleep(.005)
    threading.Thread(target=talk).start()
pair("127.0.0.1", socket.AF_INET, "v4"); pair("::1", socket.AF_INET6, "v6"); pair("10.88.0.2", socket.AF_INET, "own")
listener = socket.create_server(("10.88.0.2", 9000))
def blocked(one, number):
    try: note("/end%d" % number, repr(one.recv(100)))
    except OSError as error: note("/end%d" % number, type(error).__name__)
def polled(one, number):
    poll = select.epoll(); poll.register(one.fileno(), select.EPOLLIN); poll.poll()
    blocked(one, number)
number = 0
note("/ready", "1")
while True:
    one, _ = listener.accept()
    number += 1
    one.sendall(b"hello")
    threading.Thread(target=polled if number % 2 else blocked, args=(one, number)).start()
"#;

/// Listens for changes of the network, and reads them when a file appears.
const LISTENS: &str = r#"
import os, socket, time
told = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
told.bind((0, 1))
open("/ready", "w").write("1")
while not os.path.exists("/read"): time.sleep(.01)
while True: told.recv(65536)
"#;

/// A sandbox with the files of the test pool's image. Dropping it deletes them.
pub(super) struct Distribution {
    pub(super) plot: Plot,
    volume: PathBuf,
}

impl Distribution {
    pub(super) fn new() -> Self {
        let pool = std::env::var_os("BURROW_TEST_POOL")
            .expect("`scripts/test.sh` creates a pool and sets the variable");
        let pool = Path::new(&pool);
        let image = fs::read_dir(pool.join("template/images")).unwrap().next().unwrap().unwrap().path();
        let id = SandboxId::generate();
        let volume = pool.join("daemons").join(format!("runtime-{id}"));
        run(Command::new("btrfs").args(["-q", "subvolume", "snapshot"]).arg(&image).arg(&volume));
        let root = volume.join("rootfs");
        Self { plot: Plot { id, root }, volume }
    }

    /// Another sandbox with the same files.
    pub(super) fn copy(&self) -> Self {
        let id = SandboxId::generate();
        let volume = self.volume.with_file_name(format!("runtime-{id}"));
        run(Command::new("btrfs").args(["-q", "subvolume", "snapshot"]).arg(&self.volume).arg(&volume));
        Self { plot: Plot { id, root: volume.join("rootfs") }, volume }
    }

    pub(super) fn script(&self, text: &str) {
        fs::write(self.plot.root.join("script.py"), text).unwrap();
    }

    pub(super) fn read(&self, file: &str) -> String {
        fs::read_to_string(self.plot.root.join(file)).unwrap_or_default()
    }

    pub(super) fn number(&self, file: &str) -> u64 {
        self.read(file).trim().parse().unwrap_or(0)
    }
}

impl Drop for Distribution {
    fn drop(&mut self) {
        let _ = Command::new("btrfs").args(["-q", "subvolume", "delete"]).arg(&self.volume).status();
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The kernel's locks of a sandbox's processes: kind, mode, file, range. Read by descriptor: `/proc/locks` is read a
/// page at a time, and misses a lock if another process releases one between two pages.
fn locks(host: &Host, id: &SandboxId) -> BTreeSet<String> {
    let pids = fs::read_to_string(unified().join(host.group(id)).join("cgroup.procs")).unwrap();
    let descriptors = pids.lines().flat_map(|pid| fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap());
    let texts = descriptors.map(|descriptor| fs::read_to_string(descriptor.unwrap().path()).unwrap());
    let lock = |line: &str| {
        let words: Vec<&str> = line.strip_prefix("lock:")?.split_whitespace().collect();
        let [_, kind, _, mode, _, file, start, end] = words[..] else { panic!("{line}") };
        let inode = file.rsplit(':').next().unwrap();
        Some(format!("{kind} {mode} {inode} {start} {end}"))
    };
    texts.flat_map(|text| text.lines().filter_map(lock).collect::<Vec<_>>()).collect()
}

/// SQLite has locks on a file that it has mapped; CRIU alone loses them.
#[tokio::test]
async fn a_wal_mode_database_keeps_its_locks_and_contents() {
    let host = Host::keeping();
    let distribution = Distribution::new();
    let plot = &distribution.plot;
    distribution.script(WRITES_A_DATABASE);
    let commands = ["spawn /usr/bin/python3 /script.py"];
    let mut machine = host.runtime.boot(&plot.id, options(plot, LIMITS, &commands)).await.unwrap();
    for _ in 0..2 {
        let before = distribution.number("n");
        poll("the database to be written", || distribution.number("n") > before + 3);
        let kept = dump(&host, plot, &machine).await;
        let held = locks(&host, &plot.id);
        let mapped = fs::metadata(plot.root.join("data.db-shm")).unwrap().ino().to_string();
        assert!(held.iter().any(|lock| lock.contains(&mapped)), "{held:?}");
        let dumped_at = distribution.number("n");
        host.runtime.destroy(&plot.id).await.unwrap();
        machine = restore(&host, plot, plainly(plot, &kept)).await;
        assert_eq!(locks(&host, &plot.id), held);
        assert_eq!(distribution.number("n"), dumped_at);
        host.runtime.resume(&plot.id).await.unwrap();
        poll("the database to be written again", || distribution.number("n") > dumped_at + 3);
    }
    host.runtime.destroy(&plot.id).await.unwrap();
    assert_eq!(distribution.read("log"), "");
    let check = "import sqlite3,sys; db=sqlite3.connect(sys.argv[1]); \
                 print(db.execute('pragma integrity_check').fetchone()[0], db.execute('select count(*) = max(n) from t').fetchone()[0])";
    let output = Command::new("python3").args(["-c", check]).arg(plot.root.join("data.db")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ok 1\n");
}

/// The network of one sandbox, by the real driver.
struct Net {
    driver: Arc<LinuxNetwork>,
    run_dir: PathBuf,
}

impl Net {
    fn of(host: &Host) -> Self {
        let run_dir = host.directory.path().join("net");
        let driver =
            LinuxNetwork::open(Options { run_dir: run_dir.clone(), pool_size: 0, own_ids: true }).unwrap();
        Self { driver, run_dir }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let _ = LinuxNetwork::remove_all(&self.run_dir);
    }
}

#[tokio::test]
async fn inner_connections_continue_and_outside_connections_fail() {
    let host = Host::keeping();
    let net = Net::of(&host);
    let distribution = Distribution::new();
    let plot = &distribution.plot;
    distribution.script(TALKS);
    let link = net.driver.connect(&plot.id).await.unwrap();
    let commands = ["spawn /usr/bin/python3 /script.py"];
    let boot = BootOptions { attachment: link.attachment, ..options(plot, LIMITS, &commands) };
    let machine = host.runtime.boot(&plot.id, boot).await.unwrap();
    poll("the server to listen", || !distribution.read("ready").is_empty());
    let mut outside = Vec::new();
    for _ in 0..2 {
        let mut connection = link.dial.dial(9000).await.unwrap();
        let mut hello = [0; 5];
        connection.read_exact(&mut hello).await.unwrap();
        outside.push(connection);
    }
    let kept = dump(&host, plot, &machine).await;
    host.runtime.destroy(&plot.id).await.unwrap();
    net.driver.release(&plot.id).await.unwrap();
    let dumped_at = ["v4", "v6", "own"].map(|name| distribution.number(name));

    let link = net.driver.connect_later(&plot.id).await.unwrap();
    restore(&host, plot, RestoreOptions { attachment: link.attachment, ..plainly(plot, &kept) }).await;
    host.runtime.resume(&plot.id).await.unwrap();
    for (name, at) in ["v4", "v6", "own"].into_iter().zip(dumped_at) {
        poll("an inner connection to continue", || distribution.number(name) > at + 3);
    }
    for name in ["end1", "end2"] {
        poll("a connection from outside to end", || !distribution.read(name).is_empty());
        assert_eq!(distribution.read(name), "ConnectionAbortedError");
    }
    let mut anew = link.dial.dial(9000).await.unwrap();
    let mut hello = [0; 5];
    anew.read_exact(&mut hello).await.unwrap();
    assert_eq!(&hello, b"hello");
    anew.write_all(b"x").await.unwrap();
    poll("the new connection to be read", || distribution.read("end3") == "b'x'");
    drop(outside);
    assert_eq!(distribution.read("log"), "");
    host.runtime.destroy(&plot.id).await.unwrap();
    net.driver.release(&plot.id).await.unwrap();
}

/// CRIU restores such a socket, but not its queue.
#[tokio::test]
async fn a_process_that_never_reads_its_netlink_messages_is_named_and_a_reader_is_waited_for() {
    let host = Host::keeping();
    let distribution = Distribution::new();
    let plot = &distribution.plot;
    distribution.script(LISTENS);
    let commands = ["spawn /usr/bin/python3 /script.py"];
    let machine = host.runtime.boot(&plot.id, options(plot, LIMITS, &commands)).await.unwrap();
    poll("it to listen", || !distribution.read("ready").is_empty());
    let change =
        || in_network(&format!("/proc/{}/ns/net", machine.pid), "ip link set lo down; ip link set lo up");
    change();
    for paused in [false, true] {
        if paused {
            host.runtime.pause(&plot.id).await.unwrap();
        }
        let error = try_dump(&host, plot, &machine, &host.images()).await.unwrap_err();
        assert!(error.to_string().contains("python3") && error.to_string().contains("netlink"), "{error}");
        assert_eq!(host.is_frozen(&plot.id), paused);
    }
    host.runtime.resume(&plot.id).await.unwrap();
    fs::write(plot.root.join("read"), "").unwrap();
    for _ in 0..3 {
        change();
        dump(&host, plot, &machine).await;
        host.runtime.resume(&plot.id).await.unwrap();
    }
    assert_eq!(distribution.read("log"), "");
    host.runtime.destroy(&plot.id).await.unwrap();
}
