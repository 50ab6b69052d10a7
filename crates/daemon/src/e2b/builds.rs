//! Builds of templates: an image that is here or is pulled, and steps on top of it, done in the background.
//!
//! ```text
//!   POST /v3/templates ─► waiting ─ POST …/builds/{build} ─► building ─► ready | error     GET …/status
//! ```
//!
//! What a build says is kept in RAM, as long as there is room: a daemon that is started anew knows the images, and no builds.
//! Making images needs the scope `admin`, as everywhere.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use burrow_engine::{BuildOptions, ImageProgress, ItemState, PullOptions, Tell};
use burrow_images::recipe::{Recipe, Run, Step};
use burrow_model::{ImageName, NetworkMode, NetworkPolicy, TenantId};
use http::{StatusCode, Uri};
use ring::digest;
use serde::Deserialize;
use serde_json::{Value, json};

use super::body::{By, Given, Unknown, asks};
use super::copies;
use super::error::Refusal;
use super::show::time;
use super::templates::{Found, find};
use crate::convert;
use crate::rest::auth::{Admin, Caller, Reader};
use crate::rest::input::pairs;
use crate::rest::{App, Segments};

/// Builds that are remembered; the oldest that is over makes room.
const BUILDS_MAX: usize = 256;

/// Lines of one build, each cut to so many characters.
const LINES_MAX: usize = 10_000;
const LINE_CHARACTERS_MAX: usize = 2_000;

/// Lines of one answer.
const LINES_AT_ONCE: usize = 100;

const STEPS_MAX: usize = 256;

/// What E2B's own clients begin with when nobody says.
const USUAL_BASE: &str = "e2bdev/base";

#[derive(Debug, Default)]
pub(crate) struct Builds(Mutex<VecDeque<Build>>);

#[derive(Debug)]
struct Build {
    id: String,
    tenant: TenantId,
    name: ImageName,
    /// Further names it gets when it is ready.
    tags: Vec<ImageName>,
    stage: Stage,
    lines: Vec<Value>,
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    Building,
    Ready,
    Failed(String),
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

    /// The newest of this name that has not been started.
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

/// Clients read ids of builds as UUIDs.
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
    /// Its older name.
    alias: Option<String>,
    tags: Option<Vec<String>>,
    /// What sandboxes get is the operator's to say.
    #[serde(rename = "cpuCount")]
    _cpu_count: Option<u64>,
    #[serde(rename = "memoryMB")]
    _memory_mb: Option<u64>,
    #[serde(rename = "minFreeDiskMB", alias = "minFreeDiskMb")]
    _min_free_disk_mb: Option<u64>,
    #[serde(flatten)]
    unknown: Unknown,
}

pub(super) async fn request(
    State(app): State<Arc<App>>,
    By(caller): By<Admin>,
    body: Given<NewTemplate>,
) -> Result<Response, Refusal> {
    body.value.unknown.refuse()?;
    let text = body.value.name.or(body.value.alias).ok_or_else(|| Refusal::invalid("`name` is missing"))?;
    let text = text.strip_suffix(":default").unwrap_or(&text);
    let name = convert::image_name("name", text)?;
    let tags = body.value.tags.unwrap_or_default();
    let tags =
        tags.iter().filter(|tag| *tag != "default").map(|tag| tagged(text, tag)).collect::<Result<_, _>>()?;
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the kernel's random generator answers");
    let id = uuid(&bytes);
    let shown = json!({
        "templateID": name, "buildID": id, "public": false, "names": [name], "aliases": [name], "tags": tags,
    });
    let (tenant, stage) = (caller.tenant().clone(), Stage::Waiting);
    app.builds.add(Build { id, tenant, name, tags, stage, lines: Vec::new() })?;
    Ok((StatusCode::ACCEPTED, Json(shown)).into_response())
}

/// `name:tag`, whatever tag the name had.
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
    unknown: Unknown,
}

#[derive(Debug, Deserialize)]
struct Instruction {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    force: bool,
    /// Which upload a copy is of.
    #[serde(rename = "filesHash")]
    files_hash: Option<String>,
}

pub(super) async fn start(
    State(app): State<Arc<App>>,
    By(caller): By<Admin>,
    By(Segments(path)): By<Segments<BuildPath>>,
    body: Given<Instructions>,
) -> Result<StatusCode, Refusal> {
    let wish = body.value;
    wish.unknown.refuse()?;
    if wish.registry.as_ref().is_some_and(asks) {
        return Err(Refusal::absent(
            "pull what needs a password with `burrow image pull`, and build on it by its name",
        ));
    }
    if [&wish.start, &wish.ready].into_iter().flatten().any(|command| !command.is_empty()) {
        return Err(Refusal::absent(
            "an image holds no processes: start it in a sandbox, snapshot that, and use the snapshot as the template",
        ));
    }
    let steps = steps(&wish.steps)?;
    let base = base(&app, &caller, &wish).await?;
    let name = {
        let mut all = app.builds.lock();
        let own = all.iter_mut().find(|build| build.id == path.build && build.tenant == *caller.tenant());
        let build = own.ok_or_else(unknown)?;
        if build.stage != Stage::Waiting {
            return Err(Refusal::new(StatusCode::CONFLICT, "this build was started already"));
        }
        build.stage = Stage::Building;
        build.name.clone()
    };
    let no_cache = wish.force || wish.steps.iter().any(|step| step.force);
    // As E2B's builds: whoever may make images may fetch what goes into them.
    let network = NetworkPolicy { mode: NetworkMode::Open, ..NetworkPolicy::closed() };
    let work =
        Work { app: app.clone(), tenant: caller.tenant().clone(), id: path.build, name, no_cache, network };
    app.tasks.spawn(async move { work.run(base, steps).await });
    Ok(StatusCode::ACCEPTED)
}

