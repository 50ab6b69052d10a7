//! `POST …/skills/{name}/run`: runs a skill's steps as execs of a sandbox, up to the first one that fails.
//!
//! A run is completed even if the client disconnects, because its outcome is recorded for later runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use burrow_api::memory::{RunSkill, SkillRun, SkillRunStep};
use burrow_api::{CreateExec, ErrorCode, ErrorDetail, RunResult};
use burrow_engine::{ExecOrigin, ScopedView};
use burrow_memory::remember::secrets;
use burrow_memory::skills::{Outcome, Skill, Step};
use burrow_model::{SandboxId, SpaceAccess, TenantId};
use futures_util::stream;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::super::execs;
use super::access::{Principal, ReadParams, WriteParams};
use super::skills::{SkillPath, sandbox_of};
use burrow_http::app::App;
use burrow_http::auth::{Caller, Executor};
use burrow_http::error::ApiError;
use burrow_http::input::{MemoryBody, Params, Segments};
use burrow_http::refusals::{Common, GuestRefusals, MemoryRefusals, WithBody};
use burrow_http::stream::lines;
use burrow_http::{convert, exec_trace};

/// Lines that may wait for a client; the output of a step is at most two megabytes.
const LINES_WAITING_MAX: usize = 4;

/// Bytes of output that an outcome stores: enough for the error, not a log.
const DETAIL_BYTES_MAX: usize = 2_000;

#[utoipa::path(
    post, path = "/v1/memory/{of}/skills/{name}/run", tag = "memory", params(SkillPath, WriteParams),
    request_body = RunSkill,
    responses(
        (status = 200, description = "The outcome; with `stream`, one `SkillRunStep` per line",
         content((SkillRun = "application/json"), (SkillRunStep = "application/x-ndjson"))),
        Common, MemoryRefusals, WithBody, GuestRefusals,
    ),
)]
pub(crate) async fn run(
    State(app): State<Arc<App>>,
    caller: Executor,
    Segments(path): Segments<SkillPath>,
    Params(params): Params<WriteParams>,
    MemoryBody(body): MemoryBody<RunSkill>,
) -> Result<Response, ApiError> {
    let principal = Principal::Key(Caller::clone(&caller));
    let read = ReadParams { as_of: None, space: params.space };
    let space = principal.reading(&app, &path.of, &read).await?;
    let skill = space.view.skill_get(&path.name, body.version).await?;
    let steps = skill.fill(&body.parameters)?;
    let sandbox = sandbox_of(&app, &caller, &path.of, body.sandbox.as_deref()).await?;
    let requests = requests(&steps, body.user.as_deref())?;
    let (lines_out, mut progress) = mpsc::channel(LINES_WAITING_MAX);
    let job = SkillJob {
        app: app.clone(),
        tenant: caller.tenant().clone(),
        sandbox,
        space,
        skill,
        requests,
        progress: body.stream.then_some(lines_out),
        origin: exec_trace::step(caller.trace()),
    };
    let (name, version) = (job.skill.name.clone(), job.skill.version);
    let total = u32::try_from(job.requests.len()).unwrap_or(u32::MAX);
    let running = app.tasks.spawn(job.run());
    if body.stream {
        return Ok(lines(stream::poll_fn(move |context| progress.poll_recv(context))));
    }
    let done = running.await.map_err(|error| ApiError::internal("could not complete the skill", error))?;
    let SkillRunOutcome { ok, steps, took, recorded, error } = done;
    let took_ms = millis(took);
    Ok(Json(SkillRun { name, version, ok, steps, total, took_ms, recorded, error }).into_response())
}

/// The exec of each step. Nothing is run if the skill contains a step that cannot be run.
fn requests(steps: &[Step], user: Option<&str>) -> Result<Vec<CreateExec>, ApiError> {
    let mut requests = Vec::with_capacity(steps.len());
    for (number, step) in steps.iter().enumerate() {
        let request = match step {
            Step::Command { run, workdir, env, timeout_s } => CreateExec {
                command: Some(run.clone()),
                workdir: workdir.clone(),
                env: env.clone(),
                timeout_ms: timeout_s.map(|seconds| seconds.saturating_mul(1000)),
                ..CreateExec::default()
            },
            Step::Script { interpreter, text, env } => CreateExec {
                argv: interpreter.split_whitespace().map(str::to_owned).collect(),
                input: Some(text.clone()),
                env: env.clone(),
                ..CreateExec::default()
            },
            Step::ToolCall { tool, .. } => {
                let message =
                    format!("step {} calls the tool `{tool}`, which Burrow cannot call", number + 1);
                return Err(ApiError::new(ErrorCode::Unprocessable, message)
                    .hint("call its tools yourself, and report the outcome (`…/outcome`)"));
            }
        };
        let request = CreateExec { wait: true, user: user.map(str::to_owned), ..request };
        convert::exec_options(&request)?;
        requests.push(request);
    }
    Ok(requests)
}

