//! `burrow exec`: runs a process in a sandbox, and is that process as far as a shell can tell.

use burrow_api::{CreateExec, Exec};
use burrow_client::Client;
use clap::Args;

use super::flags::TalkFlags;
use super::undo::UndoFlags;
use crate::context::Context;
use crate::failure::{OrFail, Stop};
use crate::interact::{Interaction, interact, outcome};
use crate::{parse, print};

/// Run a process in a sandbox
///
/// Its exit code is passed on: 128 + n when signal n ended it, 124 when its time was up, 127 when there is no such
/// program, 126 when it cannot be executed, 125 for failures of burrow.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow exec web -- ls -la /srv
  burrow exec web -c 'ps aux | wc -l'          a line for the shell
  burrow exec -it web -- bash                  a terminal; Ctrl-P Ctrl-Q leaves it running
  burrow exec -i web -- psql < dump.sql
  burrow exec --rollback-on-failure web -- make install    a failed one leaves no trace
  id=$(burrow exec -d web -- make); burrow wait $id")]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    talk: TalkFlags,
    #[command(flatten)]
    undo: UndoFlags,
    /// Variable; a bare KEY takes your own value; may be repeated
    #[arg(short = 'e', long = "env", value_name = "KEY=VALUE", value_parser = parse::variable)]
    env: Vec<(String, String)>,
    /// Where it starts
    #[arg(short = 'w', long, value_name = "DIRECTORY")]
    workdir: Option<String>,
    /// Who it runs as: name, uid, name:group or uid:gid
    #[arg(short = 'u', long, value_name = "USER")]
    user: Option<String>,
    /// A line for /bin/sh instead of a command
    #[arg(short = 'c', long, value_name = "LINE", conflicts_with = "argv")]
    command: Option<String>,
    /// Sandbox to run it in
    sandbox: String,
    /// Command and arguments
    #[arg(
        value_name = "COMMAND",
        required_unless_present = "command",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    argv: Vec<String>,
}

/// An exec under way, with how to talk to it.
#[derive(Debug)]
pub(crate) struct Started<'a> {
    pub(crate) exec: Exec,
    pub(crate) talk: &'a TalkFlags,
    pub(crate) undo: UndoFlags,
}

pub(crate) async fn run(ctx: &Context, args: ExecArgs) -> Result<(), Stop> {
    let (argv, command) = take_line(args.argv, args.command);
    let client = ctx.client()?;
    let request =
        CreateExec { argv, command, workdir: args.workdir, user: args.user, ..args.talk.request(args.env) };
    start(&client, &args.sandbox, args.undo.over(request), &args.talk, args.undo).await
}

/// After the sandbox everything belongs to the command, also a `-c` meant for us: `exec SANDBOX -c LINE` is what
/// people write, and no program is called `-c`.
fn take_line(mut argv: Vec<String>, command: Option<String>) -> (Vec<String>, Option<String>) {
    match argv.as_slice() {
        [flag, _] if flag == "-c" => (Vec::new(), argv.pop()),
        _ => (argv, command),
    }
}

pub(crate) async fn start(
    client: &Client,
    sandbox: &str,
    request: CreateExec,
    talk: &TalkFlags,
    undo: UndoFlags,
) -> Result<(), Stop> {
    let what = || {
        let line = request.command.clone().unwrap_or_else(|| request.argv.join(" "));
        format!("could not run `{line}` in sandbox `{sandbox}`")
    };
    let exec = client.create_exec(sandbox, &request).await.or_fail(what)?;
    self::talk(client, Started { exec, talk, undo }).await
}

/// Is the exec, as far as its caller can tell: its output, its input, its exit code.
pub(crate) async fn talk(client: &Client, started: Started<'_>) -> Result<(), Stop> {
    let Started { exec, talk, undo } = started;
    undo.tell(&exec);
    if talk.detach {
        return print::line(&exec.id);
    }
    let end = interact(client, interaction(&exec.sandbox_id, &exec.id, talk)).await?;
    undo.settle(client, &end).await?;
    talk.related.tell(&end);
    outcome::pass_on(client, end, &exec.id).await
}

pub(crate) fn interaction(sandbox: &str, exec: &str, talk: &TalkFlags) -> Interaction {
    Interaction {
        sandbox: sandbox.to_owned(),
        exec: exec.to_owned(),
        input: talk.interactive,
        terminal: talk.tty,
        detach_keys: talk.detach_keys.clone(),
        offset: 0,
        forward_signals: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_the_shell_may_stand_after_the_sandbox() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert_eq!(take_line(words(&["-c", "ls | wc"]), None), (Vec::new(), Some("ls | wc".to_owned())));
        assert_eq!(take_line(words(&["ls", "-c"]), None), (words(&["ls", "-c"]), None));
        assert_eq!(take_line(Vec::new(), Some("x".to_owned())), (Vec::new(), Some("x".to_owned())));
    }
}
