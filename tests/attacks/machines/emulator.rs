//! The process of a microVM, as seen from the host: it must be as confined after an attack as before; and the host state
//! that a guest could have changed through it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

use crate::ground::{Ground, Sandbox};
use crate::report::{RowFailure, ensure};
use crate::resources::group_files;

/// Uids from here on belong to no user and no service.
const NOBODYS_UIDS: u32 = 100_000;

const NAMESPACES: [&str; 5] = ["pid", "mnt", "net", "ipc", "uts"];

/// The only allowed content of the emulator's root: itself, and the files from which a machine starts.
const ROOT: [&str; 4] = ["qemu", "kernel", "initrd", "ram"];

pub(super) struct Emulator {
    pid: u32,
}

impl Emulator {
    /// The only process in the sandbox's cgroups; `None` if there is no process at all.
    pub(super) fn of(sandbox: &Sandbox<'_>) -> Result<Option<Self>, RowFailure> {
        let groups = group_files(sandbox, "cgroup.procs");
        let members: Vec<&str> = groups.iter().map(|members| members.trim()).collect();
        if members.iter().all(|members| members.is_empty()) {
            return Ok(None);
        }
        let pid = members[0].parse();
        let pid =
            pid.map_err(|_| format!("its cgroups hold {members:?} instead of one process, its emulator"))?;
        ensure(members.iter().all(|other| *other == members[0]), || {
            format!("it is not in all of its cgroups: {members:?}")
        })?;
        Ok(Some(Self { pid }))
    }

    /// Of a running machine.
    pub(super) fn running(sandbox: &Sandbox<'_>) -> Result<Self, RowFailure> {
        Self::of(sandbox)?.ok_or_else(|| RowFailure::Failed("its machine has no emulator".to_owned()))
    }

    fn file(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.pid))
    }

    /// Checks that a guest which breaks out into it gains nothing.
    pub(super) fn confined(&self) -> Result<(), RowFailure> {
        let tasks = fs::read_dir(self.file("task")).map_err(|error| format!("the emulator: {error}"))?;
        let mut looked_at = 0;
        for task in tasks.filter_map(Result::ok) {
            // Threads start and end.
            let Ok(status) = fs::read_to_string(task.path().join("status")) else { continue };
            powerless(&status)?;
            looked_at += 1;
        }
        ensure(looked_at > 0, || "the emulator has no thread".to_owned())?;
        for (name, theirs) in self.namespaces() {
            let own = fs::read_link(format!("/proc/self/ns/{name}")).unwrap();
            ensure(theirs != own, || format!("the emulator is in the host's {name} namespace"))?;
        }
        let root = fs::read_dir(self.file("root")).map_err(|error| format!("its root: {error}"))?;
        for entry in root.filter_map(Result::ok) {
            let name = entry.file_name();
            ensure(ROOT.iter().any(|known| *known == name), || format!("the emulator sees {name:?}"))?;
        }
        Ok(())
    }

    pub(super) fn namespaces(&self) -> BTreeMap<&'static str, PathBuf> {
        let link = |name: &&'static str| Some((*name, fs::read_link(self.file(&format!("ns/{name}"))).ok()?));
        NAMESPACES.iter().filter_map(link).collect()
    }

    pub(super) fn files(&self) -> usize {
        fs::read_dir(self.file("fd")).map_or(0, Iterator::count)
    }

    pub(super) fn resident_mib(&self) -> u64 {
        let status = fs::read_to_string(self.file("status")).unwrap_or_default();
        let kib = field(&status, "VmRSS").and_then(|text| text.trim_end_matches(" kB").parse::<u64>().ok());
        kib.unwrap_or(0) / 1024
    }

    /// Its user and groups on the host.
    pub(super) fn uid(&self) -> u32 {
        let status = fs::read_to_string(self.file("status")).unwrap_or_default();
        let uids = field(&status, "Uid").unwrap_or_default();
        uids.split_whitespace().next().and_then(|uid| uid.parse().ok()).unwrap_or(0)
    }
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
}

