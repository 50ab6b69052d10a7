//! Builds of templates: steps on top of an existing or pulled image, run in the background.
//!
//! ```text
//!   POST /v3/templates ─► waiting ─ POST …/builds/{build} ─► building ─► ready | error     GET …/status
//! ```
//!
//! The log of a build is kept in RAM, within limits: after a restart, the daemon knows the images, but no builds.
//! Creating images requires the scope `admin`, as everywhere.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use burrow_engine::{
    BuildOptions, BuildSource, EngineError, ImageProgress, ImageProgressSink, ItemState, PullOptions,
};
use burrow_guest::protocol::ErrorCode as GuestCode;
use burrow_images::recipe::{Recipe, Step};
use burrow_model::{Image, ImageName, NetworkMode, NetworkPolicy, TenantId};
use http::{StatusCode, Uri};
use ring::digest;
use serde::Deserialize;
use serde_json::{Value, json};

use super::body::{E2bExtractor, JsonInput, UnknownFields, asks};
use super::error::Refusal;
use super::logs::{LINES_AT_ONCE, LogQuery};
use super::show::time;
use super::starts::{self, Commands, Sizes, TemplateStart};
use super::steps::{Instruction, InvalidStep, Plan, Start};
use super::template_name::{TemplateTarget, find};
use super::{copies, mcp};
use crate::copies::Copies;
use burrow_http::app::{App, Part};
use burrow_http::auth::{Admin, Caller, Reader};
use burrow_http::input::{Segments, pairs};
use burrow_http::{convert, exec_trace};

/// Maximum number of builds that are kept; the oldest finished one is removed first.
const BUILDS_MAX: usize = 256;

/// Maximum number of lines of one build, and maximum length of each; longer lines are truncated.
const LINES_MAX: usize = 10_000;
const LINE_CHARACTERS_MAX: usize = 2_000;

/// The default base of E2B's clients.
const USUAL_BASE: &str = "e2bdev/base";

#[derive(Debug, Default)]
pub(crate) struct Builds(Mutex<VecDeque<Build>>);

#[derive(Debug)]
struct Build {
    id: String,
    tenant: TenantId,
    name: ImageName,
    /// Additional names that it gets when it succeeds.
    tags: Vec<ImageName>,
    sizes: Sizes,
    stage: Stage,
    lines: Vec<Value>,
}

impl Build {
    fn log(&mut self, now_ms: u64, level: &str, text: &str) {
        if self.lines.len() < LINES_MAX {
            let message: String = text.chars().take(LINE_CHARACTERS_MAX).collect();
            self.lines.push(json!({ "timestamp": time(now_ms), "level": level, "message": message }));
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    Building,
    Ready,
    Failed(Failure),
}

/// Why a build failed.
#[derive(Debug, PartialEq, Eq)]
struct Failure {
    message: String,
    /// In the clients' notation: the number of an instruction, or the name of a phase.
    step: Option<String>,
}

impl Failure {
    fn of_base(failure: impl Into<Self>) -> Self {
        Self { step: Some("base".to_owned()), ..failure.into() }
    }
}

impl From<InvalidStep> for Failure {
    fn from(InvalidStep { index, refusal }: InvalidStep) -> Self {
        Self { step: index.map(step_number), ..refusal.into() }
    }
}

/// The notation of clients: instructions are counted from 1.
fn step_number(index: usize) -> String {
    (index + 1).to_string()
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self { message: refusal.into_message(), step: None }
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        Refusal::from(error).into()
    }
}

impl Part for Builds {
    fn new(_: &App) -> Self {
        Self::default()
    }
}

impl Builds {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Build>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, id: &str, change: impl FnOnce(&mut Build)) {
        if let Some(build) = self.lock().iter_mut().find(|build| build.id == id) {
            change(build);
        }
    }

