//! `burrow ssh`, and what belongs to it: the system's own `ssh`, told all it has to know.

pub(crate) mod config;
pub(crate) mod key;
mod place;

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use clap::Args;

use crate::context::Context;
use crate::failure::{Failure, Stop};
use place::Place;

/// Log in to a sandbox over SSH
///
/// Runs the system's own `ssh` with a key of its own, made and added at the first use, and with the daemon's host key as the
/// only one it takes. A shell that is left open goes on, and is offered at the next login. `new` makes a sandbox.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow ssh web
  burrow ssh web -- tar c /srv > srv.tar
  burrow ssh web -N -L 8080:localhost:80      port 80 of the sandbox as 8080 of this machine
  burrow ssh new                              a new sandbox")]
pub(crate) struct SshArgs {
    /// Pass connections to a port of this machine on to one of the sandbox; may be repeated
    #[arg(short = 'L', value_name = "PORT:localhost:PORT")]
    forward: Vec<String>,
    /// Run no command: only forward
    #[arg(short = 'N')]
    nothing: bool,
    /// A terminal for the command
    #[arg(short = 't')]
    terminal: bool,
    sandbox: String,
    /// Run this instead of a shell
    #[arg(last = true)]
    command: Vec<String>,
}

pub(crate) async fn run(ctx: &Context, args: SshArgs) -> Result<(), Stop> {
    let place = Place::find(ctx).await?;
    let mut command = Command::new("ssh");
    command.args(["-F", "none"]);
    for (name, value) in place.options() {
        command.arg("-o").arg(format!("{name}={value}"));
    }
    command.args(args.forward.iter().flat_map(|forward| ["-L", forward]));
    command.args(args.nothing.then_some("-N")).args(args.terminal.then_some("-t"));
    // Behind this nothing is an option, whatever it begins with.
    command.arg("-l").arg(&args.sandbox).arg("--").arg(&place.host).args(&args.command);
    // From here on it is `ssh` that talks, ends, and is signalled.
    let error = command.exec();
    let hint = "install OpenSSH's client; or use `burrow shell`, which needs none";
    Err(Failure::new("could not run `ssh`").because(&error).hint(hint).into())
}
