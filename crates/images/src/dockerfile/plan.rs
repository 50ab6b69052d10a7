//! Selects the stages that a build needs, and names the images they need.

use std::collections::{BTreeMap, BTreeSet};

use super::instruction::{CopyInstruction, Instruction, MountKind, RunInstruction};
use super::words::expand;
use super::{Dockerfile, Located, PlanOptions, Stage, Written, refused};
use crate::{ImageError, Platform, Reference};

/// Arguments that need no `ARG`, as in Docker.
const PREDEFINED: [&str; 10] = [
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "FTP_PROXY",
    "ftp_proxy",
    "NO_PROXY",
    "no_proxy",
    "ALL_PROXY",
    "all_proxy",
];

/// Values of arguments and their names.
const ARGUMENTS_MAX: usize = 256;

/// What a stage or a copy begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StageBase {
    /// No files.
    Scratch,
    /// An earlier stage, by its index in [`DockerPlan`].
    Stage(usize),
    /// The name of a local image, or a reference.
    Image(String),
}

/// The stages that are needed, in order; the last one is the result.
#[derive(Clone, Debug)]
pub struct DockerPlan {
    pub(super) stages: Vec<PlannedStage>,
    pub(super) globals: BTreeMap<String, String>,
    pub(super) arguments: BTreeMap<String, String>,
    pub(super) escape: char,
    /// For the user: instructions without effect, and arguments that no instruction uses.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug)]
pub(super) struct PlannedStage {
    pub(super) line: usize,
    /// For progress: its name or number.
    pub(super) title: String,
    pub(super) base: StageBase,
    pub(super) instructions: Vec<Located<Written>>,
    /// The trees of `--from`, by their text.
    pub(super) trees: BTreeMap<String, StageBase>,
}

impl DockerPlan {
    /// The images that stages begin with or copy from, with the line of their first use.
    pub fn images(&self) -> Vec<(String, usize)> {
        let mut found: Vec<(String, usize)> = Vec::new();
        for stage in &self.stages {
            for base in [&stage.base].into_iter().chain(stage.trees.values()) {
                if let StageBase::Image(name) = base
                    && !found.iter().any(|(known, _)| known == name)
                {
                    found.push((name.clone(), stage.line));
                }
            }
        }
        found
    }
}

impl Dockerfile {
    /// Selects the stages that the target needs.
    pub fn plan(&self, options: &PlanOptions<'_>) -> Result<DockerPlan, ImageError> {
        if options.arguments.len() > ARGUMENTS_MAX {
            return Err(refused(1, format!("more than {ARGUMENTS_MAX} build arguments")));
        }
        let globals = self.globals(options)?;
        let target = self.target(options.target)?;
        let mut resolved = Vec::new();
        for (index, stage) in self.stages.iter().enumerate().take(target + 1) {
            resolved.push(self.resolve(index, stage, &globals, options.platform)?);
        }
        let mut needed = BTreeSet::from([target]);
        for index in (0..=target).rev() {
            if needed.contains(&index) {
                let (base, trees) = &resolved[index];
                let stages = [base].into_iter().chain(trees.values()).filter_map(StageBase::stage);
                needed.extend(stages.collect::<Vec<_>>());
            }
        }
        let order: Vec<usize> = needed.iter().copied().collect();
        let renumbered = |base: &StageBase| match base {
            StageBase::Stage(index) => {
                StageBase::Stage(order.iter().position(|known| known == index).unwrap_or_default())
            }
            StageBase::Scratch | StageBase::Image(_) => base.clone(),
        };
        let stages = order.iter().map(|index| {
            let (stage, (base, trees)) = (&self.stages[*index], &resolved[*index]);
            PlannedStage {
                line: stage.line,
                title: stage.name.clone().unwrap_or_else(|| format!("stage-{index}")),
                base: renumbered(base),
                instructions: stage.instructions.clone(),
                trees: trees.iter().map(|(name, base)| (name.clone(), renumbered(base))).collect(),
            }
        });
        let mut notes = self.notes.clone();
        notes.extend(self.unused(options.arguments));
        Ok(DockerPlan {
            stages: stages.collect(),
            globals,
            arguments: options.arguments.clone(),
            escape: self.escape,
            notes,
        })
    }

    /// The arguments before the first `FROM`, and those that Docker predefines.
    fn globals(&self, options: &PlanOptions<'_>) -> Result<BTreeMap<String, String>, ImageError> {
        let Platform { os, architecture, variant } = options.platform;
        let whole = match variant {
            Some(variant) => format!("{os}/{architecture}/{variant}"),
            None => format!("{os}/{architecture}"),
        };
        let mut found = BTreeMap::new();
        for side in ["TARGET", "BUILD"] {
            found.insert(format!("{side}PLATFORM"), whole.clone());
            found.insert(format!("{side}OS"), os.clone());
            found.insert(format!("{side}ARCH"), architecture.clone());
            found.insert(format!("{side}VARIANT"), variant.clone().unwrap_or_default());
        }
        for Located { line, content: (name, default) } in &self.globals {
            let value = match (options.arguments.get(name), default) {
                (Some(given), _) => given.clone(),
                (None, Some(default)) => {
                    let lookup = |name: &str| found.get(name).cloned();
                    expand(default, self.escape, &lookup).map_err(|reason| refused(*line, reason))?
                }
                (None, None) => continue,
            };
            found.insert(name.clone(), value);
        }
        Ok(found)
    }