    /// The newest build of this name that has not been started.
    pub(super) fn waiting(&self, tenant: &TenantId, template: &str) -> Result<String, Refusal> {
        let all = self.lock();
        let fits = |build: &&Build| {
            build.tenant == *tenant && build.name.as_str() == template && build.stage == Stage::Waiting
        };
        all.iter().rev().find(fits).map(|build| build.id.clone()).ok_or_else(unknown)
    }

    fn add(&self, build: Build) -> Result<(), Refusal> {
        let mut all = self.lock();
        if all.len() >= BUILDS_MAX {
            let over =
                |build: &Build| matches!(build.stage, Stage::Ready | Stage::Failed(_) | Stage::Waiting);
            let oldest = all.iter().position(over);
            let oldest = oldest.ok_or_else(|| {
                Refusal::new(
                    StatusCode::TOO_MANY_REQUESTS,
                    "there are too many builds at once; try again later",
                )
            })?;
            all.remove(oldest);
        }
        all.push_back(build);
        Ok(())
    }
}

/// Clients parse build ids as UUIDs.
pub(super) fn uuid(of: &[u8]) -> String {
    let hash = digest::digest(&digest::SHA256, of);
    let mut bytes: [u8; 16] = *hash.as_ref().first_chunk().expect("a hash is longer");
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[derive(Debug, Deserialize)]
pub(super) struct NewTemplate {
    name: Option<String>,
    /// An older name of the field.
    alias: Option<String>,
    tags: Option<Vec<String>>,
    #[serde(rename = "cpuCount")]
    cpu_count: Option<u64>,
    #[serde(rename = "memoryMB")]
    memory_mb: Option<u64>,
    /// The operator decides the size of disks.
    #[serde(rename = "minFreeDiskMB", alias = "minFreeDiskMb")]
    _min_free_disk_mb: Option<u64>,
    #[serde(flatten)]
    unknown: UnknownFields,
}

pub(super) async fn request(
    State(app): State<Arc<App>>,
    E2bExtractor(caller): E2bExtractor<Admin>,
    body: JsonInput<NewTemplate>,
) -> Result<Response, Refusal> {
    body.value.unknown.refuse()?;
    let text = body.value.name.or(body.value.alias).ok_or_else(|| Refusal::invalid("`name` is missing"))?;
    let text = text.strip_suffix(":default").unwrap_or(&text);
    let name = convert::image_name("name", text)?;
    let want = body.value.tags.unwrap_or_default();
    let tags =
        want.iter().filter(|tag| *tag != "default").map(|tag| tagged(text, tag)).collect::<Result<_, _>>()?;
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the kernel's random generator is available");
    let id = uuid(&bytes);
    let shown = json!({
        "templateID": name, "buildID": id, "public": false, "names": [name], "aliases": [name], "tags": want,
    });
    let (tenant, stage) = (caller.tenant().clone(), Stage::Waiting);
    let NewTemplate { cpu_count, memory_mb, .. } = body.value;
    let (sizes, warning) = Sizes::within(cpu_count, memory_mb, &app.config.bounds.limits);
    let mut build = Build { id, tenant, name, tags, sizes, stage, lines: Vec::new() };
    if let Some(warning) = warning {
        build.log(app.engine.now_ms(), "warn", &warning);
    }
    app.part::<Builds>().add(build)?;
    Ok((StatusCode::ACCEPTED, Json(shown)).into_response())
}

/// `name:tag`; replaces an existing tag of the name.
fn tagged(name: &str, tag: &str) -> Result<ImageName, Refusal> {
    let bare = match name.rsplit_once(':') {
        Some((bare, after)) if !after.contains('/') => bare,
        Some(_) | None => name,
    };
    Ok(convert::image_name("tags", &format!("{bare}:{tag}"))?)
}

#[derive(Debug, Deserialize)]
pub(super) struct BuildPath {
    #[serde(rename = "template")]
    _template: String,
    build: String,
}

impl BuildPath {
    /// The build, if it belongs to the caller's tenant.
    fn build_in<'a>(&self, all: &'a VecDeque<Build>, caller: &Caller) -> Result<&'a Build, Refusal> {
        let own = all.iter().find(|build| build.id == self.build && build.tenant == *caller.tenant());
        own.ok_or_else(unknown)
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Instructions {
    #[serde(rename = "fromImage")]
    from_image: Option<String>,
    #[serde(rename = "fromTemplate")]
    from_template: Option<String>,
    #[serde(rename = "fromImageRegistry")]
    registry: Option<Value>,
    #[serde(rename = "startCmd")]
    start: Option<String>,
    #[serde(rename = "readyCmd")]
    ready: Option<String>,
    #[serde(default)]
    force: bool,
    #[serde(default)]
    steps: Vec<Instruction>,
    #[serde(flatten)]
    unknown: UnknownFields,
}

pub(super) async fn start(
    State(app): State<Arc<App>>,
    E2bExtractor(caller): E2bExtractor<Admin>,
    E2bExtractor(Segments(path)): E2bExtractor<Segments<BuildPath>>,
    body: JsonInput<Instructions>,
) -> Result<StatusCode, Refusal> {
    let wish = body.value;
    wish.unknown.refuse()?;
    let base = checked_base(&app, &caller, &wish).await;
    let commands = Commands::given(wish.start.as_deref(), wish.ready.as_deref());
    let inherits = wish.from_template.is_some();
    let (name, sizes) = {
        let mut all = app.part::<Builds>().lock();
        let own = all.iter_mut().find(|build| build.id == path.build && build.tenant == *caller.tenant());
        let build = own.ok_or_else(unknown)?;
        if build.stage != Stage::Waiting {
            return Err(Refusal::new(StatusCode::CONFLICT, "this build was started already"));
        }
        build.stage = Stage::Building;
        (build.name.clone(), build.sizes)
    };
    let no_cache = wish.force || wish.steps.iter().any(|step| step.force);
    // As with E2B's builds: clients that may create images may download from any public host.
    let network = NetworkPolicy { mode: NetworkMode::Open, ..NetworkPolicy::closed() };
    let work = Work {
        app: app.clone(),
        tenant: caller.tenant().clone(),
        actor: exec_trace::actor(caller.trace()),
        id: path.build,
        name,
        no_cache,
        network,
        sizes,
        instructions: wish.steps,
    };
    app.tasks.spawn(async move { work.run(base, commands, inherits).await });
    Ok(StatusCode::ACCEPTED)
}

/// The base, if it exists and all steps are valid. Otherwise the build fails, as with E2B: clients show the line of the
/// user's program that added the step at fault, which they know only for a failed build.
async fn checked_base(app: &App, caller: &Caller, wish: &Instructions) -> Result<Base, Failure> {
    if wish.registry.as_ref().is_some_and(asks) {
        return Err(Failure::of_base(Refusal::absent(
            "pull images that require a password with `burrow image pull`, and use their names as the base",
        )));
    }
    // Invalid steps are rejected before the base is pulled.
    Plan::new(&wish.steps, &Start::default())?;
    base(app, caller, wish).await.map_err(Failure::of_base)
}

fn unknown() -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, "build not found; builds are forgotten when the daemon restarts")
}