struct SkillJob {
    app: Arc<App>,
    tenant: TenantId,
    sandbox: SandboxId,
    space: ScopedView,
    skill: Skill,
    requests: Vec<CreateExec>,
    progress: Option<mpsc::Sender<SkillRunStep>>,
    /// Identifies the caller in the audit events of the steps.
    origin: ExecOrigin,
}

struct SkillRunOutcome {
    ok: bool,
    steps: Vec<RunResult>,
    took: Duration,
    recorded: bool,
    error: Option<ErrorDetail>,
}

impl SkillJob {
    async fn run(self) -> SkillRunOutcome {
        let began = Instant::now();
        let mut done = SkillRunOutcome {
            ok: true,
            steps: Vec::new(),
            took: Duration::ZERO,
            recorded: false,
            error: None,
        };
        let mut last = None;
        let total = u32::try_from(self.requests.len()).unwrap_or(u32::MAX);
        for (step, request) in (1..).zip(&self.requests) {
            let run = request.command.clone().unwrap_or_else(|| request.argv.join(" "));
            self.tell(|| SkillRunStep::Start { step, total, run }).await;
            let origin = self.origin.clone();
            match execs::run_to_end(&self.app, &self.tenant, &self.sandbox, request, origin).await {
                Ok(result) => {
                    done.ok = is_good(&result);
                    last = Some(summary(&result, &request.env));
                    self.tell(|| SkillRunStep::Step { step, result: Box::new(result.clone()) }).await;
                    if self.progress.is_none() {
                        done.steps.push(result);
                    }
                }
                Err(error) => {
                    let error = error.into_detail();
                    done.ok = false;
                    last = Some((None, error.message.clone()));
                    done.error = Some(error);
                }
            }
            if !done.ok {
                break;
            }
        }
        done.took = began.elapsed();
        done.recorded = self.record(&done, last).await;
        let (ok, took_ms, recorded) = (done.ok, millis(done.took), done.recorded);
        match done.error.clone() {
            Some(error) => self.tell(|| SkillRunStep::Error { error, recorded }).await,
            None => self.tell(|| SkillRunStep::End { ok, took_ms, recorded }).await,
        }
        done
    }

    /// A client that is gone does not stop the run.
    async fn tell(&self, line: impl FnOnce() -> SkillRunStep) {
        if let Some(progress) = &self.progress {
            let _ = progress.send(line()).await;
        }
    }

    /// If the space is read-only, the outcome is not recorded.
    async fn record(&self, done: &SkillRunOutcome, last: Option<(Option<i32>, String)>) -> bool {
        // If the sandbox could not be reached, that says nothing about the skill.
        if self.space.access != SpaceAccess::ReadWrite || done.error.is_some() {
            return false;
        }
        let (exit_code, detail) = last.unwrap_or_default();
        let detail = if done.ok { String::new() } else { detail };
        let outcome = Outcome { ok: done.ok, exit_code, detail, took_ms: millis(done.took) };
        let recorded = self.space.view.skill_outcome(&self.skill.name, self.skill.version, outcome).await;
        if let Err(error) = &recorded {
            tracing::warn!(
                skill = self.skill.name,
                error = error as &dyn std::error::Error,
                "could not record the outcome of a skill"
            );
        }
        recorded.is_ok()
    }
}

fn is_good(result: &RunResult) -> bool {
    result.exec.outcome.as_ref().is_some_and(|outcome| outcome.exit_code == Some(0))
}

/// The exit code, and the end of the output without secrets: neither texts that look like secrets, nor the values of the
/// step's secret variables.
fn summary(result: &RunResult, env: &BTreeMap<String, String>) -> (Option<i32>, String) {
    let said = if result.stderr.trim().is_empty() { &result.stdout } else { &result.stderr };
    // Before it is cut: a part of a secret would not be recognised.
    let said = &secrets::without(said.clone(), &secrets::secret_values(env));
    let mut from = said.len().saturating_sub(DETAIL_BYTES_MAX);
    while !said.is_char_boundary(from) {
        from += 1;
    }
    let detail = secrets::scrub(said[from..].trim()).into_owned();
    (result.exec.outcome.as_ref().and_then(|outcome| outcome.exit_code), detail)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
