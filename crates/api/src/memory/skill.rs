//! Procedural memory: skills, and their outcomes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::RunResult;

/// `POST /v1/memory/{of}/skills`: a new skill, or a new version of a skill.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSkill {
    /// Lower-case letters, digits, `-`, `_` and `.`; not `search` or `promote`.
    #[schema(pattern = "^[a-z0-9][a-z0-9._-]{0,63}$")]
    pub name: String,
    /// What it does.
    #[schema(min_length = 1, max_length = 4096)]
    pub description: String,
    /// When to use it, in words that a search would contain.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schema(max_length = 4096)]
    pub when_to_use: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub parameters: Vec<SkillParameter>,
    #[schema(min_items = 1, max_items = 100)]
    pub steps: Vec<SkillStep>,
    /// Where it comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1024)]
    pub source: Option<String>,
}

/// A parameter of a skill. Commands refer to it as `{{name}}`, which becomes one quoted word. It is also in the
/// environment, as `PARAM_NAME`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SkillParameter {
    #[schema(pattern = "^[a-z_][a-z0-9_]{0,63}$")]
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum SkillStep {
    /// A command line for `/bin/sh -c`.
    Command {
        run: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        workdir: Option<String>,
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        env: BTreeMap<String, String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(minimum = 1)]
        timeout_seconds: Option<u64>,
    },
    /// A tool call, which the client that runs the skill makes: Burrow does not.
    ToolCall {
        tool: String,
        #[serde(default)]
        arguments: Value,
    },
    /// A text for a program's standard input.
    Script {
        /// A program and its arguments, such as `python3` or `bash -e`.
        interpreter: String,
        text: String,
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        env: BTreeMap<String, String>,
    },
}

/// One version of a skill, with its outcomes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Skill {
    pub name: String,
    /// 1, and one more with each new version.
    pub version: u64,
    /// Its position in the log.
    pub seq: u64,
    pub description: String,
    pub when_to_use: String,
    pub parameters: Vec<SkillParameter>,
    pub steps: Vec<SkillStep>,
    pub source: Option<String>,
    pub created_ms: u64,
    /// Runs of this version that succeeded, and runs that failed.
    pub successes: u64,
    pub failures: u64,
    /// The last run.
    pub last: Option<SkillOutcome>,
    /// The estimated probability of success, from 0 to 1, learned from its runs.
    pub score: f64,
}

/// `POST /v1/memory/{of}/skills/{name}/outcome`: the outcome of a run that was not made by Burrow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SkillOutcome {
    pub ok: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Details worth knowing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schema(max_length = 4096)]
    pub detail: String,
    #[serde(default)]
    pub took_ms: u64,
    /// When it was reported. Set by the daemon; not accepted in requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_ms: Option<u64>,
}

/// `POST /v1/memory/{of}/skills/search`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FindSkills {
    #[schema(min_length = 1, max_length = 16_384)]
    pub query: String,
    /// 10 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 100, default = 10)]
    pub limit: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FoundSkills {
    /// Best first.
    pub hits: Vec<FoundSkill>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FoundSkill {
    pub skill: Skill,
    /// The space in which it was found: its name, or the name of the sandbox that owns it.
    pub space: String,
    /// Relevance and success combined, from 0 to 1.
    pub score: f64,
    /// Relevance to the query, from 0 to 1.
    pub relevance: f64,
}

/// `POST /v1/memory/{of}/skills/promote`: creates a skill from commands that were run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PromoteSkill {
    #[schema(pattern = "^[a-z0-9][a-z0-9._-]{0,63}$")]
    pub name: String,
    /// The sandbox whose execs are used; the one in the path when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// The first exec and the last: ids, or unique prefixes of them. All between them that succeeded become steps.
    pub first: String,
    /// `first` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<String>,
    /// Include execs that failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub include_failed: bool,
    /// Generated from the commands when empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schema(max_length = 4096)]
    pub description: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schema(max_length = 4096)]
    pub when_to_use: String,
    /// Each becomes a parameter of that name with the value as its default, and replaces the value in every step.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
}

/// `POST /v1/memory/{of}/skills/{name}/run`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunSkill {
    /// The sandbox to run it in; the one in the path when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// The latest version when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Overrides the user of the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Stream one `SkillRunStep` per line as each step ends (`application/x-ndjson`), the last line being the outcome,
    /// instead of one response with everything (`SkillRun`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stream: bool,
}

/// The outcome of a run of a skill. It stops at the first step that fails.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SkillRun {
    pub name: String,
    pub version: u64,
    pub ok: bool,
    pub steps: Vec<RunResult>,
    /// Total number of steps, including those that were not reached.
    pub total: u32,
    pub took_ms: u64,
    /// Whether the outcome was stored with the skill.
    pub recorded: bool,
    /// Why the step after the last one listed could not be run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<crate::ErrorDetail>,
}

/// One line of a streamed run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum SkillRunStep {
    /// A step is about to run.
    Start { step: u32, total: u32, run: String },
    /// A step has ended.
    Step { step: u32, result: Box<RunResult> },
    /// The last line.
    End { ok: bool, took_ms: u64, recorded: bool },
    /// The last line, when a step could not be run.
    Error { error: crate::ErrorDetail, recorded: bool },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_distinguished_by_their_kind() {
        let step: SkillStep = serde_json::from_str(r#"{"kind":"command","run":"make"}"#).unwrap();
        assert!(matches!(step, SkillStep::Command { .. }));
        let step: SkillStep = serde_json::from_str(r#"{"kind":"tool-call","tool":"t"}"#).unwrap();
        assert!(matches!(step, SkillStep::ToolCall { .. }));
        assert!(serde_json::from_str::<SkillStep>(r#"{"kind":"command","run":"make","x":1}"#).is_err());
    }
}
