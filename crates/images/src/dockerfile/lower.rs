//! Translates the instructions of stages to steps: expands variables, resolves paths, chooses shells.

use std::collections::{BTreeMap, BTreeSet};

use super::instruction::{CopyInstruction, Instruction, MountKind, ProgramForm, RawMount, RunInstruction};
use super::plan::{DockerPlan, PlannedStage, StageBase, predefined};
use super::words::{expand, expand_text};
use super::{Located, STEPS_MAX, refused};
use crate::ImageError;
use crate::recipe::{CacheMount, InlineFile, RunCommand, RunMount, SourceTree, Step, TreeCopy};

/// Ports of one instruction.
const PORTS_MAX: usize = 1000;

/// What the configuration of an image means for the instructions behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StageScope {
    pub env: BTreeMap<String, String>,
    pub workdir: Option<String>,
}

/// A stage, ready to be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoweredStage {
    /// Its name or number.
    pub title: String,
    pub line: usize,
    pub base: StageBase,
    pub steps: Vec<Located<LoweredStep>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoweredStep {
    /// The instruction as it is written, on one line.
    pub text: String,
    pub step: Step,
}

impl DockerPlan {
    /// The steps of all stages. `images` has the configuration of each of [`DockerPlan::images`].
    pub fn lower(&self, images: &BTreeMap<String, StageScope>) -> Result<Vec<LoweredStage>, ImageError> {
        let mut scopes: Vec<Scope> = Vec::new();
        let mut lowered = Vec::new();
        let mut count = 0;
        for stage in &self.stages {
            let mut scope = match &stage.base {
                StageBase::Scratch => Scope::new(self, StageScope::default()),
                StageBase::Image(name) => Scope::new(self, images.get(name).cloned().unwrap_or_default()),
                StageBase::Stage(index) => Scope { cmd: None, ..scopes[*index].clone() },
            };
            let steps = scope.stage(self, stage)?;
            count += steps.len();
            if count > STEPS_MAX {
                return Err(refused(stage.line, format!("the build has more than {STEPS_MAX} steps")));
            }
            let (title, base) = (stage.title.clone(), stage.base.clone());
            lowered.push(LoweredStage { title, line: stage.line, base, steps });
            scopes.push(scope);
        }
        Ok(lowered)
    }
}

/// What the instructions so far have set.
#[derive(Clone)]
struct Scope {
    env: BTreeMap<String, String>,
    arguments: BTreeMap<String, String>,
    workdir: String,
    shell: Vec<String>,
    /// Set by a `CMD` of this stage: only then it survives a later `ENTRYPOINT`.
    cmd: Option<Vec<String>>,
}

/// One instruction in its scope.
struct Line<'a> {
    number: usize,
    plan: &'a DockerPlan,
    stage: &'a PlannedStage,
}

impl Line<'_> {
    fn refused<T>(&self, reason: impl Into<String>) -> Result<T, ImageError> {
        Err(refused(self.number, reason))
    }
}

impl Scope {
    fn new(plan: &DockerPlan, base: StageScope) -> Self {
        Self {
            env: base.env,
            arguments: predefined(&plan.arguments),
            workdir: base.workdir.unwrap_or_else(|| "/".to_owned()),
            shell: ["/bin/sh", "-c"].map(str::to_owned).to_vec(),
            cmd: None,
        }
    }

    fn stage(
        &mut self,
        plan: &DockerPlan,
        stage: &PlannedStage,
    ) -> Result<Vec<Located<LoweredStep>>, ImageError> {
        let mut steps = Vec::new();
        for Located { line, content } in &stage.instructions {
            let at = Line { number: *line, plan, stage };
            for step in self.instruction(&at, &content.instruction)? {
                let text = content.text.clone();
                steps.push(Located { line: *line, content: LoweredStep { text, step } });
            }
        }
        Ok(steps)
    }

