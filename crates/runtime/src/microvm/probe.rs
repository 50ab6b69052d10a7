//! Finds out by trials what this host supports.
//!
//! That `/dev/kvm` opens proves nothing: on some hosts that are virtual machines themselves, a guest's kernel hangs
//! there. So a machine is booted that ends itself at once.

use std::collections::HashMap;
use std::error::Error;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use burrow_model::{Limits, SandboxId};
use serde_json::json;

use super::boot::EmulatorParts;
use super::compatibility::HostProperties;
use super::model::{self, Accelerator, Model};
use super::options::Options;
use super::qmp::Qmp;
use super::run_dir::{RunDir, Socket};
use super::shared_state::Shared;
use super::{clock, initramfs};
use crate::cgroup::Layout;
use crate::container::probe::{cgroups, no};
use crate::launcher::Launcher;
use crate::{Ability, Capabilities, RuntimeError};

/// Older versions cannot prevent machines from writing to the RAM that they share.
const QEMU_MIN: u32 = 10;

const FIX: Option<&str> = Some("scripts/get-qemu.sh");
/// A microVM has a disk, and no other access to files: a shared directory would expose host code to the guest's kernel.
const NO_VOLUMES: &str = "a microVM has its own disk and cannot mount directories of the host";
const TUN: &str = "/dev/net/tun";
const KVM: &str = "/dev/kvm";

/// With KVM, the trial takes a third of a second.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(5);
const EMULATED_TRIAL_TIMEOUT: Duration = Duration::from_secs(120);
const TRIAL_LOOK_EVERY: Duration = Duration::from_millis(10);

/// How machines are executed on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acceleration {
    pub accelerator: Accelerator,
    /// The reason, for users who want to know why their machines are slow.
    pub reason: String,
}

/// The state of a driver on this host, what it can do here, and how its machines are executed.
pub(super) fn open(options: Options) -> Result<(Shared, Capabilities, Acceleration), RuntimeError> {
    let run_dir = RunDir::open(&options.run_dir)
        .map_err(|source| RuntimeError::Host { step: "create the directory of microVMs", source })?;
    let (HostTools { emulator, booted_with }, found) = match look(&options, &run_dir) {
        Ok(found) => (found, Ability::Yes),
        Err(lack) => (HostTools::default(), lack),
    };
    // On a host that cannot run machines nothing is created, unless machines exist from an earlier time.
    let (groups, limits) = match found == Ability::Yes || cgroup_exists(&options.cgroup_parent) {
        true => cgroups(&options.cgroup_parent),
        false => (None, found.clone()),
    };
    let available =
        [found, limits.clone()].into_iter().find(|ability| *ability != Ability::Yes).unwrap_or(Ability::Yes);
    let tsc_khz = clock::tsc_khz();
    let mut shared = Shared {
        launcher: Launcher::new(options.launcher),
        qemu: options.qemu,
        kernel: options.kernel,
        groups,
        run_dir,
        booted_with,
        here: HostProperties {
            emulator,
            processor: processor(),
            accelerator: Accelerator::Emulation,
            tsc_khz,
        },
        links: Mutex::new(HashMap::new()),
    };
    let acceleration = match (options.accelerator, &available) {
        (Some(accelerator), _) => {
            Acceleration { accelerator, reason: "the configuration says so".to_owned() }
        }
        (None, Ability::Yes) => shared.accelerate(),
        (None, Ability::No { reason, .. }) => {
            Acceleration { accelerator: Accelerator::Emulation, reason: reason.clone() }
        }
    };
    shared.here.accelerator = acceleration.accelerator;
    let (by, slowly) = match acceleration.accelerator {
        Accelerator::Kvm => ("KVM", ""),
        Accelerator::Emulation => ("emulation", ", ten to thirty times slower"),
    };
    let capabilities = Capabilities {
        pause: available.clone(),
        hibernate: available.clone(),
        volumes: no(NO_VOLUMES, None),
        // Emulated machines are isolated as well, but they should not be chosen automatically.
        isolates_by_hardware: acceleration.accelerator == Accelerator::Kvm && available == Ability::Yes,
        note: Some(format!("machines run by {by}{slowly}: {}", acceleration.reason)),
        disk_rate: available.clone(),
        available,
        limits,
    };
    Ok((shared, capabilities, acceleration))
}

