//! Shared by the tests of the container driver: a root, namespaces, a stand-in agent, a driver.

#![allow(dead_code, reason = "each test program uses its part")]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

use burrow_model::{Limits, MountMode, SandboxId};
use burrow_network::linux::{HostIds, UID_BASE, UID_COUNT};
use burrow_network::{Attachment, Plug};
use burrow_runtime::container::{ContainerRuntime, Options, probe_own_ids};
use burrow_runtime::{BootOptions, Machine, Runtime as _, RuntimeError};

pub(crate) const LIMITS: Limits = Limits { ram_mib: 64, cpu_millis: 1000, pids: 64, disk_mib: 64 };

/// A driver with its own cgroups, and a directory for roots. Dropping it ends everything it started.
pub(crate) struct Host {
    pub(crate) runtime: Arc<ContainerRuntime>,
    pub(crate) directory: tempfile::TempDir,
    parent: String,
}

/// A root directory with an attachment, ready to boot.
pub(crate) struct Plot {
    pub(crate) id: SandboxId,
    pub(crate) root: PathBuf,
}

impl Host {
    pub(crate) fn new() -> Self {
        Self::with(guest(), None)
    }

    /// A host that can dump processes.
    pub(crate) fn keeping() -> Self {
        Self::with(guest(), Some(criu()))
    }

    pub(crate) fn with(guest: &Path, criu: Option<PathBuf>) -> Self {
        // Not in `/tmp`, of which CRIU has a private one.
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let parent = format!("burrow-test-{}", &SandboxId::generate().as_str()[3..13]);
        let runtime = open(&parent, directory.path(), guest, criu);
        Self { runtime, directory, parent }
    }

    /// Another driver for the same sandboxes, as a daemon that starts again has.
    pub(crate) fn reopen(&self) -> Arc<ContainerRuntime> {
        open(&self.parent, self.directory.path(), guest(), None)
    }

    /// An empty directory for a dump.
    pub(crate) fn images(&self) -> PathBuf {
        let images = self.directory.path().join(format!("images-{}", SandboxId::generate()));
        fs::create_dir(&images).unwrap();
        images
    }

    /// An empty directory that can be a volume.
    pub(crate) fn volume(&self) -> PathBuf {
        // As in a pool: below a directory that only root can traverse.
        let closed = self.directory.path().join("closed");
        fs::create_dir_all(&closed).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        fs::set_permissions(&closed, mode).unwrap();
        let volume = closed.join(format!("volume-{}", SandboxId::generate()));
        fs::create_dir(&volume).unwrap();
        std::os::unix::fs::chown(&volume, Some(UID_BASE), Some(UID_BASE)).unwrap();
        volume
    }

    /// Whether all processes of a sandbox are frozen.
    pub(crate) fn is_frozen(&self, id: &SandboxId) -> bool {
        let events = fs::read_to_string(unified().join(self.group(id)).join("cgroup.events")).unwrap();
        events.lines().any(|line| line == "frozen 1")
    }

    /// The name of a sandbox's cgroup, beneath the mount point of any tree.
    pub(crate) fn group(&self, id: &SandboxId) -> String {
        format!("{}/{id}", self.parent)
    }

    pub(crate) fn parent(&self) -> &str {
        &self.parent
    }

    pub(crate) fn plot(&self) -> Plot {
        let id = SandboxId::generate();
        let root = self.directory.path().join(id.as_str());
        fs::create_dir(&root).unwrap();
        std::os::unix::fs::chown(&root, Some(UID_BASE), Some(UID_BASE)).unwrap();
        Plot { id, root }
    }

    pub(crate) async fn boot(&self, plot: &Plot, commands: &[&str]) -> Result<Machine, RuntimeError> {
        self.runtime.boot(&plot.id, options(plot, LIMITS, commands)).await
    }

