//! `burrow port`: lists the ports of a sandbox, and controls access to them.

use burrow_api::{CreatePortUrl, Port};

use crate::commands::prelude::*;

/// List the ports of a sandbox, and control access to them
///
/// A port is private: it needs your API key (header X-Burrow-Key), or a link from `port url` or `open`.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Examples:
  burrow port ls web
  burrow port publish web 8080                 open to any client
  burrow port unpublish web 8080
  burrow port url web 8080 --expires 1h        a link that needs no key
  curl -H \"X-Burrow-Key: $BURROW_API_KEY\" http://8080-web.localhost:7700/")]
pub(crate) enum PortCommand {
    /// List listening ports with their processes and access
    Ls {
        sandbox: String,
        #[command(flatten)]
        format: Format,
    },
    /// Make a port public: any client may open it without a key
    Publish {
        sandbox: String,
        #[arg(value_parser = clap::value_parser!(u16).range(1..))]
        port: u16,
    },
    /// Make a port private again
    Unpublish {
        sandbox: String,
        #[arg(value_parser = clap::value_parser!(u16).range(1..))]
        port: u16,
    },
    /// Print a link that opens a port without a key
    Url(UrlArgs),
}

#[derive(Debug, Args)]
pub(crate) struct UrlArgs {
    /// Lifetime of the link, 30 days at most
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse::duration_from_second)]
    expires: Duration,
    sandbox: String,
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    #[command(flatten)]
    format: Format,
}

pub(crate) async fn run(ctx: &Context, command: PortCommand) -> Result<(), Stop> {
    let client = ctx.client()?;
    match command {
        PortCommand::Ls { sandbox, format } => {
            let ports = client.ports(&sandbox).await;
            let ports = ports.or_fail(|| format!("could not list the ports of sandbox `{sandbox}`"))?;
            format.table(&["PORT", "ACCESS", "ADDRESS", "USER", "PID", "COMMAND", "URL"], &ports, row)
        }
        PortCommand::Publish { sandbox, port } => client
            .publish_port(&sandbox, port)
            .await
            .or_fail(|| format!("could not publish port {port} of sandbox `{sandbox}`")),
        PortCommand::Unpublish { sandbox, port } => client
            .unpublish_port(&sandbox, port)
            .await
            .or_fail(|| format!("could not make port {port} of sandbox `{sandbox}` private")),
        PortCommand::Url(args) => {
            let request = url_request(args.expires);
            let link = client.port_url(&args.sandbox, args.port, &request).await;
            let link = link.or_fail(|| what(&args.sandbox, args.port))?;
            args.format.show(&link, |link| print::line(&link.url))
        }
    }
}

pub(super) fn what(sandbox: &str, port: u16) -> String {
    format!("could not make a link to port {port} of sandbox `{sandbox}`")
}

pub(super) fn url_request(expires: Duration) -> CreatePortUrl {
    // Longer lifetimes are sent unchanged; the daemon rejects them with its limit.
    let expires_seconds = u32::try_from(expires.as_secs()).unwrap_or(u32::MAX).max(1);
    CreatePortUrl { expires_seconds }
}

fn row(port: &Port) -> Vec<String> {
    let command = port.command.clone().filter(|command| !command.is_empty()).or_else(|| port.process.clone());
    vec![
        port.port.to_string(),
        if port.published { "public" } else { "private" }.to_owned(),
        if port.addresses.is_empty() { "-".to_owned() } else { port.addresses.join(",") },
        port.user.clone().unwrap_or_default(),
        port.pid.map(|pid| pid.to_string()).unwrap_or_default(),
        command.unwrap_or_default(),
        port.url.clone(),
    ]
}
