//! Builds: a base image, and steps that change its files or what it says about its processes.
//!
//! ```text
//!   base ─► key ─┬─ packages, copy, run: kept under its key? use it : do it in a sandbox, keep its volume
//!                └─ env, user, workdir, …: change the configuration
//! ```
//!
//! A step's key depends on the base, on all steps before it and on the files it copies, so a step is done again when
//! anything that could change its outcome has changed; but for what it fetches, for which there is `no_cache`.

use burrow_catalog::LayerRow;
use burrow_images::ImageError;
use burrow_images::recipe::{self, Recipe, Run, Step, StepKey};
use burrow_model::{
    Image, ImageConfig, ImageId, ImageName, ImageOrigin, ImageStep, NetworkPolicy, OperationId, TenantId,
};
use burrow_volumes::{VolumeError, inside};

use super::context::BuildContext;
use super::finish::{NewImage, blocking};
use super::layers::{Claim, Hold, NewLayer, claim, make};
use super::progress::{ImageItem, ItemState};
use super::step::Workshop;
use super::{Files, Tell, sources};
use crate::{Engine, EngineError, faults};

/// What to build.
#[derive(Debug)]
pub struct BuildOptions {
    pub recipe: Recipe,
    pub context: Option<BuildContext>,
    pub name: Option<ImageName>,
    /// Do every step, whatever is kept.
    pub no_cache: bool,
    /// What `run` steps may reach. Packages are fetched from wherever the image's own sources are.
    pub network: NetworkPolicy,
}

/// A recipe of packages alone. Their names go into a command, so what is no name is refused.
pub fn packages_recipe(base: String, packages: Vec<String>) -> Result<Recipe, EngineError> {
    let refused = |reason: String| EngineError::from(ImageError::Recipe { line: None, reason });
    if packages.is_empty() || packages.len() > PACKAGES_MAX {
        return Err(refused(format!("`packages` must name 1 to {PACKAGES_MAX}")));
    }
    if let Some(bad) = packages.iter().find(|name| !is_package(name)) {
        return Err(refused(format!("`{}` is no package's name", crate::engine::shown(bad))));
    }
    Ok(Recipe { base, steps: vec![Step::Packages(packages)] })
}

/// Packages of one step.
const PACKAGES_MAX: usize = 1_000;

/// As Debian has it, with an architecture or a version after it if it likes.
fn is_package(name: &str) -> bool {
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let rest =
        |b: u8| letter(b) || matches!(b, b'+' | b'-' | b'.' | b':' | b'=' | b'~') || b.is_ascii_uppercase();
    name.len() <= 200 && name.bytes().next().is_some_and(letter) && name.bytes().all(rest)
}

/// Where a build stands.
struct Progress {
    files: ImageId,
    layer: Option<ImageId>,
    key: StepKey,
    config: ImageConfig,
    size_bytes: u64,
    history: Vec<ImageStep>,
    holds: Vec<Hold>,
}

/// One build under way.
struct Build<'a> {
    engine: &'a Engine,
    tenant: &'a TenantId,
    id: String,
    options: &'a BuildOptions,
    tell: &'a Tell,
}

impl Engine {
    /// Builds an image. Whoever hangs up does not stop it.
    pub async fn build_recipe(
        &self,
        tenant: &TenantId,
        options: BuildOptions,
        tell: Tell,
    ) -> Result<Image, EngineError> {
        let base = self.find_image(tenant, &options.recipe.base).await?;
        let _slot = self.shared.images.slot(&tell).await?;
        let id = OperationId::generate().to_string();
        let build = Build { engine: self, tenant, id, options: &options, tell: &tell };
        let mut at = build.begin(&base).await?;
        let count = options.recipe.steps.len();
        for (index, step) in options.recipe.steps.iter().enumerate() {
            build.step(&mut at, index, count, step).await?;
        }
        tell.stage("finishing the image", None);
        let of = Some(base.title().to_owned());
        let new = NewImage {
            names: options.name.clone().into_iter().collect(),
            config: at.config,
            origin: ImageOrigin { kind: "build".to_owned(), of, history: at.history },
            layer: at.layer,
            size_bytes: at.size_bytes,
            files: Files::Volume(at.files),
        };
        let image = self.finish_image(tenant, new, "image.built").await?;
        // Only now does a row keep the layers from being cleaned up.
        drop(at.holds);
        Ok(image)
    }
}

