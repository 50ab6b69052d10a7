//! The environment of one test: its own network namespace with addresses in place of the internet, its own hosts
//! file, a network driver, and the egress process.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use burrow_egress::supervisor::{Options, Supervisor};
use burrow_egress::{Egress, Limits, LogEntry, Policy};
use burrow_model::{IpRange, NetworkMode, NetworkPolicy, SandboxId};
use burrow_network::linux::LinuxNetwork;
use burrow_network::{Attachment, Link, Network};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tempfile::TempDir;
use tokio::sync::mpsc;

/// Set in the inner run of a test.
const INNER: &str = "BURROW_EGRESS_TEST_INNER";

/// Far longer than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Addresses of permitted upstreams.
pub(crate) const UPSTREAM: &str = "198.51.100.10";
pub(crate) const UPSTREAM_V6: &str = "2001:db8:1::10";
/// An address of this host that looks public.
pub(crate) const OWN_PUBLIC: &str = "93.184.216.34";
/// Addresses of this host that must not be reached: a metadata service, and a private neighbour.
pub(crate) const METADATA: &str = "169.254.169.254";
pub(crate) const PRIVATE: &str = "10.9.9.9";

const HOSTS: &str = "\
127.0.0.1 localhost
198.51.100.10 ok.example www.ok.example a.wild.example b.wild.example db.example both.example
2001:db8:1::10 ok6.example both.example
127.0.0.1 rebound.example mixed.example
198.51.100.10 mixed.example
169.254.169.254 metadata.example
10.9.9.9 private.example
93.184.216.34 own.example
::ffff:127.0.0.1 mapped.example
198.51.100.99 dead.example
";

/// Uid of the process, used by no other one.
pub(crate) const UID: u32 = 64_321;

