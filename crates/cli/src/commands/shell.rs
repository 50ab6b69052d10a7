//! `burrow shell`: a login shell in a sandbox.

use std::io::IsTerminal as _;

use burrow_api::CreateExec;
use clap::Args;

use super::exec;
use super::flags::ProcessFlags;
use super::rollback::RollbackFlags;
use crate::context::Context;
use crate::failure::Stop;
use crate::parse;

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
    /// Environment variable; may be repeated
    #[arg(short = 'e', long = "env", value_name = "KEY=VALUE", value_parser = parse::variable)]
    env: Vec<(String, String)>,
    /// Working directory
    #[arg(short = 'w', long, value_name = "DIRECTORY")]
    workdir: Option<String>,
    /// User to run as
    #[arg(short = 'u', long, value_name = "USER")]
    user: Option<String>,
    sandbox: String,
}

pub(crate) fn argv() -> Vec<String> {
    burrow_api::login_shell()
}

pub(crate) async fn run(ctx: &Context, mut args: ShellArgs) -> Result<(), Stop> {
    if !args.process.detach {
        args.process.make_interactive(std::io::stdin().is_terminal());
    }
    let request =
        CreateExec { argv: argv(), workdir: args.workdir, user: args.user, ..args.process.request(args.env) };
    exec::start(&ctx.client()?, &args.sandbox, request, &args.process, RollbackFlags::default()).await
}
