//! Procedural memory: put, list, show, search and forget skills; record outcomes; create a skill from execs.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use burrow_api::memory::{
    FindSkills, FoundSkill, FoundSkills, NewSkill, PromoteSkill, Skill, SkillOutcome, SkillStep,
};
use burrow_api::{ErrorCode, Page, defaults};
use burrow_catalog::{ExecRow, PageRequest};
use burrow_engine::{EngineError, ExecRecord};
use burrow_memory::remember;
use burrow_model::{ExecId, SandboxId, TenantId};
use http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use super::access::{AsOfParams, MemoryPath, MemoryReader, MemoryWriter, Principal, ReadParams, WriteParams};
use super::page::{memory_page, page_request};
use burrow_http::app::App;
use burrow_http::auth::{Caller, Executor, check_reference};
use burrow_http::convert;
use burrow_http::error::ApiError;
use burrow_http::input::{MemoryBody, Params, Segments};
use burrow_http::refusals::{Common, MemoryRefusals, WithBody};

/// Execs that a promotion reads to find its range.
const EXECS_READ_MAX: usize = 5_000;

/// Names a skill.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct SkillPath {
    /// A sandbox or a space: its id, a unique prefix of its id, or its name. A sandbox takes precedence; use
    /// `sandbox:NAME` or `space:NAME` to be explicit.
    #[param(pattern = "^((sandbox|space):)?[a-z0-9-]{1,63}$")]
    pub(super) of: String,
    /// The skill's name.
    #[param(pattern = "^[a-z0-9][a-z0-9._-]{0,63}$")]
    pub(super) name: String,
}

/// Which version of it, and at which time.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct VersionParams {
    /// The newest when absent.
    version: Option<u64>,
    /// The state at that time: a number of the log, a time (RFC 3339, or milliseconds since the Unix epoch), or a snapshot.
    #[param(max_length = 64)]
    as_of: Option<String>,
    /// The name or id of an attached space; the space that the sandbox writes to when absent.
    #[param(max_length = 64)]
    space: Option<String>,
}

#[utoipa::path(
    post, path = "/v1/memory/{of}/skills", tag = "memory", params(MemoryPath, WriteParams), request_body = NewSkill,
    responses((status = 201, description = "Stored as a new version", body = Skill), Common, MemoryRefusals, WithBody),
)]
pub(crate) async fn put(
    State(app): State<Arc<App>>,
    MemoryWriter(caller): MemoryWriter,
    Segments(path): Segments<MemoryPath>,
    Params(params): Params<WriteParams>,
    MemoryBody(body): MemoryBody<NewSkill>,
) -> Result<(StatusCode, Json<Skill>), ApiError> {
    let new = convert::new_skill(body)?;
    let space = caller.growing(&app, &path.of, &params).await?;
    let skill = space.view.skill_put(new).await?;
    Ok((StatusCode::CREATED, Json(convert::skill(skill))))
}

/// Filters for skills.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    /// The state at that time: a number of the log, a time (RFC 3339, or milliseconds since the Unix epoch), or a snapshot.
    #[param(max_length = 64)]
    as_of: Option<String>,
    /// The name or id of an attached space; the space that the sandbox writes to when absent.
    #[param(max_length = 64)]
    space: Option<String>,
    /// `next_cursor` of the previous page.
    #[param(max_length = 1024)]
    cursor: Option<String>,
    /// Maximum number of skills; 100 when absent.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

#[utoipa::path(
    get, path = "/v1/memory/{of}/skills", tag = "memory", params(MemoryPath, ListParams),
    responses((status = 200, description = "The newest version of each skill, sorted by name", body = Page<Skill>), Common, MemoryRefusals),
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    MemoryReader(caller): MemoryReader,
    Segments(path): Segments<MemoryPath>,
    Params(params): Params<ListParams>,
) -> Result<Json<Page<Skill>>, ApiError> {
    let request = page_request(params.cursor, params.limit)?;
    let read = ReadParams { as_of: params.as_of, space: params.space };
    let space = caller.reading(&app, &path.of, &read).await?;
    Ok(Json(memory_page(space.view.skill_list(request).await?, convert::skill)))
}