/// The base of a build.
enum Base {
    Here(String),
    Pulled(String),
}

async fn base(app: &App, caller: &Caller, wish: &Instructions) -> Result<Base, Refusal> {
    let text = wish.from_template.as_deref().or(wish.from_image.as_deref()).unwrap_or(USUAL_BASE);
    if text == USUAL_BASE || text.strip_prefix(USUAL_BASE).is_some_and(|tag| tag.starts_with(':')) {
        return Ok(Base::Here(app.config.defaults.image.clone()));
    }
    match (find(app, caller, text).await, &wish.from_template) {
        // Clients add MCP servers only to this template. It means the default image, unless an image has its name.
        (Ok(TemplateTarget::Image(name)), Some(template)) if mcp::is_replaced(template, &name) => {
            Err(Refusal::absent(
                "template `mcp-gateway` has no MCP servers in Burrow, and none can be added: a sandbox created with `mcp` has the \
                 tools of Burrow's own MCP server",
            ))
        }
        (Ok(TemplateTarget::Image(name)), _) => Ok(Base::Here(name)),
        (Ok(TemplateTarget::Snapshot(_)), _) => Err(Refusal::absent(
            "the base of a build must be an image; create one from a sandbox with `burrow image commit`",
        )),
        (Err(refusal), Some(_)) => Err(refusal),
        (Err(_), None) => {
            convert::image_reference("fromImage", text)?;
            Ok(Base::Pulled(text.to_owned()))
        }
    }
}