    fn instruction(&mut self, at: &Line<'_>, instruction: &Instruction) -> Result<Vec<Step>, ImageError> {
        let step = match instruction {
            Instruction::From { .. } | Instruction::Ignored(_) => return Ok(Vec::new()),
            Instruction::Arg(pairs) => {
                for (name, default) in pairs {
                    self.argument(at, name, default.as_deref())?;
                }
                return Ok(Vec::new());
            }
            Instruction::Env(pairs) => {
                let expanded = self.pairs(at, pairs)?;
                self.env.extend(expanded.clone());
                Step::Env(expanded)
            }
            Instruction::Label(pairs) => Step::Labels(self.pairs(at, pairs)?),
            Instruction::Run(run) => self.run(at, run)?,
            Instruction::Copy(copy) => self.copy(at, copy)?,
            Instruction::Workdir(path) => {
                let path = self.path(&self.expanded(at, path)?);
                self.workdir = if path == "/" { path } else { path.trim_end_matches('/').to_owned() };
                Step::Workdir(self.workdir.clone())
            }
            Instruction::User(user) => Step::User(self.user(at, "USER", user)?),
            Instruction::Shell(argv) => {
                self.shell.clone_from(argv);
                return Ok(Vec::new());
            }
            Instruction::Entrypoint(form) => {
                let cmd = self.cmd.clone().filter(|cmd| !cmd.is_empty()).map(Step::Cmd);
                return Ok([Step::Entrypoint(self.argv(form))].into_iter().chain(cmd).collect());
            }
            Instruction::Cmd(form) => {
                let argv = self.argv(form);
                self.cmd = Some(argv.clone());
                Step::Cmd(argv)
            }
            Instruction::Expose(words) => Step::Expose(self.ports(at, words)?),
        };
        Ok(vec![step])
    }

    fn lookup(&self, name: &str) -> Option<String> {
        // As in Docker, variables hide arguments.
        self.env.get(name).or_else(|| self.arguments.get(name)).cloned()
    }

    fn expanded(&self, at: &Line<'_>, text: &str) -> Result<String, ImageError> {
        expand(text, at.plan.escape, &|name| self.lookup(name)).map_err(|reason| refused(at.number, reason))
    }

    fn argument(&mut self, at: &Line<'_>, name: &str, default: Option<&str>) -> Result<(), ImageError> {
        let value = match (at.plan.arguments.get(name), default) {
            (Some(given), _) => Some(given.clone()),
            (None, Some(default)) => Some(self.expanded(at, default)?),
            (None, None) => at.plan.globals.get(name).cloned(),
        };
        // Without a value, an inherited one stays.
        self.arguments.extend(value.map(|value| (name.to_owned(), value)));
        Ok(())
    }

    fn pairs(
        &self,
        at: &Line<'_>,
        pairs: &[(String, String)],
    ) -> Result<BTreeMap<String, String>, ImageError> {
        // All values of one instruction are expanded with the variables before it.
        let mut expanded = BTreeMap::new();
        for (name, value) in pairs {
            expanded.insert(name.trim_matches('"').to_owned(), self.expanded(at, value)?);
        }
        Ok(expanded)
    }

    fn argv(&self, form: &ProgramForm) -> Vec<String> {
        match form {
            ProgramForm::Argv(argv) => argv.clone(),
            ProgramForm::Shell(text) => self.by_shell(text),
        }
    }

    fn by_shell(&self, text: &str) -> Vec<String> {
        self.shell.iter().cloned().chain([text.to_owned()]).collect()
    }

    /// A user, or `user:group`.
    fn user(&self, at: &Line<'_>, keyword: &str, text: &str) -> Result<String, ImageError> {
        let user = self.expanded(at, text)?;
        let good = !user.is_empty()
            && user.split(':').count() <= 2
            && user.split(':').all(|part| !part.is_empty())
            && user.chars().all(|c| c.is_ascii_graphic() && c != '/');
        match good {
            true => Ok(user),
            false => at.refused(format!("{keyword}: `{}` is not a user", crate::error::shortened(&user))),
        }
    }

