//! The SSH gateway's side in the daemon: who may log in, where it listens, its host key.
//!
//! A public key stands for the API key that added it. Whoever logs in by it gets a client of our own routes that is recognised
//! as that API key, with every request anew.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use axum::Router;
use burrow_client::{Client, ClientOptions};
use burrow_ssh::{Door, Gateway, GatewayOptions, KeyFile};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::config::SshConfig;
use crate::rest::within::{self, Recognised};
use crate::rest::{self, App};
use crate::wiring::{ServeError, listen};

/// The host key's file, in the state directory.
const HOST_KEY: &str = "ssh_host_ed25519_key";

/// What the API tells of the gateway.
#[derive(Debug, Default)]
pub(crate) struct Told(OnceLock<burrow_api::Ssh>);

impl Told {
    pub(crate) fn told(&self) -> burrow_api::Ssh {
        let off = burrow_api::Ssh { address: None, host_key: None, host_fingerprint: None };
        self.0.get().cloned().unwrap_or(off)
    }
}

/// Begins to serve SSH until `stop`. `None` where it is turned off, or its usual place is taken.
pub(crate) fn spawn(app: &Arc<App>, stop: CancellationToken) -> Result<Option<JoinHandle<()>>, ServeError> {
    let config = &app.config.ssh;
    let Some(listener) = open(config)? else { return Ok(None) };
    let path = app.config.state_dir.join(HOST_KEY);
    let host_key = KeyFile::open(&path).map_err(|source| ServeError::SshHostKey { source })?;
    let address = listener.local_addr().map_err(|source| unheard(config, source))?;
    tracing::info!(%address, host_key = host_key.fingerprint(), "serving SSH");
    let told = burrow_api::Ssh {
        address: Some(address.to_string()),
        host_key: Some(host_key.public()),
        host_fingerprint: Some(host_key.fingerprint()),
    };
    app.ssh.0.set(told).expect("the gateway is begun once");
    let options = GatewayOptions {
        connections: config.connections,
        half_open: config.half_open,
        half_open_per_address: config.half_open_per_address,
        login_time: config.login,
        tries: config.tries,
        idle: config.idle,
    };
    let door = Arc::new(OurDoor { app: app.clone(), api: rest::api(app) });
    Ok(Some(tokio::spawn(Gateway::new(door, host_key, options, stop).run(listener))))
}

fn open(config: &SshConfig) -> Result<Option<TcpListener>, ServeError> {
    let Some(address) = config.listen else { return Ok(None) };
    match listen(address) {
        Ok(listener) => Ok(Some(listener)),
        Err(ServeError::Listen { source, .. })
            if source.kind() == io::ErrorKind::AddrInUse && !config.chosen =>
        {
            tracing::info!(%address, "something else listens there: SSH is not served; `ssh.listen` chooses another");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn unheard(config: &SshConfig, source: io::Error) -> ServeError {
    let address = config.listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0)));
    ServeError::Listen { address, source }
}

#[derive(Debug)]
struct OurDoor {
    app: Arc<App>,
    api: Router,
}

impl OurDoor {
    async fn look_up(&self, fingerprint: &str) -> Option<Recognised> {
        let now_ms = self.app.engine.now_ms();
        match self.app.engine.catalog().ssh_login(fingerprint, now_ms).await {
            Ok(found) => found.map(|(row, key)| Recognised {
                key: key.id,
                by: format!("ssh {} {}", row.id, row.fingerprint).into(),
            }),
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "could not look an SSH key up");
                None
            }
        }
    }
}

#[async_trait]
impl Door for OurDoor {
    async fn knows(&self, fingerprint: &str) -> bool {
        self.look_up(fingerprint).await.is_some()
    }

    async fn enter(&self, fingerprint: &str) -> Option<Client> {
        let recognised = self.look_up(fingerprint).await?;
        self.app.engine.catalog().note_ssh_login(fingerprint, self.app.engine.now_ms());
        tracing::info!(key = %recognised.key, by = %recognised.by, "SSH login");
        let options = ClientOptions { url: "http://localhost".to_owned(), key: None, ca_file: None };
        let client = within::client(self.app.clone(), self.api.clone(), options, Some(recognised));
        Some(client.expect("the address is an address"))
    }
}
