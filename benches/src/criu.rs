//! The baseline: `criu dump` and `criu restore` on the command line, of the same server on the same root file system.
//!
//! Its processes have the properties of a sandbox that plain CRIU supports: a root, and pid, mount, network, IPC and UTS
//! namespaces, but no user namespace, limits, filter or agent; PID 1 is a shell. CRIU gets the same options as in Burrow,
//! and the images are in the same pool. Nothing is synced, verified, connected or recorded.
//!
//! CRIU runs from a thread in a separate mount namespace, where the root is a mount point, as a restore requires.

#![expect(
    unsafe_code,
    reason = "a thread that leaves the shared file system view must not share it any more"
)]

use std::ffi::CStr;
use std::fs::{self, File};
use std::os::fd::BorrowedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind_recursive, mount_change, unmount,
};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::daemon::BenchSetup;
use crate::error::BenchError;
use crate::inventory::remove_subvolume;

/// The argument that selects the role of the first process.
pub(crate) const ROLE: &str = "first-process";

const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(2);
/// Maximum length of CRIU's log that is shown.
const LOG_BYTES_MAX: usize = 2048;
/// Options of both commands, the same as Burrow's.
const OPTIONS: [&str; 9] = [
    "--manage-cgroups=ignore",
    "--empty-ns",
    "net",
    "--network-lock",
    "skip",
    "--ext-unix-sk",
    "--tcp-established",
    "--file-locks",
    "--link-remap",
];
const NONE: Option<&CStr> = None;

/// The effect of a dump on the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    GoOn,
    End,
}

/// The server, running or dumped, and the thread from which CRIU is started. Dropping it removes everything.
#[derive(Debug)]
pub(crate) struct Criu {
    program: PathBuf,
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    folder: tempfile::TempDir,
    volume: PathBuf,
    images: PathBuf,
    /// `unshare`, which waits for the first process as long as that is the original one.
    starter: Option<Child>,
    pid: Option<u32>,
}

#[derive(Debug)]
struct Job {
    command: Command,
    answer: Sender<Result<StartedProcess, BenchError>>,
}

/// A process, and its start time.
type StartedProcess = (Child, Instant);

impl Criu {
    /// Runs `script`, a Python program that creates the file `ready` in `/root` when it is ready.
    pub(crate) fn start(prepared: &BenchSetup, program: &Path, script: &str) -> Result<Self, BenchError> {
        let folder = tempfile::Builder::new()
            .prefix("burrow-bench-criu-")
            .tempdir_in(&prepared.state)
            .map_err(BenchError::io("make a folder in", prepared.state.display()))?;
        let name = folder.path().file_name().expect("a temporary folder has a name");
        let volume = prepared.pool.join("daemons").join(name);
        let images = volume.with_extension("images");
        fs::create_dir_all(&images).map_err(BenchError::io("make", images.display()))?;
        prepared.snapshot_image(&volume)?;
        let (from, to) = (volume.join("rootfs"), folder.path().join("root"));
        fs::create_dir_all(&to).map_err(BenchError::io("make", to.display()))?;
        let path = from.join("root/server.py");
        fs::write(&path, script).map_err(BenchError::io("write", path.display()))?;
        let (jobs, queue) = channel();
        let thread = std::thread::spawn(move || serve(&from, &to, &queue));
        let program = program.to_owned();
        let mut peer = Self {
            program,
            jobs: Some(jobs),
            thread: Some(thread),
            folder,
            volume,
            images,
            starter: None,
            pid: None,
        };
        peer.start_server()?;
        Ok(peer)
    }

    /// Time of `criu dump` into an empty folder, from its start to its end.
    pub(crate) fn dump(&mut self, after: After) -> Result<Duration, BenchError> {
        let pid = self.pid.ok_or(BenchError::PeerGone)?;
        fs::remove_dir_all(&self.images).map_err(BenchError::io("empty", self.images.display()))?;
        fs::create_dir(&self.images).map_err(BenchError::io("make", self.images.display()))?;
        let mut command = self.criu("dump");
        command.arg("--tree").arg(pid.to_string());
        if after == After::GoOn {
            command.arg("--leave-running");
        }
        let elapsed = self.time(command, "dump")?;
        if after == After::End {
            self.pid = None;
            self.await_end(pid)?;
        }
        Ok(elapsed)
    }

