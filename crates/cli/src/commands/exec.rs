//! `burrow exec`: runs a process in a sandbox, with its input, output, signals and exit code.

use burrow_api::{CreateExec, Exec};

use super::flags::{ProcessFlags, StartFlags};
use super::rollback::RollbackFlags;
use crate::commands::prelude::*;
use crate::interact::{Interaction, interact, outcome};

/// Run a process in a sandbox
///
/// Exits with the code of the process: 128 + n when signal n ended it, 124 when it timed out, 127 when the program does
/// not exist, 126 when it cannot be executed, 125 for failures of burrow.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow exec web -- ls -la /srv
  burrow exec web -c 'ps aux | wc -l'          a shell command
  burrow exec -it web -- bash                  a terminal; Ctrl-P Ctrl-Q detaches
  burrow exec -i web -- psql < dump.sql
  burrow exec --rollback-on-failure web -- make install    a failure is rolled back
  id=$(burrow exec -d web -- make); burrow wait $id")]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    process: ProcessFlags,
    #[command(flatten)]
    undo: RollbackFlags,
    #[command(flatten)]
    start: StartFlags,
    /// Environment variable; a bare KEY takes the value from your environment; may be repeated
    #[arg(short = 'e', long = "env", value_name = "KEY=VALUE", value_parser = parse::variable)]
    env: Vec<(String, String)>,
    /// Working directory
    #[arg(short = 'w', long, value_name = "DIRECTORY")]
    workdir: Option<String>,
    /// User to run as: name, uid, name:group or uid:gid
    #[arg(short = 'u', long, value_name = "USER")]
    user: Option<String>,
    /// Command line for /bin/sh instead of COMMAND
    #[arg(short = 'c', long, value_name = "LINE", conflicts_with = "argv")]
    command: Option<String>,
    /// Sandbox to run in
    sandbox: String,
    /// Command and arguments
    #[arg(value_name = "COMMAND", required_unless_present = "command", trailing_var_arg = true)]
    argv: Vec<String>,
}

/// A running exec, and how to interact with it.
#[derive(Debug)]
pub(crate) struct StartedExec<'a> {
    pub(crate) exec: Exec,
    pub(crate) process: &'a ProcessFlags,
    pub(crate) undo: RollbackFlags,
}

pub(crate) async fn run(ctx: &Context, args: ExecArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
    args.start.check(&client, &args.sandbox).await?;
    let request = CreateExec {
        argv: args.argv,
        command: args.command,
        workdir: args.workdir,
        user: args.user,
        ..args.process.request(args.env)
    };
    start(&client, &args.sandbox, args.undo.over(request), &args.process, args.undo).await
}

pub(crate) async fn start(
    client: &Client,
    sandbox: &str,
    request: CreateExec,
    process: &ProcessFlags,
    undo: RollbackFlags,
) -> Result<(), Stop> {
    let what = || {
        let line = match &request.command {
            Some(line) => format!("`{line}`"),
            None => quoted(&request.argv),
        };
        format!("could not run {line} in sandbox `{sandbox}`")
    };
    let exec = client.create_exec(sandbox, &request).await.or_fail(what)?;
    run_started(client, StartedExec { exec, process, undo }).await
}

/// The command for people, quoted. A login shell is started by a script that would tell them nothing.
pub(crate) fn quoted(argv: &[String]) -> String {
    if is_login_shell(argv) { "a login shell".to_owned() } else { format!("`{}`", argv.join(" ")) }
}

pub(crate) fn is_login_shell(argv: &[String]) -> bool {
    argv == burrow_api::login_shell()
}

/// Forwards input and output of the exec, and exits with its code.
pub(crate) async fn run_started(client: &Client, started: StartedExec<'_>) -> Result<(), Stop> {
    let StartedExec { exec, process, undo } = started;
    undo.print_snapshot(&exec);
    if process.detach {
        return Format { json: process.json }.show(&exec, |exec| print::line(&exec.id));
    }
    let end = interact(client, interaction(&exec.sandbox_id, &exec.id, process)).await?;
    undo.await_rollback(client, &end).await?;
    process.related.print(&end);
    outcome::exit_as(client, end, &exec.id).await
}

pub(crate) fn interaction(sandbox: &str, exec: &str, process: &ProcessFlags) -> Interaction {
    Interaction {
        sandbox: sandbox.to_owned(),
        exec: exec.to_owned(),
        input: process.interactive,
        terminal: process.tty,
        detach_keys: process.detach_keys.clone(),
        offset: 0,
        forward_signals: true,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: ExecArgs,
    }

    #[track_caller]
    fn check(line: &[&str], command: Option<&str>, argv: &[&str]) {
        let Line { args } = Line::parse_from(line);
        assert_eq!(args.command.as_deref(), command, "{line:?}");
        assert_eq!(args.argv, argv, "{line:?}");
    }

    #[test]
    fn a_shell_command_may_follow_the_sandbox() {
        check(&["exec", "web", "-c", "ls | wc"], Some("ls | wc"), &[]);
        check(&["exec", "-c", "ls | wc", "web"], Some("ls | wc"), &[]);
        check(&["exec", "web", "ls", "-c"], None, &["ls", "-c"]);
        check(&["exec", "web", "--", "-c", "x"], None, &["-c", "x"]);
    }
}
