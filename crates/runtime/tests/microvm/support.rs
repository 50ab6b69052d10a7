//! Shared by the tests of the microVM driver: a driver, disks, gateways, connections to the agent.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use burrow_guest::client::Connection;
use burrow_guest::protocol::{
    Boot, ExecInfo, ExecStart, ExecState, Frame, GENERATION, PORT, ReadMode, Request, StdinMode,
};
use burrow_model::{Limits, SandboxId};
use burrow_network::linux::{LinuxNetwork, UID_BASE};
use burrow_network::{Attachment, Dial, GATEWAY_V4, Link, Network as _, SANDBOX_V4};
use burrow_runtime::microvm::{Accelerator, MicrovmRuntime, Options, disk};
use burrow_runtime::{
    BootOptions, DumpOptions, IntroduceFn, Machine, RestoreOptions, Runtime as _, RuntimeError,
};
use rustix::process::{Pid, Signal, kill_process};

pub(crate) const LIMITS: Limits = Limits { ram_mib: 64, cpu_millis: 1000, pids: 64, disk_mib: 64 };

pub(crate) const TOKEN: &str = "a-token-for-tests";

/// The installation directory of the set-up script.
const LIB: &str = "/usr/local/lib/burrow";

/// Longer than any expected event takes; an emulated machine on a busy host is slow.
const PATIENCE: Duration = Duration::from_secs(180);

/// A driver with its own cgroups, a directory for disks, and a network. Dropping it ends everything it started.
pub(crate) struct Host {
    pub(crate) runtime: Arc<MicrovmRuntime>,
    pub(crate) network: Arc<LinuxNetwork>,
    pub(crate) directory: tempfile::TempDir,
    parent: String,
}

/// A sandbox's directory with a disk, and its network.
pub(crate) struct Plot {
    pub(crate) id: SandboxId,
    pub(crate) root: PathBuf,
    pub(crate) dial: Arc<dyn Dial>,
    attachment: Attachment,
}

/// A machine, and the connection to its agent.
pub(crate) struct TestMachine {
    pub(crate) id: SandboxId,
    pub(crate) root: PathBuf,
    pub(crate) machine: Machine,
    pub(crate) dial: Arc<dyn Dial>,
    pub(crate) token: String,
}

/// A dump, and a copy of the disk at that time.
pub(crate) struct StoredDump {
    pub(crate) images: PathBuf,
    pub(crate) about: String,
    pub(crate) disk: PathBuf,
}

impl Host {
    pub(crate) fn new() -> Self {
        // On btrfs, common content of machines is shared on disk; elsewhere it is copied, with no other difference.
        let place = std::env::var_os("BURROW_TEST_BTRFS");
        let place = place.map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
        let directory = tempfile::tempdir_in(place).unwrap();
        let parent = format!("burrow-test-{}", &SandboxId::generate().as_str()[3..13]);
        let runtime = open(&parent, directory.path(), Some(Accelerator::Emulation));
        let network = LinuxNetwork::open(burrow_network::linux::Options {
            run_dir: directory.path().join("net"),
            pool_size: 0,
            own_ids: false,
        })
        .unwrap();
        Self { runtime, network, directory, parent }
    }

    /// Replaces this driver by another one, as a daemon that starts again does: without the connections of the first.
    pub(crate) fn restart(&mut self) {
        let placeholder = tempfile::tempdir().unwrap();
        self.runtime = open("burrow-test-nobody", placeholder.path(), Some(Accelerator::Emulation));
        remove_parents("burrow-test-nobody");
        self.runtime = open(&self.parent, self.directory.path(), Some(Accelerator::Emulation));
    }

    pub(crate) async fn attach(&self) -> Link {
        self.network.connect_later(&SandboxId::generate()).await.unwrap()
    }

    /// An empty directory for a dump.
    pub(crate) fn images(&self) -> PathBuf {
        self.folder("images")
    }

    pub(crate) fn folder(&self, kind: &str) -> PathBuf {
        let path = self.directory.path().join(format!("{kind}-{}", SandboxId::generate()));
        fs::create_dir(&path).unwrap();
        path
    }

