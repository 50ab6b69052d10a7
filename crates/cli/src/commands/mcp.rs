//! `burrow mcp`: serves a sandbox as tools for a language model, over standard input and output.

use burrow_mcp::{Fence, SandboxSelection, ServerOptions, ToolSet};

use crate::commands::prelude::*;

/// Serve a sandbox as tools for a language model (MCP over stdio)
///
/// MCP clients such as Claude Desktop, Claude Code or Cursor start this command: docs/mcp.md shows their settings. For
/// clients that use HTTP, the daemon serves the same tools at /mcp. The tools reach the sandbox and its forks only, with a
/// key that is created for the connection and revoked at its end.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  claude mcp add burrow -- burrow mcp --sandbox my-agent
  claude mcp add burrow -- burrow mcp --sandbox my-agent --tools core,sandbox_ports
  npx @modelcontextprotocol/inspector --cli burrow mcp --sandbox my-agent --method tools/list")]
pub(crate) struct McpArgs {
    /// Sandbox to work in, created on first use; if omitted, each connection gets a new one
    #[arg(long, value_name = "NAME")]
    sandbox: Option<String>,
    /// Image of a new sandbox; the daemon's default if omitted
    #[arg(long)]
    image: Option<String>,
    /// Let the tools reach all sandboxes of your key, not only this one and its forks
    #[arg(long)]
    all: bool,
    /// Tools to offer: core, all, or names
    #[arg(long, value_name = "core|all|NAME,…", default_value = "core", hide_default_value = true)]
    tools: ToolSet,
}

pub(crate) async fn run(ctx: &Context, args: McpArgs) -> Result<(), Stop> {
    let McpArgs { sandbox, image, all, tools } = args;
    let fence = if all { Fence::None } else { Fence::Key(ctx.client_options()) };
    let options = ServerOptions { wanted: SandboxSelection { sandbox, image }, fence, tools };
    let served = burrow_mcp::serve_stdio(ctx.client()?, options).await;
    served.map_err(|error| {
        let hint = "MCP clients start this command, it is not for a terminal: see `burrow mcp --help`";
        Failure::new("could not serve the client").because(&error).hint(hint).into()
    })
}
