//! The daemon's side of the SSH gateway: who may log in, the listener, the host key.
//!
//! A public key represents the API key that added it. A client that logs in with it gets a client of our own routes
//! that is authenticated as that API key again for every request. When a key is removed, revoked or expires, the
//! connections it opened are closed; the same applies if another API key takes the public key over ([`claims`]).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use burrow_audit::{Action, Event, Outcome, Text};
use burrow_catalog::{CatalogError, KeyRow, SshKeyRow};
use burrow_client::ClientOptions;
use burrow_ssh::{Authenticator, CLAIM, Entry, Gateway, GatewayOptions, KeyFile};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::error::ServeError;
use crate::server::listen;
use burrow_config::SshConfig;
use burrow_http::app::App;
use burrow_http::within::{self, RecognisedClient, Sender};
use burrow_rest::ssh_link::Link;

/// The host key's file, in the state directory.
const HOST_KEY: &str = "ssh_host_ed25519_key";

/// Interval at which a connection's key is checked again without an event: keys also expire.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// Serves SSH until `stop`. `None` if it is turned off, or its default address is in use.
pub(crate) fn spawn(app: &Arc<App>, stop: CancellationToken) -> Result<Option<JoinHandle<()>>, ServeError> {
    let config = &app.config.ssh;
    let Some(listener) = open(config)? else { return Ok(None) };
    let path = app.config.state_dir.join(HOST_KEY);
    let host_key = KeyFile::open(&path).map_err(|source| ServeError::SshHostKey { source })?;
    let address = listener.local_addr().map_err(|source| listen_failed(config, source))?;
    tracing::info!(%address, host_key = host_key.fingerprint(), "serving SSH");
    let status = burrow_api::Ssh {
        address: Some(address.to_string()),
        host_key: Some(host_key.public()),
        host_fingerprint: Some(host_key.fingerprint()),
    };
    app.part::<Link>().listens(status);
    let options = GatewayOptions {
        connections: config.connections,
        half_open: config.half_open,
        half_open_per_address: config.half_open_per_address,
        login_time: config.login,
        tries: config.tries,
        idle: config.idle,
    };
    let authenticator = Arc::new(DaemonAuthenticator { app: app.clone(), api: crate::router::api(app) });
    Ok(Some(tokio::spawn(Gateway::new(authenticator, host_key, options, stop).run(listener))))
}

fn open(config: &SshConfig) -> Result<Option<TcpListener>, ServeError> {
    let Some(address) = config.listen else { return Ok(None) };
    match listen(address) {
        Ok(listener) => Ok(Some(listener)),
        Err(ServeError::Listen { source, .. })
            if source.kind() == io::ErrorKind::AddrInUse && !config.chosen =>
        {
            tracing::info!(%address, "the address is in use, so SSH is not served; choose another with `ssh.listen`");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn listen_failed(config: &SshConfig, source: io::Error) -> ServeError {
    let address = config.listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0)));
    ServeError::Listen { address, source }
}

#[derive(Debug)]
struct DaemonAuthenticator {
    app: Arc<App>,
    api: Router,
}

impl DaemonAuthenticator {
    async fn look_up(&self, fingerprint: &str) -> Result<Option<(SshKeyRow, KeyRow)>, CatalogError> {
        let found = self.app.engine.catalog().ssh_login(fingerprint, self.app.engine.now_ms()).await;
        if let Err(error) = &found {
            tracing::error!(error = error as &dyn std::error::Error, "could not look up an SSH key");
        }
        found
    }

    /// Gives a public key to the API key that claimed it, after a login proved possession.
    async fn take_over(&self, code: &str, fingerprint: &str) -> Option<()> {
        let now_ms = self.app.engine.now_ms();
        let row = self.app.part::<Link>().claims.prove(code, fingerprint, now_ms)?;
        let catalog = self.app.engine.catalog();
        catalog.usable_key(&row.api_key, now_ms)?;
        match catalog.take_over_ssh_key(row).await {
            Ok(row) => {
                tracing::info!(key = %row.id, fingerprint, "SSH key taken over by proof of possession");
                self.app.part::<Link>().key_taken_away();
                Some(())
            }
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "could not store a claimed SSH key"
                );
                None
            }
        }
    }

    /// Recorded before any command can run.
    async fn record(&self, key: &KeyRow, by: &str, name: &str, peer: SocketAddr) {
        let event = Event {
            actor: Some(Text::new(&format!("{} {} by {by}", key.id, key.name))),
            reason: Some(Text::new(&format!("as `{name}` from {peer}"))),
            ..Event::new(self.app.engine.now_ms(), key.tenant.clone(), Action::SshLogin, Outcome::Done)
        };
        self.app.audited(event).await;
    }
}

#[async_trait]
impl Authenticator for DaemonAuthenticator {
    async fn knows(&self, fingerprint: &str) -> bool {
        matches!(self.look_up(fingerprint).await, Ok(Some(_)))
    }

    async fn enter(&self, fingerprint: &str, name: &str, peer: SocketAddr) -> Option<Entry> {
        let mut name = name;
        if let Some(code) = name.strip_prefix(CLAIM) {
            self.take_over(code, fingerprint).await?;
            // The code is used up, and need not be recorded.
            name = CLAIM;
        }
        let (row, key) = self.look_up(fingerprint).await.ok()??;
        let by = format!("ssh {} {}", row.id, row.fingerprint);
        self.app.engine.catalog().note_ssh_login(fingerprint, self.app.engine.now_ms());
        self.record(&key, &by, name, peer).await;
        tracing::info!(key = %key.id, by, %peer, "SSH login");
        let recognised = RecognisedClient::Key { key: key.id, by: by.into() };
        let sender = Sender { recognised: Some(recognised), fence: None };
        let options = ClientOptions { url: "http://localhost".to_owned(), key: None, ca_file: None };
        let client = within::client(self.app.clone(), self.api.clone(), options, sender);
        Some(Entry { client: client.expect("the address is an address"), key: row.id.to_string() })
    }

    async fn shut(&self, fingerprint: &str, key: &str) {
        // Subscribed before the first check, so that no removal is missed.
        let mut taken_away = self.app.part::<Link>().removals();
        // If the lookup fails, the connection stays open.
        loop {
            match self.look_up(fingerprint).await {
                Ok(None) => return,
                // Another API key has taken it over.
                Ok(Some((row, _))) if row.id.as_str() != key => return,
                Ok(Some(_)) | Err(_) => {}
            }
            let _ = tokio::time::timeout(LOOK_AGAIN, taken_away.changed()).await;
        }
    }
}