/// Whether any cgroup tree has this directory.
fn cgroup_exists(cgroup_parent: &str) -> bool {
    Layout::detect().is_ok_and(|layout| layout.trees().iter().any(|tree| tree.join(cgroup_parent).exists()))
}

/// The tools to create machines on this host.
#[derive(Default)]
struct HostTools {
    /// QEMU's version.
    emulator: String,
    /// Identifies the kernel and the agent that machines boot with.
    booted_with: String,
}

/// A usable QEMU and everything else that machines need; else what is missing.
fn look(options: &Options, run_dir: &RunDir) -> Result<HostTools, Ability> {
    if std::env::consts::ARCH != "x86_64" {
        return Err(no(format!("microVMs run on x86_64 only, and this is {}", std::env::consts::ARCH), None));
    }
    let emulator = qemu_version(&options.qemu)?;
    for file in ["vmlinux", "modules/order"] {
        let path = options.kernel.join(file);
        if !path.exists() {
            return Err(no(format!("kernel for microVMs not found at `{}`", path.display()), FIX));
        }
    }
    if !Path::new(TUN).exists() {
        return Err(no(
            "the kernel of this host lacks `tun` (network interfaces for microVMs)",
            Some("modprobe tun"),
        ));
    }
    let built =
        initramfs::build(&options.guest_binary, &options.kernel.join("modules")).and_then(|content| {
            run_dir.write_initrd(&content)?;
            let kernel = fs::metadata(options.kernel.join("vmlinux"))?;
            let changed = kernel.modified()?.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            Ok(model::short_hash(&[&content, &kernel.len().to_le_bytes(), &changed.as_nanos().to_le_bytes()]))
        });
    let unmade = |error| no(format!("could not create the initramfs of microVMs: {error}"), None);
    Ok(HostTools { emulator, booted_with: built.map_err(unmade)? })
}

fn qemu_version(prefix: &Path) -> Result<String, Ability> {
    let (loader, program) = (prefix.join("lib/loader"), prefix.join("run/qemu-system-x86_64"));
    if !program.exists() {
        return Err(no(format!("QEMU is not installed at `{}`", prefix.display()), FIX));
    }
    let run = Command::new(loader)
        .arg("--library-path")
        .arg(prefix.join("lib"))
        .arg(program)
        .arg("--version")
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .output();
    let output = run.map_err(|error| no(format!("QEMU does not run: {error}"), FIX))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = version(&text).unwrap_or_default();
    match version.split('.').next().and_then(|major| major.parse::<u32>().ok()) {
        Some(major) if major >= QEMU_MIN => Ok(version.to_owned()),
        Some(_) => Err(no(format!("QEMU {version} is too old: {QEMU_MIN} or newer is needed"), FIX)),
        None => Err(no(format!("QEMU at `{}` does not report its version", prefix.display()), FIX)),
    }
}

/// `10.0.13` of `QEMU emulator version 10.0.13 (Debian …)`.
fn version(text: &str) -> Option<&str> {
    text.lines().next()?.strip_prefix("QEMU emulator version ")?.split_whitespace().next()
}

/// The processor's model name and features.
fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = |name: &str| {
        let found = text.lines().find(|line| line.starts_with(name));
        found.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
    };
    let name = line("model name").unwrap_or_default();
    let abilities = line("flags").unwrap_or_default();
    format!("{name}; {abilities}")
}

pub(super) fn open_kvm() -> io::Result<File> {
    File::options().read(true).write(true).open(KVM)
}

