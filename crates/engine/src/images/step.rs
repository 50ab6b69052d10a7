//! One step of a build, run in its own sandbox.
//!
//! The sandbox is an ordinary one, created in the ordinary way: isolated, limited, journaled. Its label hides it from lists and lets
//! the next start remove it after a crash. It is removed whatever the result of the step.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::Duration;

use burrow_catalog::SandboxRow;
use burrow_guest::client::GuestError;
use burrow_guest::protocol::{
    ExecOutcome, FRAME_BYTES_MAX, FileEntry, FileKind, Frame, ReadMode, Request, StdinMode, TarIn, TarSummary,
};
use burrow_images::ImageError;
use burrow_images::recipe::Run;
use burrow_model::{
    BUILD_LABEL, Image, ImageConfig, ImageId, ImageOrigin, Lifetime, Limits, NetworkPolicy, Rates, SandboxId,
    SleepPolicy, TenantId, VolumeMount,
};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::ImageProgressSink;
use super::context::CopySource;
use super::finish::blocking;
use crate::{
    CreateOptions, DeniedTraffic, Engine, EngineError, ExecEvent, ExecOptions, ExecOrigin, Guest,
    RollbackMode,
};

/// Time limit of a step: large packages compile for tens of minutes.
const STEP_TIME_MAX: Duration = Duration::from_secs(2 * 60 * 60);

/// A sandbox that is left by its build expires after this time, when any step has ended.
const SANDBOX_TIME_MAX_MS: u64 = 4 * 60 * 60 * 1000;

/// Processes that a step leaves running are given this time to end.
const GRACE: Duration = Duration::from_millis(100);

/// Output that the guest keeps for a slow reader.
const RING_BYTES: u32 = 1 << 20;

/// Lines of output that are quoted in the error of a failed step.
const TAIL_LINES: usize = 8;
const TAIL_LINE_BYTES: usize = 160;

/// Denied hosts that are named in the error of a failed step.
const REFUSALS_MAX: usize = 4;

/// Chunks of a copy that may wait.
const PIECES_MAX: usize = 8;

/// The sandbox of one step.
#[derive(Debug)]
pub(super) struct StepSandbox<'a> {
    engine: &'a Engine,
    tenant: &'a TenantId,
    row: SandboxRow,
}

impl<'a> StepSandbox<'a> {
    /// Starts a sandbox from a disk, with the network and the limits of the step.
    pub(super) async fn open(
        engine: &'a Engine,
        tenant: &'a TenantId,
        build: &str,
        disk: &ImageId,
        (network, limits): (NetworkPolicy, Limits),
        volumes: Vec<VolumeMount>,
    ) -> Result<Self, EngineError> {
        let expires_ms = Some(engine.now_ms() + SANDBOX_TIME_MAX_MS);
        let options = CreateOptions {
            name: None,
            if_not_exists: false,
            image: disk.to_string(),
            driver: engine.shared.tree_driver().to_owned(),
            limits,
            rates: Rates::unlimited(),
            env: BTreeMap::new(),
            labels: [(BUILD_LABEL.to_owned(), build.to_owned())].into(),
            workdir: None,
            user: None,
            lifetime: Lifetime::Persistent { expires_ms },
            services: BTreeMap::new(),
            network: Some(network),
            sleep: SleepPolicy::never(),
            snapshots: None,
            rotate: None,
            memory: burrow_model::MemorySpec::quiet(),
            lease: None,
            volumes,
            idempotency: None,
        };
        // A layer is no image, but a sandbox can be created from it like from one.
        let image = Image {
            id: disk.clone(),
            names: Vec::new(),
            config: ImageConfig::default(),
            origin: ImageOrigin::default(),
            layer: None,
            size_bytes: 0,
            created_ms: 0,
        };
        engine.admit_create(&options).await?;
        let row = engine.create_from(tenant, &options, &image).await?.row;
        Ok(Self { engine, tenant, row })
    }

    pub(super) fn id(&self) -> &SandboxId {
        &self.row.id
    }

