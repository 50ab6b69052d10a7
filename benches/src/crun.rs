//! The peer: `crun` on a snapshot of the same image, with the same uid mapping, namespaces, masks and a filter.
//!
//! crun runs from a thread in a separate mount namespace; a process that is started by that thread sees the same mounts,
//! at no extra cost. In it, the v2 tree of a hybrid layout is not mounted, because crun 1.8 refuses it, and the snapshot
//! is bound to a path that crun can reach with the mapped uids, which the pool is not. Its standard streams are pipes,
//! because crun changes their owner (see `null_device`).

#![expect(
    unsafe_code,
    reason = "a thread that leaves the shared file system view must not share it any more"
)]

use std::fs::{self, Permissions};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_bind, mount_change, unmount};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use serde_json::{Value, json};

use crate::daemon::BenchSetup;
use crate::error::BenchError;
use crate::inventory::remove_subvolume;

/// Maximum length of crun's error output that is shown.
const MESSAGE_BYTES_MAX: u64 = 4096;
const HIDDEN_TREE: &str = "/sys/fs/cgroup/unified";
/// Host uid of root inside, and the number of uids: those of a sandbox, by which its image is shifted.
const UID_SHIFT: u32 = 100_000;
const UID_COUNT: u32 = 65_536;

/// Whether crun sets limits, as Burrow does, or skips cgroups altogether, which is its fastest mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limits {
    Set,
    Skipped,
}

/// A prepared bundle, and the thread that runs crun on it. Dropping it removes both and all remaining processes.
#[derive(Debug)]
pub(crate) struct Crun {
    requests: Option<Sender<Request>>,
    thread: Option<JoinHandle<()>>,
    folder: tempfile::TempDir,
    volume: PathBuf,
    started: Vec<String>,
    next: u32,
}

#[derive(Debug)]
struct Request {
    arguments: Vec<String>,
    answer: Sender<Result<Duration, BenchError>>,
}

impl Crun {
    pub(crate) fn prepare(prepared: &BenchSetup) -> Result<Self, BenchError> {
        let folder = tempfile::Builder::new()
            .prefix("burrow-bench-crun-")
            .tempdir_in(&prepared.state)
            .map_err(BenchError::io("make a folder in", prepared.state.display()))?;
        let name = folder.path().file_name().expect("a temporary folder has a name");
        let volume = prepared.pool.join("daemons").join(name);
        let parent = prepared.pool.join("daemons");
        fs::create_dir_all(&parent).map_err(BenchError::io("make", parent.display()))?;
        prepared.snapshot_image(&volume)?;
        let view = View { from: volume.join("rootfs"), to: folder.path().join("root") };
        fs::create_dir_all(&view.to).map_err(BenchError::io("make", view.to.display()))?;
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755))
            .map_err(BenchError::io("open", folder.path().display()))?;
        let (requests, queue) = channel();
        let thread = std::thread::spawn(move || serve(&view, &queue));
        let peer = Self {
            requests: Some(requests),
            thread: Some(thread),
            folder,
            volume,
            started: Vec::new(),
            next: 0,
        };
        peer.write_bundle("true", &["true"])?;
        peer.write_bundle("sleep", &["sleep", "86400"])?;
        Ok(peer)
    }

    /// Time of `crun run … true`, from its start to its end.
    pub(crate) fn run_true(&mut self, limits: Limits) -> Result<Duration, BenchError> {
        self.next += 1;
        let id = format!("burrow-bench-{}-{}", std::process::id(), self.next);
        self.call(limits, &["run", "--bundle", &self.bundle("true"), &id])
    }

    /// Starts a container that sleeps, for [`Self::exec_true`], and returns its id.
    pub(crate) fn start_sleeping(&mut self, limits: Limits) -> Result<String, BenchError> {
        self.next += 1;
        let id = format!("burrow-bench-{}-{}", std::process::id(), self.next);
        self.started.push(id.clone());
        self.call(limits, &["run", "--detach", "--bundle", &self.bundle("sleep"), &id])?;
        Ok(id)
    }

    /// Time of `crun exec … true`, from its start to its end.
    pub(crate) fn exec_true(&self, limits: Limits, id: &str) -> Result<Duration, BenchError> {
        self.call(limits, &["exec", id, "true"])
    }

    fn bundle(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn call(&self, limits: Limits, arguments: &[&str]) -> Result<Duration, BenchError> {
        let root = self.folder.path().join("state").display().to_string();
        let manager = match limits {
            Limits::Set => "--cgroup-manager=cgroupfs",
            Limits::Skipped => "--cgroup-manager=disabled",
        };
        let mut all = vec!["--root".to_owned(), root, manager.to_owned()];
        all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        let (answer, result) = channel();
        let requests = self.requests.as_ref().expect("only dropping takes it");
        requests.send(Request { arguments: all, answer }).map_err(|_| BenchError::PeerGone)?;
        result.recv().map_err(|_| BenchError::PeerGone)?
    }

    fn write_bundle(&self, name: &str, argv: &[&str]) -> Result<(), BenchError> {
        let folder = self.folder.path().join(name);
        fs::create_dir_all(&folder).map_err(BenchError::io("make", folder.display()))?;
        let config = folder.join("config.json");
        let text = bundle_config(&self.folder.path().join("root"), argv).to_string();
        fs::write(&config, text).map_err(BenchError::io("write", config.display()))
    }
}