    /// Boots a machine, lets it run the commands, and destroys it; returns the answers.
    pub(crate) async fn run(&self, plot: &Plot, commands: &[&str]) -> Vec<String> {
        self.boot(plot, commands).await.unwrap();
        let answers = plot.answers();
        self.runtime.destroy(&plot.id).await.unwrap();
        assert_eq!(answers.len(), commands.len(), "{answers:#?}");
        answers
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let groups = |tree: &Path| {
            let entries = fs::read_dir(tree.join(&self.parent)).into_iter().flatten().flatten();
            entries.filter(|entry| entry.path().is_dir()).collect::<Vec<_>>()
        };
        for entry in groups(&unified()) {
            fs::write(entry.path().join("cgroup.kill"), "1").unwrap();
        }
        for tree in trees() {
            let parent = tree.join(&self.parent);
            for entry in groups(&tree) {
                poll("a cgroup to empty", || fs::remove_dir(entry.path()).is_ok() || !entry.path().exists());
            }
            if parent.exists() {
                fs::remove_dir(parent).unwrap();
            }
        }
    }
}

impl Plot {
    pub(crate) fn answers(&self) -> Vec<String> {
        let text = fs::read_to_string(self.root.join("out")).unwrap();
        text.lines().map(|line| line.replace("\\n", "\n")).collect()
    }

    /// The stand-in's counter, and the mark in its RAM.
    pub(crate) fn count(&self) -> Option<(u64, String)> {
        self.count_in("count")
    }

    /// The counter of another process of it.
    pub(crate) fn count_in(&self, file: &str) -> Option<(u64, String)> {
        let text = fs::read_to_string(self.root.join(file)).ok()?;
        let (number, mark) = text.split_once(' ')?;
        Some((number.parse().ok()?, mark.to_owned()))
    }
}

pub(crate) fn open(
    parent: &str,
    directory: &Path,
    guest: &Path,
    criu: Option<PathBuf>,
) -> Arc<ContainerRuntime> {
    ContainerRuntime::open(Options {
        launcher: vec![env!("CARGO_BIN_EXE_burrow-launcher").into()],
        guest_binary: guest.to_owned(),
        cgroup_parent: parent.to_owned(),
        run_dir: directory.join("run"),
        criu,
        apparmor: burrow_runtime::container::apparmor::ProfileUse::Auto,
    })
    .unwrap()
}

pub(crate) fn options(plot: &Plot, limits: Limits, commands: &[&str]) -> BootOptions {
    BootOptions {
        root: plot.root.clone(),
        attachment: attachment(),
        hostname: "test-box".to_owned(),
        limits,
        boot_document: commands.join("\n").into_bytes(),
        template: None,
        mounts: Vec::new(),
    }
}

/// A user namespace mapped as by the network driver, with a network namespace that belongs to it.
pub(crate) fn attachment() -> Attachment {
    attachment_with(has_own_ids().then(|| HostIds::reserve().unwrap()))
}

