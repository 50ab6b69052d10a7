//! Start and ready commands of templates, and the sizes that a build requested.
//!
//! ```text
//!   image ─► sandbox ─ start command ─ ready command succeeds ─► snapshot with processes ─► sandboxes of the template
//! ```
//!
//! Labels of the image contain the commands and sizes. The name of the snapshot is derived from the image's id: images
//! never change, so the snapshot always matches. Both are removed together.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use burrow_api::{CreateExec, CreateSandbox, StdinMode};
use burrow_engine::{
    CreateOptions, EngineError, ExecEvent, ExecOptions, ExecSession, ObjectKind, SnapshotOptions,
};
use burrow_guest::client::GuestError;
use burrow_guest::protocol::{ExecOutcome, ReadMode};
use burrow_images::recipe::Run;
use burrow_model::{
    BUILD_LABEL, Image, ImageId, ImageName, Lifetime, Limits, NetworkPolicy, SandboxId, Snapshot,
    SnapshotKind, TenantId,
};
use http::StatusCode;
use tokio::time::{sleep, timeout};

use super::envd;
use super::error::Refusal;
use super::steps::TEMPLATE_LABEL;
use burrow_gateway::e2b::tokens;
use burrow_gateway::e2b::variables::variables;
use burrow_http::app::App;
use burrow_http::{convert, exec_trace};

const START_LABEL: &str = "e2b.start-cmd";
const READY_LABEL: &str = "e2b.ready-cmd";
const CPU_LABEL: &str = "e2b.cpu-millis";
const RAM_LABEL: &str = "e2b.ram-mib";

/// Label of the snapshot: proof that a build created it.
const MARK_LABEL: &str = "e2b.start";

/// E2B's ready command for a template with a start command and no ready command.
const USUAL_READY: &str = "sleep 20";

/// Time limit for a template to become ready, and interval of the checks, as in E2B.
const READY_MAX: Duration = Duration::from_secs(5 * 60);
const READY_INTERVAL: Duration = Duration::from_millis(500);

/// A start sandbox that was left behind by a crash is deleted after this time.
const SANDBOX_TIME_MAX_MS: u64 = 60 * 60 * 1000;

/// The commands of one template. At least one of them is not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Commands {
    start: String,
    ready: String,
}

impl Commands {
    pub(super) fn given(start: Option<&str>, ready: Option<&str>) -> Option<Self> {
        let [start, ready] = [start, ready].map(|text| text.unwrap_or_default().trim().to_owned());
        (!start.is_empty() || !ready.is_empty()).then_some(Self { start, ready })
    }

    /// The commands of an image that a build created.
    pub(super) fn of(image: &Image) -> Option<Self> {
        Self::given(label(image, START_LABEL), label(image, READY_LABEL))
    }

    fn ready(&self) -> &str {
        match (self.start.as_str(), self.ready.as_str()) {
            ("", "") => ":",
            (_, "") => USUAL_READY,
            (_, ready) => ready,
        }
    }
}

/// The sizes that a build requested. Absent ones take the operator's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) cpu_millis: Option<u32>,
    pub(super) ram_mib: Option<u32>,
}

impl Sizes {
    /// The requested sizes within the operator's limits, and a warning for the log if they were reduced.
    pub(super) fn within(
        cpu_count: Option<u64>,
        memory_mb: Option<u64>,
        max: &Limits,
    ) -> (Self, Option<String>) {
        let number = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        let cpu = cpu_count.filter(|count| *count > 0).map(|count| number(count.saturating_mul(1000)));
        let ram = memory_mb.filter(|size| *size > 0).map(number);
        let sizes = Self {
            cpu_millis: cpu.map(|cpu| cpu.min(max.cpu_millis)),
            ram_mib: ram.map(|ram| ram.min(max.ram_mib)),
        };
        let less = sizes != Self { cpu_millis: cpu, ram_mib: ram };
        let warning = less.then(|| {
            let (cores, ram) = (f64::from(max.cpu_millis) / 1000.0, max.ram_mib);
            format!("the template requests more than the host's limits: at most {cores} cores and {ram} MiB of RAM")
        });
        (sizes, warning)
    }