    /// A sandbox with an empty disk.
    pub(crate) async fn plot(&self) -> Plot {
        let (tree, root) = (self.folder("tree"), self.folder("root"));
        std::os::unix::fs::chown(&tree, Some(UID_BASE), Some(UID_BASE)).unwrap();
        disk::make(&tree, &root, LIMITS.disk_mib).unwrap();
        self.plot_of(root).await
    }

    pub(crate) async fn plot_of(&self, root: PathBuf) -> Plot {
        let Link { attachment, dial } = self.attach().await;
        Plot { id: SandboxId::generate(), root, dial, attachment }
    }

    /// A machine with a tiny userland.
    pub(crate) async fn up(&self) -> TestMachine {
        let plot = self.plot_of(self.root()).await;
        self.boot(plot, LIMITS).await.unwrap()
    }

    /// A machine's directory with a tiny userland.
    pub(crate) fn root(&self) -> PathBuf {
        let (tree, root) = (self.folder("tree"), self.folder("root"));
        userland(&tree);
        disk::make(&tree, &root, LIMITS.disk_mib).unwrap();
        root
    }

    pub(crate) async fn boot(&self, plot: Plot, limits: Limits) -> Result<TestMachine, RuntimeError> {
        let (id, root, dial) = (plot.id.clone(), plot.root.clone(), Arc::clone(&plot.dial));
        let machine = self.runtime.boot(&id, plot.options(limits)).await?;
        Ok(TestMachine { id, root, machine, dial, token: TOKEN.to_owned() })
    }

    /// Dumps a machine, copies its disk while it is paused, and resumes it.
    pub(crate) async fn keep(&self, up: &TestMachine) -> StoredDump {
        let images = self.images();
        let options = DumpOptions {
            machine: up.machine.clone(),
            root: up.root.clone(),
            images: images.clone(),
            mounts: Vec::new(),
        };
        let dumped = self.runtime.dump(&up.id, options).await.unwrap();
        let disk = self.folder("kept").join(disk::NAME);
        fs::copy(up.root.join(disk::NAME), &disk).unwrap();
        self.runtime.resume(&up.id).await.unwrap();
        StoredDump { images, about: dumped.about, disk }
    }

    /// Dumps a machine and ends it.
    pub(crate) async fn put_down(&self, up: &TestMachine) -> StoredDump {
        let images = self.images();
        let options = DumpOptions {
            machine: up.machine.clone(),
            root: up.root.clone(),
            images: images.clone(),
            mounts: Vec::new(),
        };
        let dumped = self.runtime.dump(&up.id, options).await.unwrap();
        self.runtime.destroy(&up.id).await.unwrap();
        StoredDump { images, about: dumped.about, disk: up.root.join(disk::NAME) }
    }

    /// Restores a machine with its own identity.
    pub(crate) async fn wake(&self, up: &TestMachine, kept: &StoredDump) -> TestMachine {
        let Link { attachment, dial } = self.attach().await;
        let options = RestoreOptions {
            root: up.root.clone(),
            images: kept.images.clone(),
            about: kept.about.clone(),
            attachment,
            limits: LIMITS,
            hostname: None,
            mounts: Vec::new(),
            introduce: None,
            trial: false,
        };
        let machine = self.runtime.restore(&up.id, options).await.unwrap();
        self.runtime.resume(&up.id).await.unwrap();
        TestMachine { id: up.id.clone(), root: up.root.clone(), machine, dial, token: up.token.clone() }
    }

    /// Creates another sandbox from a dump; it gets its identity before anything in it runs.
    pub(crate) async fn fork(&self, kept: &StoredDump, hostname: &str) -> TestMachine {
        self.fork_of(kept, TOKEN, hostname).await
    }

