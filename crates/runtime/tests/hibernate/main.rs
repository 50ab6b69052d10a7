//! Machines of the container driver written to disk and brought back, by the real CRIU. Needs root, and CRIU 4.2 or newer;
//! those with programs of a distribution also the test pool (`scripts/test.sh` makes it).

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod cut;
mod fail;
mod first;
mod ids;
mod kept_or_named;
mod programs;
mod stopped;
#[path = "../support/mod.rs"]
mod support;
mod survive;
mod volumes;

use std::path::{Path, PathBuf};

use burrow_model::{Limits, SandboxId};
use burrow_runtime::{DumpOptions, Dumped, Machine, RestoreOptions, Runtime as _, RuntimeError};
use support::{Host, Plot, later};

/// Room for what the tests hold in RAM.
const LIMITS: Limits = Limits { ram_mib: 512, cpu_millis: 2000, pids: 64, disk_mib: 256 };

/// A dump, and where it is.
struct Kept {
    images: PathBuf,
    dumped: Dumped,
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
) -> Result<Dumped, RuntimeError> {
    let (machine, root, images) = (machine.clone(), plot.root.clone(), images.to_owned());
    host.runtime.dump(&plot.id, DumpOptions { machine, root, images, mounts: Vec::new() }).await
}

async fn dump(host: &Host, plot: &Plot, machine: &Machine) -> Kept {
    let images = host.images();
    let dumped = try_dump(host, plot, machine, &images).await.unwrap_or_else(|error| panic!("{error}"));
    assert!(host.is_frozen(&plot.id), "a dump leaves the machine paused");
    Kept { images, dumped }
}

/// How a dump is restored as it was, with a loopback interface.
fn plainly(plot: &Plot, kept: &Kept) -> RestoreOptions {
    RestoreOptions {
        root: plot.root.clone(),
        images: kept.images.clone(),
        about: kept.dumped.about.clone(),
        attachment: later(),
        limits: LIMITS,
        hostname: None,
        mounts: Vec::new(),
        introduce: None,
    }
}

async fn restore(host: &Host, plot: &Plot, options: RestoreOptions) -> Machine {
    let machine = host.runtime.restore(&plot.id, options).await.unwrap_or_else(|error| panic!("{error}"));
    assert!(host.is_frozen(&plot.id), "a restore leaves the machine paused");
    machine
}

/// Nothing of a sandbox is left on the host, and the driver knows nothing of it.
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