    pub(super) fn of(image: &Image) -> Self {
        let number = |name| label(image, name).and_then(|text| text.parse().ok());
        Self { cpu_millis: number(CPU_LABEL), ram_mib: number(RAM_LABEL) }
    }

    pub(super) fn apply(self, limits: Limits) -> Limits {
        Limits {
            cpu_millis: self.cpu_millis.unwrap_or(limits.cpu_millis),
            ram_mib: self.ram_mib.unwrap_or(limits.ram_mib),
            ..limits
        }
    }
}

/// An empty label counts as absent: a build can replace labels of its base, but not remove them.
fn label<'a>(image: &'a Image, name: &str) -> Option<&'a str> {
    image.config.labels.get(name).map(String::as_str).filter(|value| !value.is_empty())
}

/// The labels of a template's image.
pub(super) fn labels(commands: Option<&Commands>, sizes: Sizes) -> BTreeMap<String, String> {
    let number = |value: Option<u32>| value.map(|value| value.to_string()).unwrap_or_default();
    let pairs = [
        (TEMPLATE_LABEL, "1".to_owned()),
        (START_LABEL, commands.map(|commands| commands.start.clone()).unwrap_or_default()),
        (READY_LABEL, commands.map(|commands| commands.ready.clone()).unwrap_or_default()),
        (CPU_LABEL, number(sizes.cpu_millis)),
        (RAM_LABEL, number(sizes.ram_mib)),
    ];
    pairs.map(|(name, value)| (name.to_owned(), value)).into()
}

/// The default user of commands in the template's sandboxes; `None` for an image that was not created by a build.
pub(super) fn user(image: &Image) -> Option<String> {
    image.config.user.clone().filter(|_| label(image, TEMPLATE_LABEL).is_some())
}

fn snapshot_name(image: &ImageId) -> String {
    format!("e2b-start-{image}")
}

/// The snapshot from which sandboxes of a template with a start command are created.
pub(super) async fn snapshot(
    app: &App,
    tenant: &TenantId,
    image: &Image,
) -> Result<Option<Snapshot>, Refusal> {
    if Commands::of(image).is_none() {
        return Ok(None);
    }
    match app.engine.find_snapshot(tenant, &snapshot_name(&image.id)).await {
        // Keys that may not build templates may create snapshots with any name.
        Ok(snapshot)
            if snapshot.labels.get(MARK_LABEL)
                == Some(&tokens::start_mark(app, &image.id, &snapshot.sandbox).await?) =>
        {
            Ok(Some(snapshot))
        }
        Ok(_) | Err(EngineError::NotFound { kind: ObjectKind::Snapshot, .. }) => Err(Refusal::new(
            StatusCode::NOT_FOUND,
            format!("the snapshot of template `{}` was deleted: build the template again", image.title()),
        )),
        Err(error) => Err(error.into()),
    }
}

/// Deletes the snapshot of a template's image that was deleted or has no name any more.
pub(super) async fn forget(app: &App, tenant: &TenantId, image: &Image) {
    if Commands::of(image).is_none() {
        return;
    }
    let unused = match app.engine.find_image(tenant, image.id.as_str()).await {
        Ok(image) => image.names.is_empty(),
        Err(_) => true,
    };
    if !unused {
        return;
    }
    let Ok(snapshot) = app.engine.find_snapshot(tenant, &snapshot_name(&image.id)).await else { return };
    if let Err(error) = app.engine.delete_snapshot(tenant, &snapshot.id).await {
        let error: &dyn std::error::Error = &error;
        tracing::warn!(snapshot = %snapshot.id, error, "could not delete the snapshot of a removed template");
    }
}

