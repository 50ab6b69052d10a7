//! `burrow run`: creates a sandbox and runs a command in it.

use std::io::IsTerminal as _;

use burrow_api::{CreateExec, CreateSandbox, Exec, Sandbox};

use super::creation::create_sandbox;
use super::exec::{self, StartedExec};
use super::flags::{ProcessFlags, SandboxFlags};
use super::rollback::RollbackFlags;
use super::shell;
use crate::commands::prelude::*;
use crate::interact::{InteractionEnd, interact, outcome};
use crate::transfer::interrupt::Interrupts;

/// Create a sandbox and run a command in it
///
/// The command is appended to the entrypoint of the image. Without a command, the default command of the image runs, or
/// else a shell. Without --rm, the sandbox is kept; its name or id is printed on standard error.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow run --rm -- python3 -c 'print(1)'     a sandbox for one command, deleted afterwards
  burrow run --name dev -it                    a shell in a sandbox that is kept
  burrow run --rm --ram 256M --timeout 10s -- ./test.sh
  tar c . | burrow run --rm -i -- tar t")]
pub(crate) struct RunArgs {
    /// Delete the sandbox when the command has ended
    #[arg(long, conflicts_with = "rollback_on_failure")]
    rm: bool,
    #[command(flatten)]
    process: ProcessFlags,
    #[command(flatten)]
    undo: RollbackFlags,
    #[command(flatten)]
    sandbox: SandboxFlags,
    /// Entrypoint instead of that of the image; empty for none
    #[arg(long, value_name = "PROGRAM")]
    entrypoint: Option<String>,
    /// Command and arguments
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    argv: Vec<String>,
}

pub(crate) async fn run(ctx: &Context, mut args: RunArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
    let create = args.sandbox.clone().over(CreateSandbox { ephemeral: args.rm, ..CreateSandbox::default() });
    let (sandbox, exec) = interruptible(&client, &create, &mut args).await?;
    if !args.rm {
        let name = sandbox.name.as_deref().unwrap_or(&sandbox.id);
        print::note(format!("sandbox `{}`", escape(name)));
    }
    if !args.rm || args.process.detach {
        return exec::run_started(&client, StartedExec { exec, process: &args.process, undo: args.undo })
            .await;
    }
    args.undo.print_snapshot(&exec);
    let end = interact(&client, exec::interaction(&sandbox.id, &exec.id, &args.process)).await?;
    args.process.related.print(&end);
    let ended = matches!(end, InteractionEnd::Exit(_));
    let result = outcome::exit_as(&client, end, &exec.id).await;
    if ended {
        // The daemon deletes an ephemeral sandbox anyway, but it should be gone when this command ends. If this fails,
        // the daemon does it later.
        let _ = client.delete_sandbox(&sandbox.id).await;
    }
    result
}

/// Starts the command of the image and the arguments; a shell if both are empty.
async fn start(client: &Client, sandbox: &Sandbox, args: &mut RunArgs) -> Result<Exec, Stop> {
    // An image that was removed since has no defaults.
    let config = client.image(&sandbox.image_id).await.map(|detail| detail.image.config).unwrap_or_default();
    let entrypoint = match &args.entrypoint {
        Some(program) if program.is_empty() => Vec::new(),
        Some(program) => vec![program.clone()],
        None => config.entrypoint,
    };
    let mut argv = entrypoint;
    // The default arguments of the image belong to its entrypoint.
    if !args.argv.is_empty() {
        argv.extend(args.argv.iter().cloned());
    } else if args.entrypoint.is_none() {
        argv.extend(config.cmd);
    }
    if argv.is_empty() {
        if !args.process.detach {
            args.process.make_interactive(std::io::stdin().is_terminal());
        }
        argv = shell::argv();
    }
    let request = CreateExec { argv, then_stop: args.rm, ..args.process.request(Vec::new()) };
    let request = args.undo.over(request);
    let what = || format!("could not run {}", exec::quoted(&request.argv));
    client.create_exec(&sandbox.id, &request).await.or_fail(what)
}

/// Until the exec runs, only this command knows of the sandbox: if it is interrupted before, it deletes the sandbox.
async fn interruptible(
    client: &Client,
    create: &CreateSandbox,
    args: &mut RunArgs,
) -> Result<(Sandbox, Exec), Stop> {
    let mut interrupts = Interrupts::install()?;
    // Never dropped midway, since a pending request may still create a sandbox.
    let (_, sandbox) = create_sandbox(client, create, args.sandbox.from.as_deref()).await?;
    let started = interrupts.unless(start(client, &sandbox, args)).await;
    match started {
        Ok(Ok(exec)) => Ok((sandbox, exec)),
        Ok(Err(stop)) | Err(stop) => {
            // With --rm it would be deleted after the command; without, an unused sandbox is not wanted either.
            let _ = client.delete_sandbox(&sandbox.id).await;
            Err(stop)
        }
    }
}