    fn target(&self, target: Option<&str>) -> Result<usize, ImageError> {
        let Some(target) = target else { return Ok(self.stages.len() - 1) };
        let name = target.to_ascii_lowercase();
        let named = self.stages.iter().position(|stage| stage.name.as_ref() == Some(&name));
        let numbered = || target.parse().ok().filter(|index| *index < self.stages.len());
        let unknown = || {
            let names: Vec<&str> = self.stages.iter().filter_map(|stage| stage.name.as_deref()).collect();
            let known =
                if names.is_empty() { "its stages have no names".to_owned() } else { names.join(", ") };
            let target = crate::error::shortened(target);
            let reason = format!("the Dockerfile has no stage `{target}`: {known}");
            ImageError::Recipe { line: None, reason }
        };
        named.or_else(numbered).ok_or_else(unknown)
    }

    /// The base of a stage, and the trees it copies from.
    fn resolve(
        &self,
        index: usize,
        stage: &Stage,
        globals: &BTreeMap<String, String>,
        platform: &Platform,
    ) -> Result<(StageBase, BTreeMap<String, StageBase>), ImageError> {
        let lookup = |name: &str| globals.get(name).cloned();
        let expanded =
            |text: &str| expand(text, self.escape, &lookup).map_err(|reason| refused(stage.line, reason));
        if let Some(wanted) = &stage.platform {
            let wanted = expanded(wanted)?;
            let own = format!("{}/{}", platform.os, platform.architecture);
            let fits = wanted.is_empty()
                || wanted == own
                || wanted.strip_prefix(&own).is_some_and(|rest| rest.starts_with('/'));
            if !fits {
                let wanted = crate::error::shortened(&wanted);
                return Err(refused(
                    stage.line,
                    format!("this host cannot run `{wanted}`: its platform is {own}"),
                ));
            }
        }
        let base = match expanded(&stage.from)? {
            name if name == "scratch" => StageBase::Scratch,
            name => self.tree(index, stage.line, &name)?,
        };
        let mut trees = BTreeMap::new();
        for Located { line, content } in &stage.instructions {
            for from in sources(&content.instruction) {
                let tree = match from.parse::<usize>() {
                    Ok(number) if number < index => StageBase::Stage(number),
                    _ => self.tree(index, *line, from)?,
                };
                trees.insert(from.to_owned(), tree);
            }
        }
        Ok((base, trees))
    }

    /// An earlier stage of this name, else an image.
    fn tree(&self, before: usize, line: usize, name: &str) -> Result<StageBase, ImageError> {
        let lower = name.to_ascii_lowercase();
        let earlier = self.stages[..before].iter().rposition(|stage| stage.name.as_ref() == Some(&lower));
        if let Some(index) = earlier {
            return Ok(StageBase::Stage(index));
        }
        if name.is_empty() {
            return Err(refused(line, "the name of the image is empty: an ARG may have no value"));
        }
        match Reference::parse(name) {
            Ok(_) => Ok(StageBase::Image(name.to_owned())),
            Err(error) => Err(refused(line, error.to_string())),
        }
    }

    fn unused(&self, arguments: &BTreeMap<String, String>) -> Vec<String> {
        let declared = |name: &str| {
            let global = self.globals.iter().any(|global| global.content.0 == name);
            let instructions = self.stages.iter().flat_map(|stage| &stage.instructions);
            let own = |instruction: &Instruction| matches!(instruction, Instruction::Arg(pairs) if pairs.iter().any(|(known, _)| known == name));
            global || instructions.into_iter().any(|at| own(&at.content.instruction))
        };
        let unused = arguments.keys().filter(|name| !declared(name) && !PREDEFINED.contains(&name.as_str()));
        unused
            .map(|name| format!("no ARG declares the build argument `{}`", crate::error::shortened(name)))
            .collect()
    }
}

impl StageBase {
    fn stage(&self) -> Option<usize> {
        match self {
            Self::Stage(index) => Some(*index),
            Self::Scratch | Self::Image(_) => None,
        }
    }
}

/// The texts of `--from` of an instruction.
fn sources(instruction: &Instruction) -> Vec<&str> {
    if let Instruction::Copy(CopyInstruction { from: Some(from), .. }) = instruction {
        return vec![from];
    }
    let Instruction::Run(RunInstruction { mounts, .. }) = instruction else { return Vec::new() };
    let binds = mounts.iter().filter(|mount| mount.kind == MountKind::Bind);
    let options = binds.flat_map(|mount| &mount.options);
    options.filter(|(name, _)| name == "from").map(|(_, value)| value.as_str()).collect()
}

/// The predefined arguments that were given.
pub(super) fn predefined(arguments: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let own = arguments.iter().filter(|(name, _)| PREDEFINED.contains(&name.as_str()));
    own.map(|(name, value)| (name.clone(), value.clone())).collect()
}