/// A running build.
struct Work {
    app: Arc<App>,
    tenant: TenantId,
    actor: Option<String>,
    id: String,
    name: ImageName,
    no_cache: bool,
    network: NetworkPolicy,
    sizes: Sizes,
    instructions: Vec<Instruction>,
}

/// The instruction that is being executed, counted from 0.
type Current = Arc<Mutex<Option<usize>>>;

impl Work {
    async fn run(self, base: Result<Base, Failure>, commands: Option<Commands>, inherits: bool) {
        let began_ms = self.app.engine.now_ms();
        let stage = match self.build(base, commands, inherits).await {
            Ok(()) => {
                let seconds = self.app.engine.now_ms().saturating_sub(began_ms).div_ceil(1000);
                self.log("info", &format!("Build finished, took {seconds}s"));
                Stage::Ready
            }
            Err(failure) => {
                self.log("error", &format!("Build failed: {}", failure.message));
                Stage::Failed(failure)
            }
        };
        self.app.part::<Builds>().change(&self.id, |build| build.stage = stage);
    }

    /// `inherits`: a template without commands inherits those of its base template.
    async fn build(
        &self,
        base: Result<Base, Failure>,
        commands: Option<Commands>,
        inherits: bool,
    ) -> Result<(), Failure> {
        let engine = &self.app.engine;
        let base = self.base(base?).await.map_err(Failure::of_base)?;
        let commands = commands.or_else(|| Commands::of(&base).filter(|_| inherits));
        let has_user = engine.image_has_user(&base, "user").await?;
        let mut plan = Plan::new(&self.instructions, &Start::of(&base, has_user))?;
        plan.push(Step::Labels(starts::labels(commands.as_ref(), self.sizes)));
        let uploads = self.app.part::<Copies>().take(&self.id);
        let copies = plan.steps.iter().any(|step| matches!(step, Step::Copy(_)));
        let context = if copies { Some(copies::context(&self.app, uploads).await?) } else { None };
        let current = Current::default();
        let options = BuildOptions {
            source: BuildSource::Recipe(Recipe { base: base.id.to_string(), steps: plan.steps }),
            context,
            // If the start command fails, the name keeps its previous image.
            name: Some(self.name.clone()).filter(|_| commands.is_none()),
            no_cache: self.no_cache,
            network: self.network.clone(),
            limits: Some(self.sizes.apply(self.app.config.defaults.limits)),
        };
        let replaced = engine.find_image(&self.tenant, self.name.as_str()).await.ok();
        let built = engine.build_recipe(&self.tenant, options, self.tell_steps(plan.origins, &current)).await;
        let image = built.map_err(|error| self.failure(error, &current))?;
        if let Some(commands) = commands {
            let starting = TemplateStart {
                app: &self.app,
                tenant: &self.tenant,
                image: &image,
                name: &self.name,
                build: &self.id,
                actor: self.actor.clone(),
                network: self.network.clone(),
                log: &|text| self.log("info", text),
            };
            if let Err(refusal) = starting.run(&commands).await {
                if let Err(error) = engine.remove_image(&self.tenant, image.id.as_str()).await {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(image = %image.id, error, "could not remove the image of a failed build");
                }
                return Err(Failure { step: Some("finalize".to_owned()), ..refusal.into() });
            }
            engine.tag_image(&self.tenant, &image, self.name.clone()).await?;
        }
        let mut tags = Vec::new();
        self.app.part::<Builds>().change(&self.id, |build| tags.clone_from(&build.tags));
        for tag in tags {
            engine.tag_image(&self.tenant, &image, tag).await?;
        }
        if let Some(replaced) = replaced {
            starts::forget(&self.app, &self.tenant, &replaced).await;
        }
        Ok(())
    }