/// Runs `test` in an isolated environment. `name` is the name of the calling test, with its module.
pub(crate) fn within<F: Future<Output = ()>>(name: &str, test: impl FnOnce(World) -> F) {
    if std::env::var_os(INNER).is_none() {
        let status = Command::new("unshare")
            // With a process namespace, so that processes of a failed test do not remain.
            .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
            .args(["--propagation", "private", "--"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(INNER, "1")
            .status()
            .unwrap();
        assert!(status.success(), "{name} failed inside its world");
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let world = World::new().await;
        let (network, run_dir) = (Arc::clone(&world.network), world.egress_dir());
        let directory = Arc::clone(&world.directory);
        test(world).await;
        Supervisor::remove_all(&run_dir).await.unwrap();
        for id in network.inventory().await.unwrap() {
            network.release(&id).await.unwrap();
        }
        network.shutdown().await;
        drop(network);
        LinuxNetwork::remove_all(&directory.path().join("net")).unwrap();
    });
}

/// Declares a test that runs in [`within`].
#[macro_export]
macro_rules! live_test {
    ($(#[$attribute:meta])* async fn $name:ident($world:ident: World) $body:block) => {
        $(#[$attribute])*
        #[test]
        fn $name() {
            let path = concat!(module_path!(), "::", stringify!($name));
            let name = path.split_once("::").map_or(path, |(_, name)| name);
            $crate::world::within(name, |$world: $crate::world::World| async move { $body });
        }
    };
}

pub(crate) struct World {
    directory: Arc<TempDir>,
    pub(crate) network: Arc<LinuxNetwork>,
    pub(crate) limits: Limits,
    pub(crate) extra_roots: Vec<Vec<u8>>,
}

impl World {
    async fn new() -> Self {
        let directory = Arc::new(tempfile::tempdir().unwrap());
        let hosts = directory.path().join("hosts");
        std::fs::write(&hosts, HOSTS).unwrap();
        let switch = directory.path().join("nsswitch.conf");
        std::fs::write(&switch, "hosts: files dns\n").unwrap();
        // No server answers there, unless a test starts one (see `upstreams::resolver`).
        let resolv = directory.path().join("resolv.conf");
        std::fs::write(&resolv, "nameserver 127.0.0.1\noptions timeout:2 attempts:2\n").unwrap();
        sh(&format!("mount --bind {} /etc/hosts", hosts.display()));
        for (file, place) in [(&switch, "/etc/nsswitch.conf"), (&resolv, "/etc/resolv.conf")] {
            sh(&format!("[ ! -e {place} ] || mount --bind {} {place}", file.display()));
        }
        sh("ip link set lo up");
        for address in [UPSTREAM, OWN_PUBLIC, METADATA, PRIVATE] {
            sh(&format!("ip addr add {address}/32 dev lo"));
        }
        sh(&format!("ip addr add {UPSTREAM_V6}/128 dev lo nodad"));
        let options = burrow_network::linux::Options {
            run_dir: directory.path().join("net"),
            pool_size: 0,
            own_ids: false,
        };
        let network = LinuxNetwork::open(options).unwrap();
        Self { directory, network, limits: Limits::STANDARD, extra_roots: Vec::new() }
    }

    pub(crate) fn egress_dir(&self) -> PathBuf {
        self.directory.path().join("egress")
    }

    /// Opens the egress driver as a daemon does.
    pub(crate) async fn daemon(&self) -> Daemon {
        let supervisor = self.supervisor().await;
        let log = supervisor.log().unwrap();
        Daemon { supervisor, log }
    }

    pub(crate) async fn supervisor(&self) -> Arc<Supervisor> {
        Supervisor::open(Options {
            program: vec![env!("CARGO_BIN_EXE_burrow-egress-process").into()],
            run_dir: self.egress_dir(),
            uid: UID,
            gid: UID,
            network: Arc::clone(&self.network) as Arc<dyn Network>,
            limits: self.limits,
            extra_roots: self.extra_roots.clone(),
        })
        .await
        .unwrap()
    }

    /// The same host, for the next daemon.
    pub(crate) fn again(&self) -> Self {
        Self {
            directory: Arc::clone(&self.directory),
            network: Arc::clone(&self.network),
            limits: self.limits,
            extra_roots: self.extra_roots.clone(),
        }
    }

    /// Creates a sandbox with a network that is not attached.
    pub(crate) async fn sandbox(&self) -> Sandbox {
        let id = SandboxId::generate();
        let link = self.network.connect(&id).await.unwrap();
        Sandbox { id, link: Arc::new(link) }
    }

    /// A daemon, and a sandbox whose policy has `rules`.
    pub(crate) async fn with(&self, rules: &[&str]) -> (Daemon, Sandbox) {
        let (daemon, sandbox) = (self.daemon().await, self.sandbox().await);
        daemon.supervisor.attach(&sandbox.id, &policy(rules)).await.unwrap();
        (daemon, sandbox)
    }
}

pub(crate) struct Daemon {
    pub(crate) supervisor: Arc<Supervisor>,
    pub(crate) log: mpsc::Receiver<LogEntry>,
}

impl Daemon {
    /// Waits for an entry that `wanted` accepts; others are skipped.
    pub(crate) async fn entry(&mut self, wanted: impl Fn(&LogEntry) -> bool) -> LogEntry {
        let search = async {
            loop {
                let entry = self.log.recv().await.expect("the log has not ended");
                if wanted(&entry) {
                    return entry;
                }
            }
        };
        tokio::time::timeout(PATIENCE, search).await.expect("an entry was expected")
    }

    pub(crate) async fn denial(&mut self, host: &str) -> String {
        let denied = |entry: &LogEntry| entry.host == host && entry.verdict == burrow_egress::Verdict::Deny;
        self.entry(denied).await.reason.unwrap()
    }
}

#[derive(Clone)]
pub(crate) struct Sandbox {
    pub(crate) id: SandboxId,
    link: Arc<Link>,
}

impl Sandbox {
    /// Runs `act` as a program in the sandbox would.
    pub(crate) async fn inside<T: Send + 'static>(&self, act: impl FnOnce() -> T + Send + 'static) -> T {
        let link = Arc::clone(&self.link);
        let visit = move || {
            let Attachment::Namespaces { net, .. } = &link.attachment else { panic!("a real network") };
            inside(net.as_fd(), act)
        };
        tokio::task::spawn_blocking(visit).await.unwrap()
    }
}

/// Runs `act` in a network namespace, on a dedicated thread.
fn inside<T: Send>(namespace: BorrowedFd<'_>, act: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let visit = || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            act()
        };
        scope.spawn(visit).join().unwrap()
    })
}

/// An allowlist; the ranges of the upstreams are permitted.
pub(crate) fn policy(rules: &[&str]) -> Policy {
    policy_of(NetworkMode::Allowlist, rules)
}

pub(crate) fn policy_of(mode: NetworkMode, rules: &[&str]) -> Policy {
    policy_denying(mode, rules, &[])
}

pub(crate) fn policy_denying(mode: NetworkMode, rules: &[&str], deny: &[&str]) -> Policy {
    let deny = deny.iter().map(|block| block.parse().unwrap()).collect();
    let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    let open: Vec<IpRange> =
        ["198.51.100.0/24", "2001:db8:1::/48"].map(|range| range.parse().unwrap()).into();
    Policy::new(&NetworkPolicy { mode, rules, deny, ..NetworkPolicy::closed() }, &BTreeMap::new(), &open)
        .unwrap()
}

pub(crate) fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn sh(line: &str) {
    let output = Command::new("sh").args(["-ec", line]).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Waits until `done` returns true, and fails after a time limit.
pub(crate) async fn eventually(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !done().await {
        assert!(Instant::now() < until, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