    /// Syncs the dump, and returns how long that took.
    pub(crate) fn sync_images(&self) -> Result<Duration, BenchError> {
        let begin = Instant::now();
        self.each_image(File::sync_all)?;
        Ok(begin.elapsed())
    }

    /// Drops the synced dump from the page cache.
    pub(crate) fn evict_images(&self) -> Result<(), BenchError> {
        self.each_image(|file| Ok(fadvise(file, 0, None, Advice::DontNeed)?))
    }

    /// Time of `criu restore` of a process that ended with its dump, from its start to its end.
    pub(crate) fn restore(&mut self) -> Result<Duration, BenchError> {
        let (elapsed, pid) = self.restore_one()?;
        self.pid = Some(pid);
        Ok(elapsed)
    }

    /// Time of `criu restore` of a second process, which is then ended.
    pub(crate) fn restore_another(&mut self) -> Result<Duration, BenchError> {
        let (elapsed, pid) = self.restore_one()?;
        kill(pid);
        self.await_end(pid)?;
        Ok(elapsed)
    }

    fn restore_one(&mut self) -> Result<(Duration, u32), BenchError> {
        let pid_file = self.folder.path().join("pid");
        let _ = fs::remove_file(&pid_file);
        let mut command = self.criu("restore");
        command.arg("--restore-detached").arg("--pidfile").arg(&pid_file);
        let elapsed = self.time(command, "restore")?;
        let text = fs::read_to_string(&pid_file).map_err(BenchError::io("read", pid_file.display()))?;
        let wrong = |_| BenchError::WrongAnswer { what: format!("CRIU says that {text:?} is a pid") };
        Ok((elapsed, text.trim().parse().map_err(wrong)?))
    }

    fn criu(&self, action: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(action).arg("--images-dir").arg(&self.images).arg("--root");
        command.arg(self.folder.path().join("root")).args(OPTIONS).args(["-v2", "--log-file"]);
        command.arg(self.folder.path().join(action));
        command
    }

    fn time(&self, command: Command, action: &str) -> Result<Duration, BenchError> {
        let shown = format!("{command:?}");
        let (mut child, begin) = self.spawn(command)?;
        let status = child.wait().map_err(BenchError::io("wait for", "criu"))?;
        let elapsed = begin.elapsed();
        if status.success() {
            return Ok(elapsed);
        }
        let log = fs::read(self.folder.path().join(action)).unwrap_or_default();
        let message = String::from_utf8_lossy(&log[log.len().saturating_sub(LOG_BYTES_MAX)..]).into_owned();
        Err(BenchError::Command { command: shown, status, message })
    }