    async fn base(&self, base: Base) -> Result<Image, Failure> {
        let engine = &self.app.engine;
        let name = match base {
            Base::Here(name) => name,
            Base::Pulled(reference) => {
                let options = PullOptions {
                    reference: reference.clone(),
                    name: None,
                    credentials: None,
                    insecure: false,
                    platform: None,
                };
                engine.pull_image(&self.tenant, options, self.tell()).await?;
                reference
            }
        };
        self.log("info", &format!("[base] FROM {name}"));
        Ok(engine.find_image(&self.tenant, &name).await?)
    }

    /// Uses E2B's messages where they exist.
    fn failure(&self, error: EngineError, current: &Current) -> Failure {
        let index = *current.lock().unwrap_or_else(PoisonError::into_inner);
        let instruction = index.and_then(|index| self.instructions.get(index));
        let step = index.map(step_number);
        match (error, instruction) {
            (EngineError::BuildStep { ended, tail, .. }, Some(instruction)) => {
                let tail = if tail.is_empty() { tail } else { format!(": {tail}") };
                let message = format!("failed to run command '{}': {ended}{tail}", instruction.command());
                Failure { message, step }
            }
            (EngineError::Guest { source, .. }, Some(instruction))
                if source.code == GuestCode::UnknownUser =>
            {
                let name = instruction.user().unwrap_or_default();
                let message = format!(
                    "failed to run command '{}': command failed: unauthenticated: invalid username: '{name}'",
                    instruction.command()
                );
                Failure { message, step }
            }
            (error, _) => Failure { step, ..error.into() },
        }
    }

    fn log(&self, level: &str, text: &str) {
        let now_ms = self.app.engine.now_ms();
        self.app.part::<Builds>().change(&self.id, |build| build.log(now_ms, level, text));
    }

    fn tell(&self) -> ImageProgressSink {
        self.tell_steps(Vec::new(), &Current::default())
    }

    /// Logs the steps of a build in E2B's format: `[builder 2/3] RUN make`, then each line of output.
    fn tell_steps(&self, origins: Vec<Option<usize>>, current: &Current) -> ImageProgressSink {
        let (app, id, current) = (self.app.clone(), self.id.clone(), current.clone());
        let shown: Vec<String> = self.instructions.iter().map(Instruction::shown).collect();
        ImageProgressSink::new(move |progress| {
            let mut current = current.lock().unwrap_or_else(PoisonError::into_inner);
            let prefix = |index: Option<usize>| match index {
                Some(index) => format!("[builder {}/{}]", index + 1, shown.len()),
                None => "[base]".to_owned(),
            };
            let texts: Vec<String> = match progress {
                ImageProgress::Stage { stage, percent: None } => vec![stage],
                ImageProgress::Stage { percent: Some(_), .. } => Vec::new(),
                ImageProgress::Item(item) => match origins.get(item.index).copied().flatten() {
                    Some(index) if *current != Some(index) => {
                        *current = Some(index);
                        let cached = if item.state == ItemState::Cached { "CACHED " } else { "" };
                        vec![format!("{cached}{} {}", prefix(Some(index)), shown[index])]
                    }
                    Some(_) | None => Vec::new(),
                },
                ImageProgress::Output { text } => {
                    text.lines().map(|line| format!("{} [stdout]: {line}", prefix(*current))).collect()
                }
            };
            drop(current);
            let now_ms = app.engine.now_ms();
            app.part::<Builds>()
                .change(&id, |build| texts.iter().for_each(|text| build.log(now_ms, "info", text)));
        })
    }
}