impl Drop for Crun {
    fn drop(&mut self) {
        for id in &self.started {
            let _ = self.call(Limits::Skipped, &["delete", "--force", id]);
        }
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        remove_subvolume(&self.volume);
    }
}

/// The first line of `crun --version`.
pub(crate) fn version() -> Option<String> {
    let output = Command::new("crun").arg("--version").stdin(Stdio::piped()).output().ok()?;
    String::from_utf8_lossy(&output.stdout).lines().next().map(str::to_owned)
}

/// The mounts of the thread's namespace.
#[derive(Debug)]
struct View {
    from: PathBuf,
    to: PathBuf,
}

fn serve(view: &View, queue: &Receiver<Request>) {
    let mut ready = enter(view);
    for request in queue {
        let result = match std::mem::replace(&mut ready, Ok(())) {
            Ok(()) => time(&request.arguments),
            Err(error) => Err(error),
        };
        let _ = request.answer.send(result);
    }
}

fn enter(view: &View) -> Result<(), BenchError> {
    // SAFETY: only this thread changes its view of the file system; it was created for this and shares no descriptors
    // that depend on it.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS) }
        .map_err(|error| BenchError::io("make a mount namespace for", "crun")(error.into()))?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(|error| BenchError::io("make private", "/")(error.into()))?;
    mount_bind(&view.from, &view.to)
        .map_err(|error| BenchError::io("bind", view.from.display())(error.into()))?;
    if Path::new(HIDDEN_TREE).join("cgroup.procs").exists() {
        unmount(HIDDEN_TREE, UnmountFlags::DETACH)
            .map_err(|error| BenchError::io("hide from crun", HIDDEN_TREE)(error.into()))?;
    }
    Ok(())
}

fn time(arguments: &[String]) -> Result<Duration, BenchError> {
    let mut command = Command::new("crun");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let begin = Instant::now();
    let mut child = command.spawn().map_err(BenchError::io("start", "crun"))?;
    // `wait` closes its standard input first. No command here writes more than a pipe can store.
    let status = child.wait().map_err(BenchError::io("wait for", "crun"))?;
    let elapsed = begin.elapsed();
    if status.success() {
        return Ok(elapsed);
    }
    let mut message = String::new();
    if let Some(stderr) = child.stderr.take() {
        let _ = stderr.take(MESSAGE_BYTES_MAX).read_to_string(&mut message);
    }
    Err(BenchError::Command { command: format!("crun {}", arguments.join(" ")), status, message })
}

/// The settings of a sandbox, as far as crun has them: namespaces, uid mapping, capabilities, mounts, masks, limits,
/// filter.
fn bundle_config(root: &Path, argv: &[&str]) -> Value {
    let kept = [
        "CAP_CHOWN",
        "CAP_DAC_OVERRIDE",
        "CAP_FOWNER",
        "CAP_FSETID",
        "CAP_KILL",
        "CAP_SETGID",
        "CAP_SETUID",
        "CAP_SETPCAP",
        "CAP_NET_BIND_SERVICE",
        "CAP_SYS_CHROOT",
        "CAP_AUDIT_WRITE",
        "CAP_SETFCAP",
    ];
    let mapping = json!([{ "containerID": 0, "hostID": UID_SHIFT, "size": UID_COUNT }]);
    let namespaces: Vec<Value> = ["pid", "network", "ipc", "uts", "mount", "user"]
        .iter()
        .map(|kind| json!({ "type": kind }))
        .collect();
    json!({
        "ociVersion": "1.0.0",
        "process": {
            "terminal": false,
            "user": { "uid": 0, "gid": 0 },
            "args": argv,
            "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "cwd": "/",
            "capabilities": { "bounding": kept, "effective": kept, "permitted": kept, "inheritable": [] },
            "noNewPrivileges": true,
        },
        "root": { "path": root, "readonly": false },
        "hostname": "peer",
        "mounts": mounts(),
        "linux": {
            "namespaces": namespaces,
            "uidMappings": mapping,
            "gidMappings": mapping,
            "resources": {
                "memory": { "limit": 1_u64 << 30 },
                "cpu": { "quota": 200_000, "period": 100_000 },
                "pids": { "limit": 1024 },
            },
            "maskedPaths": [
                "/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
                "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
            ],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
            "seccomp": filter(),
        },
    })
}

fn mounts() -> Value {
    json!([
        { "destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"] },
        { "destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"] },
        { "destination": "/dev/pts", "type": "devpts", "source": "devpts",
          "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"] },
        { "destination": "/dev/shm", "type": "tmpfs", "source": "shm",
          "options": ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"] },
        { "destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "noexec", "nodev", "ro"] },
    ])
}

/// A short list of denied calls. Burrow loads an allow-list, which is longer; the shorter list is in crun's favour.
fn filter() -> Value {
    json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{
            "names": [
                "add_key", "bpf", "init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load",
                "keyctl", "mount", "move_mount", "open_by_handle_at", "perf_event_open", "pivot_root", "reboot",
                "request_key", "setns", "swapon", "swapoff", "umount2", "userfaultfd", "io_uring_setup",
            ],
            "action": "SCMP_ACT_ERRNO",
        }],
    })
}
