//! Procedural memory: skills, which describe how to do something.
//!
//! A skill has a name, a description, when to use it, parameters and steps. Each `skill_put` adds a version. The outcomes of
//! its runs are counted per version, and the counts affect the ranking of searches. Like everything in a space,
//! versions and outcomes are rows of its log: a fork learns separately, and a restore removes what was learned since.

pub(crate) mod carry;
mod fill;
mod rank;
mod rows;
mod search;
mod shell;
#[cfg(test)]
mod tests;
mod write;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::MemoryError;
use crate::shown::shown;

pub(crate) use rows::count;
pub use search::{SKILL_HITS_MAX, SKILL_QUERY_BYTES_MAX, SkillHit};

/// Longest name of a skill. It is an argument on the command line.
pub const SKILL_NAME_BYTES_MAX: usize = 64;
/// Longest description, and longest text of when to use it: lists and prompts show both completely.
pub const SKILL_TEXT_BYTES_MAX: usize = 4 << 10;
/// Most steps: a skill with more is a program, and belongs in a file.
pub const SKILL_STEPS_MAX: usize = 100;
/// Most parameters.
pub const SKILL_PARAMETERS_MAX: usize = 64;
/// Largest skill, as it is stored.
pub const SKILL_BYTES_MAX: usize = 256 << 10;
/// Longest value of a parameter: all of them become part of one command line or environment, and the kernel limits one
/// string there to 128 KiB.
pub const PARAMETER_BYTES_MAX: usize = 64 << 10;
/// Most skills that a branch sees: a search examines every one of them.
pub const SKILLS_MAX: u64 = 5_000;
/// Longest detail of an outcome: the end of an output, not a log.
pub const OUTCOME_DETAIL_BYTES_MAX: usize = 4 << 10;