    /// The same, from a dump of a machine with another token.
    pub(crate) async fn fork_of(&self, kept: &StoredDump, known: &str, hostname: &str) -> TestMachine {
        let root = self.folder("root");
        fs::copy(&kept.disk, root.join(disk::NAME)).unwrap();
        let Link { attachment, dial } = self.attach().await;
        let (id, token) = (SandboxId::generate(), format!("token-of-{hostname}"));
        let introduce: IntroduceFn = {
            let (dial, token, hostname) = (Arc::clone(&dial), token.clone(), hostname.to_owned());
            let known = known.to_owned();
            Box::new(move || {
                Box::pin(async move {
                    let request = Request::Renew { token, hostname };
                    let stream = dial_with_retries(&*dial).await;
                    let mut connection =
                        Connection::open(stream, &known, &request).await.map_err(std::io::Error::other)?;
                    connection.reply::<()>().await.map_err(std::io::Error::other)
                })
            })
        };
        let options = RestoreOptions {
            root: root.clone(),
            images: kept.images.clone(),
            about: kept.about.clone(),
            attachment,
            limits: LIMITS,
            hostname: Some(hostname.to_owned()),
            mounts: Vec::new(),
            introduce: Some(introduce),
            trial: false,
        };
        let machine = self.runtime.restore(&id, options).await.unwrap();
        self.runtime.resume(&id).await.unwrap();
        TestMachine { id, root, machine, dial, token }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for tree in trees() {
            for group in groups(&tree.join(&self.parent)) {
                // Only v2 trees have the file.
                let _ = fs::write(group.join("cgroup.kill"), "1");
            }
        }
        remove_parents(&self.parent);
        LinuxNetwork::remove_all(&self.directory.path().join("net")).unwrap();
    }
}

