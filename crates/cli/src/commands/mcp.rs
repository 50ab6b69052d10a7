//! `burrow mcp`: serves a sandbox as tools for a language model, over standard input and output.

use burrow_mcp::SandboxSelection;

use crate::commands::prelude::*;

/// Serve a sandbox as tools for a language model (MCP over stdio)
///
/// MCP clients such as Claude Desktop, Claude Code or Cursor start this command: docs/mcp.md shows their settings. For
/// clients that use HTTP, the daemon serves the same tools at /mcp.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  claude mcp add burrow -- burrow mcp --sandbox my-agent
  npx @modelcontextprotocol/inspector --cli burrow mcp --sandbox my-agent --method tools/list")]
pub(crate) struct McpArgs {
    /// Sandbox to work in, created on first use; if omitted, each connection gets a new one
    #[arg(long, value_name = "NAME")]
    sandbox: Option<String>,
    /// Image of a new sandbox; the daemon's default if omitted
    #[arg(long)]
    image: Option<String>,
}

pub(crate) async fn run(ctx: &Context, args: McpArgs) -> Result<(), Stop> {
    let wanted = SandboxSelection { sandbox: args.sandbox, image: args.image };
    let served = burrow_mcp::serve_stdio(ctx.client()?, wanted).await;
    served.map_err(|error| {
        let hint = "MCP clients start this command, it is not for a terminal: see `burrow mcp --help`";
        Failure::new("could not serve the client").because(&error).hint(hint).into()
    })
}