    /// Installs packages of the image's own distribution.
    pub(super) async fn install(
        &self,
        packages: &[String],
        env: &BTreeMap<String, String>,
        tell: &ImageProgressSink,
    ) -> Result<(), EngineError> {
        const SCRIPT: &str = "set -e; apt-get update; apt-get install -y --no-install-recommends -- \"$@\"; \
                              apt-get clean; rm -rf /var/lib/apt/lists/*";
        let mut argv = vec!["/bin/sh".to_owned(), "-c".to_owned(), SCRIPT.to_owned(), "sh".to_owned()];
        argv.extend(packages.iter().cloned());
        let mut env = env.clone();
        env.insert("DEBIAN_FRONTEND".to_owned(), "noninteractive".to_owned());
        env.entry("PATH".to_owned()).or_insert_with(|| PATH.to_owned());
        let step = format!("packages {}", packages.join(" "));
        self.exec(&step, exec(argv, env, Some("/".to_owned()), Some("0:0".to_owned())), tell).await
    }

    /// Runs a command with the configuration of the image.
    pub(super) async fn run(
        &self,
        run: &Run,
        config: &ImageConfig,
        tell: &ImageProgressSink,
    ) -> Result<(), EngineError> {
        let step = match run {
            Run::Shell(text) | Run::Bash(text) => format!("run {text}"),
            Run::Argv(argv) => format!("run {}", argv.join(" ")),
        };
        let mut env = config.env.clone();
        env.entry("PATH".to_owned()).or_insert_with(|| PATH.to_owned());
        let workdir = config.workdir.clone().or_else(|| Some("/".to_owned()));
        if let Some(workdir) = &config.workdir {
            self.make_directory(workdir, config.user.clone()).await?;
        }
        self.exec(&step, exec(run.argv(), env, workdir, config.user.clone()), tell).await
    }

    /// Copies files into the sandbox.
    pub(super) async fn copy(
        &self,
        copy_source: CopySource,
        owner: Option<String>,
    ) -> Result<(), EngineError> {
        let guest = self.guest().await?;
        let copy_source = match copy_source.target() {
            Some(target) if is_directory(&guest, target.clone()).await => copy_source.into_directory(target),
            _ => copy_source,
        };
        self.make_directory(&copy_source.into, owner.clone()).await?;
        let into = copy_source.into.clone();
        let owner = owner.or(Some("0:0".to_owned()));
        self.unpack(into, owner, move |out| copy_source.pack(out)).await
    }

    /// Unpacks a tar into an existing directory. Without an owner, the files have those in the tar.
    pub(super) async fn unpack(
        &self,
        path: String,
        user: Option<String>,
        pack: impl FnOnce(FrameSplitter) -> io::Result<()> + Send + 'static,
    ) -> Result<(), EngineError> {
        let guest = self.guest().await?;
        let (mut reader, mut writer) = guest.open(&Request::TarIn(TarIn { path, user })).await?.split();
        let (sender, mut pieces) = mpsc::channel::<Vec<u8>>(PIECES_MAX);
        let packing = tokio::spawn(blocking(move || {
            let failed =
                |source| ImageError::Io { step: "pack", what: "the files to copy".to_owned(), source };
            pack(FrameSplitter(sender)).map_err(|source| failed(source).into())
        }));
        let send = async {
            while let Some(piece) = pieces.recv().await {
                writer.send_bytes(&piece).await?;
            }
            Ok::<_, GuestError>(())
        };
        let sent = send.await;
        drop(pieces);
        let packed = packing.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
        if sent.is_ok() {
            // Only a complete archive is ended with this frame: the guest discards any other.
            packed?;
            let _ = writer.send(&Frame::End).await;
        }
        let reply = timeout(STEP_TIME_MAX, reader.reply::<TarSummary>()).await;
        let reply = reply.map_err(|_| self.too_long())?;
        reply.map(drop).map_err(|error| guest.error(error))
    }

    /// Stops it, so that everything it wrote is on its disk.
    pub(super) async fn stop(&self) -> Result<(), EngineError> {
        self.engine.stop_sandbox(self.tenant, &self.row.id, GRACE).await.map(drop)
    }

    /// Removes it. If this fails, it is removed at the next start, or when it expires.
    pub(super) async fn close(self) {
        if let Err(error) = self.engine.delete(self.tenant, &self.row.id).await {
            tracing::warn!(
                sandbox = %self.row.id, error = &error as &dyn std::error::Error, "could not remove a build's sandbox"
            );
        }
    }

    /// Makes a directory and its missing parents, which belong to `user` (root when absent).
    pub(super) async fn make_directory(&self, path: &str, user: Option<String>) -> Result<(), EngineError> {
        let request = Request::MakeDir { path: path.to_owned(), parents: true, mode: None, user };
        self.guest().await?.call::<FileEntry>(&request).await.map(drop)
    }

    pub(super) async fn guest(&self) -> Result<Guest, EngineError> {
        self.engine.guest(self.tenant, &self.row.id).await
    }

