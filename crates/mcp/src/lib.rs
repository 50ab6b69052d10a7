//! Burrow for language models: an MCP server in front of one sandbox.
//!
//! ```text
//!  model ──MCP──► Server ── Place: which sandbox, made on first use ──► burrow-client ──HTTP──► the daemon's API
//!    stdio, or      ├── tools      run, files, snapshots, forks, memory, skills, artifacts
//!    HTTP at /mcp   ├── resources  files, snapshots, memories
//!                   └── prompts    how to begin, what was learned
//! ```
//!
//! Whatever a tool answers fits a context window: long texts are cut, with a word on how to read on. What goes wrong is an
//! answer too, with what to do about it.
//!
//! Absent: behaviour of its own, and rights of its own. A model can do through here what a script can do through the API
//! with the same key, and nothing else.

mod cut;
mod http;
mod place;
mod prompts;
mod resources;
mod said;
mod schema;
mod server;
mod tools;

use burrow_client::Client;
use rmcp::ServiceExt as _;
use rmcp::transport::io::stdio_pipes;

pub use http::answer;
pub use place::Wanted;
pub use server::Server;

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("the client did not begin as MCP asks for")]
    Begin(#[source] Box<rmcp::service::ServerInitializeError>),
    #[error("the connection broke off")]
    Broke(#[source] tokio::task::JoinError),
}

/// Serves one client over standard input and output until it goes.
pub async fn serve_stdio(client: Client, wanted: Wanted) -> Result<(), ServeError> {
    let serving = Server::new(client, wanted).serve(stdio_pipes()).await;
    let serving = match serving {
        Ok(serving) => serving,
        // It went before it said anything: nothing is wrong.
        Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(ServeError::Begin(Box::new(error))),
    };
    serving.waiting().await.map(drop).map_err(ServeError::Broke)
}