/// A skill to store: new, or the next version of the one with this name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewSkill {
    /// Lower-case letters, digits, `-`, `_` and `.`.
    pub name: String,
    pub description: String,
    /// The situations in which it helps; searches weight it like the description.
    pub when_to_use: String,
    pub parameters: Vec<Parameter>,
    pub steps: Vec<Step>,
    /// Its origin: a user, an agent, a range of execs.
    pub source: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameter {
    /// Lower-case letters, digits and `_`, not beginning with a digit.
    pub name: String,
    pub description: String,
    pub required: bool,
    pub default: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Step {
    /// A line for the shell. `{{name}}` is replaced by the parameter as one quoted word; `$PARAM_NAME` is set as well.
    Command {
        run: String,
        #[serde(default)]
        workdir: Option<String>,
        #[serde(default)]
        env: BTreeMap<String, String>,
        #[serde(default)]
        timeout_s: Option<u64>,
    },
    /// A call for the agent to make. `{{name}}` in its texts is replaced by the parameter.
    ToolCall { tool: String, arguments: Value },
    /// A script for an interpreter. Its parameters are in the environment, as `PARAM_NAME`.
    Script {
        interpreter: String,
        text: String,
        #[serde(default)]
        env: BTreeMap<String, String>,
    },
}

/// A version of a skill, and its outcomes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Skill {
    pub name: String,
    /// From 1; one more with each `skill_put`.
    pub version: u64,
    pub description: String,
    pub when_to_use: String,
    pub parameters: Vec<Parameter>,
    pub steps: Vec<Step>,
    pub source: Option<String>,
    /// The sequence number in the log.
    pub seq: u64,
    pub at_ms: u64,
    /// How often this version succeeded, and how often it failed.
    pub successes: u64,
    pub failures: u64,
    pub last: Option<PastOutcome>,
    /// The estimated probability of success, from 0 to 1: recent outcomes count most, and 0.5 means unknown.
    pub score: f64,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub ok: bool,
    pub exit_code: Option<i32>,
    /// A description: the end of an error, what was different. Cut to [`OUTCOME_DETAIL_BYTES_MAX`].
    pub detail: String,
    pub took_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PastOutcome {
    pub seq: u64,
    pub at_ms: u64,
    pub outcome: Outcome,
}

impl NewSkill {
    /// Refuses skills that could never run, so that the author can fix them.
    pub(crate) fn check(&self) -> Result<(), MemoryError> {
        check_name(&self.name)?;
        for (what, text) in
            [("the skill's description", &self.description), ("when to use the skill", &self.when_to_use)]
        {
            if text.len() > SKILL_TEXT_BYTES_MAX {
                return Err(MemoryError::too_large(what, text.len(), SKILL_TEXT_BYTES_MAX));
            }
        }
        if self.description.trim().is_empty() {
            return Err(MemoryError::invalid(
                "the skill's description",
                "it is empty, so no search could find the skill",
            ));
        }
        if self.parameters.len() > SKILL_PARAMETERS_MAX {
            return Err(MemoryError::too_many("parameters", SKILL_PARAMETERS_MAX));
        }
        if self.steps.is_empty() {
            return Err(MemoryError::invalid("the skill", "it has no steps"));
        }
        if self.steps.len() > SKILL_STEPS_MAX {
            return Err(MemoryError::too_many("steps", SKILL_STEPS_MAX));
        }
        for (number, parameter) in self.parameters.iter().enumerate() {
            if !is_parameter_name(&parameter.name) {
                let why = "use lower-case letters, digits and `_`, up to 64, not beginning with a digit";
                return Err(MemoryError::invalid(
                    "the parameter's name",
                    format!("`{}`: {why}", shown(&parameter.name)),
                ));
            }
            if self.parameters[..number].iter().any(|earlier| earlier.name == parameter.name) {
                return Err(MemoryError::invalid(
                    "the list of parameters",
                    format!("`{}` is declared twice", parameter.name),
                ));
            }
            if parameter.default.as_ref().is_some_and(|default| default.len() > PARAMETER_BYTES_MAX) {
                let bytes = parameter.default.as_ref().map_or(0, String::len);
                return Err(MemoryError::too_large("the default of a parameter", bytes, PARAMETER_BYTES_MAX));
            }
        }
        let bytes = self.steps.iter().map(Step::bytes).sum::<usize>();
        if bytes > SKILL_BYTES_MAX {
            return Err(MemoryError::too_large("the skill", bytes, SKILL_BYTES_MAX));
        }
        fill::check(&self.parameters, &self.steps)
    }
}

impl Step {
    fn bytes(&self) -> usize {
        let of = |map: &BTreeMap<String, String>| map.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
        match self {
            Self::Command { run, workdir, env, timeout_s: _ } => {
                run.len() + workdir.as_ref().map_or(0, String::len) + of(env)
            }
            Self::ToolCall { tool, arguments } => tool.len() + arguments.to_string().len(),
            Self::Script { interpreter, text, env } => interpreter.len() + text.len() + of(env),
        }
    }
}

impl Skill {
    /// The steps with the parameters filled in, ready to run.
    ///
    /// No part of a value can become part of a command: see `shell.rs`.
    pub fn fill(&self, given: &BTreeMap<String, String>) -> Result<Vec<Step>, MemoryError> {
        fill::fill(&self.name, &self.parameters, &self.steps, given)
    }
}

fn check_name(name: &str) -> Result<(), MemoryError> {
    let fits = !name.is_empty()
        && name.len() <= SKILL_NAME_BYTES_MAX
        && name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_' | b'.'));
    if fits {
        return Ok(());
    }
    let why = "use up to 64 lower-case letters, digits, `-`, `_` and `.`, beginning with a letter or digit";
    Err(MemoryError::invalid("the skill's name", format!("`{}`: {why}", shown(name))))
}

/// Whether a text is a valid parameter name, for `{{…}}` and `PARAM_…`.
pub(crate) fn is_parameter_name(name: &str) -> bool {
    name.len() <= 64
        && name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

/// The part of a version that is stored as one JSON text.
#[derive(Debug, Serialize, Deserialize)]
struct Body {
    parameters: Vec<Parameter>,
    steps: Vec<Step>,
    source: Option<String>,
}