/// Runs a template's commands in a sandbox, and stores that sandbox as a snapshot.
pub(super) struct TemplateStart<'a> {
    pub(super) app: &'a Arc<App>,
    pub(super) tenant: &'a TenantId,
    pub(super) image: &'a Image,
    /// The future name of the template.
    pub(super) name: &'a ImageName,
    pub(super) build: &'a str,
    /// Who builds it, as the audit log names them.
    pub(super) actor: Option<String>,
    pub(super) network: NetworkPolicy,
    pub(super) log: &'a (dyn Fn(&str) + Send + Sync),
}

impl TemplateStart<'_> {
    pub(super) async fn run(&self, commands: &Commands) -> Result<(), Refusal> {
        let app = self.app;
        let usual = CreateSandbox {
            image: Some(self.image.id.to_string()),
            user: user(self.image),
            ..CreateSandbox::default()
        };
        let options = convert::create_options(
            usual,
            &app.config.defaults,
            app.engine.default_network(),
            app.engine.now_ms(),
        )?;
        let options = CreateOptions {
            limits: Sizes::of(self.image).apply(options.limits),
            labels: [(BUILD_LABEL.to_owned(), self.build.to_owned())].into(),
            lifetime: Lifetime::Persistent { expires_ms: Some(app.engine.now_ms() + SANDBOX_TIME_MAX_MS) },
            network: Some(self.network.clone()),
            ..options
        };
        // Sandboxes made from the snapshot refer to their template by its future name.
        let image = Image { names: vec![self.name.clone()], ..self.image.clone() };
        let sandbox = app.engine.create_from_image(self.tenant, &options, &image).await?.row.id;
        envd::mark(app, self.tenant, &sandbox).await;
        let kept = self.keep(&sandbox, commands).await;
        if let Err(error) = app.engine.delete(self.tenant, &sandbox).await {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(%sandbox, error, "could not delete the sandbox of a template's start command");
        }
        kept
    }

    async fn keep(&self, sandbox: &SandboxId, commands: &Commands) -> Result<(), Refusal> {
        let ready = timeout(READY_MAX, self.ready(sandbox, commands.ready()));
        let ready = async {
            ready.await.unwrap_or_else(|_| {
                let message = format!("ready command timed out after {} s", READY_MAX.as_secs());
                Err(Refusal::invalid(message))
            })
        };
        if commands.start.is_empty() {
            ready.await?;
        } else {
            (self.log)("Running start command");
            (self.log)(&format!("[start cmd]: {}", commands.start));
            let started = self.exec(sandbox, &commands.start, ReadMode::Lossy).await?;
            tokio::pin!(ready);
            tokio::select! {
                done = &mut ready => done?,
                ended = self.read(started, Some("start")) => {
                    let outcome = ended?;
                    if outcome.exit_code != Some(0) {
                        return Err(Refusal::invalid(format!("error running start command: {}", ended_as(&outcome))));
                    }
                    ready.await?;
                }
            }
        }
        (self.log)("Template is ready");
        let engine = &self.app.engine;
        // Sandboxes made from the snapshot are not part of a build.
        let mut update = convert::update_options(burrow_api::UpdateSandbox::default())?;
        update.labels = [(BUILD_LABEL.to_owned(), None)].into();
        engine.update(self.tenant, sandbox, update).await?;
        let name = convert::name("name", &snapshot_name(&self.image.id))?;
        let options = SnapshotOptions {
            name: Some(name),
            labels: [(MARK_LABEL.to_owned(), tokens::start_mark(self.app, &self.image.id, sandbox).await?)]
                .into(),
            description: format!("template {}, with its start command running", self.name),
            ..SnapshotOptions::automatic(SnapshotKind::Manual, false)
        };
        engine.snapshot(self.tenant, sandbox, options).await?;
        Ok(())
    }

    /// Waits until the ready command succeeds.
    async fn ready(&self, sandbox: &SandboxId, command: &str) -> Result<(), Refusal> {
        (self.log)("Waiting for template to be ready");
        (self.log)(&format!("[ready cmd]: {command}"));
        loop {
            let started = self.exec(sandbox, command, ReadMode::Lossless).await?;
            if self.read(started, None).await?.exit_code == Some(0) {
                return Ok(());
            }
            sleep(READY_INTERVAL).await;
        }
    }

    async fn exec(&self, sandbox: &SandboxId, command: &str, mode: ReadMode) -> Result<ExecSession, Refusal> {
        let request = CreateExec {
            argv: Run::Bash(command.to_owned()).argv(),
            stdin: StdinMode::Null,
            env: variables(sandbox, self.name.as_str()),
            ..CreateExec::default()
        };
        let options = ExecOptions { attach: Some(mode), ..convert::exec_options(&request)? };
        let origin = exec_trace::internal(self.actor.clone());
        Ok(self.app.engine.exec(self.tenant, sandbox, options, origin).await?)
    }

    /// Reads a command's output to its end; logs each line with the prefix `label`, if given.
    async fn read(&self, mut session: ExecSession, label: Option<&str>) -> Result<ExecOutcome, Refusal> {
        let log = |event: &ExecEvent| {
            if let (Some(label), ExecEvent::Output { stream, bytes, .. }) = (label, event) {
                for line in String::from_utf8_lossy(bytes).lines() {
                    (self.log)(&format!("[{label}] [{}]: {line}", stream.as_str()));
                }
            }
        };
        let ended = session.read_to_end(log).await?.record.outcome();
        ended.ok_or_else(|| session.guest().error(GuestError::OutOfTurn).into())
    }
}

