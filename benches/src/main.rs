//! `burrow-bench`: measures the promised figures, each compared with a peer or a baseline in the same run.
//!
//! Every figure gets its own daemon (state, pool folder, cgroup, port), so that it is not affected by the RAM use or
//! remains of another. Peers are measured alternately with Burrow, because noise on a machine affects both. A missed
//! target is reported, never asserted: the exit code is 0 unless an error occurred.

mod criu;
mod crun;
mod daemon;
mod error;
mod figures;
mod inventory;
mod machine;
mod namespace;
mod nginx;
mod null_device;
mod process;
mod report;
mod samples;
mod sshd;
mod tiny_server;
mod wire;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use crate::daemon::BenchSetup;
use crate::error::BenchError;
use crate::figures::{Group, Scale};
use crate::report::Report;

/// Measures Burrow's figures on this machine.
#[derive(Debug, Parser)]
#[command(name = "burrow-bench", version)]
struct Arguments {
    /// The program to measure; a release build.
    #[arg(long, value_name = "PATH")]
    burrow: PathBuf,
    /// The guest agent to measure.
    #[arg(long, value_name = "PATH")]
    guest: PathBuf,
    /// A mounted btrfs pool with `template/images/` and `template/catalog.db`, as `scripts/test-pool.sh` makes it.
    #[arg(long, value_name = "PATH", env = "BURROW_TEST_POOL")]
    pool: PathBuf,
    /// The nginx to compare with; the one in PATH by default.
    #[arg(long, value_name = "PATH")]
    nginx: Option<PathBuf>,
    /// OpenSSH's server, to compare with; the one in PATH by default.
    #[arg(long, value_name = "PATH")]
    sshd: Option<PathBuf>,
    /// The `criu` that daemons use, and to compare with; the one in PATH by default.
    #[arg(long, value_name = "PATH", env = "BURROW_CRIU")]
    criu: Option<PathBuf>,
    /// A Python with `chromadb`, to compare memory with; without it, that comparison is skipped.
    #[arg(long, value_name = "PATH")]
    chroma: Option<PathBuf>,
    /// mitmproxy's `mitmdump`, to compare interception with; without it, that comparison is skipped.
    #[arg(long, value_name = "PATH")]
    mitmdump: Option<PathBuf>,
    /// A Python with `e2b` and `mcp`, to measure their latency; skipped by default.
    #[arg(long, value_name = "PATH")]
    clients: Option<PathBuf>,
    /// A folder with QEMU (`qemu`) and a kernel for microVMs (`vm`); without it, microVMs are skipped.
    #[arg(long, value_name = "PATH", env = "BURROW_TEST_LIB")]
    lib: Option<PathBuf>,
    /// A file of LoCoMo with questions for memory; without it, recall is skipped.
    #[arg(long, value_name = "PATH", env = "LOCOMO")]
    locomo: Option<PathBuf>,
    /// A folder with the ONNX files of all-MiniLM-L6-v2, to measure recall with it too.
    #[arg(long, value_name = "PATH", env = "MINILM")]
    minilm: Option<PathBuf>,
    /// The folder for the state of daemons. Not on tmpfs, where syncing a catalog costs nothing.
    #[arg(long, value_name = "PATH", default_value = "/var/tmp")]
    state: PathBuf,
    /// The path of the JSON report.
    #[arg(long, value_name = "PATH", default_value = "target/bench/foundation.json")]
    output: PathBuf,
    /// Few samples: checks that everything works, without meaningful figures.
    #[arg(long)]
    quick: bool,
    /// Only these groups of figures.
    #[arg(long, value_name = "GROUP")]
    only: Vec<Group>,
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let (role, about) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    match role.as_str() {
        tiny_server::ROLE => return tiny_server::main(&about),
        criu::ROLE => return criu::first_process(&about),
        _ => {}
    }
    let arguments = Arguments::parse();
    // One thread: a request then wakes only the daemon, and the client uses at most one core.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("burrow-bench: could not start: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run(&arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("burrow-bench: {}", error::chain(&error));
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments) -> Result<(), BenchError> {
    null_device::check_untouched()?;
    let prepared = BenchSetup::find(arguments)?;
    let scale = if arguments.quick { Scale::QUICK } else { Scale::FULL };
    let mut report = Report::begin(&prepared, arguments.quick);
    let groups = if arguments.only.is_empty() { Group::ALL.to_vec() } else { arguments.only.clone() };
    // Figures that were measured before an error are shown all the same.
    let measured = measure(&groups, &prepared, &scale, &mut report).await;
    report.finish();
    report.write(&arguments.output)?;
    report.print().map_err(BenchError::io("print", "the table"))?;
    measured
}

async fn measure(
    groups: &[Group],
    prepared: &BenchSetup,
    scale: &Scale,
    report: &mut Report,
) -> Result<(), BenchError> {
    for group in groups {
        eprintln!("measuring: {}", group.describe());
        // When interrupted, we still remove what this group created: its owners are dropped on return.
        let figures = tokio::select! {
            figures = group.measure(prepared, scale) => figures,
            _ = tokio::signal::ctrl_c() => Err(BenchError::Interrupted),
        };
        null_device::check_untouched()?;
        for figure in figures? {
            report.add(figure);
        }
    }
    Ok(())
}
