//! Dumps and restores of the container driver's machines, with the real CRIU. Needs root, and CRIU 4.2 or newer; tests
//! with programs of a distribution also need the test pool (`scripts/test.sh` creates it).

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod criu_killed;
mod difficult_state;
mod fail;
mod ids;
mod interrupted;
mod introduction;
mod programs;
mod sleeps;
mod stopped;
#[path = "../support/mod.rs"]
mod support;
mod survive;
mod trial;
mod volumes;

use std::path::{Path, PathBuf};

use burrow_model::{Limits, SandboxId};
use burrow_runtime::{DumpInfo, DumpOptions, Machine, RestoreOptions, Runtime as _, RuntimeError};
use support::{Host, Plot, later};

/// Enough RAM for the tests.
const LIMITS: Limits = Limits { ram_mib: 512, cpu_millis: 2000, pids: 64, disk_mib: 256 };

/// A dump, and its directory.
struct StoredDump {
    images: PathBuf,
    dumped: DumpInfo,
}

async fn boot(host: &Host, plot: &Plot, commands: &[&str]) -> Machine {
    let machine =
        host.runtime.boot(&plot.id, support::options(plot, LIMITS, commands)).await.expect("a machine boots");
    support::await_counting(plot);
    machine
}

async fn try_dump(
    host: &Host,
    plot: &Plot,
    machine: &Machine,
    images: &Path,
) -> Result<DumpInfo, RuntimeError> {
    let (machine, root, images) = (machine.clone(), plot.root.clone(), images.to_owned());
    host.runtime.dump(&plot.id, DumpOptions { machine, root, images, mounts: Vec::new() }).await
}

async fn dump(host: &Host, plot: &Plot, machine: &Machine) -> StoredDump {
    let images = host.images();
    let dumped = try_dump(host, plot, machine, &images).await.unwrap_or_else(|error| panic!("{error}"));
    assert!(host.is_frozen(&plot.id), "a dump leaves the machine paused");
    StoredDump { images, dumped }
}

/// Restores a dump as it was, with a loopback interface.
fn plainly(plot: &Plot, kept: &StoredDump) -> RestoreOptions {
    RestoreOptions {
        root: plot.root.clone(),
        images: kept.images.clone(),
        about: kept.dumped.about.clone(),
        attachment: later(),
        limits: LIMITS,
        hostname: None,
        mounts: Vec::new(),
        introduce: None,
        trial: false,
    }
}

async fn restore(host: &Host, plot: &Plot, options: RestoreOptions) -> Machine {
    let machine = host.runtime.restore(&plot.id, options).await.unwrap_or_else(|error| panic!("{error}"));
    assert!(host.is_frozen(&plot.id), "a restore leaves the machine paused");
    machine
}

/// Checks that nothing of a sandbox is left on the host, and the driver does not know it.
async fn assert_nothing_left(host: &Host, id: &SandboxId) {
    assert!(!host.runtime.inventory().await.unwrap().contains(id));
    for tree in support::trees() {
        for name in [host.group(id), format!("{}.aside", host.group(id))] {
            assert!(!tree.join(&name).exists(), "{name}");
        }
    }
    assert!(!host.directory.path().join("run/criu").join(id.as_str()).exists());
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(id.as_str()), "{mounts}");
}