fn groups(parent: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

/// Removes a driver's cgroups, once they are empty.
pub(crate) fn remove_parents(parent: &str) {
    for tree in trees() {
        let parent = tree.join(parent);
        for group in groups(&parent) {
            poll("a cgroup to empty", || fs::remove_dir(&group).is_ok() || !group.exists());
        }
        if parent.exists() {
            poll("a cgroup to be removed", || fs::remove_dir(&parent).is_ok());
        }
    }
}

impl Plot {
    pub(crate) fn options(self, limits: Limits) -> BootOptions {
        let boot = Boot {
            generation: GENERATION,
            token: TOKEN.to_owned(),
            listen: (SANDBOX_V4, PORT).into(),
            accept_from: GATEWAY_V4.into(),
            ram_bytes: u64::from(limits.ram_mib) << 20,
            services: Vec::new(),
            renew: false,
            trust: None,
        };
        BootOptions {
            root: self.root,
            attachment: self.attachment,
            hostname: "test-box".to_owned(),
            limits,
            boot_document: serde_json::to_vec(&boot).unwrap(),
            template: None,
            mounts: Vec::new(),
        }
    }
}

impl TestMachine {
    pub(crate) async fn ask<T: serde::de::DeserializeOwned>(&self, request: &Request) -> T {
        let ask = async {
            let stream = dial_with_retries(&*self.dial).await;
            let mut connection = Connection::open(stream, &self.token, request).await.unwrap();
            connection.reply::<T>().await.unwrap()
        };
        tokio::time::timeout(PATIENCE, ask).await.expect("the agent answers")
    }

    /// Runs a command of the program inside, to its end, and returns its output.
    pub(crate) async fn run(&self, words: &str) -> String {
        let run = async {
            let stream = dial_with_retries(&*self.dial).await;
            let request = Request::ExecStart(start(words, Some(ReadMode::Lossless)));
            let mut connection = Connection::open(stream, &self.token, &request).await.unwrap();
            connection.reply::<ExecInfo>().await.unwrap();
            let mut written = Vec::new();
            while let Some(frame) = connection.next().await.unwrap() {
                match frame {
                    Frame::Stdout { bytes, .. } | Frame::Stderr { bytes, .. } => written.extend(bytes),
                    Frame::End => break,
                    Frame::Control(_) | Frame::Bytes(_) => {}
                }
            }
            String::from_utf8_lossy(&written).trim_end().to_owned()
        };
        tokio::time::timeout(PATIENCE, run).await.expect("the program ends")
    }

    /// Starts a command that continues to run.
    pub(crate) async fn start(&self, words: &str) {
        let info: ExecInfo = self.ask(&Request::ExecStart(start(words, None))).await;
        assert!(matches!(info.state, ExecState::Running), "{info:?}");
    }
}

/// Dials the agent. The network gives a guest five seconds to answer, and an emulated one on a busy host may need more.
async fn dial_with_retries(dial: &dyn Dial) -> tokio::net::TcpStream {
    let mut last = None;
    for _ in 0..PATIENCE.as_secs() / 5 {
        match dial.dial(PORT).await {
            Ok(stream) => return stream,
            Err(error) if error.kind() == std::io::ErrorKind::TimedOut => last = Some(error),
            Err(error) => panic!("the agent cannot be dialled: {error}"),
        }
    }
    panic!("the agent does not answer: {last:?}")
}

fn start(words: &str, attach: Option<ReadMode>) -> ExecStart {
    ExecStart {
        exec: SandboxId::generate().to_string(),
        argv: std::iter::once("/inside").chain(words.split(' ')).map(str::to_owned).collect(),
        env: BTreeMap::new(),
        cwd: Some("/".to_owned()),
        user: None,
        stdin: StdinMode::Null,
        terminal: None,
        timeout_ms: None,
        ring_bytes: 64 << 10,
        attach,
        hold: false,
        then_stop: false,
    }
}

pub(crate) fn open(parent: &str, directory: &Path, accelerator: Option<Accelerator>) -> Arc<MicrovmRuntime> {
    let lib = std::env::var_os("BURROW_TEST_LIB").map_or_else(|| PathBuf::from(LIB), PathBuf::from);
    let (qemu, kernel) = (lib.join("qemu"), lib.join("vm"));
    for file in [qemu.join("run/qemu-system-x86_64"), kernel.join("vmlinux")] {
        assert!(
            file.exists(),
            "`{}` is missing: run `scripts/get-qemu.sh {} {}`",
            file.display(),
            qemu.display(),
            kernel.display()
        );
    }
    MicrovmRuntime::open(Options {
        launcher: vec![env!("CARGO_BIN_EXE_burrow-launcher").into()],
        guest_binary: guest(),
        cgroup_parent: parent.to_owned(),
        run_dir: directory.join("run"),
        qemu,
        kernel,
        accelerator,
    })
    .unwrap()
}

/// The real agent, with which a machine boots.
fn guest() -> PathBuf {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target").join(target);
    let path =
        std::env::var_os("BURROW_TEST_GUEST").map_or_else(|| built.join("guest/burrow-guest"), PathBuf::from);
    assert!(
        path.exists(),
        "the guest agent is not at `{}`: `scripts/test.sh` builds it, or set BURROW_TEST_GUEST",
        path.display()
    );
    path
}

/// A tree with one program, as in a sandbox's image: with shifted owners.
fn userland(tree: &Path) {
    for folder in ["etc", "root"] {
        fs::create_dir(tree.join(folder)).unwrap();
    }
    fs::copy(inside(), tree.join("inside")).unwrap();
    fs::write(tree.join("etc/passwd"), "root:x:0:0:root:/root:/inside\n").unwrap();
    let owner = format!("{UID_BASE}:{UID_BASE}");
    assert!(Command::new("chown").args(["-R", &owner]).arg(tree).status().unwrap().success());
}

/// The program, compiled at first use.
fn inside() -> &'static Path {
    static INSIDE: OnceLock<PathBuf> = OnceLock::new();
    INSIDE.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/microvm/inside.rs");
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let binary = directory.join("inside-microvm");
        let modified = |path: &Path| fs::metadata(path).and_then(|found| found.modified()).ok();
        if modified(&binary) > modified(&source) {
            return binary;
        }
        // Written to a temporary file and renamed: several test programs may do this at once.
        let fresh = directory.join(format!("inside-microvm.{}", std::process::id()));
        let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let status = Command::new("rustc")
            .args(["--edition", "2024", "-O", "-C", "target-feature=+crt-static", "-C", "panic=abort"])
            .args(["-C", "strip=symbols", "--target", &target, "-o"])
            .arg(&fresh)
            .arg(&source)
            .status()
            .expect("`rustc` is on the path, as it built this test");
        assert!(status.success(), "the program inside does not compile");
        fs::rename(&fresh, &binary).unwrap();
        binary
    })
}

pub(crate) fn kill(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

/// Mount points of all cgroup trees of this host.
pub(crate) fn trees() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let point = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        matches!(words[2], "cgroup" | "cgroup2").then(|| PathBuf::from(words[1]))
    };
    mounts.lines().filter_map(point).collect()
}

/// Polls until `done` returns true, for as long as a loaded machine may need.
#[track_caller]
pub(crate) fn poll(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("timed out waiting for {what}");
}
