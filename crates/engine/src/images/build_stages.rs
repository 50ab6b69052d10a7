//! What a build begins with: the stages of a build file or a Dockerfile, and their images, which are pulled if they are missing.

use std::collections::BTreeMap;

use burrow_images::dockerfile::{
    DockerPlan, Dockerfile, Located, LoweredStep, PlanOptions, StageBase, StageScope,
};
use burrow_images::recipe::{Recipe, Step};
use burrow_images::{ImageError, Platform};
use burrow_model::{Image, TenantId};

use super::{BuildOptions, ImageProgressSink, PullOptions};
use crate::{Engine, EngineError};

/// The instructions of a build.
#[derive(Clone, Debug)]
pub enum BuildSource {
    Recipe(Recipe),
    Dockerfile(DockerSource),
}

#[derive(Clone, Debug)]
pub struct DockerSource {
    pub file: Dockerfile,
    pub arguments: BTreeMap<String, String>,
    /// The name or number of a stage; the last one if `None`.
    pub target: Option<String>,
}

/// A stage, ready to be built.
#[derive(Debug)]
pub(super) struct BuildStage {
    /// Of a Dockerfile with several stages.
    title: Option<String>,
    pub(super) base: StageFiles,
    pub(super) steps: Vec<LocatedStep>,
}

#[derive(Debug)]
pub(super) enum StageFiles {
    Scratch,
    Stage(usize),
    Image(Box<Image>),
}

/// A step, with its place and text in a Dockerfile.
#[derive(Debug)]
pub(super) struct LocatedStep {
    pub(super) step: Step,
    line: Option<usize>,
    pub(super) text: Option<String>,
}

impl BuildStage {
    /// In front of the texts of its steps.
    pub(super) fn prefix(&self) -> String {
        self.title.as_ref().map(|title| format!("{title}: ")).unwrap_or_default()
    }
}

impl Engine {
    /// The stages of a build. Everything that can be wrong with the text is found here, before the first step.
    pub(super) async fn build_stages(
        &self,
        tenant: &TenantId,
        options: &BuildOptions,
        tell: &ImageProgressSink,
    ) -> Result<Vec<BuildStage>, EngineError> {
        let source = match &options.source {
            BuildSource::Recipe(recipe) => {
                let base = self.find_image(tenant, &recipe.base).await?;
                let plain = |step: &Step| LocatedStep { step: step.clone(), line: None, text: None };
                let steps = recipe.steps.iter().map(plain).collect();
                return Ok(vec![BuildStage { title: None, base: StageFiles::Image(Box::new(base)), steps }]);
            }
            BuildSource::Dockerfile(source) => source,
        };
        let platform = Platform::host();
        let DockerSource { file, arguments, target } = source;
        let plan = file.plan(&PlanOptions { arguments, target: target.as_deref(), platform: &platform })?;
        for note in &plan.notes {
            tell.output(format!("note: {note}\n").as_bytes());
        }
        let images = self.base_images(tenant, &plan, tell).await?;
        let scope = |image: &Image| StageScope {
            env: image.config.env.clone(),
            workdir: image.config.workdir.clone(),
        };
        let scopes = images.iter().map(|(name, image)| (name.clone(), scope(image))).collect();
        let lowered = plan.lower(&scopes)?;
        let several = lowered.len() > 1;
        let stages = lowered.into_iter().map(|stage| BuildStage {
            title: Some(stage.title).filter(|_| several),
            base: match stage.base {
                StageBase::Scratch => StageFiles::Scratch,
                StageBase::Stage(index) => StageFiles::Stage(index),
                StageBase::Image(name) => StageFiles::Image(Box::new(images[&name].clone())),
            },
            steps: stage.steps.into_iter().map(step_of).collect(),
        });
        Ok(stages.collect())
    }

    /// The images of a plan, by their texts. Missing ones are pulled.
    async fn base_images(
        &self,
        tenant: &TenantId,
        plan: &DockerPlan,
        tell: &ImageProgressSink,
    ) -> Result<BTreeMap<String, Image>, EngineError> {
        let mut images = BTreeMap::new();
        for (name, line) in plan.images() {
            let image = match self.find_image(tenant, &name).await {
                Err(EngineError::NotFound { .. }) => {
                    let note = format!("Dockerfile:{line}: pulling `{}`\n", crate::shown::shown(&name));
                    tell.output(note.as_bytes());
                    let options = PullOptions {
                        reference: name.clone(),
                        name: None,
                        credentials: None,
                        insecure: false,
                        platform: None,
                    };
                    self.pull_image(tenant, options, tell.clone()).await?
                }
                found => found?,
            };
            images.insert(name, image);
        }
        Ok(images)
    }

    /// An image that a build copies from. It exists: the build has pulled it.
    pub(super) async fn copied_image(&self, tenant: &TenantId, name: &str) -> Result<Image, EngineError> {
        // A pulled image is named without its digest.
        self.find_image(tenant, name.split('@').next().unwrap_or(name)).await
    }
}

fn step_of(lowered: Located<LoweredStep>) -> LocatedStep {
    let Located { line, content } = lowered;
    LocatedStep { step: content.step, line: Some(line), text: Some(content.text) }
}

/// Adds the line of the step to an error.
pub(super) fn located(error: EngineError, step: &LocatedStep) -> EngineError {
    let LocatedStep { line: Some(line), text: Some(text), .. } = step else { return error };
    let refused = |reason: String| ImageError::Dockerfile { line: *line, reason }.into();
    if let EngineError::Image(ImageError::Recipe { line: None, reason }) = error {
        return refused(reason);
    }
    if let EngineError::Image(ImageError::Io { source, .. }) = &error
        && source.kind() == std::io::ErrorKind::InvalidData
    {
        return refused(source.to_string());
    }
    if let EngineError::BuildStep { ended, tail, .. } = error {
        let step = format!("Dockerfile:{line}: {}", crate::shown::shown(text));
        return EngineError::BuildStep { step, ended, tail };
    }
    error
}
