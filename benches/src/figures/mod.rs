//! The figures, in groups that share a set-up.

mod audit;
mod code;
mod create;
mod egress;
mod exec;
mod files;
mod gateway;
mod idle;
mod import;
mod interception;
mod load;
mod memory;
mod merge;
mod microvm;
mod moving;
mod pause;
mod restart;
mod sleep;
mod ssh;
mod surfaces;
mod upstream;

use std::future::Future;

use burrow_api::{CreateExec, CreateSandbox, RunResult};
use burrow_client::Client;
use clap::ValueEnum;

use crate::daemon::{BenchSetup, Daemon, Kind};
use crate::error::BenchError;
use crate::report::Figure;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Group {
    Create,
    Exec,
    Pause,
    Files,
    Idle,
    Restart,
    Load,
    Gateway,
    Import,
    Moving,
    Egress,
    Interception,
    Snapshot,
    Sleep,
    Sleepers,
    Merge,
    Recall,
    Memory,
    Audit,
    Surfaces,
    Ssh,
    Code,
    Microvm,
}

/// The number of measurements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) creates: u32,
    pub(crate) execs: u32,
    pub(crate) pauses: u32,
    pub(crate) file_mib: usize,
    pub(crate) file_rounds: u32,
    pub(crate) idle_sandboxes: u32,
    pub(crate) lists: u32,
    pub(crate) restarts: u32,
    pub(crate) load_creates: u32,
    pub(crate) load_requests: u32,
    pub(crate) import_rounds: u32,
    pub(crate) gateway_requests: u32,
    pub(crate) egress_connections: u32,
    pub(crate) sleep_files: usize,
    pub(crate) sleep_mib: usize,
    pub(crate) snapshots: u32,
    pub(crate) forks: u32,
    pub(crate) dumps: u32,
    pub(crate) broods: u32,
    pub(crate) sleepers: u32,
    pub(crate) memory_small: usize,
    pub(crate) memory_large: usize,
    pub(crate) memory_samples: usize,
    pub(crate) audit_events: u64,
    pub(crate) audit_verified: u64,
    pub(crate) clients: u32,
}

impl Scale {
    /// The targets of the figures.
    pub(crate) const FULL: Self = Self {
        creates: 50,
        execs: 200,
        pauses: 200,
        file_mib: 1024,
        file_rounds: 5,
        idle_sandboxes: 200,
        lists: 200,
        restarts: 10,
        load_creates: 200,
        load_requests: 20_000,
        import_rounds: 7,
        gateway_requests: 80_000,
        egress_connections: 1_000,
        sleep_files: 100_000,
        sleep_mib: 2048,
        snapshots: 30,
        forks: 20,
        dumps: 15,
        broods: 5,
        sleepers: 1_000,
        memory_small: 100_000,
        memory_large: 1_000_000,
        memory_samples: 300,
        audit_events: 100_000,
        audit_verified: 1_000_000,
        clients: 100,
    };
    pub(crate) const QUICK: Self = Self {
        creates: 5,
        execs: 10,
        pauses: 10,
        file_mib: 64,
        file_rounds: 2,
        idle_sandboxes: 10,
        lists: 20,
        restarts: 2,
        load_creates: 16,
        load_requests: 400,
        import_rounds: 2,
        gateway_requests: 1_600,
        egress_connections: 50,
        sleep_files: 5_000,
        sleep_mib: 100,
        snapshots: 5,
        forks: 4,
        dumps: 2,
        broods: 1,
        sleepers: 100,
        memory_small: 2_000,
        memory_large: 5_000,
        memory_samples: 20,
        audit_events: 5_000,
        audit_verified: 20_000,
        clients: 10,
    };
}

