//! The rows of the table about SSH: each request of a login, over a real connection to the gateway, with an unknown SSH key
//! and with SSH keys of each kind of API key.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use burrow_catalog::{KeyRow, NewKey, SshKeyRow};
use burrow_model::{Scope, SshKeyId};
use russh::ChannelMsg;
use russh::client::{self, Handle};
use russh::keys::{Algorithm, PrivateKey, PrivateKeyWithHashAlg, PublicKeyOrCertificate};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{Row, actions_after, table, verdict};
use crate::tests::world::World;
use burrow_rest::ssh_link::Link;

/// A channel that sends nothing for this long was admitted: it waits for something inside.
const SILENCE: Duration = Duration::from_secs(10);

/// Trusts every server.
struct TrustingClient;

impl client::Handler for TrustingClient {
    type Error = russh::Error;

    async fn check_server_key(&mut self, _: &PublicKeyOrCertificate) -> Result<bool, Self::Error> {
        Ok(true)
    }
}

/// An SSH key, and the API key that it belongs to.
struct SshUser {
    private: Arc<PrivateKey>,
    public: String,
    secret: String,
}

impl SshUser {
    fn without_access() -> Self {
        let private = PrivateKey::random(&mut russh::keys::key::safe_rng(), Algorithm::Ed25519).unwrap();
        let public = private.public_key().to_openssh().unwrap();
        Self { private: Arc::new(private), public, secret: String::new() }
    }

    /// The SSH key is inserted directly, because a read key cannot add one through the API.
    async fn with(world: &World, scope: Scope, sandbox: Option<&str>) -> Self {
        let catalog = world.app.engine.catalog();
        let new = NewKey {
            tenant: catalog.default_tenant(),
            name: "test".into(),
            scope,
            sandbox: sandbox.map(|id| id.parse().unwrap()),
            forks: false,
            parent: None,
            created_ms: 1,
            expires_ms: None,
        };
        let (key, secret) = catalog.create_key(new).await.unwrap();
        let person = Self { secret: secret.expose().to_owned(), ..Self::without_access() };
        catalog.insert_ssh_key(person.row(&key)).await.unwrap();
        person
    }

    fn row(&self, key: &KeyRow) -> SshKeyRow {
        let login = burrow_ssh::Login::parse(&self.public).unwrap();
        SshKeyRow {
            id: SshKeyId::generate(),
            tenant: key.tenant.clone(),
            api_key: key.id.clone(),
            name: "test".into(),
            public_key: login.key,
            fingerprint: login.fingerprint,
            created_ms: 1,
            last_used_ms: None,
        }
    }

    async fn login(&self, address: SocketAddr, name: &str) -> Option<Handle<TrustingClient>> {
        let config = Arc::new(client::Config::default());
        let mut handle = client::connect(config, address, TrustingClient).await.unwrap();
        let key = PrivateKeyWithHashAlg::new(self.private.clone(), None);
        let logged_in = handle.authenticate_publickey(name, key).await.unwrap();
        logged_in.success().then_some(handle)
    }

    /// The status that the same request would have over HTTP.
    async fn ask(&self, address: SocketAddr, name: &str, request: &str) -> u16 {
        let Some(handle) = self.login(address, name).await else { return 401 };
        if request == "direct-tcpip" {
            return match handle.channel_open_direct_tcpip("localhost", 8080, "127.0.0.1", 1).await {
                Ok(_) => 200,
                Err(_) => 403,
            };
        }
        let mut channel = handle.channel_open_session().await.unwrap();
        match request {
            "shell" | "menu" => channel.request_shell(true).await.unwrap(),
            "sftp" => channel.request_subsystem(true, "sftp").await.unwrap(),
            _ => channel.exec(true, "true").await.unwrap(),
        }
        let mut said = Vec::new();
        while let Ok(Some(message)) = tokio::time::timeout(SILENCE, channel.wait()).await {
            #[expect(clippy::wildcard_enum_match_arm, reason = "the list is the library's, and may grow")]
            match message {
                ChannelMsg::Data { data } | ChannelMsg::ExtendedData { data, .. } => {
                    said.extend_from_slice(&data)
                }
                ChannelMsg::Close => break,
                _ => {}
            }
        }
        let said = String::from_utf8_lossy(&said);
        if said.contains("this key has the scope") || said.contains("this key is bound") { 403 } else { 200 }
    }
}

/// The login that takes over a public key of another API key; or the status of the refusal.
async fn claim(world: &World, person: &SshUser, public: &str) -> Result<String, u16> {
    let body = json!({ "public_key": public }).to_string();
    let answer = world.send_json_as(&person.secret, "POST", "/v1/ssh/keys", body).await;
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    match text.split_once("claim+") {
        Some((_, rest)) => Ok(format!("claim+{}", rest.split('@').next().unwrap())),
        None => Err(answer.status.as_u16()),
    }
}

/// The status of a row's request by a person.
async fn status(world: &World, row: &Row, person: &SshUser, sandbox: &str, address: SocketAddr) -> u16 {
    match row.path {
        "claim" => {
            let owner = SshUser::with(world, Scope::Admin, None).await;
            match claim(world, person, &owner.public).await {
                // The private key that is used: the claimant's own.
                Ok(login) => owner.ask(address, &login, row.path).await,
                Err(status) => status,
            }
        }
        "new" => person.ask(address, "new", row.path).await,
        "menu" => person.ask(address, "no-such-sandbox", row.path).await,
        request => person.ask(address, sandbox, request).await,
    }
}

#[tokio::test]
async fn rights_and_audit_actions_over_ssh_match_the_table() {
    let world = World::with("ssh.listen = \"127.0.0.1:0\"").await;
    let stop = CancellationToken::new();
    let gateway = crate::ssh::spawn(&world.app, stop.clone()).unwrap().expect("SSH is served");
    let address: SocketAddr = world.app.part::<Link>().status().address.unwrap().parse().unwrap();
    let sandbox = world.sandbox("web").await;
    let [read, exec] =
        [SshUser::with(&world, Scope::Read, None).await, SshUser::with(&world, Scope::Exec, None).await];
    let bound = SshUser::with(&world, Scope::Exec, Some(&sandbox)).await;
    let without_access = SshUser::without_access();
    let mut wrong = Vec::new();
    for row in table().iter().filter(|row| row.surface == "ssh") {
        let mut got = Vec::new();
        for person in [&without_access, &read, &bound] {
            got.push(verdict(status(&world, row, person, &sandbox, address).await, ""));
        }
        let (_, before) = actions_after(&world, None).await;
        got.insert(2, verdict(status(&world, row, &exec, &sandbox, address).await, ""));
        let (actions, _) = actions_after(&world, before).await;
        if got != row.cells || !actions.contains(&row.audit) {
            wrong.push(format!("{}: {got:?} and {actions:?}, where the table has {row:?}", row.path));
        }
    }
    stop.cancel();
    gateway.await.unwrap();
    assert!(wrong.is_empty(), "{} rows are wrong:\n{}", wrong.len(), wrong.join("\n"));
}
