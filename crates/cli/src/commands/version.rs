//! `burrow version`: the versions of this program and of the daemon.

use crate::commands::prelude::*;

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
    server.or_fail("could not read the daemon's version").map(drop)
}

fn show(format: Format, own: &str, server: Option<&burrow_api::Version>) -> Result<(), Stop> {
    let json = serde_json::json!({ "client": { "version": own }, "server": server });
    let server = server.map(|server| {
        let version = escape(&server.version);
        format!("server  {version} (guest protocol {})", server.guest_generation)
    });
    format.show(&json, |_| print::lines(std::iter::once(format!("client  {own}")).chain(server)))
}
