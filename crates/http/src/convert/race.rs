//! Converts races of forks.

use burrow_api as api;
use burrow_engine::{
    ATTEMPTS_MAX, Attempt, AttemptState, MergeOptions, Race, RaceMergeSpec, RaceSpec, RaceStage,
};

use super::checks::check_text;
use super::merge::merge_sandbox_options;
use crate::error::ApiError;

/// Maximum length of a command and its arguments together.
const COMMAND_BYTES_MAX: usize = 128 << 10;

/// Maximum duration of an attempt: a week.
const TIMEOUT_SECONDS_MAX: u64 = 7 * 24 * 3600;

pub fn race_spec(request: &api::StartRace) -> Result<RaceSpec, ApiError> {
    let max = u32::try_from(ATTEMPTS_MAX).unwrap_or(u32::MAX);
    let within = |field: &str, value: u32| match (1..=max).contains(&value) {
        true => Ok(value as usize),
        false => Err(ApiError::invalid(format!("`{field}` must be from 1 to {max}, not {value}"))),
    };
    let timeout = request.timeout_seconds;
    if timeout.is_some_and(|seconds| !(1..=TIMEOUT_SECONDS_MAX).contains(&seconds)) {
        return Err(ApiError::invalid(format!("`timeout_seconds` must be from 1 to {TIMEOUT_SECONDS_MAX}")));
    }
    let options = merge_options_of(&request.policies, request.policy, request.memory, false)?;
    Ok(RaceSpec {
        attempts: within("attempts", request.attempts)?,
        parallel: within("parallel", request.parallel.unwrap_or(request.attempts))?,
        run: command("run", &request.run)?,
        judge: request.judge.as_ref().map(|judge| command("judge", judge)).transpose()?,
        timeout_ms: timeout.map(|seconds| seconds * 1000),
        files_only: request.files_only,
        keep: request.keep,
        merge_winner: request.merge_winner,
        merge: RaceMergeSpec::of(&options),
    })
}

fn command(field: &str, argv: &[String]) -> Result<Vec<String>, ApiError> {
    let bytes: usize = argv.iter().map(|argument| argument.len() + 1).sum();
    if argv.is_empty() || argv.len() > 1000 || bytes > COMMAND_BYTES_MAX {
        return Err(ApiError::invalid(format!("`{field}` is a command of 1 to 1000 words, 128 KiB at most")));
    }
    for argument in argv {
        check_text(field, argument)?;
    }
    Ok(argv.to_vec())
}

pub fn merge_race_options(request: &api::MergeRace) -> Result<MergeOptions, ApiError> {
    merge_options_of(&request.policies, request.policy, request.memory, request.dry_run)
}

fn merge_options_of(
    policies: &[api::MergeRule],
    policy: api::MergePolicy,
    memory: api::MergeMemoryPolicy,
    dry_run: bool,
) -> Result<MergeOptions, ApiError> {
    let policies = policies.to_vec();
    merge_sandbox_options(&api::MergeSandbox { dry_run, policies, policy, memory, ..Default::default() })
}

pub fn race(race: Race) -> api::Race {
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    api::Race {
        id: race.id.into(),
        parent: race.parent.into(),
        stage: match race.stage {
            RaceStage::Forking => api::RaceStage::Forking,
            RaceStage::Running => api::RaceStage::Running,
            RaceStage::Choosing => api::RaceStage::Choosing,
            RaceStage::Merging => api::RaceStage::Merging,
            RaceStage::Cleaning => api::RaceStage::Cleaning,
            RaceStage::Done => api::RaceStage::Done,
        },
        run: race.spec.run,
        judge: race.spec.judge,
        attempts: race.attempts.into_iter().map(attempt).collect(),
        base: race.base.map(String::from),
        winner: race.winner.map(number),
        merged: race.merged.map(|merged| api::RaceMerged {
            applied: merged.applied,
            total: merged.total,
            conflicts: merged.conflicts,
            undo: merged.undo.map(String::from),
        }),
        failure: race.failure,
        created_ms: race.created_ms,
        ended_ms: race.ended_ms,
        version: race.version,
    }
}

fn attempt(attempt: Attempt) -> api::RaceAttempt {
    api::RaceAttempt {
        number: u32::try_from(attempt.number).unwrap_or(u32::MAX),
        sandbox: attempt.sandbox.into(),
        state: match attempt.state {
            AttemptState::Waiting => api::RaceAttemptState::Waiting,
            AttemptState::Running => api::RaceAttemptState::Running,
            AttemptState::Judging => api::RaceAttemptState::Judging,
            AttemptState::Ended => api::RaceAttemptState::Ended,
            AttemptState::Failed => api::RaceAttemptState::Failed,
        },
        exec: attempt.exec.map(String::from),
        exit_code: attempt.exit_code,
        score: attempt.score,
        took_ms: attempt.took_ms,
        why: attempt.why,
        added: attempt.changes.map(|changes| changes.added),
        changed: attempt.changes.map(|changes| changes.changed),
        deleted: attempt.changes.map(|changes| changes.deleted),
        gone: attempt.gone,
    }
}
