//! The runtime directory of microVMs: the sockets of each machine, and its state.
//!
//! ```text
//!   <run_dir>/vm/initrd            the initramfs that machines boot with
//!   <run_dir>/vm/root              empty: mount point for the root directories of emulators
//!   <run_dir>/vm/trial             result of the trial boot with KVM
//!   <run_dir>/vm/<sandbox>/qmp     the emulator listens
//!   <run_dir>/vm/<sandbox>/agent   serial port of the machine's first process, provided by the emulator
//!   <run_dir>/vm/<sandbox>/state   the state that another daemon needs
//! ```

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use burrow_model::{Limits, SandboxId};
use serde::{Deserialize, Serialize};

use super::model::Model;

/// The sockets of a machine.
#[derive(Clone, Copy, Debug)]
pub(super) enum Socket {
    Qmp,
    Agent,
}

impl Socket {
    fn name(self) -> &'static str {
        match self {
            Self::Qmp => "qmp",
            Self::Agent => "agent",
        }
    }
}

/// The state of a machine that the next daemon needs too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) model: Model,
    pub(super) ram_mib: u32,
    pub(super) cpu_millis: u32,
    pub(super) pids: u32,
    /// The size of its disk, as known to the machine.
    pub(super) disk_mib: u32,
    /// The rate limit of its disk while it runs, in bytes per second.
    #[serde(default)]
    pub(super) disk_rate: Option<u64>,
    /// Set after a restore, until the machine has received the current time and its identity.
    pub(super) unsettled: Option<UnsettledState>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UnsettledState {
    pub(super) hostname: Option<String>,
}

impl State {
    pub(super) fn new(model: Model, limits: &Limits) -> Self {
        let Limits { ram_mib, cpu_millis, pids, disk_mib } = *limits;
        Self { model, ram_mib, cpu_millis, pids, disk_mib, disk_rate: None, unsettled: None }
    }

    pub(super) fn set_limits(&mut self, limits: &Limits) {
        (self.ram_mib, self.cpu_millis, self.pids) = (limits.ram_mib, limits.cpu_millis, limits.pids);
    }
}

#[derive(Serialize, Deserialize)]
struct Trial {
    of: String,
    failure: Option<String>,
}

impl Trial {
    /// Identifies the QEMU and kernel that were tried, and the boot of the host.
    fn of(emulator: &str, kernel: &Path) -> Option<String> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let changed = fs::metadata(kernel.join("vmlinux")).ok()?.modified().ok()?;
        Some(format!("{} {emulator} {changed:?}", boot.trim()))
    }
}

#[derive(Debug)]
pub(super) struct RunDir {
    directory: PathBuf,
}

