//! Procedural memory: skills, what is known about how to do something.
//!
//! A skill is a name, a description, when to use it, parameters and steps. Each `skill_put` is a new version; what came of
//! a version when it was run is counted beside it, and the counts rank what a search finds. Like everything in a space,
//! versions and outcomes are rows of its log: a fork learns on its own, and going back unlearns.

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

/// Longest name of a skill. It is a word on a command line.
pub const SKILL_NAME_BYTES_MAX: usize = 64;
/// Longest description, and longest text of when to use it: both are shown whole in lists and prompts.
pub const SKILL_TEXT_BYTES_MAX: usize = 4 << 10;
/// Most steps: beyond that a skill is a program, and belongs in a file.
pub const SKILL_STEPS_MAX: usize = 100;
/// Most parameters.
pub const SKILL_PARAMETERS_MAX: usize = 64;
/// Largest skill as a whole, as it is stored.
pub const SKILL_BYTES_MAX: usize = 256 << 10;
/// Longest value of a parameter: all of them end up in one command line or environment, and the kernel's limit for one
/// string there is 128 KiB.
pub const PARAMETER_BYTES_MAX: usize = 64 << 10;
/// Most skills a branch sees: a search weighs every one of them.
pub const SKILLS_MAX: u64 = 5_000;
/// Longest detail kept of an outcome: the tail of an output, not a log.
pub const OUTCOME_DETAIL_BYTES_MAX: usize = 4 << 10;

/// A skill to be remembered: new, or the next version of the one with this name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewSkill {
    /// Lower-case letters, digits, `-`, `_` and `.`.
    pub name: String,
    pub description: String,
    /// In which situation it helps: search weighs it like the description.
    pub when_to_use: String,
    pub parameters: Vec<Parameter>,
    pub steps: Vec<Step>,
    /// Where it comes from: a person, an agent, a range of execs.
    pub source: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameter {
    /// Lower-case letters, digits and `_`, not starting with a digit.
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
    /// For the agent to call. `{{name}}` inside its texts is replaced by the parameter.
    ToolCall { tool: String, arguments: Value },
    /// A text for an interpreter. Its parameters are in the environment, as `PARAM_NAME`.
    Script {
        interpreter: String,
        text: String,
        #[serde(default)]
        env: BTreeMap<String, String>,
    },
}

/// A version of a skill, and what is known about how well it works.
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
    /// Of the log.
    pub seq: u64,
    pub at_ms: u64,
    /// How often this version worked, and how often it did not.
    pub successes: u64,
    pub failures: u64,
    pub last: Option<PastOutcome>,
    /// How likely it works next time, from 0 to 1: recent outcomes weigh most, and half is "nobody knows".
    pub score: f64,
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub ok: bool,
    pub exit_code: Option<i32>,
    /// In words: the tail of an error, what was different. Cut to [`OUTCOME_DETAIL_BYTES_MAX`].
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
    /// Refuses what could never be run, where the author can still mend it.
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
                "it is empty, and nobody could find the skill",
            ));
        }
        if self.parameters.len() > SKILL_PARAMETERS_MAX {
            return Err(MemoryError::too_many("parameters", SKILL_PARAMETERS_MAX));
        }
        if self.steps.is_empty() {
            return Err(MemoryError::invalid("the skill's steps", "there are none"));
        }
        if self.steps.len() > SKILL_STEPS_MAX {
            return Err(MemoryError::too_many("steps", SKILL_STEPS_MAX));
        }
        for (number, parameter) in self.parameters.iter().enumerate() {
            if !is_parameter_name(&parameter.name) {
                let why = "use lower-case letters, digits and `_`, up to 64, not starting with a digit";
                return Err(MemoryError::invalid(
                    "the parameter's name",
                    format!("`{}`: {why}", shown(&parameter.name)),
                ));
            }
            if self.parameters[..number].iter().any(|earlier| earlier.name == parameter.name) {
                return Err(MemoryError::invalid(
                    "the list of parameters",
                    format!("`{}` is there twice", parameter.name),
                ));
            }
            if parameter.default.as_ref().is_some_and(|default| default.len() > PARAMETER_BYTES_MAX) {
                let bytes = parameter.default.as_ref().map_or(0, String::len);
                return Err(MemoryError::too_large("the default of a parameter", bytes, PARAMETER_BYTES_MAX));
            }
        }
        let bytes = self.steps.iter().map(Step::bytes).sum::<usize>();
        if bytes > SKILL_BYTES_MAX {
            return Err(MemoryError::too_large("the skill's steps", bytes, SKILL_BYTES_MAX));
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
    /// The steps with these parameters filled in, ready to be run.
    ///
    /// Nothing a value contains can become part of a command: see `shell.rs`.
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
    let why = "use up to 64 lower-case letters, digits, `-`, `_` and `.`, starting with a letter or digit";
    Err(MemoryError::invalid("the skill's name", format!("`{}`: {why}", shown(name))))
}

/// Whether a text can name a parameter: what `{{…}}` and `PARAM_…` can carry.
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