#[utoipa::path(
    get, path = "/v1/memory/{of}/skills/{name}", tag = "memory", params(SkillPath, VersionParams),
    responses((status = 200, description = "The skill, with its outcomes", body = Skill), Common, MemoryRefusals),
)]
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    MemoryReader(caller): MemoryReader,
    Segments(path): Segments<SkillPath>,
    Params(params): Params<VersionParams>,
) -> Result<Json<Skill>, ApiError> {
    let read = ReadParams { as_of: params.as_of, space: params.space };
    let space = caller.reading(&app, &path.of, &read).await?;
    Ok(Json(convert::skill(space.view.skill_get(&path.name, params.version).await?)))
}

#[utoipa::path(
    get, path = "/v1/memory/{of}/skills/{name}/versions", tag = "memory", params(SkillPath, ReadParams),
    responses((status = 200, description = "The versions of the skill", body = Vec<Skill>), Common, MemoryRefusals),
)]
pub(crate) async fn versions(
    State(app): State<Arc<App>>,
    MemoryReader(caller): MemoryReader,
    Segments(path): Segments<SkillPath>,
    Params(params): Params<ReadParams>,
) -> Result<Json<Vec<Skill>>, ApiError> {
    let space = caller.reading(&app, &path.of, &params).await?;
    let versions = space.view.skill_versions(&path.name).await?;
    Ok(Json(versions.into_iter().map(convert::skill).collect()))
}

#[utoipa::path(
    delete, path = "/v1/memory/{of}/skills/{name}", tag = "memory", params(SkillPath, WriteParams),
    responses((status = 204, description = "Forgotten; still available through `as_of` and snapshots"), Common, MemoryRefusals),
)]
pub(crate) async fn remove(
    State(app): State<Arc<App>>,
    MemoryWriter(caller): MemoryWriter,
    Segments(path): Segments<SkillPath>,
    Params(params): Params<WriteParams>,
) -> Result<StatusCode, ApiError> {
    let space = caller.writing(&app, &path.of, &params).await?;
    space.view.skill_forget(&path.name).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[utoipa::path(
    post, path = "/v1/memory/{of}/skills/search", tag = "memory", params(MemoryPath, AsOfParams), request_body = FindSkills,
    responses((status = 200, description = "Best first", body = FoundSkills), Common, MemoryRefusals, WithBody),
)]
pub(crate) async fn search(
    State(app): State<Arc<App>>,
    MemoryReader(caller): MemoryReader,
    Segments(path): Segments<MemoryPath>,
    Params(params): Params<AsOfParams>,
    MemoryBody(body): MemoryBody<FindSkills>,
) -> Result<Json<FoundSkills>, ApiError> {
    let limit = convert::bounded("limit", body.limit, defaults::MEMORY_HITS, 1..=100)? as usize;
    convert::check_query(&body.query)?;
    let mut hits = Vec::new();
    for space in caller.searching(&app, &path.of, params.as_of.as_deref(), &[]).await? {
        for hit in space.view.skill_search(&body.query, limit).await? {
            hits.push(FoundSkill {
                skill: convert::skill(hit.skill),
                space: space.label.clone(),
                score: hit.score,
                relevance: hit.relevance,
            });
        }
    }
    hits.sort_by(|a, b| b.score.total_cmp(&a.score));
    hits.truncate(limit);
    Ok(Json(FoundSkills { hits }))
}

/// The version that was run, and its space.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct OutcomeParams {
    /// The newest when absent.
    version: Option<u64>,
    /// The name or id of a space that is attached read-write; the space that the sandbox writes to when absent.
    #[param(max_length = 64)]
    space: Option<String>,
}

