//! `burrow ssh`: runs the system's `ssh` with all necessary options.

pub(crate) mod config;
pub(crate) mod key;
mod settings;

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use settings::SshSettings;

use crate::commands::prelude::*;

/// Log in to a sandbox over SSH
///
/// Runs the system's `ssh` with its own key, which is created and added at the first use, and accepts only the host key
/// of the daemon. A shell that is left open keeps running, and is offered at the next login. `new` creates a sandbox.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow ssh web
  burrow ssh web -- tar c /srv > srv.tar
  burrow ssh web -N -L 8080:localhost:80      port 80 of the sandbox as 8080 of this machine
  burrow ssh new                              a new sandbox")]
pub(crate) struct SshArgs {
    /// Forward a local port to a port of the sandbox; may be repeated
    #[arg(short = 'L', value_name = "PORT:localhost:PORT")]
    forward: Vec<String>,
    /// Run no command, only forward ports
    #[arg(short = 'N')]
    nothing: bool,
    /// Allocate a terminal for the command
    #[arg(short = 't')]
    terminal: bool,
    sandbox: String,
    /// Command to run instead of a shell
    #[arg(last = true)]
    command: Vec<String>,
}

pub(crate) async fn run(ctx: &Context, args: SshArgs) -> Result<(), Stop> {
    let settings = SshSettings::find(ctx).await?;
    let mut command = Command::new("ssh");
    command.args(["-F", "none"]);
    for (name, value) in settings.options() {
        command.arg("-o").arg(format!("{name}={value}"));
    }
    command.args(args.forward.iter().flat_map(|forward| ["-L", forward]));
    command.args(args.nothing.then_some("-N")).args(args.terminal.then_some("-t"));
    // Nothing after `--` is an option, whatever it starts with.
    command.arg("-l").arg(&args.sandbox).arg("--").arg(&settings.host).args(&args.command);
    // `ssh` replaces this process, so it handles output, exit code and signals.
    let error = command.exec();
    let hint = "install the OpenSSH client; or use `burrow shell`, which does not need it";
    Err(Failure::new("could not run `ssh`").because(&error).hint(hint).into())
}