impl Shared {
    fn accelerate(&self) -> Acceleration {
        let emulated = |reason: String| Acceleration { accelerator: Accelerator::Emulation, reason };
        let kvm = match open_kvm() {
            Ok(kvm) => kvm,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return emulated("this host has no KVM".to_owned());
            }
            Err(error) => return emulated(format!("`{KVM}` does not open: {error}")),
        };
        drop(kvm);
        // A trial that hangs costs seconds, and has the same result until the host, its kernel or QEMU changes.
        let tried = match self.run_dir.trial(&self.here.emulator, &self.kernel) {
            Some(tried) => tried,
            None => {
                let tried = self.trial(Accelerator::Kvm);
                if let Err(error) = self.run_dir.note_trial(&self.here.emulator, &self.kernel, &tried) {
                    tracing::warn!(%error, "could not store the result of the KVM trial boot");
                }
                tried
            }
        };
        match tried {
            Ok(()) => {
                Acceleration { accelerator: Accelerator::Kvm, reason: "a trial boot succeeded".to_owned() }
            }
            Err(reason) => emulated(format!("this host has KVM, but a trial boot with it failed: {reason}")),
        }
    }

    /// Boots a machine without any device, whose first process ends it.
    pub(super) fn trial(&self, accelerator: Accelerator) -> Result<(), String> {
        let id = SandboxId::generate();
        let tried = self.try_trial(&id, accelerator);
        self.clean_up(&id);
        tried.unwrap_or_else(|error| Err(error.to_string()))
    }

    fn try_trial(
        &self,
        id: &SandboxId,
        accelerator: Accelerator,
    ) -> Result<Result<(), String>, Box<dyn Error>> {
        let limits = Limits { ram_mib: 64, cpu_millis: 1000, pids: 64, disk_mib: 1 };
        let model = Model::new(&limits, accelerator, self.here.tsc_khz);
        let group = self.group(id)?;
        group.create()?;
        group.set_limits(&model.emulator_limits(&limits))?;
        self.run_dir.make(id)?;
        let qmp = self.run_dir.listen(id, Socket::Qmp)?;
        let nothing = File::options().read(true).write(true).open("/dev/null")?;
        let (kvm, timeout) = match accelerator {
            Accelerator::Kvm => (open_kvm()?, TRIAL_TIMEOUT),
            Accelerator::Emulation => (nothing.try_clone()?, EMULATED_TRIAL_TIMEOUT),
        };
        let given = [qmp.as_fd(), nothing.as_fd(), nothing.as_fd(), nothing.as_fd(), kvm.as_fd()];
        let parts =
            EmulatorParts { model: &model, limits: &limits, disk: &nothing, plug: &NoPlug, ram: None };
        let (_, said) = self.emulate(id, &group, model.trial_command(), &parts, &given)?;
        drop(qmp);
        let mut connected = match self.run_dir.connect(id, Socket::Qmp).and_then(Qmp::open) {
            Ok(connected) => connected,
            Err(error) => return Ok(Err(said.or(&error))),
        };
        let until = Instant::now() + timeout;
        while Instant::now() < until {
            // It ends by itself, which closes the connection.
            if connected.run("query-status", json!({})).is_err() {
                return Ok(Ok(()));
            }
            std::thread::sleep(TRIAL_LOOK_EVERY);
        }
        Ok(Err(format!("the guest's kernel did not boot within {} s", timeout.as_secs())))
    }
}

/// For a machine without a network interface.
#[derive(Debug)]
pub(super) struct NoPlug;

impl burrow_network::Plug for NoPlug {
    fn plug(&self, _: std::os::fd::BorrowedFd<'_>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_parsed_and_a_missing_qemu_names_its_fix() {
        let text = "QEMU emulator version 10.0.13 (Debian 1:10.0.13+ds-0+deb13u1)\nCopyright (c)";
        assert_eq!(version(text), Some("10.0.13"));
        assert_eq!(version("hello"), None);
        let Err(Ability::No { reason, fix }) = qemu_version(Path::new("/nonexistent")) else {
            panic!("expected a no")
        };
        assert_eq!((reason.as_str(), fix.as_deref()), ("QEMU is not installed at `/nonexistent`", FIX));
    }
}