/// The status lines of a thread without privileges.
fn powerless(status: &str) -> Result<(), RowFailure> {
    for name in ["Uid", "Gid"] {
        let ids = field(status, name).unwrap_or_default();
        let strangers =
            ids.split_whitespace().filter(|id| id.parse().is_ok_and(|id: u32| id >= NOBODYS_UIDS));
        ensure(strangers.count() == 4, || format!("the emulator's {name} is {ids}"))?;
    }
    for name in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        let held = field(status, name).and_then(|held| u64::from_str_radix(held, 16).ok());
        ensure(held == Some(0), || format!("the emulator's {name} is {held:?}"))?;
    }
    for (name, expected) in [("Groups", ""), ("NoNewPrivs", "1"), ("Seccomp", "2")] {
        let found = field(status, name);
        ensure(found == Some(expected), || format!("the emulator's {name} is {found:?}"))?;
    }
    Ok(())
}

// --- The host

/// Values of the host's kernel that hostile code would like to change.
pub(super) const KNOBS: [&str; 9] = [
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/randomize_va_space",
    "/proc/sys/kernel/sysrq",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/panic_on_oom",
    "/proc/sys/fs/file-max",
    "/proc/sys/net/ipv4/ip_forward",
];

/// The base files of all machines, and the host's state: compared after every row.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Host {
    knobs: Vec<Option<String>>,
    shared: Vec<(PathBuf, u64, SystemTime)>,
}

impl Host {
    fn look(ground: &Ground) -> Self {
        let about = |path: PathBuf| {
            let meta = fs::metadata(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            (path, meta.len(), meta.modified().unwrap())
        };
        Self {
            knobs: KNOBS.iter().map(|path| fs::read_to_string(path).ok()).collect(),
            shared: shared(ground).into_iter().map(about).collect(),
        }
    }
}

/// Programs and kernels that machines start from.
pub(super) fn shared(ground: &Ground) -> Vec<PathBuf> {
    let variable = |name: &str| PathBuf::from(std::env::var_os(name).unwrap());
    let lib = variable("BURROW_TEST_LIB");
    vec![
        // Through the running process: the file of that name may be rebuilt meanwhile.
        PathBuf::from(format!("/proc/{}/exe", ground.daemon.pid())),
        variable("BURROW_TEST_GUEST"),
        lib.join("qemu/run/qemu-system-x86_64"),
        lib.join("vm/vmlinux"),
        ground.daemon.config().with_file_name("run").join("microvm/vm/initrd"),
    ]
}

static BEFORE: OnceLock<Host> = OnceLock::new();

/// Records the state of the host before the first row.
pub(super) fn remember(ground: &Ground) {
    assert!(BEFORE.set(Host::look(ground)).is_ok(), "the host is looked at once");
}

/// After every row, while its sandbox still exists.
pub(super) fn aftermath(sandbox: &Sandbox<'_>) -> Result<(), RowFailure> {
    // A row may have deleted its sandbox, or left it stopped: then there must be no process.
    let state = sandbox.ask("GET", "").json()["state"].as_str().map(str::to_owned);
    match Emulator::of(sandbox)? {
        Some(emulator) => emulator.confined()?,
        None => ensure(state.as_deref() != Some("running"), || {
            "it is said to run, and has no emulator".to_owned()
        })?,
    }
    let (before, after) = (BEFORE.get().expect("the suite looks first"), Host::look(sandbox.ground));
    ensure(*before == after, || format!("the host has changed from {before:?} to {after:?}"))
}

/// Whether the host's kernel wrote this to its log.
pub(super) fn host_logged(mark: &str) -> bool {
    let mut command = std::process::Command::new("dmesg");
    let log = crate::controls::run(&mut command);
    assert!(log.ok(), "the host's log cannot be read: {log:?}");
    log.out.contains(mark)
}

/// The mounts of this host, except for those of daemons under test, which are mounted and unmounted at the same time:
/// their paths contain our name.
pub(super) struct Mounts(Vec<String>);

impl Mounts {
    pub(super) fn now() -> Self {
        let info = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let places = info.lines().filter_map(|line| line.split(' ').nth(4));
        Self(places.filter(|place| !place.contains("burrow")).map(str::to_owned).collect())
    }

    pub(super) fn are_as_they_were(&self) -> Result<(), RowFailure> {
        let Self(now) = Self::now();
        ensure(self.0 == now, || format!("the host's mounts were {:?} and are {now:?}", self.0))
    }
}

/// The names in a folder of the host, sorted.
pub(super) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().filter_map(Result::ok);
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
