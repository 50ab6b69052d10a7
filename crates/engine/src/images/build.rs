//! Builds: a base image, and steps that change its files or its configuration. A Dockerfile may have several such stages,
//! of which later ones begin with, or copy from, earlier ones.
//!
//! ```text
//!   base ─► key ─┬─ packages, copy, run: cached under its key? use it : run it in a sandbox, keep its disk
//!                └─ env, user, workdir, …: change the configuration
//! ```
//!
//! A step's key depends on the base, on all steps before it and on the files it copies. So a step is run again if any input changed,
//! except for what it downloads; `no_cache` is for that.

use std::sync::{Mutex, PoisonError};

use burrow_catalog::LayerRow;
use burrow_disks::{DiskError, inside};
use burrow_images::recipe::{self, Recipe, Run, Step, StepKey};
use burrow_images::{Digest, ImageError};
use burrow_model::{
    Image, ImageConfig, ImageId, ImageName, ImageOrigin, ImageStep, Limits, NetworkPolicy, OperationId,
    TenantId,
};

use super::build_stages::{BuildSource, BuildStage, LocatedStep, StageFiles, located};
use super::context::BuildContext;
use super::finish::{NewImage, blocking, prepare_for_drivers, stage_from};
use super::layer_locks::LayerReadLock;
use super::layers::{LayerClaim, NewLayer, claim, make};
use super::progress::{ImageItem, ItemState};
use super::step::StepSandbox;
use super::tree_steps::{CacheLocks, StepTrees};
use super::{Files, ImageProgressSink, sources};
use crate::{Engine, EngineError, faults};

/// What to build.
#[derive(Debug)]
pub struct BuildOptions {
    pub source: BuildSource,
    pub context: Option<BuildContext>,
    pub name: Option<ImageName>,
    /// Run every step, whatever is cached.
    pub no_cache: bool,
    /// The network policy of `run` steps. Packages are fetched from the package sources of the image.
    pub network: NetworkPolicy,
    /// Limits of the sandboxes that steps run in; `None`: the operator's defaults.
    pub limits: Option<Limits>,
}

/// A recipe that only installs packages. Package names become part of a command, so invalid names are refused.
pub fn packages_recipe(base: String, packages: Vec<String>) -> Result<Recipe, EngineError> {
    let refused = |reason: String| EngineError::from(ImageError::Recipe { line: None, reason });
    if packages.is_empty() || packages.len() > PACKAGES_MAX {
        return Err(refused(format!("`packages` must name 1 to {PACKAGES_MAX} packages")));
    }
    if let Some(bad) = packages.iter().find(|name| !is_package(name)) {
        return Err(refused(format!("`{}` is not a valid package name", crate::shown::shown(bad))));
    }
    Ok(Recipe { base, steps: vec![Step::Packages(packages)] })
}

/// Packages of one step.
const PACKAGES_MAX: usize = 1_000;

/// A Debian package name, optionally with an architecture or a version.
fn is_package(name: &str) -> bool {
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let rest =
        |b: u8| letter(b) || matches!(b, b'+' | b'-' | b'.' | b':' | b'=' | b'~') || b.is_ascii_uppercase();
    name.len() <= 200 && name.bytes().next().is_some_and(letter) && name.bytes().all(rest)
}

/// The state of a stage after some steps.
#[derive(Clone)]
pub(super) struct BuildState {
    pub(super) files: ImageId,
    layer: Option<ImageId>,
    pub(super) key: StepKey,
    config: ImageConfig,
    size_bytes: u64,
    history: Vec<ImageStep>,
    /// The title of the image it began with.
    of: Option<String>,
}

/// A build in progress.
pub(super) struct Build<'a> {
    pub(super) engine: &'a Engine,
    pub(super) tenant: &'a TenantId,
    id: String,
    pub(super) options: &'a BuildOptions,
    tell: &'a ImageProgressSink,
    /// Keep the layers in use from being removed.
    holds: Mutex<Vec<LayerReadLock>>,
}

