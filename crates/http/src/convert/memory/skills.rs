//! Converts skills and their outcomes.

use burrow_api::ErrorCode;
use burrow_api::memory as api;
use burrow_memory::skills::{NewSkill, Outcome, Parameter, PastOutcome, Skill, Step};

use crate::error::ApiError;

/// Names that are routes beside skills.
const RESERVED_NAMES: [&str; 2] = ["search", "promote"];

pub fn new_skill(new: api::NewSkill) -> Result<NewSkill, ApiError> {
    if RESERVED_NAMES.contains(&new.name.as_str()) {
        let message = format!("a skill must not be named `{}`, which is reserved", new.name);
        return Err(ApiError::new(ErrorCode::Unprocessable, message));
    }
    let parameter = |parameter: api::SkillParameter| Parameter {
        name: parameter.name,
        description: parameter.description,
        required: parameter.required,
        default: parameter.default,
    };
    Ok(NewSkill {
        name: new.name,
        description: new.description,
        when_to_use: new.when_to_use,
        parameters: new.parameters.into_iter().map(parameter).collect(),
        steps: new.steps.into_iter().map(step_of).collect(),
        source: new.source,
    })
}

fn step_of(step: api::SkillStep) -> Step {
    match step {
        api::SkillStep::Command { run, workdir, env, timeout_seconds } => {
            Step::Command { run, workdir, env, timeout_s: timeout_seconds }
        }
        api::SkillStep::ToolCall { tool, arguments } => Step::ToolCall { tool, arguments },
        api::SkillStep::Script { interpreter, text, env } => Step::Script { interpreter, text, env },
    }
}

fn step(step: Step) -> api::SkillStep {
    match step {
        Step::Command { run, workdir, env, timeout_s } => {
            api::SkillStep::Command { run, workdir, env, timeout_seconds: timeout_s }
        }
        Step::ToolCall { tool, arguments } => api::SkillStep::ToolCall { tool, arguments },
        Step::Script { interpreter, text, env } => api::SkillStep::Script { interpreter, text, env },
    }
}

pub fn skill(skill: Skill) -> api::Skill {
    let parameter = |parameter: Parameter| api::SkillParameter {
        name: parameter.name,
        description: parameter.description,
        required: parameter.required,
        default: parameter.default,
    };
    api::Skill {
        name: skill.name,
        version: skill.version,
        seq: skill.seq,
        description: skill.description,
        when_to_use: skill.when_to_use,
        parameters: skill.parameters.into_iter().map(parameter).collect(),
        steps: skill.steps.into_iter().map(step).collect(),
        source: skill.source,
        created_ms: skill.at_ms,
        successes: skill.successes,
        failures: skill.failures,
        last: skill.last.map(past),
        score: skill.score,
    }
}

fn past(past: PastOutcome) -> api::SkillOutcome {
    let PastOutcome { seq: _, at_ms, outcome } = past;
    api::SkillOutcome {
        ok: outcome.ok,
        exit_code: outcome.exit_code,
        detail: outcome.detail,
        took_ms: outcome.took_ms,
        at_ms: Some(at_ms),
    }
}

pub fn outcome(outcome: api::SkillOutcome) -> Outcome {
    let api::SkillOutcome { ok, exit_code, detail, took_ms, at_ms: _ } = outcome;
    Outcome { ok, exit_code, detail, took_ms }
}
