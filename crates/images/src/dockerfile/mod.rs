//! Dockerfiles: parsed here, and translated to the steps of build files.
//!
//! ```text
//!   text ─ parse ─► Dockerfile ─ plan (target, arguments) ─► DockerPlan: the stages that are needed, and their images
//!                                                              │ lower (configurations of these images)
//!                                                              ▼
//!                                                   the steps of each stage, all variables expanded
//! ```
//!
//! Everything is pure and happens before the first step runs, so every error of a file is found first. An instruction that
//! is not supported is refused with its line. `HEALTHCHECK`, `STOPSIGNAL`, `VOLUME` and `MAINTAINER` do not change the files
//! or the processes of a sandbox: they are reported as notes.

mod instruction;
mod lines;
mod lower;
mod pattern;
mod plan;
#[cfg(test)]
mod tests;
mod words;

use crate::{ImageError, Platform};

use self::instruction::Instruction;
pub use self::lines::Heredoc;
pub use self::lower::{LoweredStage, LoweredStep, StageScope};
pub(crate) use self::pattern::is_pattern;
pub use self::pattern::name_matches;
pub use self::plan::{DockerPlan, StageBase};
pub use self::words::expand_text;

/// A Dockerfile is written by hand, so it is much smaller.
const FILE_BYTES_MAX: usize = 256 << 10;

/// Instructions of one file.
const INSTRUCTIONS_MAX: usize = 1000;

/// Stages of one file.
const STAGES_MAX: usize = 64;

/// Steps of a build. Each cached step uses a disk of its own.
const STEPS_MAX: usize = 256;

/// Something with the line of the Dockerfile where it begins, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located<T> {
    pub line: usize,
    pub content: T,
}

/// A parsed Dockerfile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dockerfile {
    /// Arguments before the first `FROM`.
    globals: Vec<Located<(String, Option<String>)>>,
    stages: Vec<Stage>,
    /// Instructions that have no effect, for the user.
    notes: Vec<String>,
    escape: char,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Stage {
    line: usize,
    /// Not expanded.
    from: String,
    platform: Option<String>,
    /// In lower case.
    name: Option<String>,
    instructions: Vec<Located<Written>>,
}

/// An instruction, and its text for progress and history.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Written {
    text: String,
    instruction: Instruction,
}

/// What a build is given.
#[derive(Clone, Debug)]
pub struct PlanOptions<'a> {
    pub arguments: &'a std::collections::BTreeMap<String, String>,
    /// The name or number of a stage; the last one if `None`.
    pub target: Option<&'a str>,
    pub platform: &'a Platform,
}

/// An error with its line, printed as `Dockerfile:12: …`.
fn refused(line: usize, reason: impl Into<String>) -> ImageError {
    ImageError::Dockerfile { line, reason: reason.into() }
}

/// Parses a Dockerfile.
pub fn parse(text: &str) -> Result<Dockerfile, ImageError> {
    let (raw, escape) = lines::split(text)?;
    let mut file = Dockerfile { globals: Vec::new(), stages: Vec::new(), notes: Vec::new(), escape };
    for Located { line, content } in raw {
        let text = format!("{} {}", content.keyword, content.rest).trim().to_owned();
        file.add(line, text, instruction::parse(line, content, escape)?)?;
    }
    match file.stages.is_empty() {
        true => Err(refused(1, "the file has no FROM")),
        false => Ok(file),
    }
}

impl Dockerfile {
    fn add(&mut self, line: usize, text: String, instruction: Instruction) -> Result<(), ImageError> {
        if let Instruction::Ignored(reason) = instruction {
            self.notes.push(format!("Dockerfile:{line}: {reason}"));
            return Ok(());
        }
        if let Instruction::From { image, platform, name } = instruction {
            let taken = |name: &String| self.stages.iter().any(|stage| stage.name.as_ref() == Some(name));
            if name.as_ref().is_some_and(taken) {
                return Err(refused(line, "two stages have this name"));
            }
            if self.stages.len() == STAGES_MAX {
                return Err(refused(line, format!("more than {STAGES_MAX} stages")));
            }
            self.stages.push(Stage { line, from: image, platform, name, instructions: Vec::new() });
            return Ok(());
        }
        match (self.stages.last_mut(), instruction) {
            (Some(stage), instruction) => {
                stage.instructions.push(Located { line, content: Written { text, instruction } });
            }
            (None, Instruction::Arg(pairs)) => {
                self.globals.extend(pairs.into_iter().map(|content| Located { line, content }));
            }
            (None, _) => return Err(refused(line, "the first instruction must be FROM or ARG")),
        }
        Ok(())
    }
}