    /// An absolute path without `.` and `..`. A `/` at the end stays.
    fn path(&self, text: &str) -> String {
        let whole = if text.starts_with('/') { text.to_owned() } else { format!("{}/{text}", self.workdir) };
        let directory = matches!(text.rsplit('/').next(), Some("" | "." | ".."));
        let path = cleaned(&whole);
        let slash = if directory && !path.is_empty() { "/" } else { "" };
        format!("/{path}{slash}")
    }

    fn ports(&self, at: &Line<'_>, words: &[String]) -> Result<BTreeSet<String>, ImageError> {
        let mut found = BTreeSet::new();
        for word in words {
            for port in self.expanded(at, word)?.split_whitespace() {
                let (range, protocol) = port.split_once('/').unwrap_or((port, "tcp"));
                let (low, high) = range.split_once('-').unwrap_or((range, range));
                let protocol = protocol.to_ascii_lowercase();
                let known = matches!(protocol.as_str(), "tcp" | "udp" | "sctp");
                let (Ok(low), Ok(high), true) = (low.parse::<u16>(), high.parse::<u16>(), known) else {
                    let port = crate::error::shortened(port);
                    return at.refused(format!("EXPOSE: `{port}` is not a port"));
                };
                found.extend((low..=high).take(PORTS_MAX).map(|port| format!("{port}/{protocol}")));
                if found.len() > PORTS_MAX {
                    return at.refused(format!("EXPOSE has more than {PORTS_MAX} ports"));
                }
            }
        }
        Ok(found)
    }

    fn run(&self, at: &Line<'_>, run: &RunInstruction) -> Result<Step, ImageError> {
        let argv = match (&run.program, run.heredocs.as_slice()) {
            (form, []) => self.argv(form),
            (ProgramForm::Shell(text), [script]) if is_heredoc_only(text) => self.script(&script.content),
            (form, heredocs) => {
                let text = match form {
                    ProgramForm::Shell(text) => text.clone(),
                    ProgramForm::Argv(argv) => argv.join(" "),
                };
                let all: String = heredocs.iter().map(|heredoc| heredoc.verbatim.as_str()).collect();
                self.by_shell(&format!("{text}\n{all}"))
            }
        };
        let mounts = run.mounts.iter().map(|mount| self.mount(at, mount)).collect::<Result<_, _>>()?;
        let arguments = self.arguments.iter().filter(|(name, _)| !self.env.contains_key(*name));
        let arguments = arguments.map(|(name, value)| (name.clone(), value.clone())).collect();
        Ok(Step::Command(RunCommand { argv, arguments, mounts, offline: run.offline }))
    }

    /// A script, which a first line `#!` gives to another program than the shell.
    fn script(&self, text: &str) -> Vec<String> {
        const FROM_FILE: &str = "file=$(mktemp) && printf %s \"$1\" > \"$file\" && chmod 700 \"$file\" || exit 1; \
                                 \"$file\"; code=$?; rm -f \"$file\"; exit $code";
        match text.starts_with("#!") {
            true => ["/bin/sh", "-c", FROM_FILE, "sh", text].map(str::to_owned).to_vec(),
            false => self.by_shell(text),
        }
    }