/// Without its own ids: as created by older versions, and on kernels that cannot map owners.
pub(crate) fn attachment_with(ids: Option<HostIds>) -> Attachment {
    let base = ids.as_ref().map_or(UID_BASE, |ids| ids.range.base());
    let mut child = Command::new("unshare")
        .args(["--user", "--net", "sh", "-c", "echo there; read end"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let file = |name: &str| format!("/proc/{}/{name}", child.id());
    for map in ["uid_map", "gid_map"] {
        fs::write(file(map), format!("0 {base} {UID_COUNT}")).unwrap();
    }
    let open = |name: &str| OwnedFd::from(File::open(file(name)).unwrap());
    let (user, net) = (open("ns/user"), open("ns/net"));
    drop(child.stdin.take());
    child.wait().unwrap();
    Attachment::Namespaces { user, net, ids }
}

/// Whether machines have their own ids on this host. They do, unless the tests' directory does not support idmapped
/// mounts.
pub(crate) fn has_own_ids() -> bool {
    static HAS: LazyLock<bool> =
        LazyLock::new(|| probe_own_ids(Path::new(env!("CARGO_TARGET_TMPDIR"))).is_ok());
    *HAS
}

/// The host uid of root inside a machine.
pub(crate) fn base(pid: u32) -> u32 {
    let [uids, gids] =
        ["uid_map", "gid_map"].map(|map| fs::read_to_string(format!("/proc/{pid}/{map}")).unwrap());
    assert_eq!(uids, gids);
    let words: Vec<u32> = uids.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let [0, base, UID_COUNT] = words[..] else { panic!("{uids}") };
    assert_eq!(base == UID_BASE, !has_own_ids(), "{uids}");
    base
}

/// The access mode of the mount at a path in a machine, as the kernel shows it; also checks that it is restricted.
pub(crate) fn sees(pid: u32, target: &str) -> Option<MountMode> {
    let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap();
    let line = mounts.lines().find(|line| line.split(' ').nth(4) == Some(target))?;
    let options: Vec<&str> = line.split(' ').nth(5).unwrap().split(',').collect();
    assert!(options.contains(&"nosuid") && options.contains(&"nodev"), "{line}");
    Some(if options.contains(&"ro") { MountMode::Ro } else { MountMode::Rw })
}

/// The installation path of the set-up script.
const CRIU: &str = "/usr/local/lib/burrow/criu/sbin/criu";

pub(crate) fn criu() -> PathBuf {
    let path = std::env::var_os("BURROW_CRIU").map_or_else(|| PathBuf::from(CRIU), PathBuf::from);
    assert!(
        path.exists(),
        "CRIU is not at `{}`: run `scripts/get-criu.sh`, or set BURROW_CRIU to one of version 4.2 or newer",
        path.display()
    );
    path
}

/// Configures a restored machine's network with a script.
#[derive(Debug)]
pub(crate) struct Script(pub(crate) &'static str);

impl Plug for Script {
    fn plug(&self, net: BorrowedFd<'_>) -> io::Result<()> {
        in_network(&format!("/proc/{}/fd/{}", std::process::id(), net.as_raw_fd()), self.0);
        Ok(())
    }
}

/// Only with a loopback interface.
pub(crate) fn later() -> Attachment {
    Attachment::Later(Arc::new(Script("ip link set lo up")))
}

pub(crate) fn in_network(namespace: &str, script: &str) -> String {
    let output = Command::new("nsenter")
        .arg(format!("--net={namespace}"))
        .args(["sh", "-ec", script])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
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

/// The mount point of the v2 tree.
pub(crate) fn unified() -> PathBuf {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2")).unwrap();
    PathBuf::from(line.split(' ').nth(1).unwrap())
}

/// Polls until `done` returns true, for as long as a loaded machine may need.
#[track_caller]
pub(crate) fn poll(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..20_000 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("timed out waiting for {what}");
}

/// Waits until the stand-in's counter has advanced.
#[track_caller]
pub(crate) fn await_counting(plot: &Plot) {
    let before = plot.count().map_or(0, |(number, _)| number);
    poll("the machine to count on", || plot.count().is_some_and(|(number, _)| number > before + 2));
}

/// The stand-in agent, compiled at first use.
pub(crate) fn guest() -> &'static Path {
    static GUEST: OnceLock<PathBuf> = OnceLock::new();
    GUEST.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/guest.rs");
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let binary = directory.join("stand-in-guest");
        let newer = |a: &Path, b: &Path| {
            Some(fs::metadata(a).ok()?.modified().ok()? > fs::metadata(b).ok()?.modified().ok()?)
        };
        if newer(&binary, &source) == Some(true) {
            return binary;
        }
        // Written to a temporary file and renamed: several test programs may do this at once.
        let fresh = directory.join(format!("stand-in-guest.{}", std::process::id()));
        let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let status = Command::new("rustc")
            .args(["--edition", "2024", "-O", "-C", "target-feature=+crt-static", "-C", "panic=abort"])
            .args(["--target", &target, "-o"])
            .arg(&fresh)
            .arg(&source)
            .status()
            .expect("`rustc` is on the path, as it built this test");
        assert!(status.success(), "the stand-in agent does not compile");
        fs::rename(&fresh, &binary).unwrap();
        binary
    })
}