#[utoipa::path(
    post, path = "/v1/memory/{of}/skills/{name}/outcome", tag = "memory", params(SkillPath, OutcomeParams),
    request_body = SkillOutcome,
    responses((status = 200, description = "The skill, with the new outcome", body = Skill), Common, MemoryRefusals, WithBody),
)]
pub(crate) async fn outcome(
    State(app): State<Arc<App>>,
    MemoryWriter(caller): MemoryWriter,
    Segments(path): Segments<SkillPath>,
    Params(params): Params<OutcomeParams>,
    MemoryBody(body): MemoryBody<SkillOutcome>,
) -> Result<Json<Skill>, ApiError> {
    let space = caller.growing(&app, &path.of, &WriteParams { space: params.space }).await?;
    let version = space.view.skill_get(&path.name, params.version).await?.version;
    let skill = space.view.skill_outcome(&path.name, version, convert::outcome(body)).await?;
    Ok(Json(convert::skill(skill)))
}

#[utoipa::path(
    post, path = "/v1/memory/{of}/skills/promote", tag = "memory", params(MemoryPath, WriteParams),
    request_body = PromoteSkill,
    responses((status = 201, description = "Stored as a new skill, or as a new version", body = Skill), Common, MemoryRefusals, WithBody),
)]
pub(crate) async fn promote(
    State(app): State<Arc<App>>,
    caller: Executor,
    Segments(path): Segments<MemoryPath>,
    Params(params): Params<WriteParams>,
    MemoryBody(body): MemoryBody<PromoteSkill>,
) -> Result<(StatusCode, Json<Skill>), ApiError> {
    let principal = Principal::Key(Caller::clone(&caller));
    let space = principal.growing(&app, &path.of, &params).await?;
    let sandbox = sandbox_of(&app, &caller, &path.of, body.sandbox.as_deref()).await?;
    let execs = range(&app, caller.tenant(), &sandbox, &body).await?;
    let new = promoted(body, &sandbox, execs)?;
    let skill = space.view.skill_put(convert::new_skill(new)?).await?;
    Ok((StatusCode::CREATED, Json(convert::skill(skill))))
}

/// The sandbox that is named, or otherwise the one that owns the memory.
pub(super) async fn sandbox_of(
    app: &App,
    caller: &Caller,
    of: &str,
    named: Option<&str>,
) -> Result<SandboxId, ApiError> {
    if let Some(name) = named {
        return caller.sandbox(app, name).await;
    }
    let scope = Principal::Key(caller.clone()).scope(app, of).await?;
    match scope.sandbox {
        Some(row) => Ok(row.id),
        None => Err(ApiError::invalid(format!("`{of}` is a space, so `sandbox` is required"))),
    }
}

/// The execs from the first to the last of the range, oldest first.
async fn range(
    app: &App,
    tenant: &TenantId,
    sandbox: &SandboxId,
    body: &PromoteSkill,
) -> Result<Vec<ExecRecord>, ApiError> {
    let last = body.last.as_deref().unwrap_or(&body.first);
    check_reference(&body.first)?;
    check_reference(last)?;
    let unknown = |what: &str| EngineError::ExecNotFound { what: what.to_owned(), sandbox: sandbox.clone() };
    let is = |id: &ExecId, text: &str| id.as_str().starts_with(text) && text.len() > ExecId::PREFIX.len();
    let mut page = PageRequest { cursor: None, limit: defaults::PAGE_LIMIT_MAX };
    let mut found: Vec<ExecRecord> = Vec::new();
    let mut execs_read = 0;
    while execs_read < EXECS_READ_MAX {
        let execs = app.engine.execs(tenant, sandbox, page.clone()).await?;
        execs_read += execs.rows.len();
        for record in execs.rows {
            if found.is_empty() && !is(&record.row.id, last) {
                continue;
            }
            let first = is(&record.row.id, &body.first);
            found.push(record);
            if first {
                found.reverse();
                return Ok(found);
            }
        }
        let Some(cursor) = execs.next_cursor else { break };
        page.cursor = Some(cursor);
    }
    let missing = if found.is_empty() { last } else { &body.first };
    Err(unknown(missing).into())
}

