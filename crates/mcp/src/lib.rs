//! Burrow for language models: an MCP server in front of one sandbox.
//!
//! ```text
//!  model ──MCP──► Server ── OwnSandbox: found or created on first use ─► Fence ─► burrow-client ──HTTP──► the daemon's API
//!    stdio, or      ├── tools      run, files, snapshots, forks, memory, skills, artifacts
//!    HTTP at /mcp   ├── resources  files, snapshots, memories
//!                   └── prompts    how to begin, what was learned
//! ```
//!
//! Every answer of a tool fits a context window: long texts are cut, with a note on how to read the rest. A failure is an
//! answer too, with the reason and what to do about it.
//!
//! Absent: behaviour and rights of its own. Through this crate, a model can do what a script can do through the API with
//! the same key, and nothing else.

mod content;
mod fence;
mod http;
mod own_sandbox;
mod paging;
mod prompts;
mod resources;
mod results;
mod schema;
mod server;
mod tool_set;
mod tools;

use burrow_client::Client;
use rmcp::ServiceExt as _;
use rmcp::transport::io::stdio_pipes;
use tokio::signal::unix::{SignalKind, signal};

pub use fence::{Fence, Restrict};
pub use http::answer;
pub use own_sandbox::SandboxSelection;
pub use server::{Server, ServerOptions};
pub use tool_set::{ToolSet, UnknownTool};

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("the MCP handshake failed")]
    Handshake(#[source] Box<rmcp::service::ServerInitializeError>),
    #[error("the connection failed")]
    Failed(#[source] tokio::task::JoinError),
    #[error("signals cannot be handled")]
    Signals(#[source] std::io::Error),
}

/// Serves one client over standard input and output until it disconnects, or the process is asked to end. Then the key that
/// was created for the connection is revoked.
pub async fn serve_stdio(client: Client, options: ServerOptions) -> Result<(), ServeError> {
    let server = Server::new(client, options);
    let mut ended = signal(SignalKind::terminate()).map_err(ServeError::Signals)?;
    let mut interrupted = signal(SignalKind::interrupt()).map_err(ServeError::Signals)?;
    let served = tokio::select! {
        served = serve(server.clone()) => served,
        _ = ended.recv() => Ok(()),
        _ = interrupted.recv() => Ok(()),
    };
    server.own.close().await;
    served
}

async fn serve(server: Server) -> Result<(), ServeError> {
    let serving = server.serve(stdio_pipes()).await;
    let serving = match serving {
        Ok(serving) => serving,
        // It disconnected before it sent anything, which is not an error.
        Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(ServeError::Handshake(Box::new(error))),
    };
    serving.waiting().await.map(drop).map_err(ServeError::Failed)
}
