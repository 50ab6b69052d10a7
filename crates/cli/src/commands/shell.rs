//! `burrow shell`: a login shell in a sandbox.

use std::io::IsTerminal as _;

use burrow_api::CreateExec;

use super::exec;
use super::flags::{PlaceFlags, ProcessFlags, StartFlags};
use super::rollback::RollbackFlags;
use crate::commands::prelude::*;

/// Open a login shell in a sandbox
///
/// Ctrl-P Ctrl-Q detaches and leaves it running; `burrow attach` reattaches.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow shell web
  burrow shell web -u user -w /srv")]
pub(crate) struct ShellArgs {
    #[command(flatten)]
    process: ProcessFlags,
    #[command(flatten)]
    place: PlaceFlags,
    #[command(flatten)]
    start: StartFlags,
    sandbox: String,
}

pub(crate) fn argv() -> Vec<String> {
    burrow_api::login_shell()
}

pub(crate) async fn run(ctx: &Context, mut args: ShellArgs) -> Result<(), Stop> {
    if !args.process.detach {
        args.process.make_interactive(std::io::stdin().is_terminal());
    }
    let request = CreateExec {
        argv: argv(),
        workdir: args.place.workdir,
        user: args.place.user,
        ..args.process.request(args.place.env)
    };
    let client = ctx.client()?;
    args.start.check(&client, &args.sandbox).await?;
    exec::start(&client, &args.sandbox, request, &args.process, RollbackFlags::default()).await
}