    /// Starts it from the thread that sees the root.
    fn spawn(&self, mut command: Command) -> Result<StartedProcess, BenchError> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let (answer, result) = channel();
        let jobs = self.jobs.as_ref().expect("only dropping takes it");
        jobs.send(Job { command, answer }).map_err(|_| BenchError::PeerGone)?;
        result.recv().map_err(|_| BenchError::PeerGone)?
    }

    fn start_server(&mut self) -> Result<(), BenchError> {
        let ourselves = std::env::current_exe().map_err(BenchError::io("find", "this program"))?;
        let mut command = Command::new("unshare");
        command.args(["--pid", "--mount", "--net", "--ipc", "--uts", "--fork"]);
        command.arg(ourselves).arg(ROLE).arg(self.folder.path().join("root"));
        let (child, _) = self.spawn(command)?;
        let starter = child.id();
        self.starter = Some(child);
        let deadline = Instant::now() + PATIENCE;
        let children = format!("/proc/{starter}/task/{starter}/children");
        while !self.volume.join("rootfs/root/ready").exists() {
            if Instant::now() > deadline {
                return Err(BenchError::WrongAnswer { what: "the server for CRIU did not start".to_owned() });
            }
            std::thread::sleep(POLL);
            let found = fs::read_to_string(&children).unwrap_or_default();
            self.pid = found.trim().parse().ok().or(self.pid);
        }
        Ok(())
    }

    fn await_end(&mut self, pid: u32) -> Result<(), BenchError> {
        let deadline = Instant::now() + PATIENCE;
        while Path::new("/proc").join(pid.to_string()).exists() {
            if Instant::now() > deadline {
                return Err(BenchError::WrongAnswer { what: format!("process {pid} does not end") });
            }
            std::thread::sleep(POLL);
        }
        if self.pid.is_none()
            && let Some(mut starter) = self.starter.take()
        {
            let _ = starter.wait();
        }
        Ok(())
    }

    fn each_image(&self, act: impl Fn(&File) -> std::io::Result<()>) -> Result<(), BenchError> {
        let wrong = |error| BenchError::io("go through", self.images.display())(error);
        for entry in fs::read_dir(&self.images).map_err(wrong)? {
            let path = entry.map_err(wrong)?.path();
            File::open(&path).and_then(|file| act(&file)).map_err(BenchError::io("treat", path.display()))?;
        }
        Ok(())
    }
}

impl Drop for Criu {
    fn drop(&mut self) {
        if let Some(pid) = self.pid.take() {
            kill(pid);
            let _ = self.await_end(pid);
        }
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        remove_subvolume(&self.volume);
        let _ = fs::remove_dir_all(&self.images);
    }
}

/// Ends a first process, and thereby all others of its namespace.
fn kill(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

fn serve(from: &Path, to: &Path, queue: &Receiver<Job>) {
    let mut ready = enter(from, to);
    for Job { mut command, answer } in queue {
        let result = std::mem::replace(&mut ready, Ok(())).and_then(|()| {
            let begin = Instant::now();
            Ok((command.spawn().map_err(BenchError::io("start", "criu"))?, begin))
        });
        let _ = answer.send(result);
    }
}

fn enter(from: &Path, to: &Path) -> Result<(), BenchError> {
    // SAFETY: only this thread changes its view of the file system; it was created for this and shares no descriptors
    // that depend on it.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS) }
        .map_err(|error| BenchError::io("make a mount namespace for", "criu")(error.into()))?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(|error| BenchError::io("make private", "/")(error.into()))?;
    mount_bind_recursive(from, to).map_err(|error| BenchError::io("bind", from.display())(error.into()))
}

/// The role: becomes PID 1 of `root`, which starts the server.
pub(crate) fn first_process(root: &str) -> ExitCode {
    let error = match settle(root) {
        Ok(()) => {
            let serve = "setsid python3 /root/server.py & while :; do wait; done";
            Command::new("/bin/sh").arg("-c").arg(serve).exec()
        }
        Err(error) => error,
    };
    eprintln!("burrow-bench: could not be the first process in {root}: {error}");
    ExitCode::FAILURE
}

fn settle(root: &str) -> std::io::Result<()> {
    std::env::set_current_dir(root)?;
    mount("proc", "proc", "proc", MountFlags::empty(), NONE)?;
    mount("tmpfs", "run", "tmpfs", MountFlags::empty(), NONE)?;
    rustix::process::pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    std::env::set_current_dir("/")?;
    rustix::process::setsid()?;
    // Standard streams from outside could not be restored.
    let log = File::options().read(true).write(true).create(true).truncate(false).open("/root/log")?;
    rustix::stdio::dup2_stdin(&log)?;
    rustix::stdio::dup2_stdout(&log)?;
    rustix::stdio::dup2_stderr(&log)?;
    // Neither could other descriptors that are inherited from our parent.
    for entry in fs::read_dir("/proc/self/fd")? {
        let Some(number) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if number > 2 {
            // SAFETY: the descriptors are only marked, not closed, and the one of the listed directory is open
            // throughout.
            let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
            fcntl_setfd(descriptor, FdFlags::CLOEXEC)?;
        }
    }
    Ok(())
}