    pub(super) async fn exec(
        &self,
        step: &str,
        options: ExecOptions,
        tell: &ImageProgressSink,
    ) -> Result<(), EngineError> {
        let mut session = self.engine.exec(self.tenant, &self.row.id, options, ExecOrigin::build()).await?;
        let mut tail = Tail::default();
        let read = session.read_to_end(|event| {
            if let ExecEvent::Output { bytes, .. } = event {
                tail.add(bytes);
                tell.output(bytes);
            }
        });
        // The guest enforces the time limit of the step; this is for a guest that no longer responds.
        let bound = STEP_TIME_MAX + Duration::from_secs(60);
        let ended = timeout(bound, read).await.map_err(|_| self.too_long())??;
        match ended.record.outcome() {
            Some(outcome) if outcome.exit_code == Some(0) => Ok(()),
            Some(outcome) => Err(EngineError::BuildStep {
                step: crate::shown::shown(step),
                ended: ended_as(&outcome),
                tail: refusals(&ended.denied) + &tail.text(),
            }),
            None => Err(session.guest().error(GuestError::OutOfTurn)),
        }
    }

    fn too_long(&self) -> EngineError {
        EngineError::GuestTimeout { id: self.row.id.clone(), seconds: STEP_TIME_MAX.as_secs() }
    }
}

/// The hosts that the step was denied: programs report this unclearly, if at all.
fn refusals(denied: &[DeniedTraffic]) -> String {
    // Service records (`_http._tcp.…`) are optional: their lookup is denied without consequences.
    let missed = denied.iter().filter(|denied| !denied.host.starts_with('_'));
    missed
        .take(REFUSALS_MAX)
        .map(|denied| format!("egress to `{}` denied: {} | ", denied.host, denied.reason))
        .collect()
}

pub(super) async fn is_directory(guest: &Guest, path: String) -> bool {
    let found = guest.call::<FileEntry>(&Request::Stat { path, follow: true }).await;
    found.is_ok_and(|entry| entry.kind == FileKind::Directory)
}

/// The default `PATH`, for an image that sets none.
pub(super) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub(super) fn exec(
    argv: Vec<String>,
    env: BTreeMap<String, String>,
    workdir: Option<String>,
    user: Option<String>,
) -> ExecOptions {
    ExecOptions {
        id: None,
        argv,
        env,
        workdir,
        user,
        stdin: StdinMode::Null,
        terminal: None,
        timeout_ms: Some(u64::try_from(STEP_TIME_MAX.as_millis()).unwrap_or(u64::MAX)),
        ring_bytes: RING_BYTES,
        attach: Some(ReadMode::Lossless),
        hold: true,
        then_stop: false,
        rollback: RollbackMode::Nothing,
    }
}

fn ended_as(outcome: &ExecOutcome) -> String {
    match (outcome.exit_code, outcome.signal) {
        _ if outcome.timed_out => "timed out".to_owned(),
        _ if outcome.killed_from_outside => "was killed, most likely because it was out of memory".to_owned(),
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended for an unknown reason".to_owned(),
    }
}

/// The last lines of a step's output.
#[derive(Debug, Default)]
struct Tail {
    lines: VecDeque<String>,
    open: Vec<u8>,
}

impl Tail {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                b'\n' | b'\r' => self.end_line(),
                _ if self.open.len() < TAIL_LINE_BYTES => self.open.push(*byte),
                _ => {}
            }
        }
    }

    fn end_line(&mut self) {
        let line = String::from_utf8_lossy(&std::mem::take(&mut self.open)).trim().to_owned();
        if line.is_empty() {
            return;
        }
        if self.lines.len() == TAIL_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    fn text(mut self) -> String {
        self.end_line();
        Vec::from(self.lines).join(" | ")
    }
}

/// Splits what is written into frames.
pub(super) struct FrameSplitter(mpsc::Sender<Vec<u8>>);

impl io::Write for FrameSplitter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(FRAME_BYTES_MAX);
        self.0
            .blocking_send(bytes[..taken].to_vec())
            .map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_quotes_only_the_last_lines_of_output() {
        let mut tail = Tail::default();
        for line in 0..100 {
            tail.add(format!("line {line}\n\n").as_bytes());
        }
        tail.add(&[b'x'; 10_000]);
        let text = tail.text();
        assert!(text.starts_with("line 93 | ") && text.ends_with('x') && text.len() < 400, "{text}");
    }
}