impl Group {
    pub(crate) const ALL: [Self; 23] = [
        Self::Create,
        Self::Exec,
        Self::Pause,
        Self::Files,
        Self::Idle,
        Self::Restart,
        Self::Load,
        Self::Gateway,
        Self::Import,
        Self::Moving,
        Self::Egress,
        Self::Interception,
        Self::Snapshot,
        Self::Sleep,
        Self::Sleepers,
        Self::Merge,
        Self::Recall,
        Self::Memory,
        Self::Audit,
        Self::Surfaces,
        Self::Ssh,
        Self::Code,
        Self::Microvm,
    ];

    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Create => "create to the first exec's output, against crun run",
            Self::Exec => "exec on a kept-alive connection, against crun exec",
            Self::Pause => "pause and resume",
            Self::Files => "file read and write, against cat through a pipe",
            Self::Idle => "many idle sandboxes",
            Self::Restart => "starting after a kill with many sandboxes, against a start with none",
            Self::Load => "many clients at once",
            Self::Import => "image import, against tar x",
            Self::Moving => "export of a sandbox, against tar and zstd; and of what changed in it",
            Self::Egress => "the way out of a sandbox, against a direct one",
            Self::Interception => "requests that get a secret on their way out, against mitmproxy",
            Self::Snapshot => "snapshot and fork without processes",
            Self::Sleep => "sleep, wake, snapshot and fork with processes, against criu",
            Self::Sleepers => "many sleeping sandboxes",
            Self::Merge => "diff and merge of forks, against diff and cp",
            Self::Recall => "what memory finds again, of the conversations that `LOCOMO` names",
            Self::Memory => "memory at a hundred thousand and a million entries, against chromadb",
            Self::Audit => "the audit log: durable events per second, verifying a million",
            Self::Gateway => "HTTP into a sandbox, against nginx",
            Self::Ssh => "logging in over SSH and sftp, against OpenSSH's own server",
            Self::Code => "code in a context that is there, against jupyter_client",
            Self::Surfaces => "E2B's, MCP's and our own clients, against a bare request",
            Self::Microvm => "microVMs, against a boot and against QEMU alone",
        }
    }

    pub(crate) async fn measure(
        self,
        prepared: &BenchSetup,
        scale: &Scale,
    ) -> Result<Vec<Figure>, BenchError> {
        match self {
            Self::Create => {
                with_daemon(prepared, async |daemon| create::measure(daemon, prepared, scale).await).await
            }
            Self::Exec => {
                with_daemon(prepared, async |daemon| exec::measure(daemon, prepared, scale).await).await
            }
            Self::Pause => with_daemon(prepared, async |daemon| pause::measure(daemon, scale).await).await,
            Self::Files => with_daemon(prepared, async |daemon| files::measure(daemon, scale).await).await,
            Self::Idle => with_daemon(prepared, async |daemon| idle::measure(daemon, scale).await).await,
            Self::Restart => restart::measure(prepared, scale).await,
            Self::Load => with_daemon(prepared, async |daemon| load::measure(daemon, scale).await).await,
            Self::Import => import::measure(prepared, scale).await,
            Self::Microvm => microvm::measure(prepared, scale).await,
            Self::Code => code::measure(prepared, scale).await,
            Self::Moving => with_daemon(prepared, async |daemon| moving::measure(daemon, scale).await).await,
            Self::Egress => egress::measure(prepared, scale).await,
            Self::Interception => interception::measure(prepared, scale).await,
            Self::Snapshot => sleep::measure_files(prepared, scale).await,
            Self::Sleep => {
                with_daemon(prepared, async |daemon| sleep::measure(daemon, prepared, scale).await).await
            }
            Self::Sleepers => sleep::measure_sleepers(prepared, scale).await,
            Self::Merge => with_daemon(prepared, async |daemon| merge::measure(daemon, scale).await).await,
            Self::Audit => audit::measure(prepared, scale).await,
            Self::Recall => memory::measure_recall(prepared).await,
            Self::Memory => {
                with_daemon(prepared, async |daemon| memory::measure_speed(daemon, prepared, scale).await)
                    .await
            }
            Self::Surfaces => {
                with_daemon(prepared, async |daemon| surfaces::measure(daemon, prepared, scale).await).await
            }
            Self::Ssh => {
                with_daemon(prepared, async |daemon| ssh::measure(daemon, prepared, scale).await).await
            }
            Self::Gateway => {
                with_daemon(prepared, async |daemon| gateway::measure(daemon, prepared, scale).await).await
            }
        }
    }
}

/// A separate daemon for one group; remains of it are an error.
async fn with_daemon(
    prepared: &BenchSetup,
    measure: impl AsyncFnOnce(&Daemon) -> Result<Vec<Figure>, BenchError>,
) -> Result<Vec<Figure>, BenchError> {
    let daemon = Daemon::start(prepared, Kind::Usual).await?;
    let figures = measure(&daemon).await?;
    daemon.finish().await?;
    Ok(figures)
}

/// Creates a sandbox with default settings.
async fn create(client: &Client) -> Result<String, BenchError> {
    let sandbox = client.create_sandbox(&CreateSandbox::default()).await;
    Ok(sandbox.map_err(BenchError::api("create a sandbox"))?.id)
}

/// Runs a program to its end; its exit code must be 0.
async fn exec(client: &Client, sandbox: &str, request: &CreateExec) -> Result<RunResult, BenchError> {
    let result = client.run(sandbox, request).await.map_err(BenchError::api("run a program"))?;
    match result.exec.outcome.as_ref().and_then(|outcome| outcome.exit_code) {
        Some(0) => Ok(result),
        code => Err(BenchError::WrongAnswer { what: format!("{:?} ended with {code:?}", request.argv) }),
    }
}

fn argv(words: &[&str]) -> CreateExec {
    CreateExec { argv: words.iter().map(|word| (*word).to_owned()).collect(), ..CreateExec::default() }
}

/// Runs one future per client and waits for all, in one task each.
async fn at_once<T: Send + 'static>(
    clients: Vec<impl Future<Output = Result<T, BenchError>> + Send + 'static>,
) -> Result<Vec<T>, BenchError> {
    let tasks: Vec<_> = clients.into_iter().map(tokio::spawn).collect();
    let mut results = Vec::with_capacity(tasks.len());
    for task in tasks {
        results.push(task.await.expect("a measuring task does not panic")?);
    }
    Ok(results)
}