fn ended_as(outcome: &ExecOutcome) -> String {
    match (outcome.exit_code, outcome.signal) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "no exit status".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(labels: BTreeMap<String, String>) -> Image {
        Image {
            id: ImageId::generate(),
            names: Vec::new(),
            config: burrow_model::ImageConfig { labels, ..Default::default() },
            origin: Default::default(),
            layer: None,
            size_bytes: 0,
            created_ms: 0,
        }
    }

    #[test]
    fn the_labels_of_an_image_contain_the_commands_and_sizes_of_its_template() {
        let commands = Commands::given(Some("serve"), None).unwrap();
        let sizes = Sizes { cpu_millis: Some(2000), ram_mib: Some(512) };
        let made = image(labels(Some(&commands), sizes));
        assert_eq!((Commands::of(&made), Sizes::of(&made)), (Some(commands.clone()), sizes));
        let plain = image(labels(None, Sizes::default()));
        assert_eq!((Commands::of(&plain), Sizes::of(&plain)), (None, Sizes::default()));
        assert_eq!(commands.ready(), USUAL_READY);
        assert_eq!(Commands::given(Some(""), Some("true")).unwrap().ready(), "true");
        assert_eq!(Commands::given(Some(" "), None), None);
        snapshot_name(&made.id).parse::<burrow_model::Name>().unwrap();
    }

    #[test]
    fn sizes_stay_within_the_limits() {
        let max = Limits { ram_mib: 1024, cpu_millis: 4000, pids: 100, disk_mib: 1024 };
        let (sizes, warning) = Sizes::within(Some(2), Some(512), &max);
        assert_eq!((sizes.cpu_millis, sizes.ram_mib, warning), (Some(2000), Some(512), None));
        let (sizes, warning) = Sizes::within(Some(8), Some(u64::MAX), &max);
        assert_eq!((sizes.cpu_millis, sizes.ram_mib), (Some(4000), Some(1024)));
        assert!(warning.unwrap().contains("4 cores and 1024 MiB"));
        assert_eq!(Sizes::within(None, Some(0), &max), (Sizes::default(), None));
        let applied = Sizes { cpu_millis: None, ram_mib: Some(64) }.apply(max);
        assert_eq!((applied.cpu_millis, applied.ram_mib), (4000, 64));
    }
}
