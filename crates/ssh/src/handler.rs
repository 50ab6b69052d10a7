//! The handler that the SSH library calls for each request of a connection.
//!
//! Requests are answered here at once and in order, as the protocol requires. The work is done by one task per channel
//! (`session_channel`), which receives the requests in the same order.

use std::collections::HashSet;
use std::sync::Arc;

use russh::keys::{HashAlg, PublicKey};
use russh::server::{Auth, ChannelOpenHandle, Handler, Msg, PublicKeyOffer, Session, VerifiedPublicKey};
use russh::{Channel, ChannelId, ChannelOpenFailure, Pty};

use crate::connection::Connection;
use crate::forward;
use crate::session_channel::{self, may_set};

/// The callbacks of the SSH library.
#[derive(Debug)]
pub(crate) struct ConnectionHandler {
    connection: Arc<Connection>,
    /// Channels on which something was started: a channel can start one thing only.
    started: HashSet<ChannelId>,
}

fn fingerprint(key: &PublicKey) -> String {
    key.fingerprint(HashAlg::Sha256).to_string()
}

impl ConnectionHandler {
    pub(crate) fn new(connection: Arc<Connection>) -> Self {
        Self { connection, started: HashSet::new() }
    }

    /// Accepts one start per channel.
    fn start(&mut self, id: ChannelId, session: &mut Session) -> Result<(), russh::Error> {
        if self.started.insert(id) { session.channel_success(id) } else { session.channel_failure(id) }
    }
}

impl Handler for ConnectionHandler {
    type Error = russh::Error;

    async fn auth_publickey_offered(
        &mut self,
        _: &str,
        offer: PublicKeyOffer<'_>,
    ) -> Result<Auth, russh::Error> {
        let known = self.connection.shared.authenticator.knows(&fingerprint(offer.public_key)).await;
        Ok(if known { Auth::Accept } else { Auth::reject() })
    }

    async fn auth_publickey(&mut self, user: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, russh::Error> {
        let fingerprint = fingerprint(key.public_key);
        let Some(entry) =
            self.connection.shared.authenticator.enter(&fingerprint, user, self.connection.peer).await
        else {
            return Ok(Auth::reject());
        };
        self.connection.log_in(user, fingerprint, entry);
        Ok(Auth::Accept)
    }

    async fn auth_succeeded(&mut self, _: &mut Session) -> Result<(), russh::Error> {
        self.connection.record_activity();
        self.connection.logged_in.cancel();
        Ok(())
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        let Ok(permit) = self.connection.channels.clone().try_acquire_owned() else {
            reply.reject(ChannelOpenFailure::ResourceShortage).await;
            return Ok(());
        };
        let (connection, handle) = (self.connection.clone(), session.handle());
        self.connection.shared.tasks.spawn(async move {
            let _permit = permit;
            session_channel::serve(connection, channel, handle).await;
        });
        reply.accept().await;
        Ok(())
    }

    async fn channel_open_direct_tcpip(
        &mut self,
        channel: Channel<Msg>,
        host: &str,
        port: u32,
        _: &str,
        _: u32,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        let Some(port) = forward::sandbox_port(host, port) else {
            reply.reject(ChannelOpenFailure::AdministrativelyProhibited).await;
            return Ok(());
        };
        let Ok(permit) = self.connection.channels.clone().try_acquire_owned() else {
            reply.reject(ChannelOpenFailure::ResourceShortage).await;
            return Ok(());
        };
        let connection = self.connection.clone();
        self.connection.shared.tasks.spawn(async move {
            let _permit = permit;
            forward::serve(&connection, channel, port, reply).await;
        });
        Ok(())
    }

    async fn channel_close(&mut self, id: ChannelId, _: &mut Session) -> Result<(), russh::Error> {
        self.started.remove(&id);
        Ok(())
    }

    async fn pty_request(
        &mut self,
        id: ChannelId,
        _: &str,
        _: u32,
        _: u32,
        _: u32,
        _: u32,
        _: &[(Pty, u32)],
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        session.channel_success(id)
    }

    async fn env_request(
        &mut self,
        id: ChannelId,
        name: &str,
        value: &str,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        if may_set(name, value) { session.channel_success(id) } else { session.channel_failure(id) }
    }

    async fn shell_request(&mut self, id: ChannelId, session: &mut Session) -> Result<(), russh::Error> {
        self.start(id, session)
    }

    async fn exec_request(
        &mut self,
        id: ChannelId,
        _: &[u8],
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        self.start(id, session)
    }

    async fn subsystem_request(
        &mut self,
        id: ChannelId,
        name: &str,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        if name == session_channel::SFTP { self.start(id, session) } else { session.channel_failure(id) }
    }

    async fn window_change_request(
        &mut self,
        id: ChannelId,
        _: u32,
        _: u32,
        _: u32,
        _: u32,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        session.channel_success(id)
    }

    async fn x11_request(
        &mut self,
        id: ChannelId,
        _: bool,
        _: &str,
        _: &str,
        _: u32,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        session.channel_failure(id)
    }

    async fn signal(&mut self, _: ChannelId, _: russh::Sig, _: &mut Session) -> Result<(), russh::Error> {
        self.connection.record_activity();
        Ok(())
    }
}
