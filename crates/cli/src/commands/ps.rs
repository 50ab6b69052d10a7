//! `burrow ps`: the execs of a sandbox.

use burrow_api::{Exec, ExecState};
use clap::Args;

use crate::context::Context;
use crate::failure::{OrFail, Stop};
use crate::interact::outcome;
use crate::print::{self, Format, quantity, table};

/// List the execs of a sandbox
#[derive(Debug, Args)]
pub(crate) struct PsArgs {
    sandbox: String,
    /// Only running execs
    #[arg(long)]
    running: bool,
    /// Print ids only
    #[arg(short = 'q', long, conflicts_with = "json")]
    quiet: bool,
    #[command(flatten)]
    format: Format,
}

pub(crate) async fn run(ctx: &Context, args: PsArgs) -> Result<(), Stop> {
    let what = || format!("could not list the execs of sandbox `{}`", args.sandbox);
    let mut execs = ctx.client()?.execs(&args.sandbox).await.or_fail(what)?;
    execs.retain(|exec| !args.running || exec.state == ExecState::Running);
    if args.format.json {
        return print::json::pretty(&execs);
    }
    if args.quiet {
        let ids: String = execs.iter().map(|exec| format!("{}\n", exec.id)).collect();
        return print::data(&ids);
    }
    let now_ms = quantity::now_ms();
    let rows: Vec<_> = execs.iter().map(|exec| row(exec, now_ms)).collect();
    table::print(&["EXEC", "STATE", "AGE", "PID", "COMMAND"], &rows)
}

fn row(exec: &Exec, now_ms: u64) -> Vec<String> {
    let state = match exec.state {
        ExecState::Running => "running".to_owned(),
        ExecState::Lost => "lost".to_owned(),
        ExecState::Ended => format!("ended ({})", outcome::exit_code(exec)),
    };
    vec![
        exec.id.clone(),
        state,
        quantity::age(exec.started_ms, now_ms),
        exec.pid.map(|pid| pid.to_string()).unwrap_or_default(),
        exec.argv.join(" ").chars().take(60).collect(),
    ]
}
