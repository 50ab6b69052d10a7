//! `burrow open`: opens a port in the browser.

use std::process::{Command, Stdio};

use super::port::{url_request, what};
use crate::commands::prelude::*;

/// Open a port of a sandbox in the browser
///
/// Prints the link if there is no browser. The link opens the port without a key until it expires. A sandbox that is
/// stopped or asleep wakes up.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  burrow open web 8080
  burrow open web 8080 --print --expires 8h    only print the link")]
pub(crate) struct OpenArgs {
    /// Print the link instead of opening it; also with --json
    #[arg(long)]
    print: bool,
    /// Lifetime of the link, 30 days at most
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse::duration_from_second)]
    expires: Duration,
    #[command(flatten)]
    format: Format,
    sandbox: String,
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
}

pub(crate) async fn run(ctx: &Context, args: OpenArgs) -> Result<(), Stop> {
    let link = ctx.client()?.port_url(&args.sandbox, args.port, &url_request(args.expires)).await;
    let link = link.or_fail(|| what(&args.sandbox, args.port))?;
    if !args.print && !args.format.json && has_display() && browse(&link.url) {
        print::note(format!("opened port {} of `{}` in the browser", args.port, args.sandbox));
        return Ok(());
    }
    args.format.show(&link, |link| print::line(&link.url))
}

fn has_display() -> bool {
    ["DISPLAY", "WAYLAND_DISPLAY"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

/// Whether the desktop accepted the address.
fn browse(url: &str) -> bool {
    let mut command = Command::new("xdg-open");
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