pub(super) async fn status(
    State(app): State<Arc<App>>,
    E2bExtractor(caller): E2bExtractor<Reader>,
    uri: Uri,
    E2bExtractor(Segments(path)): E2bExtractor<Segments<BuildPath>>,
) -> Result<Json<Value>, Refusal> {
    caller.unbound()?;
    let offset = pairs(&uri)?.into_iter().find(|(name, _)| name == "logsOffset");
    let offset = offset.and_then(|(_, value)| value.parse::<usize>().ok()).unwrap_or(0);
    let all = app.part::<Builds>().lock();
    let build = path.build_in(&all, &caller)?;
    let lines: Vec<&Value> = build.lines.iter().skip(offset).take(LINES_AT_ONCE).collect();
    let texts: Vec<&Value> = lines.iter().map(|line| &line["message"]).collect();
    let status = match build.stage {
        Stage::Waiting => "waiting",
        Stage::Building => "building",
        Stage::Ready => "ready",
        Stage::Failed(_) => "error",
    };
    let mut shown = json!({
        "templateID": build.name, "buildID": build.id, "status": status, "logs": texts, "logEntries": lines,
    });
    if let Stage::Failed(failure) = &build.stage {
        shown["reason"] = json!({ "message": failure.message, "logEntries": [] });
        if let Some(step) = &failure.step {
            shown["reason"]["step"] = json!(step);
        }
    }
    Ok(Json(shown))
}

/// The lines of a build after a time (`cursor`, milliseconds since the epoch), or before it.
pub(super) async fn logs(
    State(app): State<Arc<App>>,
    E2bExtractor(caller): E2bExtractor<Reader>,
    uri: Uri,
    E2bExtractor(Segments(path)): E2bExtractor<Segments<BuildPath>>,
) -> Result<Json<Value>, Refusal> {
    caller.unbound()?;
    let query = LogQuery::of(&uri)?;
    let all = app.part::<Builds>().lock();
    let lines = path.build_in(&all, &caller)?.lines.clone();
    Ok(Json(json!({ "logs": query.select(lines) })))
}

#[derive(Debug, Deserialize)]
pub(super) struct Tags {
    /// The build that gets the tags; for a removal, `name`.
    #[serde(alias = "name")]
    target: String,
    #[serde(default)]
    tags: Vec<String>,
}

pub(super) async fn tag(
    State(app): State<Arc<App>>,
    E2bExtractor(caller): E2bExtractor<Admin>,
    body: JsonInput<Tags>,
) -> Result<Response, Refusal> {
    let Tags { target, tags } = body.value;
    let TemplateTarget::Image(name) = find(&app, &caller, &target).await? else {
        return Err(Refusal::absent("a snapshot has no tags"));
    };
    let image = app.engine.find_image(caller.tenant(), &name).await?;
    for tag in &tags {
        app.engine.tag_image(caller.tenant(), &image, tagged(&name, tag)?).await?;
    }
    let shown = json!({ "buildID": uuid(image.id.as_str().as_bytes()), "tags": tags });
    Ok((StatusCode::CREATED, Json(shown)).into_response())
}

pub(super) async fn untag(
    State(app): State<Arc<App>>,
    E2bExtractor(caller): E2bExtractor<Admin>,
    body: JsonInput<Tags>,
) -> Result<StatusCode, Refusal> {
    for tag in &body.value.tags {
        let name = tagged(&body.value.target, tag)?;
        let image = app.engine.find_image(caller.tenant(), name.as_str()).await?;
        app.engine.untag_image(caller.tenant(), &image, &name).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_ids_are_uuids_and_tags_replace_those_of_a_name() {
        let id = uuid(b"x");
        assert_eq!((id.len(), id.as_bytes()[14]), (36, b'8'), "{id}");
        assert_eq!(tagged("app:v1", "v2").unwrap().as_str(), "app:v2");
        assert_eq!(tagged("localhost:5000/app", "v2").unwrap().as_str(), "localhost:5000/app:v2");
        assert!(tagged("app", "no good").is_err());
    }
}