    fn mount(&self, at: &Line<'_>, mount: &RawMount) -> Result<RunMount, ImageError> {
        let mut options = Vec::new();
        for (name, value) in &mount.options {
            options.push((name.as_str(), self.expanded(at, value)?));
        }
        let value = |names: &[&str]| {
            options.iter().find(|(name, _)| names.contains(name)).map(|(_, value)| value.clone())
        };
        let known: &[&str] = match mount.kind {
            MountKind::Cache => &["id", "sharing", "uid", "gid", "mode"],
            MountKind::Bind => &["from", "source", "src", "rw", "readwrite", "ro", "readonly"],
            MountKind::Tmpfs => &["size"],
        };
        let targets = ["target", "dst", "destination"];
        if let Some((name, _)) =
            options.iter().find(|(name, _)| !known.contains(name) && !targets.contains(name))
        {
            let name = crate::error::shortened(name);
            return at.refused(format!("RUN --mount: the option `{name}` is not supported for this type"));
        }
        let target = value(&targets).map(|target| self.path(&target));
        let target =
            target.map(|target| target.trim_end_matches('/').to_owned()).filter(|target| !target.is_empty());
        let Some(target) = target else {
            return at.refused("RUN --mount requires a `target` other than `/`");
        };
        Ok(match mount.kind {
            MountKind::Cache => {
                let number = |name: &str, radix| match value(&[name]) {
                    None => Ok(None),
                    Some(text) => u32::from_str_radix(&text, radix)
                        .map(Some)
                        .map_err(|_| refused(at.number, format!("RUN --mount: `{name}` is not a number"))),
                };
                let id = value(&["id"]).unwrap_or_else(|| target.clone());
                let (uid, gid, mode) = (number("uid", 10)?, number("gid", 10)?, number("mode", 8)?);
                let (uid, gid) = (uid.unwrap_or(0), gid.unwrap_or(0));
                RunMount::Cache(CacheMount { id, target, uid, gid, mode: mode.unwrap_or(0o755) & 0o7777 })
            }
            MountKind::Bind => {
                let tree = self.tree(
                    at,
                    mount.options.iter().find(|(name, _)| name == "from").map(|(_, from)| from.as_str()),
                );
                RunMount::Bind {
                    tree,
                    source: cleaned(&value(&["source", "src"]).unwrap_or_default()),
                    target,
                }
            }
            MountKind::Tmpfs => RunMount::Tmpfs { target },
        })
    }

    fn tree(&self, at: &Line<'_>, from: Option<&str>) -> SourceTree {
        match from.and_then(|from| at.stage.trees.get(from)) {
            Some(StageBase::Stage(index)) => SourceTree::Stage(*index),
            Some(StageBase::Image(name)) => SourceTree::Image(name.clone()),
            // No `--from` names it.
            Some(StageBase::Scratch) | None => SourceTree::Context,
        }
    }

    fn copy(&self, at: &Line<'_>, copy: &CopyInstruction) -> Result<Step, ImageError> {
        let mut sources = Vec::new();
        for source in &copy.sources {
            sources.push(cleaned(&self.expanded(at, source)?));
        }
        let lookup = |name: &str| self.lookup(name);
        let mut files = Vec::new();
        for heredoc in &copy.heredocs {
            let content = match heredoc.expand {
                true => expand_text(&heredoc.content, at.plan.escape, &lookup)
                    .map_err(|reason| refused(at.number, reason))?,
                false => heredoc.content.clone(),
            };
            files.push(InlineFile { name: heredoc.name.clone(), content });
        }
        let to = self.expanded(at, &copy.to)?;
        if to.is_empty() {
            return at.refused("the destination is empty");
        }
        let to = self.path(&to);
        if sources.len() + files.len() > 1 && !to.ends_with('/') {
            return at.refused("several sources require a destination that is a directory and ends with `/`");
        }
        let owner = copy.owner.as_ref().map(|owner| self.user(at, "--chown", owner)).transpose()?;
        let mode = match &copy.mode {
            None => None,
            Some(text) => {
                let text = self.expanded(at, text)?;
                let mode = u32::from_str_radix(&text, 8).ok().filter(|mode| *mode <= 0o7777);
                if mode.is_none() {
                    let text = crate::error::shortened(&text);
                    return at.refused(format!(
                        "--chmod={text} is not supported: write the mode in octal, like 755"
                    ));
                }
                mode
            }
        };
        let tree = self.tree(at, copy.from.as_deref());
        Ok(Step::CopyTree(TreeCopy { tree, sources, files, to, owner, mode, unpack: copy.add }))
    }
}

/// Relative, without `.` and `..`. As in Docker, `..` does not lead out of the root.
fn cleaned(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Whether a command line is one heredoc and nothing else.
fn is_heredoc_only(text: &str) -> bool {
    text.starts_with("<<") && !text.contains(char::is_whitespace)
}