fn unknown() -> Refusal {
    Refusal::new(
        StatusCode::NOT_FOUND,
        "there is no such build; builds are forgotten when the daemon is started anew",
    )
}

/// What a build begins with.
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
        (Ok(Found::Image(name)), _) => Ok(Base::Here(name)),
        (Ok(Found::Snapshot(_)), _) => {
            Err(Refusal::absent("a build begins with an image; `burrow image commit` makes one of a sandbox"))
        }
        (Err(refusal), Some(_)) => Err(refusal),
        (Err(_), None) => {
            convert::image_reference("fromImage", text)?;
            Ok(Base::Pulled(text.to_owned()))
        }
    }
}

fn steps(instructions: &[Instruction]) -> Result<Vec<Step>, Refusal> {
    if instructions.len() > STEPS_MAX {
        return Err(Refusal::invalid(format!("a build has at most {STEPS_MAX} steps")));
    }
    let (mut steps, mut user, mut workdir) = (Vec::new(), None::<String>, None::<String>);
    for Instruction { kind, args, files_hash, .. } in instructions {
        let needed = |index: usize| {
            let text = args.get(index).filter(|text| !text.is_empty());
            text.cloned().ok_or_else(|| Refusal::invalid(format!("a step `{kind}` lacks an argument")))
        };
        match kind.as_str() {
            "RUN" => {
                // This one alone is done as somebody else.
                let own = args.get(1).filter(|name| !name.is_empty() && Some(*name) != user.as_ref());
                steps.extend(own.cloned().map(Step::User));
                steps.push(Step::Run(Run::Shell(needed(0)?)));
                if own.is_some() {
                    steps.push(Step::User(user.clone().unwrap_or_else(|| "root".to_owned())));
                }
            }
            "ENV" => {
                let pairs = args.chunks(2).map(|pair| match pair {
                    [name, value] => Ok((name.clone(), value.clone())),
                    _ => Err(Refusal::invalid("a step `ENV` lacks a value")),
                });
                let variables: BTreeMap<_, _> = pairs.collect::<Result<_, _>>()?;
                for (name, value) in &variables {
                    burrow_model::check_env_name(name, value)
                        .map_err(|error| Refusal::invalid(format!("a step `ENV` does not fit: {error}")))?;
                }
                steps.push(Step::Env(variables));
            }
            "WORKDIR" => {
                let path = needed(0)?;
                convert::check_path("WORKDIR", &path)?;
                workdir = Some(path.clone());
                steps.push(Step::Workdir(path));
            }
            "USER" => {
                let name = needed(0)?;
                convert::user("USER", &name)?;
                steps.push(Step::User(name.clone()));
                user = Some(name);
            }
            "COPY" => {
                let mut copy = copies::step(args, files_hash.as_deref(), workdir.as_deref())?;
                copy.owner = copy.owner.or_else(|| user.clone());
                steps.push(Step::Copy(copy));
            }
            _ => return Err(Refusal::absent("Burrow knows the steps RUN, COPY, ENV, WORKDIR and USER")),
        }
    }
    Ok(steps)
}

/// A build under way.
struct Work {
    app: Arc<App>,
    tenant: TenantId,
    id: String,
    name: ImageName,
    no_cache: bool,
    network: NetworkPolicy,
}

impl Work {
    async fn run(self, base: Base, steps: Vec<Step>) {
        let stage = match self.build(base, steps).await {
            Ok(()) => Stage::Ready,
            Err(refusal) => Stage::Failed(refusal.into_message()),
        };
        self.app.builds.change(&self.id, |build| build.stage = stage);
    }