impl RunDir {
    pub(super) fn open(run_dir: &Path) -> io::Result<Self> {
        let directory = run_dir.join("vm");
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory.join("root"))?;
        Ok(Self { directory })
    }

    /// The directory on which emulators mount their roots, each in its own mount namespace.
    pub(super) fn root(&self) -> PathBuf {
        self.directory.join("root")
    }

    pub(super) fn initrd(&self) -> PathBuf {
        self.directory.join("initrd")
    }

    /// Written to a temporary file and renamed: a machine may be starting with the earlier one.
    pub(super) fn write_initrd(&self, content: &[u8]) -> io::Result<()> {
        let fresh = self.directory.join(format!("initrd.{}", std::process::id()));
        fs::write(&fresh, content)?;
        // Read by the uids of the emulators; the directory is closed to all other users.
        fs::set_permissions(&fresh, fs::Permissions::from_mode(0o444))?;
        fs::rename(&fresh, self.initrd())
    }

    /// The result of the trial boot with KVM since the host was started, with this emulator and this kernel.
    pub(super) fn trial(&self, emulator: &str, kernel: &Path) -> Option<Result<(), String>> {
        let noted: Trial = serde_json::from_slice(&fs::read(self.directory.join("trial")).ok()?).ok()?;
        (noted.of == Trial::of(emulator, kernel)?).then_some(noted.failure.map_or(Ok(()), Err))
    }

    pub(super) fn note_trial(
        &self,
        emulator: &str,
        kernel: &Path,
        came_to: &Result<(), String>,
    ) -> io::Result<()> {
        let Some(of) = Trial::of(emulator, kernel) else { return Ok(()) };
        let trial = Trial { of, failure: came_to.clone().err() };
        fs::write(self.directory.join("trial"), serde_json::to_vec(&trial)?)
    }

    /// An empty directory for a machine.
    pub(super) fn make(&self, id: &SandboxId) -> io::Result<()> {
        self.remove(id)?;
        fs::DirBuilder::new().mode(0o700).create(self.of(id))
    }

    pub(super) fn listen(&self, id: &SandboxId, socket: Socket) -> io::Result<UnixListener> {
        self.by_descriptor(id, socket, |path| UnixListener::bind(path))
    }

    pub(super) fn connect(&self, id: &SandboxId, socket: Socket) -> io::Result<UnixStream> {
        self.by_descriptor(id, socket, |path| UnixStream::connect(path))
    }

    pub(super) fn write_state(&self, id: &SandboxId, state: &State) -> io::Result<()> {
        let (fresh, place) = (self.of(id).join("state.new"), self.of(id).join("state"));
        fs::write(&fresh, serde_json::to_vec(state)?)?;
        fs::rename(fresh, place)
    }

    pub(super) fn state(&self, id: &SandboxId) -> io::Result<State> {
        Ok(serde_json::from_slice(&fs::read(self.of(id).join("state"))?)?)
    }

    pub(super) fn remove(&self, id: &SandboxId) -> io::Result<()> {
        match fs::remove_dir_all(self.of(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The sandboxes that have a directory here.
    pub(super) fn inventory(&self) -> io::Result<Vec<SandboxId>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            found.extend(entry?.file_name().to_str().and_then(|name| name.parse::<SandboxId>().ok()));
        }
        Ok(found)
    }

    /// The path of a socket may be at most a hundred bytes long, and that of a run directory may be longer.
    fn by_descriptor<T>(
        &self,
        id: &SandboxId,
        socket: Socket,
        act: impl FnOnce(&str) -> io::Result<T>,
    ) -> io::Result<T> {
        let directory = File::open(self.of(id))?;
        act(&format!("/proc/self/fd/{}/{}", directory.as_raw_fd(), socket.name()))
    }

    fn of(&self, id: &SandboxId) -> PathBuf {
        self.directory.join(id.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::microvm::model::Accelerator;

    #[test]
    fn a_trial_is_valid_for_its_emulator_and_kernel_only() {
        let directory = tempfile::tempdir().unwrap();
        let run_dir = RunDir::open(directory.path()).unwrap();
        let kernel = directory.path().join("kernel");
        fs::create_dir(&kernel).unwrap();
        fs::write(kernel.join("vmlinux"), "1").unwrap();
        assert_eq!(run_dir.trial("10", &kernel), None);
        for came_to in [Err("it hung".to_owned()), Ok(())] {
            run_dir.note_trial("10", &kernel, &came_to).unwrap();
            assert_eq!(run_dir.trial("10", &kernel), Some(came_to));
        }
        assert_eq!(run_dir.trial("11", &kernel), None);
        let later = fs::File::options().write(true).open(kernel.join("vmlinux")).unwrap();
        later.set_modified(std::time::UNIX_EPOCH).unwrap();
        assert_eq!(run_dir.trial("10", &kernel), None);
    }

    #[test]
    fn the_state_of_a_machine_is_kept_until_it_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let long = directory.path().join("x".repeat(120));
        let run_dir = RunDir::open(&long).unwrap();
        let id = SandboxId::generate();
        run_dir.make(&id).unwrap();
        let listener = run_dir.listen(&id, Socket::Qmp).unwrap();
        let limits = Limits { ram_mib: 64, cpu_millis: 1000, pids: 7, disk_mib: 9 };
        let mut state = State::new(Model::new(&limits, Accelerator::Emulation, 5), &limits);
        state.unsettled = Some(UnsettledState { hostname: Some("box".to_owned()) });
        run_dir.write_state(&id, &state).unwrap();

        let next = RunDir::open(&long).unwrap();
        assert_eq!(next.inventory().unwrap(), std::slice::from_ref(&id));
        assert_eq!(next.state(&id).unwrap(), state);
        next.connect(&id, Socket::Qmp).unwrap();
        listener.accept().unwrap();
        for _ in 0..2 {
            next.remove(&id).unwrap();
        }
        assert_eq!(next.inventory().unwrap(), []);
    }
}
