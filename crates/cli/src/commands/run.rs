//! `burrow run`: a new sandbox and a command in it, in one go.

use std::io::IsTerminal as _;

use burrow_api::{CreateExec, CreateSandbox, Exec, Sandbox};
use burrow_client::Client;
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use super::exec::{self, Started};
use super::flags::{SandboxFlags, TalkFlags};
use super::make::make;
use super::shell;
use super::undo::UndoFlags;
use crate::context::Context;
use crate::failure::{OrFail, Stop};
use crate::interact::{End, interact, outcome};
use crate::print;
use crate::print::escape::escape;

/// Create a sandbox and run a command in it
///
/// A command follows the image's entrypoint. Without one you get what the image runs by itself, else a shell. Without --rm the sandbox stays; its name or id is printed on standard error.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow run --rm -- python3 -c 'print(1)'     a sandbox for one command, gone afterwards
  burrow run --name dev -it                    a shell in a sandbox that stays
  burrow run --rm --ram 256M --timeout 10s -- ./test.sh
  tar c . | burrow run --rm -i -- tar t")]
pub(crate) struct RunArgs {
    /// Delete the sandbox when the command has ended
    #[arg(long, conflicts_with = "rollback_on_failure")]
    rm: bool,
    #[command(flatten)]
    talk: TalkFlags,
    #[command(flatten)]
    undo: UndoFlags,
    #[command(flatten)]
    sandbox: SandboxFlags,
    /// Program to put in front of the command, in place of the image's; empty for none
    #[arg(long, value_name = "PROGRAM")]
    entrypoint: Option<String>,
    /// Command and arguments
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
    argv: Vec<String>,
}

pub(crate) async fn run(ctx: &Context, mut args: RunArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
    let create = args.sandbox.clone().over(CreateSandbox { ephemeral: args.rm, ..CreateSandbox::default() });
    let (sandbox, exec) = interruptible(&client, &create, &mut args).await?;
    if !args.rm {
        let name = sandbox.name.as_deref().unwrap_or(&sandbox.id);
        print::note(&format!("sandbox `{}`", escape(name)));
    }
    if !args.rm || args.talk.detach {
        return exec::talk(&client, Started { exec, talk: &args.talk, undo: args.undo }).await;
    }
    args.undo.tell(&exec);
    let end = interact(&client, exec::interaction(&sandbox.id, &exec.id, &args.talk)).await?;
    args.talk.related.tell(&end);
    let ended = matches!(end, End::Exit(_));
    let result = outcome::pass_on(&client, end, &exec.id).await;
    if ended {
        // It goes by itself, but whoever looks after us should not find it any more. A failure is the daemon's to mend.
        let _ = client.delete_sandbox(&sandbox.id).await;
    }
    result
}

/// Starts what the image and the arguments come to; a shell when both say nothing.
async fn start(client: &Client, sandbox: &Sandbox, args: &mut RunArgs) -> Result<Exec, Stop> {
    // Removed since the sandbox was made, it has nothing to say.
    let config = client.image(&sandbox.image_id).await.map(|detail| detail.image.config).unwrap_or_default();
    let entrypoint = match &args.entrypoint {
        Some(program) if program.is_empty() => Vec::new(),
        Some(program) => vec![program.clone()],
        None => config.entrypoint,
    };
    let mut argv = entrypoint;
    // The image's arguments are for the image's program.
    if !args.argv.is_empty() {
        argv.extend(args.argv.iter().cloned());
    } else if args.entrypoint.is_none() {
        argv.extend(config.cmd);
    }
    if argv.is_empty() {
        if !args.talk.detach {
            args.talk.make_interactive(std::io::stdin().is_terminal());
        }
        argv = shell::argv();
    }
    let request = CreateExec { argv, then_stop: args.rm, ..args.talk.request(Vec::new()) };
    let request = args.undo.over(request);
    let what = || format!("could not run `{}`", request.argv.join(" "));
    client.create_exec(&sandbox.id, &request).await.or_fail(what)
}

/// Until the exec runs, nobody but us knows of the sandbox: whatever ends us before removes it.
async fn interruptible(
    client: &Client,
    create: &CreateSandbox,
    args: &mut RunArgs,
) -> Result<(Sandbox, Exec), Stop> {
    let what = || "could not watch for signals".to_owned();
    let mut interrupt = signal(SignalKind::interrupt()).or_fail(what)?;
    let mut terminate = signal(SignalKind::terminate()).or_fail(what)?;
    // Never dropped midway, since a request under way may still make a sandbox.
    let (_, sandbox) = make(client, create, args.sandbox.from.as_deref()).await?;
    let started = tokio::select! {
        biased;
        Some(()) = interrupt.recv() => Err(Stop::Exit(130)),
        Some(()) = terminate.recv() => Err(Stop::Exit(143)),
        exec = start(client, &sandbox, args) => exec,
    };
    match started {
        Ok(exec) => Ok((sandbox, exec)),
        Err(stop) => {
            // With --rm it would have gone with the command; without, nobody asked for an empty one either.
            let _ = client.delete_sandbox(&sandbox.id).await;
            Err(stop)
        }
    }
}
