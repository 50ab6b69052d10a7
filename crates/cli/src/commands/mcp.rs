//! `burrow mcp`: a sandbox as tools of a language model's, over standard input and output.

use burrow_mcp::Wanted;
use clap::Args;

use crate::context::Context;
use crate::failure::{Failure, Stop};

/// Serve a sandbox to a language model (MCP over standard input and output)
///
/// Started by MCP clients, such as Claude Desktop, Claude Code or Cursor: see docs/mcp.md for what to write into their
/// settings. The same is served by the daemon at /mcp for clients that speak HTTP.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  claude mcp add burrow -- burrow mcp --sandbox my-agent
  npx @modelcontextprotocol/inspector --cli burrow mcp --sandbox my-agent --method tools/list")]
pub(crate) struct McpArgs {
    /// The sandbox to work in, made on first use; without it each connection gets a new one
    #[arg(long, value_name = "NAME")]
    sandbox: Option<String>,
    /// What a new one is made from; the daemon's default when absent
    #[arg(long)]
    image: Option<String>,
}

pub(crate) async fn run(ctx: &Context, args: McpArgs) -> Result<(), Stop> {
    let wanted = Wanted { sandbox: args.sandbox, image: args.image };
    let served = burrow_mcp::serve_stdio(ctx.client()?, wanted).await;
    served.map_err(|error| {
        let hint = "this is for MCP clients to start, not for a terminal: see `burrow mcp --help`";
        Failure::new("could not serve the client").because(&error).hint(hint).into()
    })
}
