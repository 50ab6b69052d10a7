//! The fence around a connection: its tools reach one sandbox and its forks, and nothing else.
//!
//! ```text
//!   operator's client ── finds or creates the sandbox ──► a client for this sandbox ──► every tool and resource
//!                                                          │  stdio: with a key that is bound to it with its forks,
//!                                                          │         valid for an hour, renewed, revoked at the end
//!                                                          └─ HTTP:  with the caller's key, restricted by the daemon
//! ```
//!
//! The daemon enforces the fence, for each request: no name or id that a model writes is compared here. Tools cannot use the
//! operator's client, unless the user removed the fence.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use burrow_api::{CreateKey, Scope};
use burrow_client::{ApiKey, Client, ClientError, ClientOptions};

/// A key ends by itself if its process was killed.
const KEY_SECONDS: u64 = 3600;

/// A key is renewed when it is older. The rest of its lifetime is longer than the longest call.
const RENEWED_AFTER: Duration = Duration::from_secs(KEY_SECONDS / 2);

/// Makes a client that reaches one sandbox and its forks, with the caller's key.
pub type Restrict = Arc<dyn Fn(&str) -> Result<Client, ClientError> + Send + Sync>;

/// How the tools of a connection are restricted to one sandbox.
#[derive(Clone)]
pub enum Fence {
    /// Not at all: they reach what the key reaches.
    None,
    /// By a key that is created for the connection. The options are those of the operator's client.
    Key(ClientOptions),
    /// By the daemon that serves the connection.
    Restrict(Restrict),
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Key(_) => "Key",
            Self::Restrict(_) => "Restrict",
        })
    }
}

/// A client that reaches one sandbox and its forks.
#[derive(Clone, Debug)]
pub(crate) struct FencedClient {
    pub(crate) client: Client,
    /// When its key was created. `None` if it has no key of its own.
    created: Option<SystemTime>,
}

impl Fence {
    /// A client for the sandbox with this id.
    pub(crate) async fn client(&self, operator: &Client, sandbox: &str) -> Result<FencedClient, ClientError> {
        let without_key = |client| FencedClient { client, created: None };
        match self {
            Self::None => Ok(without_key(operator.clone())),
            Self::Restrict(restrict) => restrict(sandbox).map(without_key),
            Self::Key(options) => {
                let own = operator.key("self").await?;
                if own.sandbox_id.is_some() {
                    // It is bound already, and can create no other key.
                    return Ok(without_key(operator.clone()));
                }
                let request = CreateKey {
                    name: "mcp".to_owned(),
                    scope: if own.scope == Scope::Read { Scope::Read } else { Scope::Exec },
                    sandbox: Some(sandbox.to_owned()),
                    forks: true,
                    ttl_seconds: Some(KEY_SECONDS),
                };
                let created = Some(SystemTime::now());
                let key = ApiKey::new(&operator.create_key(&request).await?.secret);
                let client = Client::new(ClientOptions { key: Some(key), ..options.clone() })?;
                Ok(FencedClient { client, created })
            }
        }
    }

    pub(crate) fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }
}

impl FencedClient {
    /// Whether its key should be replaced. A clock that was set back counts as old.
    pub(crate) fn is_old(&self) -> bool {
        self.created.is_some_and(|created| created.elapsed().map_or(true, |age| age > RENEWED_AFTER))
    }

    /// Revokes its key, if it has one of its own.
    pub(crate) async fn revoke(&self) {
        if self.created.is_some() {
            // If this fails, the key expires.
            let _ = self.client.revoke_key("self").await;
        }
    }
}