/// A step's number among all steps of the build.
#[derive(Clone, Copy)]
struct StepNumber {
    index: usize,
    count: usize,
}

impl Engine {
    /// Builds an image. A client that disconnects does not stop it.
    pub async fn build_recipe(
        &self,
        tenant: &TenantId,
        options: BuildOptions,
        tell: ImageProgressSink,
    ) -> Result<Image, EngineError> {
        // Images are pulled before the permit is acquired: each pull acquires its own.
        let stages = self.build_stages(tenant, &options, &tell).await?;
        let _slot = self.shared.images.permit(&tell).await?;
        let id = OperationId::generate().to_string();
        let build =
            Build { engine: self, tenant, id, options: &options, tell: &tell, holds: Mutex::default() };
        let mut done: Vec<BuildState> = Vec::new();
        let count = stages.iter().map(|stage| stage.steps.len()).sum();
        let mut number = StepNumber { index: 0, count };
        for stage in &stages {
            let mut at = build.begin(&done, &stage.base).await?;
            for step in &stage.steps {
                let made = build.step(&mut at, &done, number, stage, step).await;
                made.map_err(|error| located(error, step))?;
                number.index += 1;
            }
            done.push(at);
        }
        let at = done.pop().expect("a build has at least one stage");
        tell.stage("finishing the image", None);
        let new = NewImage {
            names: options.name.clone().into_iter().collect(),
            config: at.config,
            origin: ImageOrigin { kind: "build".to_owned(), of: at.of, history: at.history },
            layer: at.layer,
            size_bytes: at.size_bytes,
            files: Files::Image(at.files),
        };
        let image = self.finish_image(tenant, new, "image.built").await?;
        // Only now does a row keep the layers from being removed.
        drop(build);
        Ok(image)
    }
}