fn promoted(body: PromoteSkill, sandbox: &SandboxId, execs: Vec<ExecRecord>) -> Result<NewSkill, ApiError> {
    let mut steps = Vec::new();
    for exec in &execs {
        if !body.include_failed && !went_well(exec) {
            continue;
        }
        steps.push(step(&exec.row, &body)?);
    }
    if steps.is_empty() {
        let message = "none of these execs succeeded, so there are no steps for a skill";
        return Err(
            ApiError::new(ErrorCode::Unprocessable, message).hint("`include_failed` includes failed execs")
        );
    }
    let description = if body.description.trim().is_empty() {
        let commands: Vec<&str> = steps.iter().filter_map(first_line).take(5).collect();
        format!("Runs {}", commands.join("; ")).chars().take(500).collect()
    } else {
        body.description
    };
    let parameter = |(name, default): (String, String)| burrow_api::memory::SkillParameter {
        name,
        description: String::new(),
        required: false,
        default: Some(default),
    };
    let range = match (execs.first(), execs.last()) {
        (Some(first), Some(last)) => format!("execs {} to {} of {sandbox}", first.row.id, last.row.id),
        _ => format!("execs of {sandbox}"),
    };
    Ok(NewSkill {
        name: body.name,
        description,
        when_to_use: body.when_to_use,
        parameters: body.parameters.into_iter().map(parameter).collect(),
        steps,
        source: Some(range),
    })
}

fn first_line(step: &SkillStep) -> Option<&str> {
    match step {
        SkillStep::Command { run, .. } => run.lines().next(),
        SkillStep::ToolCall { .. } | SkillStep::Script { .. } => None,
    }
}

/// According to its guest, or to the catalog.
fn went_well(exec: &ExecRecord) -> bool {
    convert::exec(exec.clone()).outcome.is_some_and(|outcome| outcome.exit_code == Some(0))
}

/// The command as a line for a shell, without secrets.
fn step(exec: &ExecRow, body: &PromoteSkill) -> Result<SkillStep, ApiError> {
    let plain = remember::shown_command(&exec.argv);
    if remember::secrets::scrub(&plain) != plain {
        let message = format!("exec `{}` contains text that looks like a secret", exec.id);
        return Err(ApiError::new(ErrorCode::Unprocessable, message)
            .hint("pass the secret in the environment, and exclude this exec from the range"));
    }
    // Longest first, because a value may be part of another.
    let mut parameters: Vec<(&String, &String)> =
        body.parameters.iter().filter(|(_, value)| !value.is_empty()).collect();
    parameters.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
    // A shell command is kept as it is. Otherwise each word is quoted separately, around its parameters.
    let run = match exec.argv.get(2) {
        Some(script) if script.trim() == plain => {
            parameters.iter().fold(plain, |line, (name, value)| line.replace(value.as_str(), &place(name)))
        }
        Some(_) | None => exec.argv.iter().map(|text| word(text, &parameters)).collect::<Vec<_>>().join(" "),
    };
    let workdir = exec.command.get("workdir").and_then(serde_json::Value::as_str).map(str::to_owned);
    Ok(SkillStep::Command { run, workdir, env: std::collections::BTreeMap::new(), timeout_seconds: None })
}

/// The placeholder of a parameter.
fn place(name: &str) -> String {
    format!("{{{{{name}}}}}")
}

fn word(text: &str, parameters: &[(&String, &String)]) -> String {
    for (number, (name, value)) in parameters.iter().enumerate() {
        if text.contains(value.as_str()) {
            let rest = &parameters[number + 1..];
            let part = |part: &str| if part.is_empty() { String::new() } else { word(part, rest) };
            return text.split(value.as_str()).map(part).collect::<Vec<_>>().join(&place(name));
        }
    }
    remember::shown_command(&[text.to_owned()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_replace_values_outside_of_quotes() {
        let (short, long) = (("a".to_owned(), "x".to_owned()), ("b".to_owned(), "x y".to_owned()));
        let parameters = [(&long.0, &long.1), (&short.0, &short.1)];
        for (text, expected) in [
            ("x", "{{a}}"),
            ("x y", "{{b}}"),
            ("-fx", "-f{{a}}"),
            ("it's x y!", "'it'\\''s '{{b}}'!'"),
            ("z z", "'z z'"),
        ] {
            assert_eq!(word(text, &parameters), expected);
        }
    }
}
