//! `burrow ps`: the execs of a sandbox.

use burrow_api::{Exec, ExecState};

use super::exec::is_login_shell;
use crate::commands::prelude::*;
use crate::interact::outcome;

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
    if args.quiet {
        return print::lines(execs.iter().map(|exec| &exec.id));
    }
    args.format.table(&["EXEC", "STATE", "AGE", "PID", "COMMAND"], &execs, row)
}

fn row(exec: &Exec) -> Vec<String> {
    let state = match exec.state {
        ExecState::Running => "running".to_owned(),
        ExecState::Lost => "lost".to_owned(),
        ExecState::Ended => format!("ended ({})", outcome::exit_code(exec)),
    };
    vec![
        exec.id.clone(),
        state,
        quantity::age_now(exec.started_ms),
        exec.pid.map(|pid| pid.to_string()).unwrap_or_default(),
        if is_login_shell(&exec.argv) {
            "(login shell)".to_owned()
        } else {
            exec.argv.join(" ").chars().take(60).collect()
        },
    ]
}