impl Build<'_> {
    async fn begin(&self, done: &[BuildState], base: &StageFiles) -> Result<BuildState, EngineError> {
        match base {
            StageFiles::Stage(index) => Ok(done[*index].clone()),
            StageFiles::Image(image) => self.of_image(image).await,
            StageFiles::Scratch => self.scratch().await,
        }
    }

    pub(super) async fn of_image(&self, base: &Image) -> Result<BuildState, EngineError> {
        let shared = &self.engine.shared;
        // A layer may have been pruned, or lost with a backup; the image has its own copy of the files.
        let mut files = base.id.clone();
        let mut layer = None;
        if let Some(disk) = &base.layer
            && let Some(row) = shared.seams.catalog.layer_of_disk(self.tenant, disk).await?
            && let LayerClaim::There(row, hold) = claim(shared, self.tenant, &row.key).await?
            && row.disk == *disk
        {
            files = row.disk.clone();
            layer = Some(row.disk);
            self.hold(hold);
        }
        let config = serde_json::to_string(&base.config).expect("a configuration is JSON");
        // A layer key never changes and names the base exactly; the same image built or pulled again has the same layer.
        let named = base.layer.as_ref().unwrap_or(&base.id);
        Ok(BuildState {
            files,
            layer,
            key: recipe::base_key(&format!("{named} {config}")),
            config: base.config.clone(),
            size_bytes: base.size_bytes,
            history: base.origin.history.clone(),
            of: Some(base.title().to_owned()),
        })
    }

    /// No files, but the directories that the drivers need: one layer for all builds.
    async fn scratch(&self) -> Result<BuildState, EngineError> {
        const KEY: &str = "scratch";
        let shared = &self.engine.shared;
        let row = match claim(shared, self.tenant, KEY).await? {
            LayerClaim::There(row, hold) => {
                self.hold(hold);
                row
            }
            LayerClaim::Missing(lock) => {
                let disk = ImageId::generate();
                let (tenant, key, what) = (self.tenant.clone(), KEY.to_owned(), KEY.to_owned());
                let new = NewLayer { tenant, key, parent: None, what };
                let fill = async {
                    let root = stage_from(shared, &disk, None).await?;
                    prepare_for_drivers(shared, &root).await?;
                    Ok(0)
                };
                let row = make(shared, new, disk.clone(), fill).await?;
                self.hold(lock.downgrade());
                row
            }
        };
        Ok(BuildState {
            files: row.disk.clone(),
            layer: Some(row.disk),
            key: recipe::base_key(KEY),
            config: ImageConfig::default(),
            size_bytes: 0,
            history: Vec::new(),
            of: None,
        })
    }

    fn hold(&self, hold: LayerReadLock) {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner).push(hold);
    }

    async fn step(
        &self,
        at: &mut BuildState,
        done: &[BuildState],
        number: StepNumber,
        stage: &BuildStage,
        located: &LocatedStep,
    ) -> Result<(), EngineError> {
        let step = &located.step;
        let what = match &located.text {
            Some(text) => crate::shown::shown(&format!("{}{text}", stage.prefix())),
            None => shown(step),
        };
        let trees = self.trees(done, step).await?;
        let content = self.content(step, &trees).await?;
        at.key = recipe::key(at.key, step, content);
        let StepNumber { index, count } = number;
        let item = |state| ImageItem { index, count, what: what.clone(), state, bytes: 0, bytes_total: None };
        if changes_files(step) {
            let begins = || self.tell.item(item(ItemState::Running));
            let (row, hold, state) = self.layer(at, step, &trees, &what, begins).await?;
            at.files = row.disk.clone();
            at.layer = Some(row.disk);
            at.size_bytes += row.size_bytes;
            self.hold(hold);
            let size_bytes = row.size_bytes;
            at.history.push(ImageStep { what: what.clone(), size_bytes, layer: Some(row.key) });
            self.tell.item(item(state));
        } else {
            configure(&mut at.config, step);
            at.history.push(ImageStep { what: what.clone(), size_bytes: 0, layer: None });
            self.tell.item(item(ItemState::Done));
        }
        Ok(())
    }

    /// The digest of the files that a step reads from outside of its own stage.
    async fn content(&self, step: &Step, trees: &StepTrees) -> Result<Option<Digest>, EngineError> {
        match (step, &self.options.context) {
            (Step::Copy(copy), Some(context)) => Ok(Some(context.digest(&copy.from).await?)),
            (Step::Copy(_), None) => Err(no_context()),
            _ => Ok(trees.digest()),
        }
    }

    /// The layer of a step: cached, or made now.
    async fn layer(
        &self,
        at: &BuildState,
        step: &Step,
        trees: &StepTrees,
        what: &str,
        begins: impl FnOnce(),
    ) -> Result<(LayerRow, LayerReadLock, ItemState), EngineError> {
        let shared = &self.engine.shared;
        let key = format!("step:{}", at.key.0.hex());
        let layer_lock = match claim(shared, self.tenant, &key).await? {
            LayerClaim::There(row, hold) if !self.options.no_cache => {
                return Ok((row, hold, ItemState::Cached));
            }
            LayerClaim::There(_, hold) => {
                drop(hold);
                shared.images.locks.lock_exclusive(self.tenant, &key).await
            }
            LayerClaim::Missing(layer_lock) => layer_lock,
        };
        begins();
        let new =
            NewLayer { tenant: self.tenant.clone(), key, parent: at.layer.clone(), what: what.to_owned() };
        let disk = ImageId::generate();
        let row = make(shared, new, disk.clone(), self.perform(at, step, trees, &disk)).await?;
        Ok((row, layer_lock.downgrade(), ItemState::Done))
    }

    /// Runs the step in a sandbox, and stages its files. Returns the bytes that were written.
    async fn perform(
        &self,
        at: &BuildState,
        step: &Step,
        trees: &StepTrees,
        disk: &ImageId,
    ) -> Result<u64, EngineError> {
        let network = if matches!(step, Step::Packages(_)) {
            self.sources(&at.files).await?
        } else if matches!(step, Step::Run(_)) || matches!(step, Step::Command(command) if !command.offline) {
            self.options.network.clone()
        } else {
            NetworkPolicy::closed()
        };
        let limits = self.options.limits.unwrap_or(self.engine.shared.policy.warm_pool.limits);
        let caches = CacheLocks::acquire(self.engine, self.tenant, step, limits.disk_mib).await?;
        let opened = StepSandbox::open(
            self.engine,
            self.tenant,
            &self.id,
            &at.files,
            (network, limits),
            caches.mounts.clone(),
        );
        let step_sandbox = opened.await?;
        let done = async {
            faults::hit("step.begun")?;
            self.act(at, step, trees, &step_sandbox).await?;
            step_sandbox.stop().await?;
            let disks = &self.engine.shared.seams.disks;
            let written = match disks.used(step_sandbox.id().into()).await {
                Ok(bytes) => bytes,
                Err(DiskError::NoQuotas { .. }) => 0,
                Err(error) => return Err(error.into()),
            };
            let root = disks.stage(disk.into(), Some(step_sandbox.id().into())).await?;
            blocking(move || Ok(inside::forget_machine_id(&root)?)).await?;
            faults::hit("step.staged")?;
            Ok(written)
        };
        let done = done.await;
        step_sandbox.close().await;
        // Only now has no sandbox its volumes.
        drop(caches);
        done
    }

    async fn act(
        &self,
        at: &BuildState,
        step: &Step,
        trees: &StepTrees,
        step_sandbox: &StepSandbox<'_>,
    ) -> Result<(), EngineError> {
        match step {
            Step::Packages(packages) => step_sandbox.install(packages, &at.config.env, self.tell).await,
            Step::Run(run) => step_sandbox.run(run, &at.config, self.tell).await,
            Step::Copy(copy) => {
                let context = self.options.context.as_ref().expect("a copy's key was made from its context");
                step_sandbox.copy(context.copy_source(copy)?, copy.owner.clone()).await
            }
            Step::Command(command) => step_sandbox.command(command, trees, &at.config, self.tell).await,
            Step::CopyTree(copy) => match trees.copy() {
                Some(source) => step_sandbox.copy_tree(copy, source).await,
                None => Ok(()),
            },
            Step::Env(_)
            | Step::User(_)
            | Step::Workdir(_)
            | Step::Entrypoint(_)
            | Step::Cmd(_)
            | Step::Labels(_)
            | Step::Expose(_) => Ok(()),
        }
    }

    /// The network policy for installing packages: allows exactly the hosts in the image's own package sources.
    async fn sources(&self, files: &ImageId) -> Result<NetworkPolicy, EngineError> {
        let root = self.engine.shared.seams.disks.locate(files.into()).await?;
        blocking(move || {
            let mut texts = Vec::new();
            texts.extend(inside::read_file(&root, sources::FILE, SOURCES_BYTES_MAX)?);
            for name in inside::list_files(&root, sources::FOLDER, SOURCES_MAX)? {
                let path = format!("{}/{name}", sources::FOLDER);
                texts.extend(inside::read_file(&root, &path, SOURCES_BYTES_MAX)?);
            }
            let texts: Vec<String> =
                texts.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect();
            Ok(sources::policy(&texts))
        })
        .await
    }
}

