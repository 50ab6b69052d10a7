//! `burrow cp`: files between this host and sandboxes.

use super::flags::StartFlags;
use crate::commands::prelude::*;
use crate::transfer::endpoint::Endpoint;
use crate::transfer::{download, upload};

/// Copy files and directories to, from and between sandboxes
///
/// A directory is copied into a destination that exists; a destination that does not exist is created as its copy.
/// `SOURCE/.` copies the contents of the directory. `-` is a tar archive on standard input or output. An archive from a
/// sandbox that tries to write outside of its destination is rejected as a whole.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow cp ./site web:/srv/
  burrow cp web:/var/log/app.log .
  burrow cp web:/srv/. ./backup
  tar c . | burrow cp - web:/src
  burrow cp web:/src - | tar t
  burrow cp web:/data other:/data")]
pub(crate) struct CpArgs {
    /// Owner of the files written in a sandbox: name, uid, name:group or uid:gid
    #[arg(short = 'u', long, value_name = "USER")]
    user: Option<String>,
    #[command(flatten)]
    start: StartFlags,
    /// PATH, SANDBOX:/PATH or -
    source: Endpoint,
    /// PATH, SANDBOX:/PATH or -
    destination: Endpoint,
}

pub(crate) async fn run(ctx: &Context, args: CpArgs) -> Result<(), Stop> {
    let client = ctx.client()?;
    for side in [&args.source, &args.destination] {
        if let Endpoint::Remote(remote) = side {
            args.start.check(&client, &remote.sandbox).await?;
        }
    }
    let user = args.user.as_deref();
    match (&args.source, &args.destination) {
        (Endpoint::Local(from), Endpoint::Remote(to)) => upload::upload(&client, from, to, user).await,
        (Endpoint::Remote(from), Endpoint::Local(to)) => download::download(&client, from, to).await,
        (Endpoint::Pipe, Endpoint::Remote(to)) => upload::archive(&client, to, user).await,
        (Endpoint::Remote(from), Endpoint::Pipe) => download::archive(&client, from).await,
        (Endpoint::Remote(from), Endpoint::Remote(to)) => upload::across(&client, from, to, user).await,
        (Endpoint::Local(_) | Endpoint::Pipe, Endpoint::Local(_) | Endpoint::Pipe) => {
            fail("could not copy: neither side is in a sandbox", "write one side as SANDBOX:/path")
        }
    }
}
