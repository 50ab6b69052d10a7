//! `burrow skill run` and `outcome`: runs a skill, and records the outcome.

use std::io::Write;

use burrow_api::memory::{RunSkill, SkillOutcome, SkillRunStep};
use burrow_api::{OutputStream, RunResult};

use crate::commands::memory::flags::WriteFlags;
use crate::commands::memory::show::excerpt;
use crate::commands::prelude::*;
use crate::interact::outcome;
use crate::print::process_output::ProcessOutput;

/// Run a skill in a sandbox, and record the outcome
///
/// The steps run in order until one fails; their output is printed. The exit code is that of the failed step, or 125
/// if a step could not be run.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow skill run web deploy -p host=db-3
  burrow skill run space:ops deploy --in web -p host=db-3     a skill of a space, in a sandbox
  burrow skill run web deploy --version 2 --json")]
pub(crate) struct RunArgs {
    #[command(flatten)]
    target: WriteFlags,
    name: String,
    /// Parameter; may be repeated
    #[arg(short = 'p', long = "param", value_name = "NAME=VALUE", value_parser = super::parameter)]
    parameters: Vec<(String, String)>,
    /// Sandbox to run it in, if the skill belongs to a space
    #[arg(long = "in", value_name = "SANDBOX")]
    sandbox: Option<String>,
    /// Version to run; the newest by default
    #[arg(long)]
    version: Option<u64>,
    /// User to run the steps as
    #[arg(short = 'u', long, value_name = "USER")]
    user: Option<String>,
    #[command(flatten)]
    format: Format,
}

/// Record the outcome of a run outside of Burrow
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow skill outcome web deploy --ok
  burrow skill outcome web deploy --failed --detail 'the host was down' --exit-code 2")]
pub(crate) struct OutcomeArgs {
    #[command(flatten)]
    target: WriteFlags,
    name: String,
    /// The run succeeded
    #[arg(long, required_unless_present = "failed")]
    ok: bool,
    /// The run failed
    #[arg(long, conflicts_with = "ok")]
    failed: bool,
    /// Exit code of the run
    #[arg(long, allow_hyphen_values = true)]
    exit_code: Option<i32>,
    /// Details of the run
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    detail: String,
    /// Version that was run; the newest by default
    #[arg(long)]
    version: Option<u64>,
    /// Duration of the run, e.g. 30s
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    took: Option<Duration>,
}

pub(super) async fn run(ctx: &Context, args: RunArgs) -> Result<(), Stop> {
    let what = || format!("could not run skill `{}` of `{}`", args.name, args.target.of);
    let memory = args.target.memory(ctx)?;
    let request = RunSkill {
        sandbox: args.sandbox.clone(),
        parameters: args.parameters.iter().cloned().collect(),
        version: args.version,
        user: args.user.clone(),
        stream: !args.format.json,
    };
    if args.format.json {
        let run = memory.skill_run(&args.name, &request).await.or_fail(what)?;
        print::json::pretty(&run)?;
        return exit_with(run.ok, run.steps.last(), run.error.is_some());
    }
    let mut steps = memory.skill_run_steps(&args.name, &request).await.or_fail(what)?;
    let mut output = ProcessOutput::new(false);
    let mut last = None;
    while let Some(step) = steps.next().await.or_fail(what)? {
        match step {
            SkillRunStep::Start { step, total, run } => {
                print::note(format!("[{step}/{total}] {}", excerpt(&run, 100)));
            }
            SkillRunStep::Step { result, .. } => {
                write_output(&result, &mut output)?;
                last = Some(result);
            }
            SkillRunStep::End { ok, recorded, .. } => {
                warn_unrecorded(recorded);
                return exit_with(ok, last.as_deref(), false);
            }
            SkillRunStep::Error { error, recorded } => {
                warn_unrecorded(recorded);
                return Err(Stop::from(Failure::new(what()).detail(error)).with_code(CODE_OWN_FAILURE));
            }
        }
    }
    let failure = Failure::new(format!("{}: the daemon ended the stream without a result", what()));
    Err(Stop::from(failure).with_code(CODE_OWN_FAILURE))
}

/// Writes each stream to its own, like `burrow logs`.
fn write_output<Out: Write, Err: Write>(
    result: &RunResult,
    output: &mut ProcessOutput<Out, Err>,
) -> Result<(), Stop> {
    output.write(OutputStream::Stdout, result.stdout.as_bytes())?;
    output.write(OutputStream::Stderr, result.stderr.as_bytes())?;
    output.finish()?;
    if result.truncated {
        print::note(format!(
            "note: the output was truncated; `burrow logs {}` shows more of it",
            result.exec.id
        ));
    }
    Ok(())
}

fn warn_unrecorded(recorded: bool) {
    if !recorded {
        print::note("note: the outcome could not be recorded");
    }
}

fn exit_with(ok: bool, last: Option<&RunResult>, could_not_run: bool) -> Result<(), Stop> {
    if ok {
        return Ok(());
    }
    let code = match last {
        Some(result) if !could_not_run => outcome::exit_code(&result.exec),
        _ => CODE_OWN_FAILURE,
    };
    // The last step may have succeeded although the run failed, because the next one could not be run.
    Err(Stop::Exit(if code == 0 { CODE_OWN_FAILURE } else { code }))
}

pub(super) async fn outcome(ctx: &Context, args: OutcomeArgs) -> Result<(), Stop> {
    let what = || format!("could not record the outcome of skill `{}` of `{}`", args.name, args.target.of);
    let outcome = SkillOutcome {
        ok: args.ok && !args.failed,
        exit_code: args.exit_code,
        detail: args.detail.clone(),
        took_ms: args.took.map_or(0, quantity::millis),
        at_ms: None,
    };
    args.target.memory(ctx)?.skill_outcome(&args.name, args.version, &outcome).await.or_fail(what).map(drop)
}