/// Source files that are read, and bytes of each.
const SOURCES_MAX: usize = 64;
const SOURCES_BYTES_MAX: u64 = 256 << 10;

fn configure(config: &mut ImageConfig, step: &Step) {
    match step {
        Step::Env(env) => config.env.extend(env.clone()),
        Step::User(user) => config.user = Some(user.clone()),
        Step::Workdir(workdir) => config.workdir = Some(workdir.clone()),
        // As in Docker: the old arguments belong to the old program.
        Step::Entrypoint(entrypoint) => {
            config.entrypoint.clone_from(entrypoint);
            config.cmd.clear();
        }
        Step::Cmd(cmd) => config.cmd.clone_from(cmd),
        Step::Labels(labels) => config.labels.extend(labels.clone()),
        Step::Expose(ports) => config.exposed_ports.extend(ports.clone()),
        Step::Packages(_) | Step::Copy(_) | Step::Run(_) | Step::Command(_) | Step::CopyTree(_) => {}
    }
}

/// Whether a step has a layer; others change only the configuration.
fn changes_files(step: &Step) -> bool {
    match step {
        Step::Packages(_) | Step::Copy(_) | Step::Run(_) | Step::Command(_) | Step::CopyTree(_) => true,
        Step::Env(_)
        | Step::User(_)
        | Step::Workdir(_)
        | Step::Entrypoint(_)
        | Step::Cmd(_)
        | Step::Labels(_)
        | Step::Expose(_) => false,
    }
}