    async fn build(&self, base: Base, steps: Vec<Step>) -> Result<(), Refusal> {
        let engine = &self.app.engine;
        let uploads = self.app.copies.take(&self.id);
        let copies = steps.iter().any(|step| matches!(step, Step::Copy(_)));
        let context = if copies { Some(copies::context(&self.app, uploads).await?) } else { None };
        let base = match base {
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
        let image = if steps.is_empty() {
            let image = engine.find_image(&self.tenant, &base).await?;
            engine.tag_image(&self.tenant, &image, self.name.clone()).await?
        } else {
            let options = BuildOptions {
                recipe: Recipe { base, steps },
                context,
                name: Some(self.name.clone()),
                no_cache: self.no_cache,
                network: self.network.clone(),
            };
            engine.build_recipe(&self.tenant, options, self.tell()).await?
        };
        let mut tags = Vec::new();
        self.app.builds.change(&self.id, |build| tags.clone_from(&build.tags));
        for tag in tags {
            engine.tag_image(&self.tenant, &image, tag).await?;
        }
        Ok(())
    }

    fn tell(&self) -> Tell {
        let (app, id) = (self.app.clone(), self.id.clone());
        Tell::new(move |progress| {
            let texts: Vec<String> = match progress {
                ImageProgress::Stage { stage, percent: None } => vec![stage],
                ImageProgress::Stage { percent: Some(_), .. } => Vec::new(),
                ImageProgress::Item(item) if matches!(item.state, ItemState::Running | ItemState::Cached) => {
                    let cached = if item.state == ItemState::Cached { " (cached)" } else { "" };
                    vec![format!("[{}/{}] {}{cached}", item.index + 1, item.count, item.what)]
                }
                ImageProgress::Item(_) => Vec::new(),
                ImageProgress::Output { text } => text.lines().map(str::to_owned).collect(),
            };
            let now = time(app.engine.now_ms());
            app.builds.change(&id, |build| {
                for text in texts.into_iter().take(LINES_MAX.saturating_sub(build.lines.len())) {
                    let message: String = text.chars().take(LINE_CHARACTERS_MAX).collect();
                    build.lines.push(json!({ "timestamp": now, "level": "info", "message": message }));
                }
            });
        })
    }
}

pub(super) async fn status(
    State(app): State<Arc<App>>,
    By(caller): By<Reader>,
    uri: Uri,
    By(Segments(path)): By<Segments<BuildPath>>,
) -> Result<Json<Value>, Refusal> {
    caller.unbound()?;
    let offset = pairs(&uri)?.into_iter().find(|(name, _)| name == "logsOffset");
    let offset = offset.and_then(|(_, value)| value.parse::<usize>().ok()).unwrap_or(0);
    let all = app.builds.lock();
    let own = all.iter().find(|build| build.id == path.build && build.tenant == *caller.tenant());
    let build = own.ok_or_else(unknown)?;
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
    if let Stage::Failed(message) = &build.stage {
        shown["reason"] = json!({ "message": message });
    }
    Ok(Json(shown))
}

#[derive(Debug, Deserialize)]
pub(super) struct Tags {
    /// Whose build gets them; of a removal, `name`.
    #[serde(alias = "name")]
    target: String,
    #[serde(default)]
    tags: Vec<String>,
}

pub(super) async fn tag(
    State(app): State<Arc<App>>,
    By(caller): By<Admin>,
    body: Given<Tags>,
) -> Result<Response, Refusal> {
    let Tags { target, tags } = body.value;
    let Found::Image(name) = find(&app, &caller, &target).await? else {
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
    By(caller): By<Admin>,
    body: Given<Tags>,
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

    fn read(json: &str) -> Result<Vec<Step>, Refusal> {
        let wish: Instructions = serde_json::from_str(json).unwrap();
        steps(&wish.steps)
    }

    #[test]
    fn steps_become_a_recipe() {
        let read = read(
            r#"{"steps": [{"type": "USER", "args": ["user"]}, {"type": "RUN", "args": ["make", "root"]},
                {"type": "RUN", "args": ["true"]}, {"type": "ENV", "args": ["A", "b"]}, {"type": "WORKDIR", "args": ["/w"]}]}"#,
        );
        let run = |text: &str| Step::Run(Run::Shell(text.to_owned()));
        let user = |name: &str| Step::User(name.to_owned());
        let env = Step::Env([("A".to_owned(), "b".to_owned())].into());
        let expected = [
            user("user"),
            user("root"),
            run("make"),
            user("user"),
            run("true"),
            env,
            Step::Workdir("/w".to_owned()),
        ];
        assert_eq!(read.unwrap(), expected);
    }

    #[test]
    fn steps_that_make_no_sense_are_refused() {
        for bad in [
            r#"{"type": "RUN", "args": []}"#,
            r#"{"type": "ENV", "args": ["A"]}"#,
            r#"{"type": "ENV", "args": ["A B", "c"]}"#,
            r#"{"type": "WORKDIR", "args": ["w"]}"#,
            r#"{"type": "USER", "args": ["a b"]}"#,
            r#"{"type": "COPY", "args": ["a", "/b"]}"#,
            r#"{"type": "COPY", "args": ["../a", "/b"], "filesHash": "ab"}"#,
            r#"{"type": "SHELL", "args": ["x"]}"#,
        ] {
            assert!(read(&format!(r#"{{"steps": [{bad}]}}"#)).is_err(), "{bad}");
        }
    }

    #[test]
    fn ids_of_builds_are_uuids_and_tags_belong_to_a_name() {
        let id = uuid(b"x");
        assert_eq!((id.len(), id.as_bytes()[14]), (36, b'8'), "{id}");
        assert_eq!(tagged("app:v1", "v2").unwrap().as_str(), "app:v2");
        assert_eq!(tagged("localhost:5000/app", "v2").unwrap().as_str(), "localhost:5000/app:v2");
        assert!(tagged("app", "no good").is_err());
    }
}
