//! `burrow version`: the versions of this program and of the daemon.

use clap::Args;

use crate::context::Context;
use crate::failure::{OrFail, Stop};
use crate::print::escape::escape;
use crate::print::{self, Format};

/// Show the version of this program and of the daemon
#[derive(Debug, Args)]
pub(crate) struct VersionArgs {
    /// Show only the version of this program
    #[arg(long)]
    client: bool,
    #[command(flatten)]
    format: Format,
}

pub(crate) async fn run(ctx: &Context, args: VersionArgs) -> Result<(), Stop> {
    let own = env!("CARGO_PKG_VERSION");
    if args.client {
        return show(args.format, own, None);
    }
    let server = ctx.client()?.version().await;
    // The version of this program is useful even if the daemon does not answer.
    show(args.format, own, server.as_ref().ok())?;
    server.or_fail(|| "could not read the daemon's version".to_owned()).map(drop)
}

fn show(format: Format, own: &str, server: Option<&burrow_api::Version>) -> Result<(), Stop> {
    if format.json {
        return print::json::pretty(&serde_json::json!({ "client": { "version": own }, "server": server }));
    }
    print::line(&format!("client  {own}"))?;
    match server {
        Some(server) => print::line(&format!(
            "server  {} (guest protocol {})",
            escape(&server.version),
            server.guest_generation
        )),
        None => Ok(()),
    }
}