/// The error of a step that copies files of a build without any.
pub(super) fn no_context() -> EngineError {
    let reason = "it copies files, but the request contains no files".to_owned();
    ImageError::Recipe { line: None, reason }.into()
}

/// A step in one line.
fn shown(step: &Step) -> String {
    let names = |pairs: &std::collections::BTreeMap<String, String>| {
        pairs.keys().map(String::as_str).collect::<Vec<_>>().join(" ")
    };
    let text = match step {
        Step::Packages(packages) => format!("packages {}", packages.join(" ")),
        Step::Copy(copy) => format!("copy {} to {}", copy.from, copy.to),
        Step::Run(Run::Shell(text) | Run::Bash(text)) => format!("run {text}"),
        Step::Run(Run::Argv(argv)) => format!("run {}", argv.join(" ")),
        // Values may be secrets; names are not.
        Step::Env(env) => format!("env {}", names(env)),
        Step::User(user) => format!("user {user}"),
        Step::Workdir(workdir) => format!("workdir {workdir}"),
        Step::Entrypoint(argv) => format!("entrypoint {}", argv.join(" ")),
        Step::Cmd(argv) => format!("cmd {}", argv.join(" ")),
        Step::Labels(labels) => format!("labels {}", names(labels)),
        Step::Command(command) => format!("run {}", command.argv.join(" ")),
        Step::CopyTree(copy) => format!("copy {} to {}", copy.sources.join(" "), copy.to),
        Step::Expose(ports) => format!("expose {}", ports.iter().cloned().collect::<Vec<_>>().join(" ")),
    };
    crate::shown::shown(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_package_names_are_refused() {
        for good in ["git", "libstdc++6", "python3.11-venv", "gcc:arm64", "curl=7.88.1-10+deb12u5"] {
            assert!(is_package(good), "{good}");
        }
        for bad in ["", "-y", "--allow-unauthenticated", "a b", "a;b", "$(id)", "../x.deb", "/tmp/x.deb", "A"]
        {
            assert!(packages_recipe("debian".to_owned(), vec![bad.to_owned()]).is_err(), "{bad}");
        }
        assert!(packages_recipe("debian".to_owned(), Vec::new()).is_err());
    }

    #[test]
    fn a_new_entrypoint_clears_the_old_arguments() {
        let mut config = ImageConfig { cmd: vec!["old".to_owned()], ..ImageConfig::default() };
        configure(&mut config, &Step::Entrypoint(vec!["/run".to_owned()]));
        assert!(config.cmd.is_empty());
        configure(&mut config, &Step::Cmd(vec!["new".to_owned()]));
        assert_eq!(config.command(&[]), ["/run", "new"]);
    }

    #[test]
    fn the_values_of_variables_are_not_shown() {
        let step = Step::Env([("TOKEN".to_owned(), "s3cret".to_owned())].into());
        assert_eq!(shown(&step), "env TOKEN");
    }
}