impl Build<'_> {
    async fn begin(&self, base: &Image) -> Result<Progress, EngineError> {
        let shared = &self.engine.shared;
        // A layer may have been cleaned up or lost with a backup; the image has files of its own.
        let mut holds = Vec::new();
        let mut files = base.id.clone();
        let mut layer = None;
        if let Some(volume) = &base.layer
            && let Some(row) = shared.seams.catalog.layer_of_volume(self.tenant, volume).await?
            && let Claim::There(row, hold) = claim(shared, self.tenant, &row.key).await?
            && row.volume == *volume
        {
            files = row.volume.clone();
            layer = Some(row.volume);
            holds.push(hold);
        }
        let config = serde_json::to_string(&base.config).expect("a configuration is JSON");
        // What never changes names the base exactly; the same image built or pulled again stands on the same layer.
        let named = base.layer.as_ref().unwrap_or(&base.id);
        Ok(Progress {
            files,
            layer,
            key: recipe::base_key(&format!("{named} {config}")),
            config: base.config.clone(),
            size_bytes: base.size_bytes,
            history: base.origin.history.clone(),
            holds,
        })
    }

    async fn step(
        &self,
        at: &mut Progress,
        index: usize,
        count: usize,
        step: &Step,
    ) -> Result<(), EngineError> {
        let what = shown(step);
        let content = match (step, &self.options.context) {
            (Step::Copy(copy), Some(context)) => Some(context.digest(&copy.from).await?),
            (Step::Copy(_), None) => {
                let reason = "it copies files, and came without any".to_owned();
                return Err(ImageError::Recipe { line: None, reason }.into());
            }
            _ => None,
        };
        at.key = recipe::key(at.key, step, content);
        let item = |state| ImageItem { index, count, what: what.clone(), state, bytes: 0, bytes_total: None };
        match step {
            Step::Packages(_) | Step::Copy(_) | Step::Run(_) => {
                let (row, hold, state) =
                    self.layer(at, step, &what, || self.tell.item(item(ItemState::Running))).await?;
                at.files = row.volume.clone();
                at.layer = Some(row.volume);
                at.size_bytes += row.size_bytes;
                at.holds.push(hold);
                at.history.push(ImageStep {
                    what: what.clone(),
                    size_bytes: row.size_bytes,
                    layer: Some(row.key),
                });
                self.tell.item(item(state));
            }
            Step::Env(_)
            | Step::User(_)
            | Step::Workdir(_)
            | Step::Entrypoint(_)
            | Step::Cmd(_)
            | Step::Labels(_) => {
                configure(&mut at.config, step);
                at.history.push(ImageStep { what: what.clone(), size_bytes: 0, layer: None });
                self.tell.item(item(ItemState::Done));
            }
        }
        Ok(())
    }

    /// The layer a step makes: kept from before, or made now.
    async fn layer(
        &self,
        at: &Progress,
        step: &Step,
        what: &str,
        begins: impl FnOnce(),
    ) -> Result<(LayerRow, Hold, ItemState), EngineError> {
        let shared = &self.engine.shared;
        let key = format!("step:{}", at.key.0.hex());
        let right = match claim(shared, self.tenant, &key).await? {
            Claim::There(row, hold) if !self.options.no_cache => return Ok((row, hold, ItemState::Cached)),
            Claim::There(_, hold) => {
                drop(hold);
                shared.images.locks.right(self.tenant, &key).await
            }
            Claim::Missing(right) => right,
        };
        begins();
        let new =
            NewLayer { tenant: self.tenant.clone(), key, parent: at.layer.clone(), what: what.to_owned() };
        let volume = ImageId::generate();
        let row = make(shared, new, volume.clone(), self.perform(at, step, &volume)).await?;
        Ok((row, right.downgrade(), ItemState::Done))
    }

    /// Does the step in a sandbox, and stages its files. Answers the bytes that were written.
    async fn perform(&self, at: &Progress, step: &Step, volume: &ImageId) -> Result<u64, EngineError> {
        let network = if matches!(step, Step::Packages(_)) {
            self.sources(&at.files).await?
        } else if matches!(step, Step::Run(_)) {
            self.options.network.clone()
        } else {
            NetworkPolicy::closed()
        };
        let workshop = Workshop::open(self.engine, self.tenant, &self.id, &at.files, network).await?;
        let done = async {
            faults::hit("step.begun")?;
            self.act(at, step, &workshop).await?;
            workshop.stop().await?;
            let volumes = &self.engine.shared.seams.volumes;
            let written = match volumes.used(workshop.id()).await {
                Ok(bytes) => bytes,
                Err(VolumeError::NoQuotas { .. }) => 0,
                Err(error) => return Err(error.into()),
            };
            let root = volumes.stage_image_of_sandbox(volume, workshop.id()).await?;
            blocking(move || Ok(inside::forget_machine_id(&root)?)).await?;
            faults::hit("step.staged")?;
            Ok(written)
        };
        let done = done.await;
        workshop.close().await;
        done
    }

    async fn act(&self, at: &Progress, step: &Step, workshop: &Workshop<'_>) -> Result<(), EngineError> {
        match step {
            Step::Packages(packages) => workshop.install(packages, &at.config.env, self.tell).await,
            Step::Run(run) => workshop.run(run, &at.config, self.tell).await,
            Step::Copy(copy) => {
                let context = self.options.context.as_ref().expect("a copy's key was made from its context");
                workshop.copy(context.parcel(copy)?, copy.owner.clone()).await
            }
            Step::Env(_)
            | Step::User(_)
            | Step::Workdir(_)
            | Step::Entrypoint(_)
            | Step::Cmd(_)
            | Step::Labels(_) => Ok(()),
        }
    }

    /// What packages may be fetched from: exactly the hosts that the image's own sources name.
    async fn sources(&self, files: &ImageId) -> Result<NetworkPolicy, EngineError> {
        let root = self.engine.shared.seams.volumes.locate_image(files).await?;
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

/// Files of sources that are read, and bytes of each.
const SOURCES_MAX: usize = 64;
const SOURCES_BYTES_MAX: u64 = 256 << 10;

fn configure(config: &mut ImageConfig, step: &Step) {
    match step {
        Step::Env(env) => config.env.extend(env.clone()),
        Step::User(user) => config.user = Some(user.clone()),
        Step::Workdir(workdir) => config.workdir = Some(workdir.clone()),
        // As Docker has it: arguments of another program mean nothing to this one.
        Step::Entrypoint(entrypoint) => {
            config.entrypoint.clone_from(entrypoint);
            config.cmd.clear();
        }
        Step::Cmd(cmd) => config.cmd.clone_from(cmd),
        Step::Labels(labels) => config.labels.extend(labels.clone()),
        Step::Packages(_) | Step::Copy(_) | Step::Run(_) => {}
    }
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
    };
    crate::engine::shown(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_packages_reach_the_package_manager() {
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
    fn an_entrypoint_takes_the_old_arguments_away() {
        let mut config = ImageConfig { cmd: vec!["old".to_owned()], ..ImageConfig::default() };
        configure(&mut config, &Step::Entrypoint(vec!["/run".to_owned()]));
        assert!(config.cmd.is_empty());
        configure(&mut config, &Step::Cmd(vec!["new".to_owned()]));
        assert_eq!(config.command(&[]), ["/run", "new"]);
    }

    #[test]
    fn the_values_of_variables_are_not_told() {
        let step = Step::Env([("TOKEN".to_owned(), "s3cret".to_owned())].into());
        assert_eq!(shown(&step), "env TOKEN");
    }
}
